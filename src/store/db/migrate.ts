/**
 * Brings the schema up to date. Migrations are numbered files, forward only. Each runs in one transaction that inserts its row in
 * `migration` first.
 */
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Fault } from '../../core/fault.ts';
import type { Database, Db } from './db.ts';
import { sql } from './sql.ts';

const FOLDER = new URL('./migrations/', import.meta.url);
/** Advisory lock that serializes migrations. */
const MIGRATION_LOCK = 0x6362_0001;

export type MigrationState = { applied: number; known: number; pending: string[] };

/** The applied and pending migrations. @throws Fault `conflict` if the database is newer than this program. */
export async function migrationState(database: Db, folder = FOLDER): Promise<MigrationState> {
  const files = await listMigrations(folder);
  const applied = await findApplied(database);
  if (applied > files.length) {
    throw new Fault(
      'conflict',
      `the database has migration ${applied}, but this version of chainbell knows only ${files.length}. Start the newer version`,
    );
  }
  return { applied, known: files.length, pending: files.slice(applied) };
}

/**
 * Applies pending migrations and returns the names of those that this call applied. Several processes may call it at once.
 * @throws Fault `conflict` if the database is newer than this program.
 */
export async function migrate(database: Database, folder = FOLDER): Promise<string[]> {
  const done: string[] = [];
  for (;;) {
    const { applied, pending } = await migrationState(database, folder);
    const file = pending[0];
    if (file === undefined) return done;
    if (await apply(database, { id: applied + 1, file, folder })) done.push(file);
  }
}

async function apply(
  database: Database,
  { id, file, folder }: { id: number; file: string; folder: URL },
): Promise<boolean> {
  const body = await readFile(new URL(file, folder), 'utf8');
  try {
    await database.script(`
      select pg_advisory_xact_lock(${MIGRATION_LOCK});
      create table if not exists migration (id integer primary key, name text not null, applied_at timestamptz not null);
      insert into migration (id, name, applied_at) values (${id}, '${file}', clock_timestamp());
      ${body}`);
    return true;
  } catch (error) {
    // If the row exists, another process has applied the whole migration.
    if ((await findApplied(database)) >= id) return false;
    if (error instanceof Error && 'code' in error && error.code === '42501')
      throw new Fault(
        'invalid',
        `database: ${error.message}. Make the role the owner of its database: alter database … owner to …`,
        { cause: error },
      );
    throw error;
  }
}

async function findApplied(database: Db): Promise<number> {
  const [table] = await database.query<{ present: boolean }>(
    sql`select to_regclass('migration') is not null as present`,
  );
  if (table?.present !== true) return 0;
  const [row] = await database.query<{ id: number }>(
    sql`select coalesce(max(id), 0)::int as id from migration`,
  );
  return row?.id ?? 0;
}

async function listMigrations(folder: URL): Promise<string[]> {
  const files = (await readdir(fileURLToPath(folder))).filter((name) => name.endsWith('.sql')).sort();
  files.forEach((name, index) => {
    if (Number(name.slice(0, 4)) !== index + 1) throw new Error(`migration ${name} is out of order`);
  });
  return files;
}
