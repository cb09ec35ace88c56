/**
 * Time limits for request bodies on every route, including bodies that the route doesn't read. Node's own limit is one for
 * all routes, so it has to allow the longest stream.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { Api } from '../context.ts';

const BODY_MS_MAX = 30_000;
const TIMEOUT = `Request Timeout: the body did not arrive within ${BODY_MS_MAX / 1000} s`;
/** How long a client that is still sending has to read a response that was sent early. */
const LINGER_MS_MAX = 5_000;

const limits = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/**
 * A body must arrive within BODY_MS_MAX after the headers, or the response is 408. After a response that was sent before the
 * end of the body, the client has LINGER_MS_MAX more.
 */
export function limitBodies(api: Api): void {
  const lingering = new Set<Socket>();
  // By default, versions of Node drop each header after the thousandth, such as a `content-length` whose body they still read.
  api.server.maxHeadersCount = 0;
  api.addHook('onRequest', (request, reply, done) => {
    if (hasBody(request)) {
      startLimit(request.raw, answerLate);
      // After that the connection lingers or serves the next request.
      reply.raw.once('finish', () => clearTimeout(limits.get(request.raw)));
    }
    // Some clients send a content type with every request. Fastify would refuse it, although there is no content.
    else if (request.method === 'DELETE') delete request.raw.headers['content-type'];
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

/** Ends the time limit, for a route that has its own. Call it once the caller is authenticated. */
export function liftBodyLimit({ raw }: FastifyRequest): void {
  clearTimeout(limits.get(raw));
  limits.delete(raw);
}

/** Restarts the time limit after a wait in which the body was not read. */
export function restartBodyLimit(request: FastifyRequest): void {
  if (!hasBody(request) || request.raw.complete) return;
  liftBodyLimit(request);
  startLimit(request.raw, answerLate);
}

/** Whether the rest of the body is still awaited within its time limit. */
export const isBodyAwaited = (raw: IncomingMessage): boolean => limits.has(raw) && !raw.complete;

/** Reads the rest of a body after the response, because some clients read only after they have sent everything. */
export function readRest({ raw }: FastifyRequest): void {
  if (raw.complete) return;
  startLimit(raw, cutOff);
  raw.resume();
}

const hasBody = ({ headers }: Pick<FastifyRequest, 'headers'>) =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';

const cutOff = (raw: IncomingMessage) => raw.socket.destroy();

/** The route that reads the body turns this error into a response. Without a reader, the response is already under way. */
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
 * Half-closes the connection after the response, where Node would destroy it. Bytes that arrive at a destroyed socket make the
 * kernel send a reset, and the client loses a response that it has not read yet (RFC 9112, section 9.6).
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
