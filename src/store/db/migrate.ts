/**
 * Brings the schema up to date. Migrations are numbered files, forward only. Each runs in one transaction that inserts its row in
 * `migration` first. Processes of an older version continue beside it, unless the file says that they can't: a line
 * `-- Breaking: why`.
 */
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Fault, messageOf } from '../../core/fault.ts';
import { type Database, type Db, DENIED, sqlStateOf } from './db.ts';
import { sql } from './sql.ts';

const FOLDER = new URL('./migrations/', import.meta.url);
/** Advisory lock that serializes migrations. */
const MIGRATION_LOCK = 0x6362_0001;
/**
 * A migration that waits for a table's lock makes all later statements on that table wait behind it. After this long it gives up,
 * and the start tries again.
 */
const LOCK_MS_MAX = 5_000;
const BREAKING = /^-- Breaking: (.*\S)\s*$/m;

export type MigrationState = {
  applied: number;
  known: number;
  pending: string[];
  /** Applied by a newer version, which this one can work with. */
  newer: string[];
};

/**
 * The applied and pending migrations. @throws Fault `conflict` if this version can't work with the database: a newer version broke
 * the schema for it, or it has other migrations.
 */
export async function migrationState(database: Db, folder = FOLDER): Promise<MigrationState> {
  const files = await listMigrations(folder);
  const applied = await listApplied(database);
  const other = applied.find(({ name }, index) => index < files.length && name !== files[index]);
  if (other !== undefined)
    throw new Fault(
      'conflict',
      `the database has the migration ${other.name}, and this version of chainbell has ${files[other.id - 1]} in its place, so it can't upgrade this database. Name an empty database, or start the version that made this one`,
    );
  const newer = applied.slice(files.length);
  const breaking = newer.find(({ worksBefore }) => !worksBefore);
  if (breaking !== undefined)
    throw new Fault(
      'conflict',
      `a newer version of chainbell has changed the database in a way that this version can't work with: ${breaking.name}${breaking.reason}. Start the newer version here. To go back to this version, restore a backup from before the change`,
    );
  return {
    ...{ applied: applied.length, known: files.length },
    ...{ pending: files.slice(applied.length), newer: newer.map(({ name }) => name) },
  };
}

/**
 * Applies pending migrations and returns the names of those that this call applied. Several processes may call it at once. If this call
 * creates the schema of an empty database, the statement `afterFirst` is part of the first migration's transaction.
 * @throws Fault `conflict` as migrationState does; `unavailable` if another transaction holds a table for too long.
 */
export async function migrate(database: Database, folder = FOLDER, afterFirst = ''): Promise<string[]> {
  const done: string[] = [];
  for (;;) {
    const { applied, pending } = await migrationState(database, folder);
    const file = pending[0];
    if (file === undefined) return done;
    const also = applied === 0 ? afterFirst : '';
    if (await apply(database, { id: applied + 1, file, folder, also })) done.push(file);
  }
}

/**
 * For commands, which don't migrate: a breaking migration ends the processes of an older version, and there is no way back. With
 * `mayCreate`, the schema of an empty database is created.
 * @throws Fault `conflict` if a migration is pending, and as migrationState does
 */
export async function requireSchema(
  database: Database,
  { mayCreate, folder = FOLDER }: { mayCreate: boolean; folder?: URL },
): Promise<void> {
  const { applied, pending } = await migrationState(database, folder);
  if (pending.length === 0) return;
  if (applied === 0 && mayCreate) {
    await migrate(database, folder);
    return;
  }
  throw new Fault(
    'conflict',
    applied === 0
      ? 'the database is empty: check database.url, and start the service or run `chainbell migrate`'
      : `the database is of an older version: it lacks ${pending.join(', ')}. Start the service of this version, or run \`chainbell migrate\``,
  );
}

async function apply(
  database: Database,
  { id, file, folder, also }: { id: number; file: string; folder: URL; also: string },
): Promise<boolean> {
  const body = await readFile(new URL(file, folder), 'utf8');
  const reason = BREAKING.exec(body)?.[1]?.replaceAll("'", "''");
  try {
    await database.script(`
      select pg_advisory_xact_lock(${MIGRATION_LOCK});
      set local lock_timeout = ${LOCK_MS_MAX};
      create table if not exists migration (id integer primary key, name text not null, applied_at timestamptz not null);
      alter table migration add column if not exists breaking text;
      insert into migration (id, name, applied_at, breaking)
      values (${id}, '${file}', clock_timestamp(), ${reason === undefined ? 'null' : `'${reason}'`});
      ${body}
      ${also}`);
    return true;
  } catch (error) {
    // If the row exists, another process has applied the whole migration.
    if ((await listApplied(database)).length >= id) return false;
    if (error instanceof Fault && sqlStateOf(error) === DENIED)
      throw new Fault(
        'invalid',
        `database: ${messageOf(error.cause)}. Make the role the owner of its database: alter database … owner to …`,
        { cause: error },
      );
    throw error;
  }
}

type Applied = {
  id: number;
  name: string;
  /** Whether versions that don't know the migration can go on. */
  worksBefore: boolean;
  /** Why they can't, after a colon; or nothing. */
  reason: string;
};

async function listApplied(database: Db): Promise<Applied[]> {
  const [table] = await database.query<{ present: boolean }>(
    sql`select to_regclass('migration') is not null as present`,
  );
  if (table?.present !== true) return [];
  // Databases of versions that didn't mark migrations lack the column. Their unknown migrations may be breaking.
  const rows = await database.query<{
    id: number;
    name: string;
    marks: boolean;
    breaking: string | null;
  }>(sql`
    select id, name, to_jsonb(migration) ? 'breaking' as marks, to_jsonb(migration) ->> 'breaking' as breaking
    from migration
    order by id
    limit 10000`);
  return rows.map(({ id, name, marks, breaking }) => ({
    ...{ id, name, worksBefore: marks && breaking === null },
    reason: breaking === null ? '' : ` (${breaking})`,
  }));
}

async function listMigrations(folder: URL): Promise<string[]> {
  const files = (await readdir(fileURLToPath(folder))).filter((name) => name.endsWith('.sql')).sort();
  files.forEach((name, index) => {
    if (Number(name.slice(0, 4)) !== index + 1) throw new Error(`migration ${name} is out of order`);
  });
  return files;
}
