/**
 * Daily partitions of `notification` and `delivery_attempt`: created ahead, analyzed once they have rows, and dropped whole
 * after their retention. The default partitions hold the rows of all other days.
 */
import type { Database, Tx } from '../db/db.ts';
import { raw, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';

export const DAY_MS = 86_400_000;
/** Days after today that have a partition, so that none is missing while no process runs for a day. */
const DAYS_AHEAD = 2;
/** Advisory lock of the transaction that changes partitions. */
const PARTITIONS_LOCK = 0x6362_0008;

type Partitioned = 'notification' | 'delivery_attempt';
const timeColumn = { notification: sql`created_at`, delivery_attempt: sql`started_at` };

/**
 * Creates missing partitions, analyzes new ones, and drops one partition of each table whose last row is older than its limit. A
 * partition waits for a later call while another transaction uses the table. Returns whether it dropped one.
 */
export async function maintainPartitions(
  database: Database,
  { now, before }: { now: Date; before: Record<Partitioned, Date> },
): Promise<boolean> {
  let isDropped = false;
  for (const table of ['notification', 'delivery_attempt'] as const) {
    const days = await listDays(database, table);
    const today = startOfDay(now);
    for (let ahead = 0; ahead <= DAYS_AHEAD; ahead += 1) {
      const day = today + ahead * DAY_MS;
      if (!days.includes(day)) await unlessLocked(database, (tx) => createDay(tx, table, day));
    }
    await analyzeNew(database, table);
    const old = days.find((day) => day + DAY_MS <= before[table].getTime());
    if (old !== undefined) isDropped = (await dropDay(database, table, old)) || isDropped;
  }
  return isDropped;
}

const startOfDay = (time: Date): number => Math.floor(time.getTime() / DAY_MS) * DAY_MS;

/** `notification_20260131` */
const nameOf = (table: Partitioned, day: number): string =>
  `${table}_${new Date(day).toISOString().slice(0, 10).replaceAll('-', '')}`;

/** The days that have a partition, oldest first. */
async function listDays(database: Database, table: Partitioned): Promise<number[]> {
  const rows = await database.query<{ name: string }>(sql`
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = ${table}::text::regclass and c.relname ~ '_[0-9]{8}$' order by c.relname`);
  return rows.map(({ name }) => {
    const text = name.slice(-8);
    return Date.parse(`${text.slice(0, 4)}-${text.slice(4, 6)}-${text.slice(6)}T00:00:00Z`);
  });
}

/**
 * Analyzes partitions that have their first rows. Without statistics, the planner may choose the wrong index until autovacuum
 * comes.
 */
async function analyzeNew(database: Database, table: Partitioned): Promise<void> {
  const rows = await database.query<{ name: string }>(sql`
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = ${table}::text::regclass and c.reltuples < 0 and pg_relation_size(c.oid) > 0 order by c.relname`);
  for (const { name } of rows) await database.query(raw(`analyze ${name}`));
}

/** Does nothing if another process has created it, or if the default partition has rows of the day already. */
async function createDay(tx: Tx, table: Partitioned, day: number): Promise<void> {
  await lockPartitions(tx);
  // Otherwise another transaction could commit a row of the day between the look and the creation.
  await tx.query(raw(`lock table ${table}_default in access exclusive mode`));
  const [from, until] = [new Date(day), new Date(day + DAY_MS)];
  const column = timeColumn[table];
  const [row] = await tx.query<{ is_taken: boolean }>(sql`
    select to_regclass(${nameOf(table, day)}) is not null
      or exists (select from ${raw(`${table}_default`)} where ${column} >= ${from} and ${column} < ${until}) as is_taken`);
  if (row?.is_taken === true) return;
  await tx.query(
    raw(`create table ${nameOf(table, day)} partition of ${table}
      for values from ('${from.toISOString()}') to ('${until.toISOString()}')`),
  );
}

/** Keeps pending notifications in the default partition. Returns false if other transactions use the table. */
async function dropDay(database: Database, table: Partitioned, day: number): Promise<boolean> {
  const name = nameOf(table, day);
  const isDone = await unlessLocked(database, async (tx) => {
    await lockPartitions(tx);
    const [row] = await tx.query<{ is_there: boolean }>(
      sql`select to_regclass(${name}) is not null as is_there`,
    );
    if (row?.is_there !== true) return false;
    await tx.query(raw(`alter table ${table} detach partition ${name}`));
    if (table === 'notification')
      await tx.query(
        raw(`insert into notification select n.* from ${name} n
          where exists (select from queue q where q.shard_id = n.shard_id and q.id = n.id)`),
      );
    await tx.query(raw(`drop table ${name}`));
    return true;
  });
  return isDone === true;
}

async function lockPartitions(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${PARTITIONS_LOCK})`);
}
