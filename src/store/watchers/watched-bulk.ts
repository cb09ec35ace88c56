/**
 * Changes many watched addresses of one watcher with one statement for each kind of change, not for each record.
 */
import { Fault } from '../../core/fault.ts';
import { shardOfRecord, sliceOfRecord } from '../../domain/shard.ts';
import { webhookOrigin } from '../../domain/webhook-url.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { forEachShard } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { updateTimeIf } from '../db/time-sum.ts';
import { ensureLanes, type HeldWatcher, holdWatcher } from '../delivery/lanes.ts';
import { alignNotifications } from '../delivery/record-changes.ts';
import { isOneOfRecords, recordKeys } from '../delivery/shards.ts';
import { findRefusals, type Limits, noLimits } from './limits.ts';
import { noteChanges, type PlaceRow, toDeletion, toPlace } from './note-changes.ts';
import {
  type ChangeTime,
  columns,
  type NewWatchedAddress,
  placedId,
  recordColumns,
  timeOf,
  toRecord,
  type WatchedAddress,
  type WatchedAddressPatch,
  type WatchedRow,
} from './watched.ts';

/** A change of one record. */
export type Change = Creation | Update | Deletion;
type Creation = { operation: 'create'; record: NewWatchedAddress };
type Update = { operation: 'update'; id: string; patch: WatchedAddressPatch };
type Deletion = { operation: 'delete'; id: string };

/** A change and what `changeWatchedAddresses` returns for it, which is undefined until the change is made or refused. */
type Entry = { readonly change: Change; result: WatchedAddress | Fault | undefined };

/** The common arguments of the functions that make changes. */
type Scope = { tx: Tx; watcherId: number; laneOf(id: string, url: string): number };
/** `now`: read once the records are locked. */
type Changing = Scope & { now: Date };

/**
 * Makes the changes of each record in order. The last byte of each new id becomes its slice. Call `alignChanged` once they are committed.
 * Returns for each change the record after the change, or before it was deleted; undefined if the watcher has no record with
 * this id; a Fault `conflict` if a limit refuses the change, or `invalid` if the changes name the same record too often.
 */
export async function changeWatchedAddresses(
  tx: Tx,
  watcherId: number,
  given: readonly Change[],
  { now, limits = noLimits }: { now: ChangeTime; limits?: Limits },
): Promise<(WatchedAddress | Fault | undefined)[]> {
  const origins = new Map([...new Set(given.flatMap(urlOf))].map((url) => [url, webhookOrigin(url)]));
  const watcher = await holdWatcher(tx, watcherId, [...new Set(origins.values())]);
  const entries = given.map((change): Entry => ({ change: placed(watcher, change), result: undefined }));
  const runs = splitIntoRuns(entries);
  for (const entry of runs.splice(RUNS_MAX).flat()) entry.result = tooOften();
  await refuseAboveLimits(tx, watcherId, entries, limits);
  const isAccepted = ({ change, result }: Entry) =>
    result === undefined && sliceOfRecord(idOf(change)) < watcher.slices;
  const keyOf = (id: string, url: string) => ({
    shardId: shardOfRecord(watcherId, id),
    origin: origins.get(url) ?? '',
  });
  // Only now, so that a refused change creates no lane.
  const laneOf = await ensureLanes(
    tx,
    watcher,
    entries.filter(isAccepted).flatMap(({ change }) => urlOf(change).map((url) => keyOf(idOf(change), url))),
  );
  const scope: Scope = { tx, watcherId, laneOf: (id, url) => laneOf(keyOf(id, url)) };
  for (const run of runs) await makeChanges(scope, run.filter(isAccepted), now);
  return entries.map(({ result }) => result);
}

/** Moves or cancels the waiting notifications of changed records. `changes` may include refused ones. */
export async function alignChanged(
  database: Database,
  watcherId: number,
  changes: readonly Change[],
  now: Date,
  align = alignNotifications,
): Promise<void> {
  const movable = changes.filter(
    (change) =>
      change.operation === 'delete' ||
      (change.operation === 'update' && change.patch.webhookUrl !== undefined),
  );
  await align(database, watcherId, movable.map(idOf), now);
}

/** Limit of runs. Each costs a handful of statements, during which the transaction holds its locks. */
const RUNS_MAX = 32;
const REPEATED = `this watched address is changed more than ${RUNS_MAX} times here; send further changes of it in another request`;
const tooOften = () =>
  new Fault('invalid', 'Invalid request', { problems: [{ path: '/id', message: REPEATED }] });

const idOf = (change: Change) => (change.operation === 'create' ? change.record.id : change.id);

/**
 * Splits the changes into runs that name each record at most once: its first change is in the first run, its second one in the
 * second. The order of changes of different records doesn't matter once limits have been checked.
 */
function splitIntoRuns(entries: readonly Entry[]): Entry[][] {
  const counts = new Map<string, number>();
  const runs: Entry[][] = [];
  for (const entry of entries) {
    const id = idOf(entry.change);
    const earlier = counts.get(id) ?? 0;
    counts.set(id, earlier + 1);
    const run = runs[earlier] ?? [];
    runs[earlier] = run;
    run.push(entry);
  }
  return runs;
}

/** Refuses, in the order of the request, changes that would exceed a limit. */
async function refuseAboveLimits(
  tx: Tx,
  watcherId: number,
  entries: readonly Entry[],
  limits: Limits,
): Promise<void> {
  const open = entries.filter(({ result }) => result === undefined);
  const changes = open.map(({ change }) => change);
  const refusals = await findRefusals(tx, watcherId, changes, limits);
  for (const [index, entry] of open.entries()) entry.result = refusals[index];
}

/** Makes the changes of a run. */
async function makeChanges(scope: Scope, run: readonly Entry[], now: ChangeTime): Promise<void> {
  const changes = run.map(({ change }) => change);
  const creations = changes.filter((change) => change.operation === 'create');
  const updates = changes.filter((change) => change.operation === 'update');
  const deletions = changes.filter((change) => change.operation === 'delete');
  const places = await lockRecords(scope, [...updates, ...deletions]);
  const changing = { ...scope, now: timeOf(now) };
  const made = [
    ...(await insertRecords(changing, creations)),
    ...(await updateRecords(changing, updates, places)),
    ...(await deleteRecords(scope, deletions)),
  ];
  const byId = new Map(made.map((record) => [record.id, record]));
  for (const entry of run) entry.result = byId.get(idOf(entry.change));
}

/** The URL that the change sets, if any. */
function urlOf(change: Change): string[] {
  if (change.operation === 'delete') return [];
  const { webhookUrl } = change.operation === 'create' ? change.record : change.patch;
  return webhookUrl === undefined ? [] : [webhookUrl];
}

/** The change, with the id that its new record gets. */
function placed(watcher: HeldWatcher, change: Change): Change {
  if (change.operation !== 'create') return change;
  const { record } = change;
  return { ...change, record: { ...record, id: placedId(watcher, record) } };
}

const isOneOf = (watcherId: number, ids: readonly string[]): Sql =>
  isOneOfRecords(sql`shard_id`, sql`id`, recordKeys(watcherId, ids));

/**
 * All transactions lock records in the same order, so that two that change the same records can't deadlock. Returns their lanes and
 * addresses by id.
 */
async function lockRecords(
  { tx, watcherId }: Scope,
  changes: readonly (Update | Deletion)[],
): Promise<Map<string, PlaceRow>> {
  if (changes.length === 0) return new Map();
  const lock = (ids: readonly string[]) =>
    tx.query<PlaceRow & { id: string }>(sql`
    select id, lane_id, address from watched_address where ${isOneOf(watcherId, ids)}
    order by id
    for update`);
  const keys = changes.map((change) => ({
    shardId: shardOfRecord(watcherId, idOf(change)),
    id: idOf(change),
  }));
  const rows =
    tx.isDistributed === true
      ? await forEachShard(keys, (_, own) => lock(own.map(({ id }) => id)))
      : await lock(keys.map(({ id }) => id));
  return new Map(rows.map((row) => [row.id, row]));
}

async function insertRecords(scope: Changing, creations: readonly Creation[]): Promise<WatchedAddress[]> {
  if (creations.length === 0) return [];
  const { tx, watcherId, laneOf, now } = scope;
  const records = creations.map(({ record }) => record);
  await tx.query(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    select shard_id, id, ${watcherId}::bigint, lane_id, address, watch_coin, watch_token, webhook_url,
      ${now}::timestamptz, ${now}::timestamptz
    from unnest(
      ${listOf(records.map(({ id }) => shardOfRecord(watcherId, id)))}::bigint[],
      ${listOf(records.map(({ id }) => id))}::uuid[],
      ${listOf(records.map(({ id, webhookUrl }) => laneOf(id, webhookUrl)))}::bigint[],
      ${bytesOf(records.map(({ address }) => address))}::bytea[],
      ${listOf(records.map(({ watchCoin }) => String(watchCoin)))}::boolean[],
      ${listOf(records.map(({ watchToken }) => String(watchToken)))}::boolean[],
      ${records.map(({ webhookUrl }) => webhookUrl)}::text[]
    ) as t (shard_id, id, lane_id, address, watch_coin, watch_token, webhook_url)`);
  await noteChanges(
    tx,
    watcherId,
    records.map(({ id, webhookUrl, address }) => ({
      from: undefined,
      to: { laneId: laneOf(id, webhookUrl), address },
    })),
  );
  return records.map((record) => ({ ...record, watcherId, createdAt: now, updatedAt: now }));
}

/** Whether the new values in `t` change record `w`. */
const isChange = sql`(t.address <> w.address or t.watch_coin <> w.watch_coin or t.watch_token <> w.watch_token
        or t.webhook_url <> w.webhook_url)`;

async function updateRecords(
  scope: Changing,
  updates: readonly Update[],
  places: ReadonlyMap<string, PlaceRow>,
): Promise<WatchedAddress[]> {
  if (updates.length === 0) return [];
  const { tx, watcherId, laneOf, now } = scope;
  const patches = updates.map(({ patch }) => patch);
  const orNull = (value: boolean | undefined) => String(value ?? null);
  const laneIds = updates.map(({ id, patch: { webhookUrl } }) =>
    webhookUrl === undefined ? 'null' : laneOf(id, webhookUrl),
  );
  const [only, ...others] = new Set(updates.map(({ id }) => shardOfRecord(watcherId, id)));
  const rows = await tx.query<WatchedRow & PlaceRow>(sql`
    update watched_address w set
      address = coalesce(t.address, w.address),
      watch_coin = coalesce(t.watch_coin, w.watch_coin),
      watch_token = coalesce(t.watch_token, w.watch_token),
      webhook_url = coalesce(t.webhook_url, w.webhook_url),
      lane_id = coalesce(t.lane_id, w.lane_id),
      updated_at = ${updateTimeIf(isChange, sql`w.updated_at`, now)}
    from unnest(
      ${listOf(updates.map(({ id }) => shardOfRecord(watcherId, id)))}::bigint[],
      ${listOf(updates.map(({ id }) => id))}::uuid[],
      ${listOf(laneIds)}::bigint[],
      ${bytesOf(patches.map(({ address }) => address))}::bytea[],
      ${listOf(patches.map(({ watchCoin }) => orNull(watchCoin)))}::boolean[],
      ${listOf(patches.map(({ watchToken }) => orNull(watchToken)))}::boolean[],
      ${patches.map(({ webhookUrl }) => webhookUrl ?? null)}::text[]
    ) as t (shard_id, id, lane_id, address, watch_coin, watch_token, webhook_url)
    where w.shard_id = ${others.length === 0 ? only : sql`t.shard_id`} and w.watcher_id = ${watcherId} and w.id = t.id
    returning ${recordColumns}, w.lane_id`);
  await noteChanges(
    tx,
    watcherId,
    rows.flatMap((row) => {
      const place = places.get(row.id);
      return place === undefined ? [] : [{ from: toPlace(place), to: toPlace(row) }];
    }),
  );
  return rows.map(toRecord);
}

async function deleteRecords(scope: Scope, deletions: readonly Deletion[]): Promise<WatchedAddress[]> {
  if (deletions.length === 0) return [];
  const { tx, watcherId } = scope;
  const rows = await tx.query<WatchedRow & PlaceRow>(sql`
    delete from watched_address
    where ${isOneOf(watcherId, deletions.map(idOf))} and watcher_id = ${watcherId}
    returning ${columns}, lane_id`);
  await noteChanges(tx, watcherId, rows.map(toDeletion));
  return rows.map(toRecord);
}
