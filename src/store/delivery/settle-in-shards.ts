/**
 * Records outcomes on Citus: the statements of settle.ts, with one for each shard and table.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { forEachShard, unnested } from '../db/shard-rows.ts';
import { frequent, raw, type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import { recordFailures } from './receivers.ts';
import {
  AHEAD_MS,
  attemptColumns,
  endSucceeded,
  FAILURES_MAX,
  LATER_SUCCESS,
  noteSuccess,
  type Settlement,
  SUCCESS_STEP_MS,
  settleEnded,
  settleFailures,
  settleSuccesses,
  successColumns,
  validOf,
} from './settle-sql.ts';

/** `orderedId` is the watched address in strict order whose next notification may now be sent. */
export type Recorded = { settlement: Settlement; isUpdated: boolean; orderedId: string | null };

/** An outcome of a lane that is still leased. `position` counts the settlements from 1. */
type Valid = {
  shardId: number;
  position: number;
  settlement: Settlement;
  /** As PostgreSQL writes it, moved by the steps of the clock. Null after a 2xx. */
  nextRetryAt: string | null;
  /** Of a success: `failuresBefore`, if it is known. */
  failures?: number | undefined;
};

/** What a statement returns of a row of `queue` whose outcome counted. Citus allows no times there, because they depend on settings. */
type UpdatedRow = { position: number; state: string; watched_address_id: string; is_ordered: boolean };
type SucceededRow = UpdatedRow & {
  created_at: Date;
  sequence: number | null;
  reorg_id: number | null;
  tx_hash: Uint8Array | null;
  failures: number;
  is_seen: boolean;
};
type Of<Row> = Valid & { row: Row };
type Updated = Of<UpdatedRow>;

/** Settles rows of one shard that are unchanged since they were read and that no strict order depends on. Returns the other settlements. */
export async function settleInShard(
  database: Database,
  shardId: number,
  settlements: readonly Settlement[],
): Promise<Settlement[]> {
  const settled = await unlessLocked(database, async (tx) => {
    const { valid, notedAt } = await readValid(tx, settlements);
    const updated = await settleQueuedOf(tx, shardId, { own: valid, fits: sql`n.sequence is null` });
    await logAttempts(tx, updated);
    await noteUpdated(tx, updated, notedAt);
    return new Set(updated.map(({ settlement }) => settlement));
  });
  return settlements.filter((settlement) => settled?.has(settlement) !== true);
}

/** For lanes that are still leased: writes the log rows, and updates the notifications whose outcome still counts. */
export async function recordInShards(tx: Tx, settlements: readonly Settlement[]): Promise<Recorded[]> {
  const { valid, notedAt } = await readValid(tx, settlements);
  const recorded = await forEachShard(valid, async (shardId, own) => {
    await lockSettledOf(tx, shardId, own);
    const updated = await settleQueuedOf(tx, shardId, { own, fits: sql`true` });
    const late = await settleEndedOf(tx, shardId, own);
    const known = new Map([...updated, ...late].map(({ position, failures }) => [position, failures]));
    const attempts = own.map((one) => ({ ...one, failures: known.get(one.position) }));
    await logAttempts(tx, await withoutLogged(tx, shardId, attempts));
    await noteUpdated(tx, updated, notedAt);
    return own.map(({ position, settlement }): Recorded & { position: number } => {
      const queued = updated.find((one) => one.position === position);
      const ended = late.find((one) => one.position === position);
      const orderedId =
        queued?.row.is_ordered === true ? queued.row.watched_address_id : (ended?.orderedId ?? null);
      return { position, settlement, isUpdated: queued !== undefined || ended !== undefined, orderedId };
    });
  });
  return recorded.sort((one, other) => one.position - other.position);
}

/**
 * The outcomes of lanes that are still leased under the same epoch. The lanes stay leased until this transaction ends. `notedAt` is
 * the time of the last success that is noted.
 */
async function readValid(
  tx: Tx,
  settlements: readonly Settlement[],
): Promise<{ valid: Valid[]; notedAt: Date | null | undefined }> {
  const rows = await tx.query<{ position: number; next_retry_at: string | null; noted_at: Date | null }>(
    frequent(sql`
    with ${validOf(settlements)}
    select v.position, v.next_retry_at::text, l.at as noted_at from valid v, last_success l order by v.position`),
  );
  const valid = rows.flatMap(({ position, next_retry_at: nextRetryAt }): Valid[] => {
    const settlement = settlements[position - 1];
    return settlement === undefined
      ? []
      : [{ shardId: settlement.lane.shardId, position, settlement, nextRetryAt }];
  });
  return { valid, notedAt: rows[0]?.noted_at };
}

type Value = string | number | boolean | null | undefined;
/** For each column of a relation: its type, and its value of an element. */
type Columns<T> = Record<string, [type: string, of: (one: T) => Value]>;

/** A relation with a row for each element. */
function relationOf<T>(elements: readonly T[], columns: Columns<T>): Sql {
  return unnested(
    Object.entries(columns).map(([name, [type, of]]) => {
      const values = elements.map(of);
      const isText = type === 'text' || type === 'timestamptz' || type === 'bytea';
      const array = isText
        ? values.map((value) => value ?? null)
        : listOf(values.map((value) => String(value ?? null)));
      return { name, type, array: sql`${array}` };
    }),
  );
}

const attemptOf: Columns<Valid> = {
  shard_id: ['bigint', ({ shardId }) => shardId],
  position: ['bigint', ({ position }) => position],
  notification_id: ['bigint', ({ settlement }) => settlement.notificationId],
  lane_id: ['bigint', ({ settlement }) => settlement.lane.id],
  revision: ['integer', ({ settlement }) => settlement.revision],
  started_at: ['timestamptz', ({ settlement }) => settlement.startedAt.toISOString()],
  duration_ms: ['integer', ({ settlement }) => settlement.durationMs],
  outcome: ['text', ({ settlement }) => settlement.outcome],
  status: ['integer', ({ settlement }) => settlement.status],
  response: ['text', ({ settlement }) => settlement.response],
  request_count: ['smallint', ({ settlement }) => settlement.requestCount ?? 1],
  failures: ['smallint', ({ failures }) => failures],
};

/** What `settleSuccesses`, `settleFailures` and `settleEnded` read of an outcome. */
const outcomeOf: Columns<Valid> = {
  position: ['bigint', ({ position }) => position],
  notification_id: ['bigint', ({ settlement }) => settlement.notificationId],
  epoch: ['bigint', ({ settlement }) => settlement.lane.epoch],
  may_have_arrived: ['boolean', ({ settlement }) => settlement.mayHaveArrived],
  revision: ['integer', ({ settlement }) => settlement.revision],
  redelivery_count: ['integer', ({ settlement }) => settlement.redeliveryCount],
  retry_count: ['integer', ({ settlement }) => settlement.retryCount],
  settled_at: ['timestamptz', ({ settlement }) => settlement.settledAt.toISOString()],
  next_retry_at: ['timestamptz', ({ nextRetryAt }) => nextRetryAt],
};

const succeededOf: Columns<Of<SucceededRow>> = {
  shard_id: ['bigint', ({ shardId }) => shardId],
  notification_id: ['bigint', ({ settlement }) => settlement.notificationId],
  created_at: ['timestamptz', ({ row }) => row.created_at.toISOString()],
  state: ['text', ({ row }) => row.state],
  settled_at: ['timestamptz', ({ settlement }) => settlement.settledAt.toISOString()],
  sequence: ['bigint', ({ row }) => row.sequence],
  failures: ['integer', ({ row }) => row.failures],
  redelivery_count: ['integer', ({ settlement }) => settlement.redeliveryCount],
  revision: ['integer', ({ settlement }) => settlement.revision],
  reorg_id: ['bigint', ({ row }) => row.reorg_id],
  tx_hash: ['bytea', ({ row }) => row.tx_hash && `\\x${Buffer.from(row.tx_hash).toString('hex')}`],
  is_seen: ['boolean', ({ row }) => row.is_seen],
};

const failedOf: Columns<Updated> = {
  lane_id: ['bigint', ({ settlement }) => settlement.lane.id],
  position: ['bigint', ({ position }) => position],
  settled_at: ['timestamptz', ({ settlement }) => settlement.settledAt.toISOString()],
  next_retry_at: ['timestamptz', ({ nextRetryAt }) => nextRetryAt],
  outcome: ['text', ({ settlement }) => settlement.outcome],
  status: ['integer', ({ settlement }) => settlement.status],
  state: ['text', ({ row }) => row.state],
};

/** The outcomes `s`, one for each notification and delivery, as `outcomesOf` chooses them. The constant shard makes Citus route them. */
function outcomesIn(shardId: number, own: readonly Valid[]): Sql {
  const rank = ({ nextRetryAt, settlement }: Valid) =>
    nextRetryAt === null ? Number.POSITIVE_INFINITY : settlement.retryCount;
  const chosen = new Map<string, Valid>();
  for (const one of own) {
    const { notificationId, revision, redeliveryCount } = one.settlement;
    const key = `${notificationId} ${revision} ${redeliveryCount}`;
    const other = chosen.get(key);
    if (other === undefined || rank(one) > rank(other)) chosen.set(key, one);
  }
  return sql`(select ${shardId}::bigint as shard_id, o.* from ${relationOf([...chosen.values()], outcomeOf)} as o) as s`;
}

/** The outcomes that count for rows of `queue`. */
async function settleQueuedOf(
  tx: Tx,
  shardId: number,
  { own, fits }: { own: readonly Valid[]; fits: Sql },
): Promise<Updated[]> {
  const isHere = sql`n.shard_id = ${shardId} and ${fits}`;
  const [successes, failures] = [true, false].map((isSuccess) =>
    own.filter(({ nextRetryAt }) => (nextRetryAt === null) === isSuccess),
  );
  // A row can have both. Then the success counts, whichever statement is first: none finds the row afterwards.
  const succeeded =
    successes === undefined || successes.length === 0
      ? []
      : await tx.query<SucceededRow>(sql`
    ${settleSuccesses(outcomesIn(shardId, successes), isHere)} returning s.position, ${successColumns}`);
  const failed =
    failures === undefined || failures.length === 0
      ? []
      : await tx.query<UpdatedRow>(sql`
    ${settleFailures(outcomesIn(shardId, failures), isHere)}
    returning s.position, n.state, n.watched_address_id, false as is_ordered`);
  const byPosition = new Map(own.map((one) => [one.position, one]));
  const withRow = <Row extends UpdatedRow>(row: Row): Of<Row>[] => {
    const one = byPosition.get(row.position);
    return one === undefined ? [] : [{ ...one, row }];
  };
  const ended = succeeded.flatMap(withRow).filter(isKeptInEnded);
  if (ended.length > 0) await tx.query(endSucceeded(relationOf(ended, succeededOf)));
  const successful = succeeded
    .flatMap(withRow)
    .map((one) => ({ ...one, failures: failuresBefore(one.settlement, one.row.failures) }));
  return [...successful, ...failed.flatMap(withRow)];
}

const failuresBefore = ({ redeliveryCount }: Settlement, failures: number): number =>
  redeliveryCount === 0 ? Math.min(failures, FAILURES_MAX) : LATER_SUCCESS;

/** Whether `endSucceeded` keeps the row. Most statements keep none. */
const isKeptInEnded = ({ row, settlement }: Of<SucceededRow>): boolean =>
  row.failures > 0 ||
  row.sequence !== null ||
  row.reorg_id !== null ||
  settlement.redeliveryCount > 0 ||
  settlement.revision > 0;

async function logAttempts(tx: Tx, attempts: readonly Valid[]): Promise<void> {
  if (attempts.length === 0) return;
  await tx.query(sql`
    insert into delivery_attempt (${attemptColumns}, failures) select ${attemptColumns}, failures
    from ${relationOf(attempts, attemptOf)} as v
    order by position`);
}

/** Leaves out attempts that are stored already, because the worker repeats a commit whose answer was lost. */
async function withoutLogged(tx: Tx, shardId: number, own: readonly Valid[]): Promise<Valid[]> {
  const rows = await tx.query<{ position: number }>(sql`
    select v.position from ${relationOf(own, attemptOf)} as v join delivery_attempt a on a.shard_id = ${shardId}
      and a.notification_id = v.notification_id and a.started_at = v.started_at`);
  const logged = new Set(rows.map(({ position }) => position));
  return own.filter(({ position }) => !logged.has(position));
}

/** Notes the last success, unless a recent one is noted, and failing receivers, on the coordinator. */
async function noteUpdated(
  tx: Tx,
  updated: readonly Updated[],
  notedAt: Date | null | undefined,
): Promise<void> {
  const times = updated.flatMap(({ nextRetryAt, settlement }) =>
    nextRetryAt === null ? settlement.settledAt.getTime() : [],
  );
  const newest = Math.max(...times);
  const sinceMs = newest - (notedAt?.getTime() ?? Number.NEGATIVE_INFINITY);
  if (sinceMs > SUCCESS_STEP_MS || (times.length > 0 && sinceMs < -AHEAD_MS))
    await tx.query(noteSuccess(sql`(select ${new Date(newest)}::timestamptz as at)`));
  const failed = updated.filter(({ nextRetryAt }) => nextRetryAt !== null);
  if (failed.length > 0)
    await tx.query(
      sql`with updated as (select * from ${relationOf(failed, failedOf)} as u) ${recordFailures}`,
    );
}

/** Locks the rows, which other transactions could otherwise move between `queue` and `ended` while this one looks for them. */
async function lockSettledOf(tx: Tx, shardId: number, own: readonly Valid[]): Promise<void> {
  const ids = own.map(({ settlement }) => settlement.notificationId);
  const lock = (table: string, wanted: readonly number[]) =>
    tx.query<{ id: number }>(sql`
      select id from ${raw(table)} where shard_id = ${shardId} and id = any(${listOf(wanted)}::bigint[])
      order by id for update`);
  const queued = new Set((await lock('queue', ids)).map(({ id }) => id));
  const left = ids.filter((id) => !queued.has(id));
  if (left.length > 0) await lock('notification', left);
}

async function settleEndedOf(
  tx: Tx,
  shardId: number,
  own: readonly Valid[],
): Promise<{ position: number; orderedId: string | null; failures: number | undefined }[]> {
  const outcomes = outcomesIn(shardId, own);
  const rows = await tx.query<{ position: number; id: number; is_ordered: boolean; failures: number }>(sql`
    ${settleEnded(outcomes, sql`${shardId}`)} and n.shard_id = ${shardId}
    returning s.position, n.id, n.sequence is not null and n.state = 'processed' as is_ordered, n.retry_count as failures`);
  const byPosition = new Map(own.map((one) => [one.position, one]));
  const toLate = ({ position, failures }: { position: number; failures: number }) => {
    const one = byPosition.get(position);
    const isSuccess = one !== undefined && one.nextRetryAt === null;
    return { position, failures: isSuccess ? failuresBefore(one.settlement, failures) : undefined };
  };
  const ordered = rows.filter((row) => row.is_ordered).map(({ id }) => id);
  if (ordered.length === 0) return rows.map((row) => ({ ...toLate(row), orderedId: null }));
  const records = await tx.query<{ id: number; watched_address_id: string }>(sql`
    select id, watched_address_id from notification where shard_id = ${shardId} and id = any(${listOf(ordered)}::bigint[])`);
  const recordOf = new Map(records.map((row) => [row.id, row.watched_address_id]));
  return rows.map((row) => ({ ...toLate(row), orderedId: recordOf.get(row.id) ?? null }));
}
