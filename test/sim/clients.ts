/**
 * The requests of watchers, through the functions that the API calls: they create, change and delete watched addresses,
 * alone and as sets, change settings, and request redeliveries.
 */
import { recordIdIn, shardOfRecord, sliceForAddress, sliceOfRecord } from '../../src/domain/shard.ts';
import { webhookOrigin } from '../../src/domain/webhook-url.ts';
import type { Database } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { wakeLanes } from '../../src/store/delivery/lanes.ts';
import { alignNotifications } from '../../src/store/delivery/record-changes.ts';
import { redeliverOne, redeliverStep } from '../../src/store/delivery/redelivery.ts';
import { defaultSettings, replaceSettings, type WatchSettings } from '../../src/store/watchers/settings.ts';
import {
  deleteWatchedAddress,
  insertWatchedAddress,
  listWatchedAddresses,
  type NewWatchedAddress,
  updateWatchedAddress,
} from '../../src/store/watchers/watched.ts';
import { replaceWatchedSet, type SetMember } from '../../src/store/watchers/watched-set.ts';
import { coin } from '../kit/chain-story.ts';
import type { Bug } from './bugs.ts';
import type { Cast } from './cast.ts';
import { people } from './chain.ts';
import { type Notification, redeliver, type SimRecord } from './rules.ts';
import { isApart, isWrite } from './seat.ts';
import { ORIGINS, SLICES, WATCHERS, type World } from './world.ts';

const RECORDS_MAX = 6;
const MEMBERS_MAX = 3;
const BLOCKS_MAX = 6;

export function createClients(world: World, cast: Cast, bug: Bug) {
  const { random, clock, commonTime, chain, oracle, tell, fail } = world;
  const { database } = world.stage;
  let recordCount = 0;

  const living = () => Array.from(oracle.records.values()).filter(({ isGone }) => !isGone);
  const makeUrl = () => `${random.pick(ORIGINS)}/${random.between(1, 2)}`;
  const at = (url: string) => ({ origin: webhookOrigin(url), now: commonTime.now() });

  /** Makes a request about one of the existing watched addresses, if there is one. */
  const withRecord = (ask: (record: SimRecord) => Promise<void>) => async (): Promise<void> => {
    if (living().length > 0) await ask(random.pick(living()));
  };

  /** Prefers a watched address with waiting notifications, because only those move with it. */
  const withBusyRecord = (ask: (record: SimRecord) => Promise<void>) => async (): Promise<void> => {
    const waiting = Array.from(oracle.notifications.values()).filter(({ state }) => state === 'waiting');
    const busy = [...new Set(waiting.map(({ record }) => record))].filter(({ isGone }) => !isGone);
    await (busy.length > 0 && random.chance(0.8) ? ask(random.pick(busy)) : withRecord(ask)());
  };

  /**
   * Returns whether the client survives its request. It may die between its change and the work that follows it, or after one of
   * the statements of a transaction that a bug splits. Workers then do the rest of that work when it is due.
   */
  async function outlives(request: (client: Database) => Promise<unknown>): Promise<boolean> {
    let isDying = false;
    async function run<T>(work: () => Promise<T>, hasChanged: (result: T) => boolean): Promise<T> {
      if (isDying) throw new Death();
      const result = await work();
      isDying = hasChanged(result) && random.chance(0.3);
      return result;
    }
    const query = <Row>(statement: Sql) =>
      run(
        () => database.query<Row>(statement),
        (rows) => isWrite(statement) && rows.length > 0,
      );
    const client: Database = {
      ...{ ...database, query },
      async transaction(work) {
        if (await isApart(bug, work)) return work({ kind: 'transaction', query });
        return run(
          () => database.transaction(work),
          () => true,
        );
      },
    };
    try {
      await request(client);
      return true;
    } catch (error) {
      if (!(error instanceof Death)) throw error;
      if (cast.hasRepaired()) await world.requireNoneForgotten();
      return false;
    }
  }

  function keep(watcherId: number, fields: NewWatchedAddress): SimRecord {
    recordCount += 1;
    const life = { isGone: false, hasMoved: false, hasChanged: false, removed: 'never' as const };
    const record = { ...fields, name: String(recordCount), watcherId, settings: defaultSettings, ...life };
    oracle.records.set(record.id, record);
    return record;
  }

  const nextId = (slice: number) =>
    recordIdIn(slice, `00000000-0000-4000-8000-${String(recordCount + 1).padStart(10, '0')}00`);

  async function watch(): Promise<void> {
    if (living().length >= RECORDS_MAX) return;
    const address = random.pick(people);
    const fields = {
      id: nextId(sliceForAddress(address, SLICES)),
      address,
      watchCoin: random.chance(0.9),
      watchToken: random.chance(0.9),
      webhookUrl: makeUrl(),
    };
    const record = keep(random.pick(WATCHERS), fields);
    const { name, watcherId, webhookUrl } = record;
    await database.transaction((tx) => insertWatchedAddress(tx, watcherId, fields, at(webhookUrl)));
    if (random.chance(0.5)) {
      const settings = { ...defaultSettings, removed: true };
      Object.assign(record, { settings, removed: 'always' });
      await replaceSettings(database, watcherId, record.id, { settings, now: commonTime.now() });
    }
    const notices = record.settings.removed ? ', with removal notices' : '';
    tell('client', `watches ${address.slice(-4)} as ${name} for ${webhookUrl}${notices}`);
    await world.observe();
  }

  async function patch(record: SimRecord): Promise<void> {
    Object.assign(record, { hasMoved: true, hasChanged: true });
    const formerUrl = record.webhookUrl;
    if (random.chance(0.6)) record.webhookUrl = makeUrl();
    if (random.chance(0.3)) record.address = random.pick(people);
    if (random.chance(0.3)) record.watchCoin = !record.watchCoin;
    const { id, name, watcherId, webhookUrl, address, watchCoin } = record;
    const isLate = webhookOrigin(formerUrl) !== webhookOrigin(webhookUrl) && random.chance(0.5);
    const [lane] = await database.query<{ next_due: Date | null }>(
      sql`select next_due from lane where shard_id = ${shardOfRecord(watcherId, id)} and origin = ${webhookOrigin(webhookUrl)}`,
    );
    const fields = { webhookUrl, address, watchCoin };
    const isThere = await outlives((client) =>
      updateWatchedAddress(client, watcherId, id, fields, at(webhookUrl)),
    );
    tell('client', `patches ${name}: ${address.slice(-4)} for ${webhookUrl}${isThere ? '' : ', and dies'}`);
    if (isLate && isThere) await comeLate(record, formerUrl, lane?.next_due ?? null);
    await world.observe();
    cast.ring();
  }

  /**
   * Simulates a commit that matched the watched address before the patch and completed after it. Its notifications are in the
   * former lane, which the commit wakes. The patch found no reason to wake the new lane.
   */
  async function comeLate(record: SimRecord, formerUrl: string, nextDue: Date | null): Promise<void> {
    const { id, watcherId, webhookUrl } = record;
    await database.transaction(async (tx) => {
      const rows = await tx.query<{ id: number }>(sql`
        update queue n set lane_id = l.id from lane l
        where l.shard_id = n.shard_id and l.origin = ${webhookOrigin(formerUrl)} and n.shard_id = ${shardOfRecord(watcherId, id)}
          and n.watched_address_id = ${id} and n.state = 'waiting' and n.lane_id <> l.id
        returning l.id`);
      await wakeLanes(tx, [...new Set(rows.map((row) => row.id))], commonTime.now());
      if (rows.length > 0)
        await tx.query(sql`
          update lane set next_due = ${nextDue}
          where shard_id = ${shardOfRecord(watcherId, id)} and origin = ${webhookOrigin(webhookUrl)} and owner is null`);
    });
  }

  async function set(record: SimRecord): Promise<void> {
    const settings: WatchSettings = {
      confirmations: random.pick([0, 0, 1, 3]),
      direction: random.pick(['both', 'both', 'in', 'out']),
      minAmount: random.pick([0n, 0n, 300_000n]),
      tokens: new Map(random.pick([[], [], [[coin, 300_000n]], [[random.pick(people), 0n]]])),
      removed: random.chance(0.5),
      strictOrder: random.chance(0.4),
    };
    if (settings.removed !== record.settings.removed) record.removed = 'changed';
    Object.assign(record, { settings, hasChanged: true });
    await replaceSettings(database, record.watcherId, record.id, { settings, now: commonTime.now() });
    tell('client', `sets ${record.name} to ${wordsOf(settings)}`);
    await world.observe();
  }

  async function remove(record: SimRecord): Promise<void> {
    const at = { now: commonTime.now() };
    const isThere = await outlives((client) => deleteWatchedAddress(client, record.watcherId, record.id, at));
    oracle.remove(record, { isFollowed: isThere });
    tell('client', `deletes ${record.name}${isThere ? '' : ', and dies'}`);
    await world.observe();
  }

  async function tellRedelivery(what: string, [is, should]: [is: number, should: number]): Promise<void> {
    tell('client', `asks for ${what} again: ${is}`);
    // A redelivery also brings back attempts that were scheduled in the future.
    if (cast.isInTime() ? is !== should : is < should) fail(`${is} are delivered again, should be ${should}`);
    await world.observe();
    cast.ring();
  }

  async function askForOne(): Promise<void> {
    const all = [...oracle.byId];
    const retried = all.filter(([, { state, retries }]) => state === 'processed' && retries > 0);
    const choice = retried.length > 0 && random.chance(0.7) ? retried : all;
    if (choice.length === 0) return;
    await askFor(...random.pick(choice));
  }

  /** Requests a redelivery before a worker repeats a settlement whose answer it missed. */
  async function askForUnheard(): Promise<void> {
    const all = Array.from(oracle.byId).filter(([, one]) => world.unheard.has(one));
    world.unheard.clear();
    if (all.length > 0) await askFor(...random.pick(all));
  }

  async function askFor(id: number, one: Notification): Promise<void> {
    const isChanged = await redeliverOne(database, one.record.watcherId, id, commonTime.now());
    const shouldChange = redeliver(one, clock.now().getTime());
    await tellRedelivery(`notification ${id}`, [Number(isChanged), Number(shouldChange)]);
  }

  async function askForBlocks(): Promise<void> {
    const watcherId = random.pick(WATCHERS);
    const { number } = chain.head().header;
    const toBlock = random.chance(0.5) ? number : random.between(0, number);
    const range = { fromBlock: toBlock - random.between(0, BLOCKS_MAX), toBlock };
    const now = commonTime.now();
    const place = { startedAt: now, after: undefined, now };
    const { count } = await redeliverStep(database, watcherId, range, place);
    const wanted = Array.from(oracle.byId.values()).filter(
      ({ record, block }) => record.watcherId === watcherId && range.fromBlock <= block && block <= toBlock,
    );
    const changed = wanted.filter((one) => redeliver(one, clock.now().getTime()));
    await tellRedelivery(`blocks ${range.fromBlock} to ${toBlock} of ${watcherId}`, [count, changed.length]);
  }

  async function replaceSet(): Promise<void> {
    const watcherId = random.pick(WATCHERS);
    const url = makeUrl();
    const room = Math.min(MEMBERS_MAX, RECORDS_MAX - living().length);
    const addresses = new Set(Array.from({ length: Math.max(0, room) }, () => random.pick(people)));
    const members = Array.from(addresses, (address) => {
      return { address, watchCoin: random.chance(0.8), watchToken: random.chance(0.8) };
    });
    let is = {};
    const isThere = await outlives(async (client) => {
      const { counts, deletedIds } = await client.transaction((tx) =>
        replaceWatchedSet(tx, watcherId, url, members, commonTime.now()),
      );
      is = counts;
      await alignNotifications(client, watcherId, deletedIds, commonTime.now());
    });
    const should = await expectSet(watcherId, url, { members, isFollowed: isThere });
    const outcome = `${JSON.stringify(is)}${isThere ? '' : ', and dies'}`;
    tell('client', `${watcherId} has ${members.length} for ${url}: ${outcome}`);
    if (JSON.stringify(is) !== JSON.stringify(should)) fail(`the set should be ${JSON.stringify(should)}`);
    await world.observe();
  }

  /** Of several watched addresses with one address, the oldest stays. */
  async function expectSet(
    watcherId: number,
    url: string,
    { members, isFollowed }: { members: readonly SetMember[]; isFollowed: boolean },
  ) {
    const counts = { created: 0, updated: 0, deleted: 0, unchanged: 0 };
    const missing = new Map(members.map((member) => [member.address, member]));
    for (const record of living()) {
      if (record.watcherId !== watcherId || record.webhookUrl !== url) continue;
      const member = missing.get(record.address);
      const { watchCoin, watchToken } = record;
      if (member === undefined) oracle.remove(record, { isFollowed });
      else if (watchCoin !== member.watchCoin || watchToken !== member.watchToken)
        Object.assign(record, member, { hasChanged: true });
      const isAsItWas =
        member !== undefined && record.watchCoin === watchCoin && record.watchToken === watchToken;
      counts[member === undefined ? 'deleted' : isAsItWas ? 'unchanged' : 'updated'] += 1;
      missing.delete(record.address);
    }
    const stored = await listWatchedAddresses(database, watcherId, { after: undefined, limit: 100 });
    // Random ids, and their order, would make each run a different story.
    for (const member of missing.values()) {
      const isOfSet = ({ id, address, webhookUrl }: (typeof stored)[number]) =>
        webhookUrl === url && address === member.address && !oracle.records.has(id);
      const created = stored.find(isOfSet);
      if (created === undefined) continue;
      const { id } = keep(watcherId, { id: nextId(sliceOfRecord(created.id)), webhookUrl: url, ...member });
      await database.query(sql`update watched_address set id = ${id} where id = ${created.id}`);
      counts.created += 1;
    }
    return counts;
  }

  return {
    watch,
    patch: withBusyRecord(patch),
    set: withRecord(set),
    remove: withRecord(remove),
    redeliverOne: askForOne,
    redeliverUnheard: askForUnheard,
    redeliverBlocks: askForBlocks,
    replaceSet,
  };
}

/** The death of a client in the middle of its request. */
class Death extends Error {}

/** Describes the settings that differ from the specification's defaults. */
function wordsOf({
  confirmations,
  direction,
  minAmount,
  tokens,
  removed,
  strictOrder,
}: WatchSettings): string {
  const words = [
    confirmations > 0 && `${confirmations} confirmations`,
    direction !== 'both' && `${direction} only`,
    minAmount > 0n && `at least ${minAmount}`,
    ...Array.from(tokens, ([token, amount]) => `token ${token.slice(-4)} from ${amount}`),
    removed && 'removals',
    strictOrder && 'strict order',
  ];
  return words.filter((word) => word !== false).join(', ') || 'the ordinary';
}
