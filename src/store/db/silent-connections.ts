/**
 * Finds connections that no longer lead anywhere although the server runs, as when a firewall on the way has forgotten them. A time limit
 * for each statement would not do: one that is long enough for slow statements keeps a worker's lanes without renewal for too long.
 */
import pg from 'pg';
import { everyMs, machineSteadyMs } from '../../core/clock.ts';

/** A process of the server. Its id may be used again, but not with the same start. */
export type Backend = { pid: number; started: string };

type SilentConnections = {
  /** Call it with each new connection that keeps its process of the server. Others are not watched. */
  add(client: pg.ClientBase, backend: Backend | undefined): void;
  /** Waits for an answer. If the server does nothing for it and sends none, the connection ends. @throws the driver's error */
  answer<T>(client: pg.ClientBase, asked: Promise<T>): Promise<T>;
};

/** After this wait the server is asked what it does for the connection, again and again. */
const WAIT_MS = 4_000;
const CHECK_MS = 1_000;
/** How often in a row it must do nothing: the first time, its answer may be under way. */
const IDLE_COUNT = 2;

const LOST =
  'Connection terminated: the server runs, but has no statement of this connection. The statement or its answer was lost on the way';

type Wait = { fromMs: number; idleCount: number; hasEnded: boolean };

const startedText = 'extract(epoch from backend_start)::text';

/** The Backend of the connection that asks. A pooler in session mode tells its clients other ids. */
export const OWN_BACKEND = `select pid, ${startedText} as started from pg_stat_activity where pid = pg_backend_pid()`;

/** For each process, whether it has ended, or waits for a statement or for the rest of one. */
const ARE_IDLE = `
  select a.pid is null or a.state like 'idle%' or a.state = 'active' and a.wait_event = 'ClientRead' as is_idle
  from unnest($1::int[], $2::text[]) with ordinality as b (pid, started, position)
  left join pg_stat_activity a on a.pid = b.pid and ${startedText} = b.started
  order by b.position`;

/** `ask` runs a statement on a new connection. */
export function createSilentConnections(
  ask: (text: string, values: unknown[]) => Promise<pg.QueryResult<{ is_idle: boolean | null }>>,
): SilentConnections {
  const backends = new WeakMap<pg.ClientBase, Backend>();
  const waits = new Map<pg.ClientBase, Wait>();
  let stop: (() => void) | undefined;
  let isAsking = false;

  async function check(): Promise<void> {
    const beforeMs = machineSteadyMs() - WAIT_MS;
    const late = [...waits].flatMap(([client, wait]) => {
      const backend = wait.fromMs > beforeMs ? undefined : backends.get(client);
      return backend === undefined ? [] : [{ client, wait, backend }];
    });
    if (late.length === 0) return;
    const { rows } = await ask(ARE_IDLE, [
      late.map(({ backend }) => backend.pid),
      late.map(({ backend }) => backend.started),
    ]);
    for (const [index, { client, wait }] of late.entries()) {
      wait.idleCount = rows[index]?.is_idle === true ? wait.idleCount + 1 : 0;
      if (wait.idleCount < IDLE_COUNT || waits.get(client) !== wait) continue;
      wait.hasEnded = true;
      // While an answer is awaited, the driver closes the socket at once.
      if (client instanceof pg.Client) client.end().catch(() => {});
    }
  }

  function tick(): void {
    if (waits.size === 0) {
      stop?.();
      stop = undefined;
    }
    if (isAsking) return;
    isAsking = true;
    // If the server can't be reached, nothing is known.
    check()
      .catch(() => {})
      .finally(() => {
        isAsking = false;
      });
  }

  return {
    add(client, backend) {
      if (backend !== undefined) backends.set(client, backend);
    },
    async answer(client, asked) {
      const wait: Wait = { fromMs: machineSteadyMs(), idleCount: 0, hasEnded: false };
      waits.set(client, wait);
      stop ??= everyMs(CHECK_MS, tick);
      try {
        return await asked;
      } catch (error) {
        throw wait.hasEnded ? new Error(LOST) : error;
      } finally {
        if (waits.get(client) === wait) waits.delete(client);
      }
    },
  };
}
