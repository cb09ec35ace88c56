/**
 * What happens around the actors: the chain goes on and forks, clients change their records, time leaps, receivers go
 * down, sessions are lost and processes killed.
 */
import { webhookOrigin } from '../../src/core/webhook-url.ts';
import { deleteWatchedAddress, insertWatchedAddress, updateWatchedAddress } from '../../src/store/watched.ts';
import type { Cast } from './cast.ts';
import { people } from './chain.ts';
import { nameOf } from './nodes.ts';
import type { SimRecord } from './oracle.ts';
import { ORIGINS, type World } from './world.ts';

const RECORDS_MAX = 6;
const WATCHERS = [1, 2];
const SECOND_MS = 1_000;
/** A lease lasts 30 s. */
const LEASE_LEAP_MS = 31_000;

export type Happenings = {
  /** A client watches another address. */
  watch(): Promise<void>;
  /** Something happens. */
  next(): Promise<void>;
};

export function createHappenings(world: World, cast: Cast): Happenings {
  const { random, clock, chain, oracle, sessions, tell, stopped } = world;
  const { database } = world.stage;
  let recordCount = 0;

  const living = () => Array.from(oracle.records.values()).filter(({ isGone }) => !isGone);
  const makeUrl = () => `${random.pick(ORIGINS)}/${random.between(1, 2)}`;
  const at = (url: string) => ({ origin: webhookOrigin(url), now: clock.now() });

  async function watch(): Promise<void> {
    if (living().length >= RECORDS_MAX) return;
    recordCount += 1;
    const record: SimRecord = {
      id: `00000000-0000-4000-8000-${String(recordCount).padStart(12, '0')}`,
      watcherId: random.pick(WATCHERS),
      address: random.pick(people),
      watchCoin: random.chance(0.9),
      watchToken: random.chance(0.9),
      webhookUrl: makeUrl(),
      isGone: false,
      hasChanged: false,
    };
    await insertWatchedAddress(database, record.watcherId, record, at(record.webhookUrl));
    oracle.records.set(record.id, record);
    tell('client', `watches ${record.address.slice(-4)} as ${recordCount} for ${record.webhookUrl}`);
    await world.observe();
  }

  async function patch(): Promise<void> {
    if (living().length === 0) return;
    const record = random.pick(living());
    record.hasChanged = true;
    if (random.chance(0.6)) record.webhookUrl = makeUrl();
    if (random.chance(0.3)) record.address = random.pick(people);
    if (random.chance(0.3)) record.watchCoin = !record.watchCoin;
    const { id, watcherId, webhookUrl, address, watchCoin } = record;
    await updateWatchedAddress(database, watcherId, id, { webhookUrl, address, watchCoin }, at(webhookUrl));
    tell('client', `patches ${Number(id.slice(-12))}: ${address.slice(-4)} for ${webhookUrl}`);
    await world.observe();
    cast.ring();
  }

  async function remove(): Promise<void> {
    if (living().length === 0) return;
    const record = random.pick(living());
    await deleteWatchedAddress(database, record.watcherId, record.id);
    oracle.remove(record);
    tell('client', `deletes ${Number(record.id.slice(-12))}`);
    await world.observe();
  }

  function mine(): void {
    chain.mine();
    tell('chain', `mines ${nameOf(chain.head())}`);
  }

  function fork(): void {
    const depth = chain.reorg();
    tell('chain', `forks ${depth} deep: ${nameOf(chain.head())}`);
  }

  function leap(ms: number): void {
    clock.advance(ms);
    tell('clock', `leaps ${ms} ms`);
  }

  function leapToRetry(): void {
    const dueMs = oracle.nextRetryMs();
    if (dueMs !== undefined) leap(Math.max(1, dueMs - clock.now().getTime()));
  }

  async function kill(): Promise<void> {
    const actor = random.pick(cast.living());
    tell(actor.name, 'is killed');
    await cast.crash(actor);
  }

  async function loseSession(): Promise<void> {
    const actor = random.pick(cast.living());
    tell(actor.name, 'loses its session');
    await sessions.end(actor);
  }

  /** As by SIGSTOP, or on a machine that is out of memory; its connection may break meanwhile. */
  async function stall(): Promise<void> {
    const actor = random.pick(cast.living());
    world.stalled.add(actor);
    tell(actor.name, 'stalls');
    if (random.chance(0.6)) await sessions.end(actor);
  }

  function turnReceiver(): void {
    const origin = random.pick(ORIGINS);
    if (!stopped.delete(origin)) stopped.add(origin);
    tell(new URL(origin).hostname, stopped.has(origin) ? 'goes down' : 'is back');
  }

  /** How often, compared with one another. */
  const table: [weight: number, happen: () => void | Promise<void>][] = [
    [20, mine],
    [10, fork],
    [6, watch],
    [6, patch],
    [2, remove],
    [20, () => leap(random.between(1, SECOND_MS))],
    [6, () => leap(random.between(SECOND_MS, 12 * SECOND_MS))],
    [5, () => leap(LEASE_LEAP_MS)],
    [8, leapToRetry],
    [4, turnReceiver],
    [6, loseSession],
    [10, stall],
    [3, kill],
    [1, () => cast.stop(random.pick(cast.living()))],
  ];
  const tickets = table.flatMap(([weight, happen]) => Array.from({ length: weight }, () => happen));

  return { watch, next: async () => random.pick(tickets)() };
}
