/**
 * Reads rows of the delivery tables for statements that join them with other tables. On Citus, distributed tables and tables of
 * the coordinator can't be joined, so the rows are read first and then take the place of the table.
 */
import { listOf } from './arrays.ts';
import type { Db } from './db.ts';
import { raw, type Sql, sql } from './sql.ts';

/** The same, with statements about several shards limited to these. */
export const within = <D extends Db>(db: D, reach: readonly number[] | undefined): D => ({ ...db, reach });

/** Also requires the shard to be one of those that the transaction is limited to. On Citus, other servers aren't asked then. */
export function inReach({ reach }: Db, shardId: Sql): Sql {
  if (reach === undefined) return sql``;
  // Citus asks all servers for an empty array.
  return reach.length === 0 ? sql` and false` : sql` and ${shardId} = any(${listOf(reach)}::bigint[])`;
}

/** Rows with these columns, as `columnList` of a function in `from`. */
export function recordsOf(rows: string, columns: string): Sql {
  return sql`(select * from jsonb_to_recordset(${rows}::jsonb) as r (${raw(columns)}))`;
}

/** A relation with these columns, each an array. Arrays, because PostgreSQL takes longer to read rows as JSON. */
export function unnested(columns: readonly { name: string; type: string; array: Sql }[]): Sql {
  const arrays = columns
    .map(({ type, array }) => sql`${array}::${raw(type)}[]`)
    .reduce((all, one) => sql`${all}, ${one}`);
  return sql`(select * from unnest(${arrays}) as r (${raw(columns.map(({ name }) => name).join())}))`;
}

/** The rows of a statement as a JSON array, exact in all types. */
export async function readJson(db: Db, select: Sql): Promise<string> {
  // Without the offset, Citus merges the two statements and loses the names of the columns.
  const rows = await db.query<{ row: string }>(
    sql`select to_jsonb(r)::text as row from (select * from (${select}) as s offset 0) as r`,
  );
  return `[${rows.map(({ row }) => row).join()}]`;
}

/**
 * A relation with the rows of a statement on distributed tables: the statement itself, or the rows that it returns now.
 * `columns` are their names and types.
 */
export async function rowsOf(db: Db, select: Sql, columns: string): Promise<Sql> {
  return db.isDistributed === true ? recordsOf(await readJson(db, select), columns) : sql`(${select})`;
}

type ShardedTable = 'watched_address' | 'notification_status' | 'queue';

/** A relation with at least the rows of the table, or view, whose alias is `alias`, that match the condition. The other columns may be null. */
export async function tableOf(
  db: Db,
  table: ShardedTable,
  { alias, where, columns = '*' }: { alias: string; where: Sql; columns?: string },
): Promise<Sql> {
  if (db.isDistributed !== true) return raw(table);
  const json = await readJson(
    db,
    sql`select ${raw(columns)} from ${raw(`${table} ${alias}`)} where ${where}`,
  );
  return rowsFrom(table, json);
}

/** A relation with these rows of the table, or view, as `readJson` returns them. */
export const rowsFrom = (table: ShardedTable, json: string): Sql =>
  sql`(select * from jsonb_populate_recordset(null::${raw(table)}, ${json}::jsonb))`;

/** Calls `work` for the elements of each shard, one shard after the other, in the order of the shards. */
export async function forEachShard<T extends { shardId: number }, R>(
  elements: readonly T[],
  work: (shardId: number, own: T[]) => Promise<R[]>,
): Promise<R[]> {
  // A call with all rows as arguments would fail for a hundred thousand of them.
  const found: R[][] = [];
  const groups = [...Map.groupBy(elements, ({ shardId }) => shardId)].sort(([one], [other]) => one - other);
  for (const [shardId, own] of groups) found.push(await work(shardId, own));
  return found.flat();
}

/** The rows of a statement for each shard, as one JSON array. */
export async function readJsonOfEach<T extends { shardId: number }>(
  db: Db,
  elements: readonly T[],
  select: (shardId: number, own: readonly T[]) => Sql,
): Promise<string> {
  const parts = await forEachShard(elements, async (shardId, own) => [
    await readJson(db, select(shardId, own)),
  ]);
  return joinJson(parts);
}

/** JSON arrays as one. */
export function joinJson(arrays: readonly string[]): string {
  const rows = arrays.map((json) => json.slice(1, -1)).filter((json) => json !== '');
  return `[${rows.join()}]`;
}
