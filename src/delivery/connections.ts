/**
 * Keep-alive connections to receivers: a bounded number for each origin, and a bounded number of idle ones. Undici's pools don't
 * tell whether a request was sent on a reused connection, and that decides whether a reset counts as the receiver's failure.
 */
import type { Socket } from 'node:net';
import { callbackify } from 'node:util';
import { Client } from 'undici';
import type { Clock } from '../core/clock.ts';
import type { Guard, Target } from './guard.ts';

/** One slot of an origin: a client that connects when it has a request and no open connection. */
export type Connection = {
  readonly client: Client;
  readonly origin: string;
  /** How often it has connected; a request on a reused connection doesn't change it. */
  connectCount(): number;
  /** Call it when the headers of a response have come, and with `false` when the response has ended. */
  setHasHeaders(hasHeaders: boolean): void;
};

export type Connections = {
  /** A connection to the origin, an idle one if possible; waits while all slots are taken. */
  acquire(origin: string, signal: AbortSignal): Promise<Connection>;
  /** Gives the slot back. A `reusable` connection is kept for the next request; a `spent` or old one is closed. */
  release(connection: Connection, state: 'reusable' | 'spent'): void;
  /** Ends all connections. */
  close(): Promise<void>;
};

/** Shorter than the 5 s after which common servers (Node's among them) close an idle connection. */
const IDLE_MS_MAX = 4000;
/** A busy receiver's connections never idle, so those to an old address would outlive a change of its DNS. */
const AGE_MS_MAX = 60_000;
const RESPONSE_HEADER_BYTES_MAX = 16_384;
/**
 * Everything before the body of a response. Undici counts only names and values of headers, so a reason phrase, interim responses or
 * empty lines without end would keep the thread busy for as long as an attempt lasts.
 */
const HEAD_BYTES_MAX = 65_536;

type Slots = { taken: number; idle: Pooled[]; waiting: Set<() => void> };
type Pooled = Connection & { ageMs(): number; end(): Promise<void> };

type ConnectionOptions = {
  /** Connections to each origin, with one request at a time. */
  perOrigin: number;
  /** Idle connections to all origins; beyond that the one that has been idle longest is closed. */
  idle: number;
  clock: Pick<Clock, 'steadyMs'>;
};

/** Connections through the guard. */
export function createConnections(guard: Guard, limits: ConnectionOptions): Connections {
  const origins = new Map<string, Slots>();
  const open = new Map<Connection, Pooled>();
  /** In the order in which they became idle, the oldest first. */
  const idle = new Set<Pooled>();

  const slotsOf = (origin: string): Slots => {
    const slots = origins.get(origin) ?? { taken: 0, idle: [], waiting: new Set() };
    origins.set(origin, slots);
    return slots;
  };
  const forgetIfUnused = (origin: string, { taken, idle, waiting }: Slots): void => {
    if (taken === 0 && idle.length === 0 && waiting.size === 0) origins.delete(origin);
  };
  const start = (origin: string): Pooled => {
    // Undici reports connections in use too. Their request fails by itself, and they are released as spent.
    const connection = openConnection(guard, {
      origin,
      clock: limits.clock,
      onDisconnect: () => endIdle(connection),
    });
    open.set(connection, connection);
    return connection;
  };
  const endIdle = (connection: Pooled): void => {
    const slots = slotsOf(connection.origin);
    if (idle.delete(connection)) {
      slots.idle.splice(slots.idle.indexOf(connection), 1);
      end(connection);
    }
    forgetIfUnused(connection.origin, slots);
  };
  const keep = (connection: Pooled): void => {
    slotsOf(connection.origin).idle.push(connection);
    idle.add(connection);
    const [oldest] = idle;
    if (idle.size > limits.idle && oldest !== undefined) endIdle(oldest);
  };
  const end = (connection: Connection): void => {
    const pooled = open.get(connection);
    open.delete(connection);
    // Only sockets are closed here; if that fails, no caller is left to report it to.
    pooled?.end().catch(() => undefined);
  };

  return {
    async acquire(origin, signal) {
      const slots = slotsOf(origin);
      if (slots.taken < limits.perOrigin) slots.taken += 1;
      else await turn(slots.waiting, signal);
      // The most recently used one is the least likely to have been closed by the receiver.
      const used = slots.idle.pop();
      if (used !== undefined) idle.delete(used);
      return used ?? start(origin);
    },
    release(connection, state) {
      const slots = slotsOf(connection.origin);
      const pooled = open.get(connection);
      const isKept =
        state === 'reusable' && pooled?.client.destroyed === false && pooled.ageMs() < AGE_MS_MAX;
      if (isKept) keep(pooled);
      else end(connection);
      const [next] = slots.waiting;
      if (next === undefined) slots.taken -= 1;
      else next();
      forgetIfUnused(connection.origin, slots);
    },
    async close() {
      const all = [...open.values()];
      open.clear();
      idle.clear();
      origins.clear();
      await Promise.all(all.map((connection) => connection.end()));
    },
  };
}

type Opening = { origin: string; clock: Pick<Clock, 'steadyMs'>; onDisconnect(): void };

function openConnection(guard: Guard, { origin, clock, onDisconnect }: Opening): Pooled {
  const ended = new AbortController();
  let connectCount = 0;
  let openedMs = clock.steadyMs();
  let head: Head | undefined;
  let socket: Socket | undefined;
  const connect = callbackify((target: Target) => guard(target, ended.signal));
  const client = new Client(origin, {
    connect: (target, callback) => {
      connectCount += 1;
      openedMs = clock.steadyMs();
      connect(target, (error, opened) => {
        if (error !== null) return callback(error, null);
        socket = opened;
        callback(null, opened);
      });
    },
    pipelining: 1,
    // Each notification has a separate connection for the time of its request: no stream can stall another.
    allowH2: false,
    keepAliveTimeout: IDLE_MS_MAX,
    keepAliveMaxTimeout: IDLE_MS_MAX,
    maxHeaderSize: RESPONSE_HEADER_BYTES_MAX,
    // Undici's timers restart with each byte, so the sender keeps the deadline of an attempt.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  // Undici listens to the socket already, so it has read the headers before their size is checked.
  client.on('connect', () => {
    head = socket && boundHead(socket);
  });
  client.on('disconnect', onDisconnect);
  return {
    client,
    origin,
    connectCount: () => connectCount,
    ageMs: () => clock.steadyMs() - openedMs,
    setHasHeaders: (hasHeaders) => head?.setHasHeaders(hasHeaders),
    end() {
      ended.abort();
      return client.destroy();
    },
  };
}

type Head = Pick<Connection, 'setHasHeaders'>;

/** Destroys the socket when more than HEAD_BYTES_MAX come without the headers of a response, also while it is idle. */
function boundHead(socket: Socket): Head {
  let hasHeaders = false;
  let fromBytes = 0;
  socket.on('readable', () => {
    if (hasHeaders || socket.bytesRead - fromBytes <= HEAD_BYTES_MAX) return;
    socket.destroy(new Error('too many bytes before the end of the response headers'));
  });
  return {
    setHasHeaders(has) {
      hasHeaders = has;
      fromBytes = socket.bytesRead;
    },
  };
}

/** Waits until a release hands over its slot by calling the function put into the set; rejects when the signal aborts first. */
async function turn(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve } = Promise.withResolvers<'handed over' | 'aborted'>();
  const leaveWith = (outcome: 'handed over' | 'aborted'): void => {
    waiting.delete(proceed);
    signal.removeEventListener('abort', abort);
    resolve(outcome);
  };
  const proceed = (): void => leaveWith('handed over');
  const abort = (): void => leaveWith('aborted');
  waiting.add(proceed);
  signal.addEventListener('abort', abort);
  if ((await promise) === 'aborted') throw signal.reason;
}
