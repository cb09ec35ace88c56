/**
 * Time limits of request bodies on every route, also where nothing reads them. Node's own limit knows no routes, and goes by
 * the longest stream.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { Api } from './server.ts';

const BODY_MS_MAX = 30_000;
/** How long a client that is still sending has to read an answer that came early. */
const LINGER_MS_MAX = 5_000;

const limits = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/** From the headers on, a body has BODY_MS_MAX; after an answer that came before its end, LINGER_MS_MAX. */
export function limitBodies(api: Api): void {
  const lingering = new Set<Socket>();
  api.addHook('onRequest', (request, reply, done) => {
    if (hasBody(request)) {
      startLimit(request.raw);
      // From then on the connection lingers, or serves the next request.
      reply.raw.once('finish', () => clearTimeout(limits.get(request.raw)));
    }
    done();
  });
  api.addHook('onSend', ({ raw, headers }, reply, payload, done) => {
    const isEarly = hasBody({ headers }) && raw.complete === false;
    if (isEarly && (limits.has(raw) || reply.statusCode >= 400)) {
      reply.header('connection', 'close');
      linger(raw.socket, lingering);
    }
    done(null, payload);
  });
  api.addHook('preClose', async () => {
    for (const socket of lingering) socket.destroy();
  });
}

/** For a route whose body has limits of its own; once the caller is known. */
export function liftBodyLimit({ raw }: FastifyRequest): void {
  clearTimeout(limits.get(raw));
  limits.delete(raw);
}

/** Reads what is left of a body after its answer, because some clients read only when they have sent everything. */
export function readRest({ raw }: FastifyRequest): void {
  if (raw.complete) return;
  startLimit(raw);
  raw.resume();
}

const hasBody = ({ headers }: Pick<FastifyRequest, 'headers'>) =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';

function startLimit(raw: IncomingMessage): void {
  const timer = setTimeout(() => {
    if (raw.complete === false) raw.socket.destroy();
  }, BODY_MS_MAX);
  limits.set(raw, timer);
  const end = () => clearTimeout(timer);
  raw.once('end', end).once('close', end);
}

/**
 * Half-closes the connection after the answer, where Node would destroy it: bytes that come after that make the kernel send a
 * reset, and the client loses an answer that it has not read yet (RFC 9112, section 9.6).
 */
function linger(socket: Socket, lingering: Set<Socket>): void {
  socket.destroySoon = () => {
    socket.end();
    lingering.add(socket);
    const timer = setTimeout(() => socket.destroy(), LINGER_MS_MAX);
    socket.once('close', () => {
      clearTimeout(timer);
      lingering.delete(socket);
    });
  };
}
