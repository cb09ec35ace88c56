/**
 * Partitions of `notification`, `delivery_attempt` and `record_delivery_sum`: created ahead, analyzed once they have rows, and dropped whole after
 * their retention. Each has a number of days, so that a table has about a dozen of them for any retention: a query without a
 * time reads all of them. The default partitions hold the rows of all other days.
 */
import type { Clock } from '../../core/clock.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { requireAnswers } from '../db/lost-shards.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';

export const DAY_MS = 86_400_000;
/** From now on there are partitions for this time, so that none is missing while no process runs for a day. */
const AHEAD_MS = 2 * DAY_MS;
/** A partition has this share of the retention, in whole days. */
const SHARE = 1 / 10;
/** Advisory lock of the transaction that changes partitions. */
const PARTITIONS_LOCK = 0x6362_0008;

const partitioned = ['notification', 'delivery_attempt', 'record_delivery_sum'] as const;
type Partitioned = (typeof partitioned)[number];
/** A partition: times from `from` until before `until`, both midnight UTC. */
type Span = { from: number; until: number };
const timeColumn = {
  notification: sql`created_at`,
  delivery_attempt: sql`started_at`,
  record_delivery_sum: sql`started_at`,
};

/**
 * Old partitions of `notification` by name: whether too many of their rows are needed to drop them, when that was looked at on the steady
 * clock, and the page up to which the finished rows of a crowded one are deleted; infinite once the pass has ended.
 */
export type Crowded = Map<string, { isCrowded: boolean; lookedMs: number; page: number }>;

/** How often a partition is looked at, because the look reads the queue. Pending notifications of a crowded one seldom end. */
const [CROWDED_LOOK_MS, LOOK_MS] = [3_600_000, 60_000];
/** Dropping a partition copies at most this many rows of each kind, because blocks and delivery wait for it. */
const COPIED_ROWS_MAX = 10_000;

/** Rows of each table from before this time may be deleted. */
type Limits = Record<Partitioned, Date>;

type OldPartitions = {
  before: Limits;
  /** Kept between calls. */
  crowded: Crowded;
  clock: Pick<Clock, 'steadyMs'>;
};

/** Creates missing partitions and analyzes new ones. A partition waits for a later call while another transaction uses the table. */
export async function preparePartitions(
  database: Database,
  { now, before }: { now: Date; before: Limits },
): Promise<void> {
  for (const table of partitioned) {
    const lengthMs = lengthOf(now.getTime() - before[table].getTime());
    const times = { nowMs: now.getTime(), lengthMs };
    const spans = await listSpans(database, table);
    const missing = await findMissing(database, table, { ...times, spans });
    if (missing.length > 0) {
      await requireAnswers(database, 'all', 'the creation of partitions');
      await unlessLocked(database, (tx) => createPartitions(tx, table, missing));
    }
    await analyzeNew(database, table);
  }
}

/**
 * Drops one partition of each table whose last row is older than its limit, except crowded ones. A partition waits for a later call while
 * another transaction uses the table. Returns whether it dropped one.
 */
export async function dropOldPartitions(
  database: Database,
  { before, crowded, clock }: OldPartitions,
): Promise<boolean> {
  let isDropped = false;
  for (const table of partitioned) {
    const spans = await listSpans(database, table);
    for (const old of spans.filter(({ until }) => until <= before[table].getTime())) {
      if (table === 'notification' && (await isCrowded(database, old, { crowded, clock }))) continue;
      if (await dropSpan(database, table, old)) {
        isDropped = true;
        crowded.delete(nameOf(table, old));
      }
      break;
    }
  }
  return isDropped;
}

/** Whether too many of its rows are needed. */
async function isCrowded(
  database: Database,
  span: Span,
  { crowded, clock }: Pick<OldPartitions, 'crowded' | 'clock'>,
): Promise<boolean> {
  const name = nameOf('notification', span);
  const lookedMs = clock.steadyMs();
  const known = crowded.get(name);
  const keptMs = known?.isCrowded === true ? CROWDED_LOOK_MS : LOOK_MS;
  if (known !== undefined && lookedMs - known.lookedMs < keptMs) return known.isCrowded;
  const isNow = (await unlessGone(areManyNeeded(database, span))) === true;
  const page = known !== undefined && Number.isFinite(known.page) ? known.page : 0;
  crowded.set(name, { isCrowded: isNow, lookedMs, page });
  return isNow;
}

/** SQLSTATE of a table that does not exist. Another process may have dropped the partition. */
const UNDEFINED_TABLE = '42P01';

/** Undefined if the statement found no such table. */
export async function unlessGone<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === UNDEFINED_TABLE) return undefined;
    throw error;
  }
}

/** Whether more rows of the partition are needed than may be copied: of receivers that have failed for as long as the retention. */
async function areManyNeeded(db: Db, span: Span): Promise<boolean> {
  const [low, high] = [span.from, span.until].map((time) => sql`${new Date(time)}::timestamptz`);
  const pending = await db.query(sql`
    select 1 from queue q where q.created_at >= ${low} and q.created_at < ${high} limit ${COPIED_ROWS_MAX + 1}`);
  if (pending.length > COPIED_ROWS_MAX) return true;
  const [chain] = await db.query<{ number: number | null }>(sql`select ${finalNumber} as number`);
  const open = await db.query(sql`
    select 1 from ${raw(nameOf('notification', span))} n
    where n.block_number > ${chain?.number ?? null}::bigint limit ${COPIED_ROWS_MAX + 1}`);
  return open.length > COPIED_ROWS_MAX;
}

const startOfDay = (timeMs: number): number => Math.floor(timeMs / DAY_MS) * DAY_MS;

const lengthOf = (retentionMs: number): number =>
  Math.max(1, Math.ceil((retentionMs * SHARE) / DAY_MS)) * DAY_MS;

/**
 * Partitions to create, for the times from today until AHEAD_MS from now. None has a day that is in the default partition
 * already, because PostgreSQL would refuse it.
 */
async function findMissing(
  db: Db,
  table: Partitioned,
  { nowMs, lengthMs, spans }: { nowMs: number; lengthMs: number; spans: readonly Span[] },
): Promise<Span[]> {
  const missing: Span[] = [];
  let from = startOfDay(nowMs);
  while (from <= nowMs + AHEAD_MS) {
    const known = spans.find((span) => span.from <= from && from < span.until);
    const next = Math.min(...spans.map((span) => span.from).filter((start) => start > from));
    const until = known?.until ?? Math.min(from + lengthMs, next);
    if (known === undefined) missing.push(...(await freeSpans(db, table, { from, until })));
    from = until;
  }
  return missing;
}

/** The consecutive days without a row in the default partition. */
async function freeSpans(db: Db, table: Partitioned, { from, until }: Span): Promise<Span[]> {
  const days = Array.from({ length: (until - from) / DAY_MS }, (_, index) => from + index * DAY_MS);
  const spans: Span[] = [];
  for (const day of days) {
    // One statement for each day, because Citus refuses a list of days here.
    if (await hasDefaultRows(db, table, { from: day, until: day + DAY_MS })) continue;
    const last = spans.at(-1);
    if (last?.until === day) last.until += DAY_MS;
    else spans.push({ from: day, until: day + DAY_MS });
  }
  return spans;
}

async function hasDefaultRows(db: Db, table: Partitioned, { from, until }: Span): Promise<boolean> {
  const column = timeColumn[table];
  const [low, high] = [from, until].map((time) => sql`${new Date(time)}::timestamptz`);
  const rows = await db.query(sql`
    select 1 from ${raw(`${table}_default`)} where ${column} >= ${low} and ${column} < ${high} limit 1`);
  return rows.length > 0;
}

/** Condition on `createdAt`: days before `before` whose notifications have no partition, or none any more. */
export async function isOutsidePartitions(db: Db, createdAt: Sql, before: Date): Promise<Sql> {
  let untilMs = before.getTime();
  let isOutside = sql``;
  for (const { from, until } of (await listSpans(db, 'notification')).toReversed()) {
    if (from >= untilMs) continue;
    // The usual case is a bound of the index instead of a condition on each of its rows.
    if (until >= untilMs) untilMs = from;
    else
      isOutside = sql`${isOutside} and (${createdAt} < ${new Date(from)} or ${createdAt} >= ${new Date(until)})`;
  }
  return sql`${createdAt} < ${new Date(untilMs)}${isOutside}`;
}

const nameOf = (table: Partitioned, { from, until }: Span): string =>
  [table, ...[from, until].map((day) => new Date(day).toISOString().slice(0, 10).replaceAll('-', ''))].join(
    '_',
  );

/** The times of all partitions, oldest first. Their names contain them: `notification_20260131_20260203`. */
async function listSpans(db: Db, table: Partitioned): Promise<Span[]> {
  const rows = await db.query<{ name: string }>(sql`
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = ${table}::text::regclass and c.relname ~ '_[0-9]{8}_[0-9]{8}$' order by c.relname`);
  return rows.map(({ name }) => ({ from: timeOf(name.slice(-17, -9)), until: timeOf(name.slice(-8)) }));
}

/** `20260131` */
const timeOf = (day: string): number =>
  Date.parse(`${day.slice(0, 4)}-${day.slice(4, 6)}-${day.slice(6)}T00:00:00Z`);

/**
 * Analyzes partitions that have their first rows. Without statistics, the planner may choose the wrong index until autovacuum
 * comes.
 */
async function analyzeNew(database: Database, table: Partitioned): Promise<void> {
  // On Citus the rows are on the workers, and their autovacuum analyzes them.
  if (database.isDistributed === true) return;
  const rows = await database.query<{ name: string }>(sql`
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = ${table}::text::regclass and c.reltuples < 0 and pg_relation_size(c.oid) > 0 order by c.relname`);
  for (const { name } of rows) await database.query(raw(`analyze ${name}`));
}

/** Creates these partitions, except those that overlap others or have rows in the default partition by now. */
async function createPartitions(tx: Tx, table: Partitioned, missing: readonly Span[]): Promise<void> {
  await lockPartitions(tx);
  // Otherwise another transaction could commit a row of these days between the look and the creation.
  await tx.query(raw(`lock table ${table}_default in access exclusive mode`));
  const known = await listSpans(tx, table);
  for (const span of missing) {
    const isTaken = known.some(({ from, until }) => from < span.until && span.from < until);
    if (isTaken || (await hasDefaultRows(tx, table, span))) continue;
    const bounds = [span.from, span.until].map((time) => `('${new Date(time).toISOString()}')`);
    await tx.query(
      raw(`create table ${nameOf(table, span)} partition of ${table} for values from ${bounds.join(' to ')}`),
    );
  }
}

/** Keeps needed notifications in the default partition. Returns false if other transactions use the table. */
async function dropSpan(database: Database, table: Partitioned, span: Span): Promise<boolean> {
  await requireAnswers(database, 'all', 'retention');
  const name = nameOf(table, span);
  const isDone = await unlessLocked(database, async (tx) => {
    await lockPartitions(tx);
    const [row] = await tx.query<{ is_there: boolean }>(
      sql`select to_regclass(${name}) is not null as is_there`,
    );
    if (row?.is_there !== true) return false;
    await tx.query(raw(`alter table ${table} detach partition ${name}`));
    if (table === 'notification') await keepNeeded(tx, name, span);
    await tx.query(raw(`drop table ${name}`));
    return true;
  });
  return isDone === true;
}

/** The newest block that no reorg can orphan. Null before a follower has started. */
export const finalNumber = sql`(select finalized_number from chain)`;

/**
 * Copies pending notifications, and those of blocks that are not final, to the default partition. Two statements, because one with
 * both conditions would read the whole partition. The first one starts from the queue and uses the index of ids, the second one
 * uses the index of blocks. The whole queue is read under the lock, because until then a redelivery or a reorg may have brought any
 * notification back, and nothing in its row says so.
 */
async function keepNeeded(tx: Tx, name: string, { from, until }: Span): Promise<void> {
  const [low, high] = [from, until].map((time) => sql`${new Date(time)}::timestamptz`);
  const partition = raw(name);
  const [chain] = await tx.query<{ number: number | null }>(sql`select ${finalNumber} as number`);
  const finalNow = sql`${chain?.number ?? null}::bigint`;
  await tx.query(sql`
    insert into notification select n.* from queue q join ${partition} n on n.shard_id = q.shard_id and n.id = q.id
    where q.created_at >= ${low} and q.created_at < ${high}`);
  await tx.query(sql`
    insert into notification select n.* from ${partition} n
    where n.block_number > ${finalNow} and not exists (
      select from queue q where q.shard_id = n.shard_id and q.id = n.id)`);
}

async function lockPartitions(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${PARTITIONS_LOCK})`);
}
