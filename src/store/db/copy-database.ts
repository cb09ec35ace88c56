/**
 * Copies everything from one database into an empty one with the same schema, for the step from the embedded database to a
 * PostgreSQL server.
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Db, Tx } from './db.ts';
import { raw, type Sql, sql } from './sql.ts';

/** `process` holds heartbeats of processes that use the old database. `migration` and `incoming_move` are of the new one. */
const LEFT_OUT = ['migration', 'process', 'incoming_move'];
/** Tables whose rows show that a database is in use. */
const USED = ['chain', 'watcher', 'block', 'point', 'price'];
/** Rows of one statement. */
const BATCH_ROWS = 1_000;

export type CopyProgress = { table: string; copied: number; rows: number };

type CopyOptions = {
  onProgress(progress: CopyProgress): void;
  /** Called when everything is copied and nothing is committed, with the transaction of the target. */
  beforeCommit?(to: Tx): Promise<void>;
};

type Table = { name: string; columns: { name: string; type: string }[] };

/**
 * Copies all rows and the state of the sequences, in one transaction of each database, and returns the number of rows by table.
 * Nothing may write to `source` meanwhile. @throws Fault `conflict` if `target` is in use or has further tables
 */
export async function copyDatabase(
  source: Database,
  target: Database,
  { onProgress, beforeCommit }: CopyOptions,
): Promise<Map<string, number>> {
  return target.transaction(async (to) => {
    await requireEmpty(to);
    const tables = await listTables(to);
    await requireSameTables(source, tables);
    await empty(to, tables);
    const counts = await source.transaction(async (from) => {
      const copied = new Map<string, number>();
      for (const table of tables) copied.set(table.name, await copyTable({ from, to }, table, onProgress));
      await copySequences(from, to);
      return copied;
    });
    for (const [table, count] of counts) await requireCount(to, table, count);
    await beforeCommit?.(to);
    return counts;
  });
}

/** @throws Fault `conflict` if the database is in use */
export async function requireEmpty(to: Db): Promise<void> {
  for (const table of USED) {
    const rows = await to.query(sql`select from ${name(table)} limit 1`);
    if (rows.length === 0) continue;
    throw new Fault(
      'conflict',
      `the database at database.url is in use: its table "${table}" has rows. Name an empty database`,
    );
  }
}

/**
 * The tables in an order in which each follows those that it refers to. Leaves out generated columns, and unlogged tables, which
 * belong to one server's history.
 */
async function listTables(db: Db): Promise<Table[]> {
  const rows = await db.query<{ table: string; name: string; type: string }>(sql`
    select c.relname as table, a.attname as name, format_type(a.atttypid, a.atttypmod) as type
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and c.relpersistence = 'p'
      and not c.relispartition and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and c.relname <> all(${LEFT_OUT}::text[])
    order by c.relname, a.attnum`);
  const references = await db.query<{ table: string; refers_to: string }>(sql`
    select c.relname as table, f.relname as refers_to
    from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_class f on f.oid = k.confrelid
    where k.contype = 'f' and c.relnamespace = current_schema()::regnamespace and c.oid <> f.oid
    order by c.relname`);
  const waiting = Map.groupBy(rows, (row) => row.table);
  const ordered: Table[] = [];
  while (waiting.size > 0) {
    const isFree = (table: string) =>
      !references.some((one) => one.table === table && waiting.has(one.refers_to));
    const free = [...waiting].filter(([table]) => isFree(table));
    if (free.length === 0) throw new Error('the tables refer to each other in a circle');
    for (const [table, columns] of free) {
      ordered.push({ name: table, columns: columns.map((one) => ({ name: one.name, type: one.type })) });
      waiting.delete(table);
    }
  }
  return ordered;
}

async function requireSameTables(source: Database, tables: readonly Table[]): Promise<void> {
  const known = new Set((await listTables(source)).map((table) => table.name));
  const foreign = tables.filter((table) => !known.has(table.name)).map((table) => table.name);
  if (foreign.length === 0) return;
  throw new Fault(
    'conflict',
    `the database at database.url has tables of another program: ${foreign.join(', ')}. Name an empty database`,
  );
}

/** Removes the rows that the migrations inserted. */
async function empty(to: Tx, tables: readonly Table[]): Promise<void> {
  const names = tables.map((table) => name(table.name)).reduce((all, one) => sql`${all}, ${one}`);
  await to.query(sql`truncate ${names}`);
}

/** Copies one table in batches, as text, which both servers write and read alike. */
async function copyTable(
  { from, to }: { from: Tx; to: Tx },
  { name: table, columns }: Table,
  onProgress: (progress: CopyProgress) => void,
): Promise<number> {
  const [{ rows } = { rows: 0 }] = await from.query<{ rows: number }>(
    sql`select count(*) as rows from ${name(table)}`,
  );
  const texts = join(columns.map((column) => sql`${name(column.name)}::text`));
  await from.query(sql`declare copied no scroll cursor for select ${texts} from ${name(table)}`);
  const values = columns.map((column, index) => sql`${name(`c${index}`)}::${raw(column.type)}`);
  let copied = 0;
  for (;;) {
    const batch = await from.query<Record<string, string | null>>(
      sql`fetch forward ${raw(String(BATCH_ROWS))} from copied`,
    );
    if (batch.length === 0) break;
    const arrays = columns.map((column) => sql`${batch.map((row) => row[column.name] ?? null)}::text[]`);
    await to.query(sql`
      insert into ${name(table)} (${join(columns.map((column) => name(column.name)))})
      overriding system value
      select ${join(values)} from unnest(${join(arrays)}) as r (${join(columns.map((_, index) => name(`c${index}`)))})`);
    copied += batch.length;
    onProgress({ table, copied, rows });
  }
  await from.query(sql`close copied`);
  return copied;
}

async function copySequences(from: Tx, to: Tx): Promise<void> {
  const sequences = await from.query<{ name: string; last: string | null }>(sql`
    select sequencename as name, last_value::text as last from pg_sequences
    where schemaname = current_schema() order by sequencename`);
  for (const { name: sequence, last } of sequences)
    if (last !== null) await to.query(sql`select setval(${`"${sequence}"`}::regclass, ${last}::bigint)`);
}

async function requireCount(to: Tx, table: string, expected: number): Promise<void> {
  const [row] = await to.query<{ count: number }>(sql`select count(*) as count from ${name(table)}`);
  if (row?.count !== expected)
    throw new Error(`${table} has ${row?.count} rows after copying ${expected}; nothing was stored`);
}

/** An identifier of the catalog as part of a statement. */
const name = (identifier: string): Sql => raw(`"${identifier.replaceAll('"', '""')}"`);
const join = (parts: readonly Sql[]): Sql => parts.reduce((all, part) => sql`${all}, ${part}`);
