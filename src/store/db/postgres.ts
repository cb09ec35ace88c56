/**
 * The Database on a PostgreSQL server (15 or newer), through a pool of connections.
 */
import { randomInt } from 'node:crypto';
import pg from 'pg';
import { machineSteadyMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { areTablesDistributed } from './citus.ts';
import {
  type Connections,
  type Database,
  type Db,
  databaseError,
  INT8_OID,
  parseInt8,
  type Session,
  type Share,
  type SharedDatabase,
} from './db.ts';
import { createPostgresHosts, type PostgresHosts } from './postgres-hosts.ts';
import { requireVersion } from './postgres-version.ts';
import type { ReplicaConnections } from './replica.ts';
import type { Sql } from './sql.ts';

/** Ends a statement whose answer never comes, for example on a half-open connection, so that no loop hangs forever. */
const QUERY_MS_MAX = 120_000;
/** Two statements at a time record outcomes, unless that would leave delivery too few connections. */
const SETTLE_CONNECTIONS = 2;
const OTHER_CONNECTIONS_MIN = 2;
/** Named statements of each connection. Statements composed of many parts could otherwise fill the server's memory. */
const NAMES_MAX = 100;
/** A busy pooler in transaction mode may by chance give each connection its own session, but not this many times in a row. */
const SESSION_CHECKS = 12;
/** A pooler in session mode without a second free connection would keep the check waiting longer. */
const SESSION_CHECK_MS_MAX = 10_000;
const LOCK_KEY_MAX = 2 ** 31;

/**
 * work_mem of statements with many rows. With the default of 4 MB, sorting a leaderboard of 100,000 users used files.
 */
const EACH_WORK_MEM = '64MB';

const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    oid === INT8_OID && format !== 'binary' ? parseInt8 : pg.types.getTypeParser(oid, format),
};

type PostgresOptions = {
  /** Leads to PostgreSQL itself if `url` leads to a pooler in transaction mode, which then serves only the API; else ''. */
  sessionUrl: string;
  connections: Connections;
  onWait: (share: Share, waitMs: number) => void;
  silentMsMax: number;
};

/** On Citus, each transaction would otherwise open up to one connection to a worker for each of its shards. */
const ONE_AFTER_THE_OTHER = `; set local citus.multi_shard_modify_mode = 'sequential'`;

const SETTINGS = {
  types,
  query_timeout: QUERY_MS_MAX,
  keepAlive: true,
  application_name: 'chainbell',
};

/** @throws Fault `unavailable` if the server can't be reached, `invalid` if it is older than PostgreSQL 15. */
export async function openPostgres(url: string, options: PostgresOptions): Promise<SharedDatabase> {
  const { onWait, silentMsMax } = options;
  const { hosts, apiHosts, pools, close } = createPools(url, options);
  const isPooled = apiHosts !== hosts;
  const nameOf = createNames();

  function shareOf(share: Share, isDistributed: boolean): Database {
    const isApi = share === 'api' || share === 'operator';
    const own = isApi ? apiHosts : hosts;
    const lender: Lender = {
      ...own,
      // A pooler runs the next statement in another session, which doesn't know the name.
      nameOf: own === hosts ? nameOf : () => undefined,
      begin: `begin; set local idle_in_transaction_session_timeout = ${silentMsMax}${isDistributed ? ONE_AFTER_THE_OTHER : ''}`,
      async lend() {
        const askedMs = machineSteadyMs();
        const client = await orFault(own.connect(pools[share === 'operator' ? 'api' : share]));
        onWait(share, machineSteadyMs() - askedMs);
        return client;
      },
    };
    return {
      kind: 'postgres',
      isDistributed,
      query: (statement) => query(lender, statement),
      each: (statement, onRow) => each(lender, statement, onRow),
      transaction: (work) =>
        unlessConflict(() =>
          inTransaction(lender, (client) =>
            work({
              kind: 'transaction',
              isDistributed,
              query: (statement) => run(client, statement, lender.nameOf(statement)),
            }),
          ),
        ),
      script: (text) => script(lender, text),
      session: () => openSession(hosts),
      close,
    };
  }

  try {
    const opened = shareOf('api', false);
    await requireVersion(opened);
    if (isPooled) await requireVersion(shareOf('follower', false));
    const isDistributed = await areTablesDistributed(opened);
    const database: SharedDatabase = {
      ...shareOf('api', isDistributed),
      for: (share) => shareOf(share, isDistributed),
      async requireSessions() {
        await requireSessions(hosts, isPooled ? 'sessionUrl' : 'url');
        if (isPooled) await requireSameDatabase(database, hosts);
      },
      cut() {
        for (const one of new Set([hosts, apiHosts])) one.cut();
      },
    };
    return database;
  } catch (error) {
    await close();
    throw error;
  }
}

/** The pool of each share. `apiHosts` differs from `hosts` if a pooler in transaction mode serves the API. */
function createPools(url: string, { sessionUrl, connections }: PostgresOptions) {
  const isPooled = sessionUrl !== '';
  const hosts = createPostgresHosts(isPooled ? sessionUrl : url, SETTINGS);
  const apiHosts = isPooled ? createPostgresHosts(url, SETTINGS, { keepsSessions: false }) : hosts;
  const settling = connections.delivery - SETTLE_CONNECTIONS < OTHER_CONNECTIONS_MIN ? 1 : SETTLE_CONNECTIONS;
  const pools: Record<Exclude<Share, 'operator'>, pg.Pool> = {
    follower: hosts.pool(connections.follower),
    settle: hosts.pool(settling),
    delivery: hosts.pool(connections.delivery - settling),
    api: apiHosts.pool(connections.api),
  };
  const close = async () => {
    await Promise.all(Object.values(pools).map((pool) => pool.end()));
  };
  return { hosts, apiHosts, pools, close };
}

/** Connections for reads from a replica. Opens none until the first statement, because the replica may be down. */
export function openReplicaConnections(url: string, connectionsMax: number): ReplicaConnections {
  const hosts = createPostgresHosts(url, SETTINGS, { mayBeStandby: true });
  const pool = hosts.pool(connectionsMax);
  const lender: Lender = {
    ...hosts,
    ...{ nameOf: createNames(), begin: 'begin', lend: () => orFault(hosts.connect(pool)) },
  };
  return {
    query: (statement) => query(lender, statement),
    each: (statement, onRow) => each(lender, statement, onRow),
    transaction: (work) =>
      inTransaction(lender, (client) =>
        work({ kind: 'transaction', query: (statement) => run(client, statement, lender.nameOf(statement)) }),
      ),
    close: () => pool.end(),
    cut: hosts.cut,
  };
}

type Names = (statement: Sql) => string | undefined;

/** Lends the connections of one share. Each must be released. */
type Lender = Pick<PostgresHosts, 'noteError' | 'release'> & {
  nameOf: Names;
  /** The statement that begins a transaction. */
  begin: string;
  lend(): Promise<pg.PoolClient>;
};

async function orFault<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw databaseError(error);
  }
}

async function run<Row>(client: pg.PoolClient, { text, values }: Sql, name?: string): Promise<Row[]> {
  const { rows } = await orFault(
    client.query({ text, values: [...values], ...(name !== undefined && { name }) }),
  );
  return rows;
}

/** Names frequent statements, so that the server keeps them parsed and planned. After NAMES_MAX it names no further ones. */
function createNames(): Names {
  const names = new Map<string, string>();
  return ({ text, isFrequent }) => {
    if (isFrequent !== true) return undefined;
    const known = names.get(text);
    if (known !== undefined || names.size === NAMES_MAX) return known;
    const name = `chainbell_${names.size}`;
    names.set(text, name);
    return name;
  };
}

/** Lends a connection to `work`, and closes it after an error, because its state is then unknown. */
async function once<T>(lender: Lender, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await lender.lend();
  let isBroken = false;
  try {
    return await work(client);
  } catch (error) {
    isBroken = true;
    lender.noteError(client, error);
    throw error;
  } finally {
    lender.release(client, isBroken);
  }
}

const query = <Row>(lender: Lender, statement: Sql): Promise<Row[]> =>
  unlessConflict(() => once(lender, (client) => run(client, statement, lender.nameOf(statement))));

/** Deadlock and serialization failure. The transaction was rolled back, and a retry may succeed at once. */
const CONFLICT = /^(40P01|40001)$/;
const CONFLICT_TRIES_MAX = 5;

/** Repeats `work`, which runs one transaction, after a conflict. */
async function unlessConflict<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      const cause = error instanceof Fault ? error.cause : undefined;
      const isConflict = cause instanceof Error && 'code' in cause && CONFLICT.test(String(cause.code));
      if (!isConflict || tries === CONFLICT_TRIES_MAX) throw error;
    }
  }
}

/** PostgreSQL runs the statements of one simple query in one transaction. */
const script = (lender: Lender, text: string): Promise<void> =>
  once(lender, async (client) => {
    await orFault(client.query(text));
  });

function each<Row>(lender: Lender, { text, values }: Sql, onRow: (row: Row) => void): Promise<void> {
  return inTransaction(lender, async (client) => {
    await run(client, { text: 'set transaction read only', values: [] });
    await run(client, { text: `set local work_mem = '${EACH_WORK_MEM}'`, values: [] });
    let problem: { error: unknown } | undefined;
    const answered = new Promise<void>((resolve, reject) => {
      const query = new pg.Query({ text, values: [...values] }, (error) => {
        if (error) reject(error);
        else resolve();
      });
      query.on('row', (row, result) => {
        // The driver also collects the rows. Drop them to save memory.
        if (result !== undefined) result.rows.length = 0;
        try {
          if (problem === undefined) onRow(row);
        } catch (error) {
          problem = { error };
        }
      });
      client.query(query);
    });
    await orFault(answered);
    if (problem !== undefined) throw problem.error;
  });
}

async function inTransaction<T>(lender: Lender, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await lender.lend();
  let isBroken = false;
  try {
    await run(client, { text: lender.begin, values: [] });
    const result = await work(client);
    await run(client, { text: 'commit', values: [] });
    return result;
  } catch (error) {
    lender.noteError(client, error);
    await client.query('rollback').catch(() => {
      isBroken = true;
    });
    throw error;
  } finally {
    lender.release(client, isBroken);
  }
}

async function openSession(hosts: PostgresHosts): Promise<Session> {
  const client = await orFault(hosts.open());
  const lost = new AbortController();
  const held = new Set<string>();
  const listeners = new Map<string, (payload: string) => void>();
  client.on('error', () => lost.abort());
  client.on('end', () => lost.abort());
  client.on('notification', ({ channel, payload }) => listeners.get(channel)?.(payload ?? ''));
  return {
    lost: lost.signal,
    async tryLock(space, key) {
      if (lost.signal.aborted) throw new Fault('unavailable', 'database: the session is lost');
      if (held.has(`${space}/${key}`)) return true;
      const { rows } = await orFault(
        client.query('select pg_try_advisory_lock($1, $2) as locked', [space, key]),
      );
      if (rows[0]?.locked !== true) return false;
      held.add(`${space}/${key}`);
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
    close: () => client.end(),
  };
}

/**
 * Refuses a pooler in transaction mode. Two connections must never share one session of the server. Behind such a pooler they
 * do: while the first connection is between two transactions, the pooler gives its server session to the second.
 */
async function requireSessions(hosts: PostgresHosts, key: 'url' | 'sessionUrl'): Promise<void> {
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
const SAME_DATABASE_LOCK_SPACE = 0x6362_0005;

/** Refuses two URLs that lead to different databases: the API would read and write one that no other part knows. */
async function requireSameDatabase(api: Db, hosts: PostgresHosts): Promise<void> {
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
