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
const IDLE_LOOK_MS = 100;

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
  endUnusedConnections(api);
  endIdleConnections(api);
}

/**
 * Ends connections that become idle during the stop. Fastify ends those that are idle when it begins; one whose request ends
 * later would be kept for the next request until its keep-alive time is over, and the process with it.
 */
function endIdleConnections(api: Api): void {
  api.addHook('preClose', async () => {
    const timer = setInterval(() => api.server.closeIdleConnections(), IDLE_LOOK_MS);
    api.server.once('close', () => clearInterval(timer));
    if (!api.server.listening) clearInterval(timer);
  });
}

/**
 * Ends, when the server closes, connections that have not asked for anything yet; clients open such ahead. Node does not
 * count them as idle, and a stop would wait a minute for them.
 */
function endUnusedConnections(api: Api): void {
  const unused = new Set<Socket>();
  api.server.on('connection', (socket) => {
    unused.add(socket);
    socket.once('close', () => unused.delete(socket));
  });
  api.server.on('request', ({ socket }) => unused.delete(socket));
  api.addHook('preClose', async () => {
    for (const socket of unused) socket.destroy();
  });
}
