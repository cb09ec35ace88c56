/**
 * Time limits of request bodies on every route, also where nothing reads them. Node's own limit knows no routes, and goes by
 * the longest stream.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { Api } from '../context.ts';

const BODY_MS_MAX = 30_000;
const TIMEOUT = `Request Timeout: the body did not come within ${BODY_MS_MAX / 1000} s`;
/** How long a client that is still sending has to read an answer that came early. */
const LINGER_MS_MAX = 5_000;

const limits = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/**
 * From the headers on, a body has BODY_MS_MAX, and is answered with 408 if it is not whole by then; after an answer that came
 * before its end, LINGER_MS_MAX.
 */
export function limitBodies(api: Api): void {
  const lingering = new Set<Socket>();
  api.addHook('onRequest', (request, reply, done) => {
    if (hasBody(request)) {
      startLimit(request.raw, answerLate);
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

/** For a route with separate limits for its body; once the caller is known. */
export function liftBodyLimit({ raw }: FastifyRequest): void {
  clearTimeout(limits.get(raw));
  limits.delete(raw);
}

/** Gives the body its whole time from now on, after a wait in which nothing read it. */
export function restartBodyLimit(request: FastifyRequest): void {
  if (!hasBody(request) || request.raw.complete) return;
  liftBodyLimit(request);
  startLimit(request.raw, answerLate);
}

/** Whether the rest of the body has still to come, within its time. */
export const isBodyAwaited = (raw: IncomingMessage): boolean => limits.has(raw) && !raw.complete;

/** Reads what is left of a body after its answer, because some clients read only when they have sent everything. */
export function readRest({ raw }: FastifyRequest): void {
  if (raw.complete) return;
  startLimit(raw, cutOff);
  raw.resume();
}

const hasBody = ({ headers }: Pick<FastifyRequest, 'headers'>) =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';

const cutOff = (raw: IncomingMessage) => raw.socket.destroy();

/** The reader of a body answers its error. Where none reads it, the answer doesn't depend on the body. */
function answerLate(raw: IncomingMessage): void {
  const error = Object.assign(new Error(TIMEOUT), { statusCode: 408 });
  if (raw.listenerCount('data') === 0 || !raw.emit('error', error)) cutOff(raw);
}

function startLimit(raw: IncomingMessage, endLate: (raw: IncomingMessage) => void): void {
  const timer = setTimeout(() => {
    if (raw.complete === false) endLate(raw);
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
