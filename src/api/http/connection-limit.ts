/**
 * The connections of one process: how many there may be, which of them give way when there are more, how long one may hold an
 * answer that its client doesn't read, and their end with the server.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Api, ApiOptions } from '../context.ts';
import { isBodyAwaited } from './body-limit.ts';

/**
 * Each takes some 20 KB while it is idle, and a file descriptor, of which common systems give a process 4,096 or more. A
 * balancer or proxy in front shares some hundred among all clients.
 */
export const CONNECTIONS_MAX = 2_048;
/** What one turn of the event loop may accept beyond that, before those that give way are closed: the kernel's usual backlog. */
const BURST_MAX = 512;
/** A client that has just connected may still be sending its first request, */
const NEW_MS_MAX = 1_000;
/** unless its address has so many connections. A balancer's are busy or idle for longer. */
const NEW_PER_ADDRESS_MAX = 64;
/** A client that sends a body or reads an answer for longer gives way to a new one. */
const SLOW_MS_MIN = 5_000;
/** So long may an unread answer stand still. A client that reads at any speed is not cut off. */
const UNREAD_MS_MAX = 30_000;
/** A client that sends more requests without waiting for answers has each answered at once, and could hold them all unread. */
const PIPELINED_MAX = 32;
/** How often it is logged that connections are refused. */
const LOG_MS = 60_000;
/** How long requests under way hold up a stop: as long as attempts do. */
const STOP_MS_MAX = 10_000;

type Connection = {
  readonly socket: Socket;
  readonly network: string;
  /** How many of its requests are under way. */
  open: number;
  /** Since when it has been idle, or since when its oldest unfinished requests are under way. */
  sinceMs: number;
  /** The request that came last. */
  request: IncomingMessage | undefined;
};

export function limitConnections(
  api: Api,
  {
    clock,
    log,
    connectionsMax = CONNECTIONS_MAX,
  }: Pick<ApiOptions, 'clock' | 'log'> & { connectionsMax?: number },
): void {
  const { server } = api;
  const connections = new Map<Socket, Connection>();
  /** Connections of each network. */
  const counts = new Map<string, number>();
  let isClosing = false;
  let droppedCount = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;

  const noteDrop = () => {
    droppedCount += 1;
    if (clock.steadyMs() - loggedMs < LOG_MS) return;
    loggedMs = clock.steadyMs();
    log.warn({ connectionsMax, droppedCount }, 'http.connections_refused');
    droppedCount = 0;
  };
  const forget = ({ socket, network }: Connection) => {
    if (!connections.delete(socket)) return;
    const left = (counts.get(network) ?? 1) - 1;
    if (left === 0) counts.delete(network);
    else counts.set(network, left);
  };

  /** Lower gives way first; undefined never does. */
  function rankOf({ socket, network, open, sinceMs, request }: Connection): number | undefined {
    const ms = clock.steadyMs() - sinceMs;
    if (open === 0) return ms < NEW_MS_MAX && (counts.get(network) ?? 0) <= NEW_PER_ADDRESS_MAX ? 2 : 0;
    const isSlow = socket.writableLength > 0 || (request !== undefined && isBodyAwaited(request));
    return isSlow && ms >= SLOW_MS_MIN ? 1 : undefined;
  }

  /** Of those of the lowest rank the oldest one of the network with the most connections. */
  function findWeakest(except: Connection): Connection | undefined {
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
  }

  function makeRoomFor(newest: Connection): void {
    const weakest = findWeakest(newest) ?? newest;
    if (weakest === newest) noteDrop();
    // It still counts for the server until the end of this turn.
    forget(weakest);
    weakest.socket.destroy();
  }

  server.maxConnections = connectionsMax + BURST_MAX;
  server.on('drop', noteDrop);
  server.on('connection', (socket) => {
    if (isClosing) {
      socket.destroy();
      return;
    }
    const network = networkOf(socket.remoteAddress ?? '');
    const one: Connection = { socket, network, open: 0, sinceMs: clock.steadyMs(), request: undefined };
    connections.set(socket, one);
    counts.set(network, (counts.get(network) ?? 0) + 1);
    socket.once('close', () => forget(one));
    if (connections.size > connectionsMax) makeRoomFor(one);
  });

  const handlers = server.listeners('request');
  server.removeAllListeners('request');
  server.on('request', (request, response) => {
    const one = connections.get(request.socket);
    // The parser goes on to the end of what was received, also after the end of the connection.
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
      // Answers that are still going out are finished.
      if (isClosing) one.socket.destroySoon();
    });
    for (const handle of handlers) Reflect.apply(handle, server, [request, response]);
  });

  // Node resets this time whenever the kernel takes a part of the answer.
  server.setTimeout(UNREAD_MS_MAX, (socket) => {
    const isBusy = (connections.get(socket)?.open ?? 0) > 0;
    if (!isBusy || socket.writableLength > 0) socket.destroy();
  });

  /*
   * The end during a stop: each as soon as no request of it is under way, and all of them after STOP_MS_MAX. Node ends only
   * those that are idle when the server closes, even if their answer is still going out. It would wait for the keep-alive
   * time of a connection whose answer ends later and whose client doesn't use it again, for one that has sent nothing or only
   * the beginning of a request, and without an end for a client that doesn't read.
   */
  server.closeIdleConnections = () => {};
  api.addHook('preClose', async () => {
    isClosing = true;
    for (const { socket, open } of connections.values()) if (open === 0) socket.destroy();
    const timer = setTimeout(() => {
      for (const socket of connections.keys()) socket.destroy();
    }, STOP_MS_MAX);
    server.once('close', () => clearTimeout(timer));
    if (!server.listening) clearTimeout(timer);
  });
}

/** The address, of IPv6 the first half: one client may have all that share it. */
function networkOf(address: string): string {
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString();
}
