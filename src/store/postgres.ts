/**
 * The Database on a PostgreSQL server (15 or newer), through a pool of connections.
 */
import pg from 'pg';
import { Fault, messageOf } from '../core/fault.ts';
import { type Database, type Db, databaseError, INT8_OID, parseInt8, type Session, type Tx } from './db.ts';
import type { Sql } from './sql.ts';

const CONNECT_MS_MAX = 10_000;
/** Ends a statement whose answer never comes (a half-open connection), so that no loop hangs for ever. */
const QUERY_MS_MAX = 120_000;
const SERVER_VERSION_MIN = 150_000;

/**
 * What a statement of many rows may keep in memory: by default (4 MB) a leaderboard of 100,000 users went through files.
 */
const EACH_WORK_MEM = '64MB';

const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    oid === INT8_OID && format !== 'binary' ? parseInt8 : pg.types.getTypeParser(oid, format),
};

/** @throws Fault `unavailable` when the server cannot be reached, `invalid` when it is older than 15. */
export async function openPostgres(url: string, connectionsMax: number): Promise<Database> {
  const settings: pg.PoolConfig = {
    connectionString: url,
    types,
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: QUERY_MS_MAX,
    keepAlive: true,
    application_name: 'chainbell',
  };
  const pool = new pg.Pool({ ...settings, max: connectionsMax });
  // An idle connection that breaks is replaced by the pool; the next query tells if the server is gone.
  pool.on('error', () => {});
  // Nor does one that breaks between two statements of a transaction end the process: the next statement tells.
  pool.on('connect', (client) => client.on('error', () => {}));
  const database: Database = {
    kind: 'postgres',
    query: (statement) => run(pool, statement),
    each: (statement, onRow) => each(pool, statement, onRow),
    transaction: (work) => transaction(pool, work),
    script: (text) => script(pool, text),
    session: () => openSession(settings),
    close: () => pool.end(),
  };
  try {
    await requireVersion(database);
  } catch (error) {
    await pool.end();
    throw error;
  }
  return database;
}

async function run<Row>(client: pg.Pool | pg.PoolClient, statement: Sql): Promise<Row[]> {
  try {
    const result = await client.query({ text: statement.text, values: [...statement.values] });
    return result.rows;
  } catch (error) {
    throw databaseError(error);
  }
}

function each<Row>(pool: pg.Pool, { text, values }: Sql, onRow: (row: Row) => void): Promise<void> {
  return inTransaction(pool, async (client) => {
    await run(client, { text: 'set transaction read only', values: [] });
    await run(client, { text: `set local work_mem = '${EACH_WORK_MEM}'`, values: [] });
    let problem: { error: unknown } | undefined;
    await new Promise<void>((resolve, reject) => {
      const query = new pg.Query({ text, values: [...values] }, (error) => {
        if (error) reject(error);
        else resolve();
      });
      query.on('row', (row, result) => {
        // The driver collects them too.
        if (result !== undefined) result.rows.length = 0;
        try {
          if (problem === undefined) onRow(row);
        } catch (error) {
          problem = { error };
        }
      });
      client.query(query);
    }).catch((error: unknown) => {
      throw databaseError(error);
    });
    if (problem !== undefined) throw problem.error;
  });
}

const transaction = <T>(pool: pg.Pool, work: (tx: Tx) => Promise<T>): Promise<T> =>
  inTransaction(pool, (client) =>
    work({ kind: 'transaction', query: (statement) => run(client, statement) }),
  );

async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await connect(pool);
  let broken: Error | undefined;
  try {
    await run(client, { text: 'begin', values: [] });
    const result = await work(client);
    await run(client, { text: 'commit', values: [] });
    return result;
  } catch (error) {
    await client.query('rollback').catch((rollbackError: Error) => {
      broken = rollbackError;
    });
    throw error;
  } finally {
    client.release(broken);
  }
}

async function script(pool: pg.Pool, text: string): Promise<void> {
  const client = await connect(pool);
  try {
    // Several statements in one simple query are one transaction.
    await client.query(text);
  } catch (error) {
    // The state of this connection is unknown, so it is never reused.
    client.release(true);
    throw databaseError(error);
  }
  client.release();
}

async function connect(pool: pg.Pool): Promise<pg.PoolClient> {
  try {
    return await pool.connect();
  } catch (error) {
    throw databaseError(error);
  }
}

async function openSession(settings: pg.ClientConfig): Promise<Session> {
  const client = new pg.Client(settings);
  const lost = new AbortController();
  const held = new Set<string>();
  const listeners = new Map<string, (payload: string) => void>();
  client.on('error', () => lost.abort());
  client.on('end', () => lost.abort());
  client.on('notification', ({ channel, payload }) => listeners.get(channel)?.(payload ?? ''));
  try {
    await client.connect();
  } catch (error) {
    throw databaseError(error);
  }
  return {
    lost: lost.signal,
    async tryLock(space, key) {
      if (lost.signal.aborted) throw new Fault('unavailable', 'database: the session is lost');
      if (held.has(`${space}/${key}`)) return true;
      try {
        const { rows } = await client.query('select pg_try_advisory_lock($1, $2) as locked', [space, key]);
        if (rows[0]?.locked !== true) return false;
      } catch (error) {
        throw databaseError(error);
      }
      held.add(`${space}/${key}`);
      return true;
    },
    async listen(channel, onNotify) {
      listeners.set(channel, onNotify);
      try {
        await client.query(`listen ${channel}`);
      } catch (error) {
        throw databaseError(error);
      }
    },
    close: () => client.end(),
  };
}

async function requireVersion(database: Db): Promise<void> {
  const text = "select current_setting('server_version_num')::int as version";
  const rows = await database.query<{ version: number }>({ text, values: [] }).catch((error: unknown) => {
    if (error instanceof Fault) throw error;
    // A wrong password or an unknown database: only the operator can help.
    throw new Fault('invalid', `database: ${messageOf(error)}`, { cause: error });
  });
  const version = rows[0]?.version ?? 0;
  if (version < SERVER_VERSION_MIN) {
    throw new Fault(
      'invalid',
      `database: PostgreSQL 15 or newer is needed, this server is ${Math.floor(version / 10_000)}`,
    );
  }
}
