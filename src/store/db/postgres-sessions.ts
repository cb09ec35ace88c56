/**
 * Connections that keep a session of the server for advisory locks and LISTEN, and checks that a pooler doesn't share sessions.
 */
import { randomInt } from 'node:crypto';
import type pg from 'pg';
import { waitMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { type Db, databaseError, type Session } from './db.ts';
import { bounded, isGivenUp, type PostgresHosts } from './postgres-hosts.ts';

/** A busy pooler in transaction mode may by chance give each connection its own session, but not this many times in a row. */
const SESSION_CHECKS = 12;
/** A pooler in session mode without a second free connection would keep the check waiting longer. */
const SESSION_CHECK_MS_MAX = 10_000;
const LOCK_KEY_MAX = 2 ** 31;
/**
 * A session is asked this often whether its server still answers. Otherwise a session whose server vanished without closing it, as
 * after a power cut, would seem to keep its locks.
 */
const CHECK_MS = 1_000;
/** Checks in a row that find the session on another host than the other connections. */
const LEFT_COUNT_MAX = 2;
/** A server that doesn't answer for so long is gone. */
const SILENT_MS_MAX = 5_000;
/**
 * The server ends a session whose client's machine is gone after 25 s instead of two hours, and frees its locks. Sooner would not do: a
 * worker that is cut off needs up to SILENT_MS_MAX to notice, and its last attempts end 10 s later.
 */
const KEPT_ALIVE =
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; set tcp_user_timeout = 25000';

/** Rejects with a Fault instead of the driver's error, if there is one for it. */
export async function orFault<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const known = databaseError(error);
    // The driver makes the server's errors in a callback of the socket. The stack of a bug must lead to its statement.
    if (known === error && error instanceof Error && 'code' in error) Error.captureStackTrace(error);
    throw known;
  }
}

export async function openSession(hosts: PostgresHosts): Promise<Session> {
  const client = await orFault(hosts.open());
  const lost = new AbortController();
  const held = new Set<string>();
  const listeners = new Map<string, (payload: string) => void>();
  client.on('error', () => lost.abort());
  client.on('end', () => lost.abort());
  try {
    await orFault(client.query(bounded(KEPT_ALIVE, SILENT_MS_MAX)));
  } catch (error) {
    abandon();
    throw error;
  }
  void watch();

  async function watch(): Promise<void> {
    let leftCount = 0;
    for (;;) {
      await waitMs(CHECK_MS, lost.signal);
      if (lost.signal.aborted) return;
      // Its locks are where the other connections don't see them, unless those have only just left and come back.
      leftCount = hosts.isLeft(client) ? leftCount + 1 : 0;
      if (leftCount === LEFT_COUNT_MAX) {
        abandon();
        return;
      }
      try {
        await client.query(bounded('select', SILENT_MS_MAX));
        await hosts.silent.check((text, values) => client.query({ ...bounded(text, SILENT_MS_MAX), values }));
      } catch (error) {
        if (isGivenUp(error)) hosts.abandon(client);
        abandon();
        return;
      }
    }
  }

  /** A connection that is only forgotten would keep its locks, and no session could take them again. */
  function abandon(): void {
    lost.abort();
    client.end().catch(() => {});
  }

  client.on('notification', ({ channel, payload }) => listeners.get(channel)?.(payload ?? ''));
  return {
    lost: lost.signal,
    async tryLock(space, key) {
      if (lost.signal.aborted) throw new Fault('unavailable', 'database: the session is lost');
      const name = `${space}/${key}`;
      if (held.has(name)) return true;
      const { rows } = await orFault(
        client.query('select pg_try_advisory_lock($1, $2) as locked', [space, key]),
      );
      if (rows[0]?.locked !== true) return false;
      // The server counts how often a session takes a lock: twice, if two callers asked at the same time.
      if (held.has(name)) await orFault(client.query('select pg_advisory_unlock($1, $2)', [space, key]));
      held.add(name);
      return true;
    },
    async unlock(space, key) {
      if (!held.delete(`${space}/${key}`)) return;
      await orFault(client.query('select pg_advisory_unlock($1, $2)', [space, key]));
    },
    async listen(channel, onNotify) {
      listeners.set(channel, onNotify);
      await orFault(client.query(`listen ${channel}`));
    },
    abandon,
    close: () => client.end(),
  };
}

/**
 * Refuses a pooler in transaction mode. Two connections must never share one session of the server. Behind such a pooler they
 * do: while the first connection is between two transactions, the pooler gives its server session to the second.
 */
export async function requireSessions(hosts: PostgresHosts, key: 'url' | 'sessionUrl'): Promise<void> {
  await using parts = new AsyncDisposableStack();
  const open = async () => {
    const client = await orFault(hosts.open(SESSION_CHECK_MS_MAX));
    parts.defer(() => client.end());
    return client;
  };
  const [one, other] = [await open(), await open()];
  const serverProcess = async (client: pg.Client) => {
    const { rows } = await orFault(client.query('select pg_backend_pid() as pid'));
    return rows[0]?.pid;
  };
  for (let tries = 0; tries < SESSION_CHECKS; tries += 1) {
    const first = await serverProcess(one);
    await orFault(other.query('begin'));
    const second = await serverProcess(other);
    // The other connection holds its session in a transaction. A pooler in transaction mode then has to find another session
    // for the first one.
    const again = await serverProcess(one);
    await orFault(other.query('commit'));
    if (first !== second && first === again) continue;
    throw new Fault(
      'invalid',
      `database.${key}: a pooler shares server sessions between connections (transaction mode), which breaks the locks of workers and LISTEN. ${SESSION_ADVICE[key]}`,
    );
  }
}

const SESSION_ADVICE = {
  url: 'Keep the pooler for the API and set database.sessionUrl to PostgreSQL itself. Or connect directly, or set pool_mode = session for this database in pgbouncer',
  sessionUrl: 'Name PostgreSQL itself, or set pool_mode = session for this database in pgbouncer',
};

/** Advisory lock space for `requireSameDatabase`. Advisory locks belong to one database of one server. */
const SAME_DATABASE_LOCK_SPACE = 0x6362_000d;

/** Refuses two URLs that lead to different databases: the API would read and write one that no other part knows. */
export async function requireSameDatabase(api: Db, hosts: PostgresHosts): Promise<void> {
  const session = await openSession(hosts);
  try {
    const key = randomInt(LOCK_KEY_MAX);
    await session.tryLock(SAME_DATABASE_LOCK_SPACE, key);
    const text = 'select pg_try_advisory_xact_lock($1::int, $2::int) as is_free';
    const [row] = await api.query<{ is_free: boolean }>({ text, values: [SAME_DATABASE_LOCK_SPACE, key] });
    if (row?.is_free === false) return;
  } finally {
    await session.close();
  }
  throw new Fault(
    'invalid',
    'database.sessionUrl leads to another database than database.url. Both must lead to the same database of the same server, database.url through the pooler',
  );
}
