/**
 * Databases for tests on a Citus cluster, whose coordinator is at TEST_CITUS_URL. Creating one takes seconds, because each server
 * needs the database and the extension, and each distributed table its shards. So databases stay, and a later test empties and
 * uses them again, unless their schema was changed.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { distributeTables } from '../../src/store/db/citus.ts';
import type { Database, Db } from '../../src/store/db/db.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { emptyDatabase } from './empty-tables.ts';
import { renderSchema } from './schema-text.ts';
import { waitUntil } from './wait.ts';

/** The coordinator in a run on Citus, otherwise undefined. */
export function citusUrl(): string | undefined {
  const url = process.env.TEST_CITUS_URL;
  return process.env.TEST_ON_CITUS === '1' && url !== undefined && url !== '' ? url : undefined;
}

/** Databases that one cluster keeps for tests. */
const DATABASES_MAX = 64;
const OBJECT_IN_USE = '55006';
const LOCK_SPACE = 0x6362_7402;

type Migration = {
  migrateAt(options: { url: string; dataDir: string }): Promise<void>;
  /** Identifies the schema. */
  hash: string;
};

/** A distributed database that no other test uses until it is dropped. */
export async function placeCitus(
  coordinator: string,
  { migrateAt, hash }: Migration,
): Promise<{ url: string; drop(): Promise<void> }> {
  const holder = new pg.Client({ connectionString: coordinator });
  await holder.connect();
  // The server may close the connection when the run ends.
  holder.on('error', () => {});
  for (let number = 0; number < DATABASES_MAX; number += 1) {
    const { rows } = await holder.query('select pg_try_advisory_lock($1, $2) as is_free', [
      LOCK_SPACE,
      number,
    ]);
    if (rows[0]?.is_free !== true) continue;
    const name = `chainbell_test_${hash}_${number}`;
    const url = withName(coordinator, name);
    try {
      await prepare(holder, { coordinator, name, url, migrateAt });
    } catch (error) {
      await holder.end();
      throw error;
    }
    return { url, drop: () => holder.end() };
  }
  await holder.end();
  throw new Error(`all ${DATABASES_MAX} test databases of the Citus cluster are in use`);
}

/** Empties the database, or creates it if it isn't there as it must be. */
async function prepare(
  holder: pg.Client,
  { url, ...place }: { coordinator: string; name: string; url: string; migrateAt: Migration['migrateAt'] },
): Promise<void> {
  const { name } = place;
  const { rowCount } = await holder.query('select from pg_database where datname = $1', [name]);
  if (rowCount === 0 || !(await isUnchanged(url))) {
    await createDistributed(holder, place);
    await onDatabase(url, keepFingerprint);
    return;
  }
  // A test may have changed its settings.
  await holder.query(`alter database ${name} reset all`);
  await onDatabase(url, emptyDatabase);
}

/** Whether the database has the schema with which it was created. Tests of upgrades change it. */
async function isUnchanged(url: string): Promise<boolean> {
  let isSame = false;
  await onDatabase(url, async (database) => {
    const [row] = await database.query<{ kept: string | null }>(
      sql`select obj_description('test_kit'::regnamespace, 'pg_namespace') as kept`,
    );
    isSame = row?.kept === (await fingerprintOf(database));
  });
  return isSame;
}

async function keepFingerprint(database: Database): Promise<void> {
  await database.script(`comment on schema test_kit is '${await fingerprintOf(database)}'`);
}

async function fingerprintOf(database: Database): Promise<string> {
  const migrations = await database.query(sql`select id, name from migration order by id`);
  return createHash('sha256')
    .update(await renderSchema(database))
    .update(JSON.stringify(migrations))
    .digest('hex');
}

async function createDistributed(
  holder: pg.Client,
  { coordinator, name, migrateAt }: { coordinator: string; name: string; migrateAt: Migration['migrateAt'] },
): Promise<void> {
  const { rows: workers } = await holder.query(
    'select node_name as host, node_port as port from citus_get_active_worker_nodes()',
  );
  const draft = `${name}_draft`;
  const self = new URL(coordinator);
  const servers = [coordinator, ...workers.map(({ host, port }) => withHost(coordinator, host, port))];
  for (const server of servers) {
    await onServer(server, async (client) => {
      await client.query(`drop database if exists ${draft} with (force)`);
      await client.query(`create database ${draft}`);
    });
    await onServer(withName(server, draft), (client) => client.query('create extension if not exists citus'));
  }
  await onServer(withName(coordinator, draft), async (client) => {
    await client.query('select citus_set_coordinator_host($1, $2)', [self.hostname, Number(self.port)]);
    for (const { host, port } of workers) await client.query('select citus_add_node($1, $2)', [host, port]);
  });
  const place = { url: withName(coordinator, draft), dataDir: '' };
  await migrateAt(place);
  await onDatabase(place.url, distributeTables);
  await onServer(place.url, (client) => client.query(EDIT_TABLE));
  for (const server of servers) await onServer(server, (client) => renameDatabase(client, { draft, name }));
}

/** Citus knows nodes by their database's name too. A database can't be renamed while its background worker runs, which restarts by itself. */
async function renameDatabase(
  client: pg.Client,
  { draft, name }: { draft: string; name: string },
): Promise<void> {
  await client.query(`drop database if exists ${name} with (force)`);
  const rename = async () => {
    await client.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [draft]);
    try {
      await client.query(`alter database ${draft} rename to ${name}`);
      return true;
    } catch (error) {
      if (error instanceof pg.DatabaseError && error.code === OBJECT_IN_USE) return false;
      throw error;
    }
  };
  await waitUntil(rename, { describe: `the end of the connections to ${draft}` });
}

/** Opens the database for this work. */
export async function onDatabase(url: string, work: (database: Database) => Promise<unknown>): Promise<void> {
  const database = await openDatabase({ url, dataDir: '' });
  try {
    await work(database);
  } finally {
    await database.close();
  }
}

/** Connects to the server for this work. */
export async function onServer<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

export function withName(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

export function withHost(server: string, host: string, port: number): string {
  const url = new URL(server);
  url.hostname = host;
  url.port = String(port);
  return url.href;
}

/**
 * Citus can't run triggers of a view over distributed tables for each row. So a local table takes the place of the view
 * `notification_status` in statements of tests that change it (notification-edits.sql).
 */
const EDIT_TABLE = `
  create table test_kit.edited as select * from notification_status with no data;
  create trigger edit_notification before insert or update or delete on test_kit.edited
    for each row execute function test_kit.edit_notification()`;
const EDIT = /\b(update|delete from|insert into) notification_status\b/;

/** The database, with changes of the view `notification_status`. */
export function withEdits(database: Database): Database {
  const edit = async <Row>(db: Db, statement: Sql): Promise<Row[]> => {
    if (!EDIT.test(statement.text)) return db.query<Row>(statement);
    await db.query(sql`set local session_replication_role = replica`);
    await db.query(sql`delete from test_kit.edited`);
    await db.query(sql`insert into test_kit.edited select * from notification_status`);
    await db.query(sql`set local session_replication_role = origin`);
    return db.query<Row>({ ...statement, text: statement.text.replace(EDIT, '$1 test_kit.edited') });
  };
  return {
    ...database,
    query: (statement) =>
      EDIT.test(statement.text)
        ? database.transaction((tx) => edit(tx, statement))
        : database.query(statement),
    transaction: (work) =>
      database.transaction((tx) => work({ ...tx, query: (statement) => edit(tx, statement) })),
  };
}
