/**
 * The connections of one process: how many there may be, and their end with the server.
 */
import type { Socket } from 'node:net';
import type { Api, ApiOptions } from './server.ts';

/**
 * Each takes some 20 KB while it is idle, and a file descriptor, of which common systems give a process 4,096 or more. A
 * balancer or proxy in front shares some hundred among all clients.
 */
export const CONNECTIONS_MAX = 2_048;
/** How often it is logged that connections are refused. */
const LOG_MS = 60_000;
/** How long requests under way hold up a stop: as long as attempts do. */
const STOP_MS_MAX = 10_000;

export function limitConnections(api: Api, { clock, log }: Pick<ApiOptions, 'clock' | 'log'>): void {
  api.server.maxConnections = CONNECTIONS_MAX;
  let droppedCount = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;
  api.server.on('drop', () => {
    droppedCount += 1;
    if (clock.steadyMs() - loggedMs < LOG_MS) return;
    loggedMs = clock.steadyMs();
    log.warn({ connectionsMax: CONNECTIONS_MAX, droppedCount }, 'http.connections_refused');
    droppedCount = 0;
  });
  endConnections(api);
}

/**
 * Ends connections during a stop: each as soon as no request of it is under way, and all of them after STOP_MS_MAX. Node ends
 * only those that are idle when the server closes, even if their answer is still going out. It would wait for the keep-alive
 * time of a connection whose answer ends later and whose client doesn't use it again, for one that has sent nothing or only
 * the beginning of a request, and without an end for a client that doesn't read.
 */
function endConnections(api: Api): void {
  /** How many requests of each connection are under way. */
  const open = new Map<Socket, number>();
  let isClosing = false;
  const count = (socket: Socket, change: 1 | -1) => {
    const left = (open.get(socket) ?? 0) + change;
    if (open.has(socket)) open.set(socket, left);
    // Answers that are still going out are finished.
    if (isClosing && left === 0) socket.destroySoon();
  };
  api.server.closeIdleConnections = () => {};
  api.server.on('connection', (socket) => {
    if (isClosing) {
      socket.destroy();
      return;
    }
    open.set(socket, 0);
    socket.once('close', () => open.delete(socket));
  });
  api.server.on('request', ({ socket }, response) => {
    count(socket, 1);
    response.once('close', () => count(socket, -1));
  });
  api.addHook('preClose', async () => {
    isClosing = true;
    for (const [socket, left] of open) if (left === 0) socket.destroy();
    const timer = setTimeout(() => {
      for (const socket of open.keys()) socket.destroy();
    }, STOP_MS_MAX);
    api.server.once('close', () => clearTimeout(timer));
    if (!api.server.listening) clearTimeout(timer);
  });
}
