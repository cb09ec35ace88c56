/**
 * Ranges of blocks and of creation times in the delivery log. Ids grow with both, but not strictly, because some notifications are
 * written long after their blocks. So a page examines rows in the order of their ids, and first skips ids outside the range.
 */
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import type { LogFilter } from './log-filter.ts';
import type { ShardKey } from './shards.ts';

/** Ids from `low` on and below `high`. */
export type Span = { low: number; high: number };

export const hasRange = ({ from, until, fromBlock, toBlock }: LogFilter): boolean =>
  [from, until, fromBlock, toBlock].some((bound) => bound !== undefined);

type Start = {
  order: 'newest first' | 'oldest first';
  after: number | undefined;
  /** How many ids from the cursor on the page examines at least. */
  stepIds: number;
  /** A condition on `n` that names the shards for Citus. Elsewhere all shards are looked through, by indexes over all of them. */
  isOwn?: Sql;
};

/**
 * A page that examines rows after the cursor, and if none of them matches, those from the nearest notification in the filter's range on.
 * `examine` gets the cursor, and returns the matches among the rows that it examines and the last one of these, undefined at the end.
 */
export async function inRange(
  db: Db,
  filter: LogFilter,
  { limit, ...start }: Start & { limit: number },
  examine: (after: number | undefined) => Promise<{ keys: ShardKey<number>[]; last: number | undefined }>,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const read = async (from: number | undefined) => {
    const { keys, last } = await examine(from);
    return { keys, next: keys.length === limit ? keys.at(-1)?.id : last };
  };
  const first = await read(start.after);
  // An index finds the few notifications of a transaction.
  const isSkipping = filter.hash === undefined && hasRange(filter);
  if (!isSkipping || first.keys.length > 0 || first.next === undefined) return first;
  const after = await skipToRange(db, filter, { ...start, after: first.next });
  return after === undefined ? { keys: [], next: undefined } : read(after);
}

/**
 * The cursor after which the next ids have a notification in the filter's range. Undefined if there is none any more. Halves the ids
 * that are left until the nearest one is known to `stepIds`.
 */
export async function skipToRange(
  db: Db,
  filter: LogFilter,
  { order, after, stepIds, isOwn = sql`true` }: Start,
): Promise<number | undefined> {
  const isDown = order === 'newest first';
  const split = ({ low, high }: Span, ids: number): { near: Span; far: Span } => {
    const middle = isDown ? Math.max(high - ids, low) : Math.min(low + ids, high);
    const [below, above] = [
      { low, high: middle },
      { low: middle, high },
    ] as const;
    return isDown ? { near: above, far: below } : { near: below, far: above };
  };
  const has = (span: Span) => hasAny(db, filter, span, isOwn);
  const end = isDown && after !== undefined ? after : await findEnd(db);
  let span = isDown ? { low: 0, high: end } : { low: (after ?? -1) + 1, high: end };
  const { near, far } = split(span, stepIds);
  if (!(await has(near))) {
    if (!(await has(far))) return undefined;
    span = far;
    while (span.high - span.low > stepIds) {
      const half = split(span, Math.ceil((span.high - span.low) / 2));
      span = (await has(half.near)) ? half.near : half.far;
    }
  }
  return isDown ? span.high : span.low - 1;
}

/**
 * Whether a notification with an id in the span is in the filter's range. The bounds are subqueries because the planner then expects few
 * rows. It takes ids, blocks and times for independent, so with the bounds it would scan a table of which half is on each side.
 */
async function hasAny(db: Db, filter: LogFilter, { low, high }: Span, isOwn: Sql): Promise<boolean> {
  if (low >= high) return false;
  const { from = '-infinity', until = 'infinity', fromBlock = 0, toBlock = Number.MAX_SAFE_INTEGER } = filter;
  const blocks = sql`
    and n.block_number >= (select ${fromBlock}::bigint) and n.block_number <= (select ${toBlock}::bigint)`;
  const times = sql`
    and n.created_at >= (select ${from}::timestamptz) and n.created_at < (select ${until}::timestamptz)`;
  const rows = await db.query(sql`
    select 1 from notification n
    where ${isOwn} and n.id + 0 >= (select ${low}::bigint) and n.id + 0 < (select ${high}::bigint)
      ${filter.fromBlock === undefined && filter.toBlock === undefined ? sql`` : blocks}
      ${filter.from === undefined && filter.until === undefined ? sql`` : times}
    limit 1`);
  return rows.length > 0;
}

/** An id above that of every notification. */
async function findEnd(db: Db): Promise<number> {
  const [row] = await db.query<{ end: number }>(sql`select last_value + 1 as end from notification_id_seq`);
  return row?.end ?? 0;
}
