/**
 * Finds connections that no longer lead anywhere although the server runs, as when a firewall on the way has forgotten them. A time limit
 * for each statement would not do: one that is long enough for slow statements keeps a worker's lanes without renewal for too long.
 */
import type { Socket } from 'node:net';
import type pg from 'pg';
import { machineSteadyMs } from '../../core/clock.ts';

/** A process of the server `server`. Its id may be used again, but not with the same start. */
type Backend = { server: string; pid: number; started: string };

export type SilentConnections = {
  /** Watches a new connection from now on, if it may know its process. `msMax`: how long the answer may take. */
  watch(client: pg.ClientBase, socket: Socket, msMax: number): Promise<void>;
  /** Waits for an answer. @throws the driver's error, also after the server did nothing for it and sent none */
  answer<T>(client: pg.ClientBase, asked: Promise<T>): Promise<T>;
  /** Asks the server about connections whose answers are late, and ends those for which it does nothing. Call it every second. */
  check(ask: Ask): Promise<void>;
};

type Ask = (text: string, values: unknown[]) => Promise<{ rows: unknown[] }>;

/** After this wait the server is asked what it does for the connection, again and again. */
const WAIT_MS = 4_000;
/** Several sessions may check. */
const CHECK_MS_MIN = 900;
/** How often in a row it must do nothing: the first time, its answer may be under way. */
const IDLE_COUNT = 2;

type Wait = { fromMs: number; idleCount: number; bytesRead: number; hasEnded: boolean };
type Watched = { backend: Backend; socket: Socket };

const LOST =
  'Connection terminated: the server runs, but has no statement of this connection. The statement or its answer was lost on the way';

/** The server by its start, because several may share an address. */
const SERVER = 'extract(epoch from pg_postmaster_start_time())::text';
const startOf = (alias: string) => `extract(epoch from ${alias}.backend_start)::text`;

/**
 * The server shows the state of a process to the role that logged in, and hides it from another one that this acts as (`alter role … set
 * role`). So this statement, and only this one, runs as the login.
 */
const stateOf = (pid: string) =>
  `pg_stat_get_activity(case set_config('role', 'none', true) when 'none' then ${pid} end)`;

/** A pooler in session mode tells its clients other process ids than the server's. */
const OWN_BACKEND = `
  select ${SERVER} as server, a.pid, ${startOf('a')} as started from ${stateOf('pg_backend_pid()')} a`;

/** For each process, whether it has ended or does nothing. What a role may not see is null. */
const ARE_IDLE = `
  select ${SERVER} as server, a.pid is null or ${startOf('a')} <> b.started or a.state like 'idle%' as is_idle
  from unnest($1::int[], $2::text[]) with ordinality as b (pid, started, position)
  left join lateral ${stateOf('b.pid')} a on true
  order by b.position`;

export function createSilentConnections(): SilentConnections {
  const watched = new WeakMap<pg.ClientBase, Watched>();
  const waits = new Map<pg.ClientBase, Wait>();
  let checkedMs = Number.NEGATIVE_INFINITY;

  return {
    async watch(client, socket, msMax) {
      const backend = await readBackend(client, msMax);
      if (backend !== undefined) watched.set(client, { backend, socket });
    },
    async answer(client, asked) {
      const bytesRead = watched.get(client)?.socket.bytesRead ?? 0;
      const wait: Wait = { fromMs: machineSteadyMs(), idleCount: 0, bytesRead, hasEnded: false };
      waits.set(client, wait);
      try {
        return await asked;
      } catch (error) {
        throw wait.hasEnded ? new Error(LOST) : error;
      } finally {
        if (waits.get(client) === wait) waits.delete(client);
      }
    },
    async check(ask) {
      const nowMs = machineSteadyMs();
      if (nowMs - checkedMs < CHECK_MS_MIN) return;
      checkedMs = nowMs;
      const late = [...waits].flatMap(([client, wait]) => {
        const found = nowMs - wait.fromMs < WAIT_MS ? undefined : watched.get(client);
        return found === undefined ? [] : [{ client, wait, ...found }];
      });
      if (late.length === 0) return;
      const pids = late.map(({ backend }) => backend.pid);
      const starts = late.map(({ backend }) => backend.started);
      const rows = (await ask(ARE_IDLE, [pids, starts])).rows as {
        server: string;
        is_idle: boolean | null;
      }[];
      for (const [index, { client, wait, socket, backend }] of late.entries()) {
        const row = rows[index];
        const isMoving = socket.bytesRead !== wait.bytesRead || socket.writableLength > 0;
        const isIdle = row?.server === backend.server && row.is_idle === true && !isMoving;
        wait.bytesRead = socket.bytesRead;
        wait.idleCount = isIdle ? wait.idleCount + 1 : 0;
        if (wait.idleCount < IDLE_COUNT || waits.get(client) !== wait) continue;
        wait.hasEnded = true;
        reset(socket);
      }
    },
  };
}

/** Undefined where the server doesn't say. */
async function readBackend(client: pg.ClientBase, msMax: number): Promise<Backend | undefined> {
  const isRefused = (error: unknown) =>
    error instanceof Error && 'code' in error && String(error.code).startsWith('42');
  try {
    const { rows } = await client.query<Backend | (Backend & { started: null })>({
      ...{ text: OWN_BACKEND, query_timeout: msMax },
    });
    return rows[0]?.started === null ? undefined : rows[0];
  } catch (error) {
    if (isRefused(error)) return undefined;
    throw error;
  }
}

/**
 * Closes a socket without sending again what may not have arrived: the server must not run it after it has been repeated. Only a TCP
 * connection can be reset, not one that is being made, nor one to a Unix domain socket.
 */
export function reset(socket: Socket): void {
  if (socket.remoteAddress === undefined) socket.destroy();
  else socket.resetAndDestroy();
}
