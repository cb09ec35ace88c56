/**
 * Limits of a watcher: its records (watched addresses), those with the same address and URL, and receiver origins. Records are
 * counted (`noteChanges`) once any limit is set. A change of records under a limit first locks the watcher's count, so that concurrent requests are checked one after the other, in whichever process they run.
 */
import { Fault } from '../../core/fault.ts';
import { type Address, fromBytes } from '../../core/hex.ts';
import { webhookOrigin } from '../../domain/webhook-url.ts';
import { bytesOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { rowsOf, tableOf } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { isInShards, isOneOfRecords, listShards, recordKeys } from '../delivery/shards.ts';
import { requireWatcher } from './watchers.ts';

/** Limits that apply to each watcher; undefined: no limit. */
export type Limits = {
  records?: number | undefined;
  recordsPerAddressAndUrl?: number | undefined;
  receiverOrigins?: number | undefined;
};

export const noLimits: Limits = {};

export const hasLimits = (limits: Limits): boolean =>
  Object.values(limits).some((limit) => limit !== undefined);

/** A watcher's number of records, and of different origins in their URLs. */
type Usage = { records: number; origins: number };

/** A change of one record, with the fields that limits depend on. */
type CountedChange =
  | { operation: 'create'; record: { address: Address; webhookUrl: string } }
  | {
      operation: 'update';
      id: string;
      patch: { address?: Address | undefined; webhookUrl?: string | undefined };
    }
  | { operation: 'delete'; id: string };

/**
 * Starts counting records if they are not counted yet. This reads all records once, and changes of records wait for it.
 */
export async function startCounting(tx: Tx): Promise<void> {
  const begun = await tx.query(
    sql`update record_counting set is_counted = true where not is_counted returning only_row`,
  );
  if (begun.length === 0) return;
  // The lock waits for open transactions that have changed records. Later ones see that records are counted.
  await tx.query(sql`lock table watched_address in share row exclusive mode`);
  await tx.query(sql`delete from origin_usage`);
  await tx.query(sql`delete from watcher_usage`);
  const counted = await rowsOf(
    tx,
    sql`select watcher_id, lane_id, count(*) as records from watched_address group by watcher_id, lane_id`,
    'watcher_id bigint, lane_id bigint, records bigint',
  );
  await tx.query(sql`
    insert into origin_usage (watcher_id, origin, records)
    select r.watcher_id, l.origin, sum(r.records) from ${counted} as r join lane l on l.id = r.lane_id
    group by r.watcher_id, l.origin`);
  await tx.query(sql`
    insert into watcher_usage (watcher_id, records, origins)
    select watcher_id, sum(records), count(*) from origin_usage group by watcher_id`);
}

/** Stops counting, so that changes of records cost nothing extra in a service without limits. */
export async function stopCounting(db: Db): Promise<void> {
  await db.query(sql`update record_counting set is_counted = false where is_counted`);
}

/** The watcher's current usage, read without a lock. */
export async function readUsage(database: Database, watcherId: number): Promise<Usage> {
  const [row] = await database.query<{ records: number | null; origins: number | null }>(sql`
    select records, origins from record_counting
    left join watcher_usage on watcher_id = ${watcherId}
    where is_counted`);
  if (row === undefined) return database.transaction((tx) => lockUsage(tx, watcherId));
  return { records: row.records ?? 0, origins: row.origins ?? 0 };
}

/**
 * The watcher's current usage, which no other transaction under a limit can change until this one ends. Call it before taking
 * other locks. @throws Fault `unauthorized` if the watcher is being or was deleted.
 */
export async function lockUsage(tx: Tx, watcherId: number): Promise<Usage> {
  await requireWatcher(tx, watcherId);
  const lock = () =>
    tx.query<Usage>(sql`
      insert into watcher_usage as u (watcher_id, records, origins)
      select ${watcherId}::bigint, 0, 0 from record_counting where is_counted
      on conflict (watcher_id) do update set records = u.records
      returning records, origins`);
  const [usage] = await lock();
  if (usage !== undefined) return usage;
  await startCounting(tx);
  const [counted] = await lock();
  if (counted === undefined) throw new Error('records are not counted');
  return counted;
}

/** Does the work and throws if it increases the usage above a limit. A usage that was above before may stay there. */
export async function withinLimits<T>(
  tx: Tx,
  watcherId: number,
  limits: Limits,
  work: () => Promise<T>,
): Promise<T> {
  if (!hasLimits(limits)) return work();
  const before = await lockUsage(tx, watcherId);
  const result = await work();
  const after = await lockUsage(tx, watcherId);
  if (after.records > before.records && isAbove(after.records, limits.records)) throw tooManyRecords(limits);
  if (after.origins > before.origins && isAbove(after.origins, limits.receiverOrigins))
    throw tooManyOrigins(limits);
  return result;
}

/** @throws the first of `findRefusals`. */
export async function requireWithin(
  tx: Tx,
  watcherId: number,
  changes: readonly CountedChange[],
  limits: Limits,
): Promise<void> {
  const refusals = await findRefusals(tx, watcherId, changes, limits);
  for (const refusal of refusals) if (refusal !== undefined) throw refusal;
}

/**
 * Checks changes in order, assuming that the accepted ones before have been made. Returns a Fault `conflict` that names the limit for
 * each change above one, undefined for the others. A change that doesn't increase the usage is always accepted. No later change may
 * name the record of a creation: clients learn its id from the response.
 */
export async function findRefusals(
  tx: Tx,
  watcherId: number,
  changes: readonly CountedChange[],
  limits: Limits,
): Promise<(Fault | undefined)[]> {
  if (!hasLimits(limits)) return changes.map(() => undefined);
  const usage = await lockUsage(tx, watcherId);
  const stored = await readRecords(
    tx,
    watcherId,
    changes.flatMap((change) => (change.operation === 'create' ? [] : change.id)),
  );
  // These have every address and every URL that a record can get, also where it gets them by different changes.
  const wanted = changes.flatMap((change) => moveOf(change, stored).to ?? []);
  const pairs = limits.recordsPerAddressAndUrl === undefined ? [] : wanted;
  const state: State = {
    ...usage,
    byOrigin: await countByOrigin(tx, watcherId, [...stored.values(), ...wanted]),
    byPair: await countByPair(tx, watcherId, pairs),
  };
  const records = new Map(stored);
  return changes.map((change) => {
    const move = moveOf(change, records);
    const refusal = judge(move, state, limits);
    if (refusal !== undefined) return refusal;
    apply(move, state, change.operation === 'create' ? undefined : change.id);
    if (change.operation === 'delete') records.delete(change.id);
    else if (change.operation === 'update' && move.to !== undefined) records.set(change.id, move.to);
    return undefined;
  });
}

/** The fields of a record that limits depend on. */
type LimitedRecord = { address: Address; url: string; origin: string };
/** A record before and after its change. Both are undefined if the record does not exist. */
type Move = { from: LimitedRecord | undefined; to: LimitedRecord | undefined };
type State = Usage & { byOrigin: Map<string, number>; byPair: Map<string, Pair> };
/** The number of records with one address and URL; `id` is the oldest stored one. */
type Pair = { count: number; id: string | undefined };

const pairOf = ({ address, url }: LimitedRecord) => `${address} ${url}`;
const isAbove = (count: number, limit = Number.POSITIVE_INFINITY) => count > limit;

function moveOf(change: CountedChange, records: ReadonlyMap<string, LimitedRecord>): Move {
  if (change.operation === 'create') {
    const { address, webhookUrl: url } = change.record;
    return { from: undefined, to: { address, url, origin: webhookOrigin(url) } };
  }
  const from = records.get(change.id);
  if (change.operation === 'delete' || from === undefined) return { from, to: undefined };
  const { address = from.address, webhookUrl: url } = change.patch;
  const to = url === undefined ? { ...from, address } : { address, url, origin: webhookOrigin(url) };
  return { from, to };
}

function judge({ from, to }: Move, state: State, limits: Limits): Fault | undefined {
  if (to === undefined) return undefined;
  if (from === undefined && isAbove(state.records + 1, limits.records)) return tooManyRecords(limits);
  const pair = state.byPair.get(pairOf(to));
  const isOtherPair = from === undefined || pairOf(from) !== pairOf(to);
  if (isOtherPair && pair !== undefined && isAbove(pair.count + 1, limits.recordsPerAddressAndUrl))
    return tooManyOfPair(limits, pair.id);
  const gained = (state.byOrigin.get(to.origin) ?? 0) === 0 ? 1 : 0;
  const lost =
    from !== undefined && from.origin !== to.origin && state.byOrigin.get(from.origin) === 1 ? 1 : 0;
  return gained > lost && isAbove(state.origins + 1, limits.receiverOrigins)
    ? tooManyOrigins(limits)
    : undefined;
}

/** `id`: that of the record, unless it is new. */
function apply({ from, to }: Move, state: State, id: string | undefined): void {
  if (from !== undefined) add(from, -1);
  if (to !== undefined) add(to, 1);

  function add(record: LimitedRecord, count: 1 | -1): void {
    state.records += count;
    const before = state.byOrigin.get(record.origin) ?? 0;
    state.byOrigin.set(record.origin, before + count);
    if (before === (count === 1 ? 0 : 1)) state.origins += count;
    const pair = state.byPair.get(pairOf(record)) ?? { count: 0, id: undefined };
    const isGone = count === -1 && pair.id === id && (to === undefined || pairOf(to) !== pairOf(record));
    state.byPair.set(pairOf(record), { count: pair.count + count, id: isGone ? undefined : pair.id });
  }
}

async function readRecords(
  tx: Tx,
  watcherId: number,
  ids: readonly string[],
): Promise<Map<string, LimitedRecord>> {
  if (ids.length === 0) return new Map();
  const isOwn = sql`${isOneOfRecords(sql`w.shard_id`, sql`w.id`, recordKeys(watcherId, ids))} and w.watcher_id = ${watcherId}`;
  const watches = await tableOf(tx, 'watched_address', { alias: 'w', where: isOwn });
  const rows = await tx.query<{ id: string; address: Uint8Array; url: string; origin: string }>(sql`
    select w.id, w.address, w.webhook_url as url, l.origin from ${watches} w join lane l on l.id = w.lane_id
    where ${isOwn}
    order by w.id limit ${ids.length}`);
  return new Map(rows.map(({ id, address, ...rest }) => [id, { ...rest, address: fromBytes(address) }]));
}

async function countByOrigin(
  tx: Tx,
  watcherId: number,
  records: readonly LimitedRecord[],
): Promise<Map<string, number>> {
  const origins = [...new Set(records.map(({ origin }) => origin))];
  if (origins.length === 0) return new Map();
  const rows = await tx.query<{ origin: string; records: number }>(sql`
    select origin, records from origin_usage
    where watcher_id = ${watcherId} and origin = any(${origins}::text[])
    order by origin limit ${origins.length}`);
  return new Map(rows.map(({ origin, records }) => [origin, records]));
}

/**
 * Counts the records of each address and URL. The materialized CTE makes the planner use the index by address. With the watcher
 * as a further condition there, it read all records of the watcher for each pair (32 s for a list of 10,000).
 */
async function countByPair(
  tx: Tx,
  watcherId: number,
  records: readonly LimitedRecord[],
): Promise<Map<string, Pair>> {
  if (records.length === 0) return new Map();
  const addresses = [...new Set(records.map(({ address }) => address))];
  const urls = [...new Set(records.map(({ url }) => url))];
  const known =
    tx.isDistributed === true
      ? sql`select w.* from watched_address w where w.address = any(${bytesOf(addresses)}::bytea[])
          and ${isInShards(sql`w.shard_id`, await listShards(tx, watcherId))}`
      : sql`
      select w.* from unnest(${bytesOf(addresses)}::bytea[]) as t (address)
      join watched_address w on w.address = t.address`;
  const rows = await tx.query<{ address: Uint8Array; url: string; count: number; id: string }>(sql`
    with known as materialized (${known}
    )
    select address, webhook_url as url, count(*) as count, (array_agg(id order by created_at, id))[1] as id
    from known
    where watcher_id = ${watcherId} and webhook_url = any(${urls}::text[])
    group by address, webhook_url
    order by address, webhook_url limit ${addresses.length * urls.length}`);
  return new Map(rows.map(({ address, url, count, id }) => [`${fromBytes(address)} ${url}`, { count, id }]));
}

const reached = (path: string, message: string) =>
  new Fault('conflict', 'Limit reached', { problems: [{ path, message }] });
const tooManyRecords = ({ records }: Limits) =>
  reached(
    '',
    `a watcher may have at most ${records} watched addresses. Delete some, or ask the operator for a higher limit`,
  );
const tooManyOfPair = (
  { recordsPerAddressAndUrl: limit }: Limits,
  id = 'an earlier change of this request',
) =>
  reached(
    '/address',
    `this address may be watched at most ${limit} time${limit === 1 ? '' : 's'} for this URL. See ${id}`,
  );
const tooManyOrigins = ({ receiverOrigins }: Limits) =>
  reached(
    '/webhook_url',
    `the URLs of a watcher may have at most ${receiverOrigins} origins, and this would be one more`,
  );
