/**
 * The HTTP connections of one process: how many there may be, which one is closed to make room for a new one, how long a client
 * may leave a response unread, and how connections end when the server stops.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Clock } from '../../core/clock.ts';
import type { Api, ApiOptions } from '../context.ts';
import { isBodyAwaited } from './body-limit.ts';

/**
 * An idle connection takes some 20 KB and a file descriptor, and common systems give a process 4,096 or more descriptors. A
 * load balancer or proxy in front shares some hundred connections among all clients.
 */
export const CONNECTIONS_MAX = 2_048;
/** Connections above the maximum that one turn of the event loop may accept before others are closed: the kernel's usual backlog. */
const BURST_MAX = 512;
/** A connection this young may still be sending its first request, so it is closed last, */
const NEW_MS_MAX = 1_000;
/** unless its network has more connections than this. A load balancer's are busy, or idle for longer. */
const NEW_PER_ADDRESS_MAX = 64;
/** A client that takes longer to send a body or to read a response may be closed for a new one. */
const SLOW_MS_MIN = 5_000;
/** How long the client may read nothing of a response. One that reads at any speed is cut off only for its memory. */
const UNREAD_MS_MAX = 30_000;
/** Requests that a client may send without waiting for responses. Each response could be left unread in memory. */
const PIPELINED_MAX = 32;
/** The minimum time between two log lines about refused connections. */
const LOG_MS = 60_000;
/** How long a stop waits for requests under way: as long as for delivery attempts. */
const STOP_MS_MAX = 10_000;

type Connection = {
  readonly socket: Socket;
  readonly network: string;
  /** Its requests under way. */
  open: number;
  /** The time from which it is idle, or from which it has had requests under way. */
  sinceMs: number;
  /** Its newest request. */
  request: IncomingMessage | undefined;
};

type LimitOptions = Pick<ApiOptions, 'clock' | 'log'> & { connectionsMax?: number };

export function limitConnections(api: Api, options: LimitOptions): void {
  const { server } = api;
  const { clock, connectionsMax = CONNECTIONS_MAX } = options;
  const connections = createConnections(clock);
  const logDrop = createDropLog(options, connectionsMax);
  let isClosing = false;

  server.maxConnections = connectionsMax + BURST_MAX;
  server.on('drop', logDrop);
  server.on('connection', (socket) => {
    if (isClosing) {
      socket.destroy();
      return;
    }
    const newest = connections.add(socket);
    if (connections.count() <= connectionsMax) return;
    const closed = connections.findWeakest(newest) ?? newest;
    if (closed === newest) logDrop();
    // The server itself counts the connection until the end of this turn of the event loop.
    connections.forget(closed);
    closed.socket.destroy();
  });

  const handlers = server.listeners('request');
  server.removeAllListeners('request');
  server.on('request', (request, response) => {
    const one = connections.get(request.socket);
    // The parser reads on to the end of what was received, even after the connection has ended.
    if (one === undefined || request.socket.destroyed) return;
    if (one.open >= PIPELINED_MAX) {
      request.socket.destroy();
      return;
    }
    if (one.open === 0) one.sinceMs = clock.steadyMs();
    one.open += 1;
    one.request = request;
    response.once('close', () => {
      one.open -= 1;
      if (one.open > 0) return;
      one.sinceMs = clock.steadyMs();
      one.request = undefined;
      // Sends the rest of the response first.
      if (isClosing) one.socket.destroySoon();
    });
    for (const handle of handlers) Reflect.apply(handle, server, [request, response]);
  });

  // Node restarts this timeout whenever the kernel takes a part of the response.
  server.setTimeout(UNREAD_MS_MAX, (socket) => {
    const isBusy = (connections.get(socket)?.open ?? 0) > 0;
    if (!isBusy || socket.writableLength > 0) socket.destroy();
  });

  /*
   * On a stop, each connection ends once it has no request under way, and all of them after STOP_MS_MAX. Node's own close ends
   * only connections that are idle at that moment, even those whose response is still being sent. It waits for the keep-alive
   * timeout of a connection whose response ends later, for a connection that has sent nothing or half a request, and forever
   * for a client that doesn't read.
   */
  server.closeIdleConnections = () => {};
  api.addHook('preClose', async () => {
    isClosing = true;
    for (const { socket, open } of connections.all()) if (open === 0) socket.destroy();
    const timer = setTimeout(() => {
      for (const { socket } of connections.all()) socket.destroy();
    }, STOP_MS_MAX);
    server.once('close', () => clearTimeout(timer));
    if (!server.listening) clearTimeout(timer);
  });
}

/** The open connections, counted for each network, and which of them to close first. */
function createConnections(clock: Clock) {
  const connections = new Map<Socket, Connection>();
  const counts = new Map<string, number>();

  /** The lowest rank is closed first. Undefined is never closed. */
  function rankOf({ socket, network, open, sinceMs, request }: Connection): number | undefined {
    const ms = clock.steadyMs() - sinceMs;
    if (open === 0) return ms < NEW_MS_MAX && (counts.get(network) ?? 0) <= NEW_PER_ADDRESS_MAX ? 2 : 0;
    const isSlow = socket.writableLength > 0 || (request !== undefined && isBodyAwaited(request));
    return isSlow && ms >= SLOW_MS_MIN ? 1 : undefined;
  }

  function forget({ socket, network }: Connection): void {
    if (!connections.delete(socket)) return;
    const left = (counts.get(network) ?? 1) - 1;
    if (left === 0) counts.delete(network);
    else counts.set(network, left);
  }

  return {
    forget,
    get: (socket: Socket) => connections.get(socket),
    all: () => connections.values(),
    count: () => connections.size,
    add(socket: Socket): Connection {
      const network = networkOf(socket.remoteAddress ?? '');
      const one: Connection = { socket, network, open: 0, sinceMs: clock.steadyMs(), request: undefined };
      connections.set(socket, one);
      counts.set(network, (counts.get(network) ?? 0) + 1);
      socket.once('close', () => forget(one));
      return one;
    },
    /** The connection to close: the lowest rank, then the network with the most connections, then the oldest. */
    findWeakest(except: Connection): Connection | undefined {
      let weakest: { one: Connection; rank: number; count: number } | undefined;
      for (const one of connections.values()) {
        const rank = rankOf(one);
        if (rank === undefined || one === except) continue;
        const count = counts.get(one.network) ?? 0;
        if (weakest !== undefined && rank > weakest.rank) continue;
        if (weakest?.rank === rank && count < weakest.count) continue;
        const isOlder = weakest === undefined || one.sinceMs < weakest.one.sinceMs;
        if (weakest?.rank !== rank || weakest.count !== count || isOlder) weakest = { one, rank, count };
      }
      return weakest?.one;
    },
  };
}

/** Logs refused connections at most once in LOG_MS, with their number. */
function createDropLog({ clock, log }: LimitOptions, connectionsMax: number): () => void {
  let droppedCount = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;
  return () => {
    droppedCount += 1;
    if (clock.steadyMs() - loggedMs < LOG_MS) return;
    loggedMs = clock.steadyMs();
    log.warn({ connectionsMax, droppedCount }, 'http.connections_refused');
    droppedCount = 0;
  };
}

/** The address. Of IPv6 its first 64 bits, because one client may have all addresses that share them. */
function networkOf(address: string): string {
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString();
}
