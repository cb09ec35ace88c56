/**
 * Records outcomes on Citus: the statements of settle.ts, with one for each shard and table.
 */
import type { Database, Tx } from '../db/db.ts';
import { forEachShard, recordsOf } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import { recordFailures } from './receivers.ts';
import {
  attemptColumns,
  endSucceeded,
  noteSuccess,
  outcomesOf,
  type Settlement,
  settleEnded,
  settleFailures,
  settleSuccesses,
  successColumns,
  validOf,
} from './settle-sql.ts';

/** `orderedId` is the watched address in strict order whose next notification may now be sent. */
export type Recorded = { settlement: Settlement; isUpdated: boolean; orderedId: string | null };

const VALID_COLUMNS = `lane_id bigint, epoch bigint, may_have_arrived boolean, shard_id bigint, notification_id bigint,
  revision integer, retry_count integer, redelivery_count integer, started_at timestamptz, duration_ms integer, outcome text,
  status integer, response text, request_count smallint, settled_at timestamptz, position bigint, next_retry_at timestamptz`;
const UPDATED_COLUMNS = `${VALID_COLUMNS}, state text, watched_address_id uuid, is_ordered boolean`;
const SUCCEEDED_COLUMNS = `${UPDATED_COLUMNS}, created_at timestamptz, sequence bigint, reorg_id bigint, tx_hash bytea,
  failures integer, is_seen boolean`;

/** An outcome of a lane that is still leased, as JSON. */
type Valid = { shardId: number; position: number; json: string };
/** An outcome that counted for a row of `queue`. */
type Updated = { position: number; json: string; isOrdered: boolean; recordId: string };

/** Settles rows that are unchanged since they were read and that no strict order depends on. Returns the other settlements. */
export async function settleInShards(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Settlement[]> {
  const settled = await unlessLocked(database, async (tx) => {
    const valid = await readValid(tx, settlements);
    const updated = await forEachShard(valid, async (shardId, own) => {
      const found = await settleQueuedOf(tx, { shardId, own, fits: sql`n.sequence is null` });
      await logAttempts(tx, shardId, { json: found, isRepeatable: false });
      return found;
    });
    await noteUpdated(tx, updated);
    return new Set(updated.map(({ position }) => position - 1));
  });
  return settlements.filter((_, index) => settled?.has(index) !== true);
}

/** For lanes that are still leased: writes the log rows, and updates the notifications whose outcome still counts. */
export async function recordInShards(tx: Tx, settlements: readonly Settlement[]): Promise<Recorded[]> {
  const valid = await readValid(tx, settlements);
  const recorded = await forEachShard(valid, async (shardId, own) => {
    await lockSettledOf(tx, shardId, own, settlements);
    const updated = await settleQueuedOf(tx, { shardId, own, fits: sql`true` });
    const late = await settleEndedOf(tx, shardId, own);
    await logAttempts(tx, shardId, { json: own, isRepeatable: true });
    await noteUpdated(tx, updated);
    return own.flatMap(({ position }): Recorded[] => {
      const settlement = settlements[position - 1];
      const queued = updated.find((one) => one.position === position);
      const ended = late.find((one) => one.position === position);
      const orderedId = queued?.isOrdered === true ? queued.recordId : (ended?.orderedId ?? null);
      const isUpdated = queued !== undefined || ended !== undefined;
      return settlement === undefined ? [] : [{ settlement, isUpdated, orderedId }];
    });
  });
  return recorded.sort(
    (one, other) => settlements.indexOf(one.settlement) - settlements.indexOf(other.settlement),
  );
}

/** The outcomes of lanes that are still leased under the same epoch. The lanes stay leased until this transaction ends. */
async function readValid(tx: Tx, settlements: readonly Settlement[]): Promise<Valid[]> {
  const rows = await tx.query<{ shard_id: number; position: number; row: string }>(sql`
    with ${validOf(settlements)}
    select shard_id, position, to_jsonb(v)::text as row from valid v order by position`);
  return rows.map(({ shard_id: shardId, position, row: json }) => ({ shardId, position, json }));
}

type Jsons = readonly { json: string }[];
const jsonOf = (rows: Jsons): string => `[${rows.map(({ json }) => json).join()}]`;
/** Relations with these rows. The constant shard makes Citus route the statement to one server. */
const validIn = (rows: Jsons): Sql => recordsOf(jsonOf(rows), VALID_COLUMNS);

async function settleQueuedOf(
  tx: Tx,
  { shardId, own, fits }: { shardId: number; own: readonly Valid[]; fits: Sql },
): Promise<Updated[]> {
  const outcomes = outcomesOf(sql`${validIn(own)} as valid`);
  const isHere = sql`n.shard_id = ${shardId} and ${fits}`;
  const byPosition = new Map(own.map((one) => [one.position, one.json]));
  const toUpdated = ({ position, ...row }: UpdatedRow): Updated => ({
    json: JSON.stringify({
      ...JSON.parse(byPosition.get(position) ?? '{}'),
      ...row,
      tx_hash: hexOf(row.tx_hash),
    }),
    position,
    isOrdered: row.is_ordered,
    recordId: row.watched_address_id,
  });
  // Citus allows no function in `returning` that depends on settings, as conversions of times do.
  const succeeded = await tx.query<UpdatedRow>(sql`
    ${settleSuccesses(outcomes, isHere)} returning s.position, ${successColumns}`);
  const failed = await tx.query<UpdatedRow>(sql`
    ${settleFailures(outcomes, isHere)}
    returning s.position, n.state, n.watched_address_id, false as is_ordered`);
  const ended = succeeded.map(toUpdated);
  if (ended.length > 0) await tx.query(endSucceeded(recordsOf(jsonOf(ended), SUCCEEDED_COLUMNS)));
  return [...ended, ...failed.map(toUpdated)];
}

type UpdatedRow = {
  position: number;
  is_ordered: boolean;
  watched_address_id: string;
  tx_hash?: Uint8Array | null;
};

/** As PostgreSQL reads bytea. */
const hexOf = (bytes: Uint8Array | null | undefined): string | null =>
  bytes === null || bytes === undefined ? null : `\\x${Buffer.from(bytes).toString('hex')}`;

/** `isRepeatable`: leaves out attempts that are stored already, because the worker repeats a commit whose answer was lost. */
async function logAttempts(
  tx: Tx,
  shardId: number,
  { json, isRepeatable }: { json: Jsons; isRepeatable: boolean },
): Promise<void> {
  if (json.length === 0) return;
  const stored = isRepeatable
    ? await tx.query<{ notification_id: number; started_at: string }>(sql`
        select a.notification_id, a.started_at::text as started_at
        from ${validIn(json)} as v join delivery_attempt a on a.shard_id = ${shardId}
          and a.notification_id = v.notification_id and a.started_at = v.started_at`)
    : [];
  const ids = stored.map((row) => row.notification_id);
  const times = stored.map((row) => row.started_at);
  await tx.query(sql`
    insert into delivery_attempt (${attemptColumns}) select ${attemptColumns} from ${validIn(json)} as v
    where (v.notification_id, v.started_at) not in (
      select * from unnest(${`{${ids.join()}}`}::bigint[], ${times}::timestamptz[]))
    order by position`);
}

async function settleEndedOf(
  tx: Tx,
  shardId: number,
  own: readonly Valid[],
): Promise<{ position: number; orderedId: string | null }[]> {
  const outcomes = outcomesOf(sql`${validIn(own)} as valid`);
  const rows = await tx.query<{ position: number; id: number; is_ordered: boolean }>(sql`
    ${settleEnded(outcomes)} and n.shard_id = ${shardId}
    returning s.position, n.id, n.sequence is not null and n.state = 'processed' as is_ordered`);
  const ordered = rows.filter((row) => row.is_ordered).map(({ id }) => id);
  const records = await tx.query<{ id: number; watched_address_id: string }>(sql`
    select id, watched_address_id from notification where shard_id = ${shardId} and id = any(${`{${ordered.join()}}`}::bigint[])`);
  const recordOf = new Map(records.map((row) => [row.id, row.watched_address_id]));
  return rows.map(({ position, id }) => ({ position, orderedId: recordOf.get(id) ?? null }));
}

/** Notes the last success and failing receivers, on the coordinator. */
async function noteUpdated(tx: Tx, updated: Jsons): Promise<void> {
  if (updated.length === 0) return;
  const rows = recordsOf(jsonOf(updated), UPDATED_COLUMNS);
  await tx.query(
    noteSuccess(sql`(select max(settled_at) as at from ${rows} as u where next_retry_at is null)`),
  );
  await tx.query(sql`with updated as (select * from ${rows} as u) ${recordFailures}`);
}

/** Locks the rows, which other transactions could otherwise move between `queue` and `ended` while this one looks for them. */
async function lockSettledOf(
  tx: Tx,
  shardId: number,
  own: readonly Valid[],
  settlements: readonly Settlement[],
): Promise<void> {
  const ids = own.flatMap(({ position }) => settlements[position - 1]?.notificationId ?? []);
  const lock = (table: string, wanted: readonly number[]) =>
    tx.query<{ id: number }>(sql`
      select id from ${raw(table)} where shard_id = ${shardId} and id = any(${`{${wanted.join()}}`}::bigint[])
      order by id for update`);
  const queued = new Set((await lock('queue', ids)).map(({ id }) => id));
  const left = ids.filter((id) => !queued.has(id));
  if (left.length > 0) await lock('notification', left);
}
