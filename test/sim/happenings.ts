/**
 * The events around the actors: the chain grows and reorganizes, clients make requests, time leaps, receivers fail,
 * sessions are lost and processes are killed.
 */
import type { Bug } from './bugs.ts';
import type { Cast } from './cast.ts';
import { createClients } from './clients.ts';
import { nameOf } from './nodes.ts';
import type { Oracle } from './oracle.ts';
import { DAY_MS, HOUR_MS, ORIGINS, type World } from './world.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
/** A lease lasts 30 s. */
const LEASE_LEAP_MS = 31_000;
/** High, because the worker repeats the settlement after a quarter of a second. */
const UNHEARD_CHANCE = 0.7;

type Happenings = {
  /** Lets a client watch one more address. */
  watch(): Promise<void>;
  /** Makes a random event happen. */
  next(): Promise<void>;
};

export function createHappenings(world: World, cast: Cast, bug: Bug): Happenings {
  const { random, clock, chain, oracle, sessions, tell, stopped } = world;
  const clients = createClients(world, cast, bug);

  function mine(): void {
    chain.mine();
    tell('chain', `mines ${nameOf(chain.head())}`);
  }

  function reorg(): void {
    const depth = chain.reorg();
    tell('chain', `reorganizes ${depth} deep: ${nameOf(chain.head())}`);
  }

  function leap(ms: number): void {
    clock.advance(ms);
    tell('clock', `leaps ${ms} ms`);
  }

  /** Waits until all actors have seen the last step. Two steps at a time are in test/system/clock-steps.test.ts. */
  function setClock(): void {
    const { commonTime } = world;
    if (!commonTime.isFollowed() || !cast.isInTime()) return;
    const ms = random.pick([-1, 1]) * random.pick([MINUTE_MS, HOUR_MS, DAY_MS]);
    commonTime.step(ms);
    tell('clock', `is set by ${ms} ms`);
  }

  function leapToRetry(): void {
    const dueMs = nextRetryMs(oracle);
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

  /** Pauses a process as SIGSTOP or a lack of memory does. Its connection may break meanwhile. */
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

  /** The relative frequency of each event. */
  const table: [weight: number, happen: () => void | Promise<void>][] = [
    [20, mine],
    [10, reorg],
    [6, clients.watch],
    [6, clients.patch],
    [6, clients.set],
    [8, clients.redeliverOne],
    [8, clients.redeliverBlocks],
    [3, clients.replaceSet],
    [2, clients.remove],
    [20, () => leap(random.between(1, SECOND_MS))],
    [6, () => leap(random.between(SECOND_MS, 12 * SECOND_MS))],
    [5, () => leap(LEASE_LEAP_MS)],
    [8, leapToRetry],
    [4, setClock],
    [4, turnReceiver],
    [6, loseSession],
    [10, stall],
    [3, kill],
    [1, () => cast.stop(random.pick(cast.living()))],
    [world.settings.retention === undefined ? 0 : 8, () => leap(random.between(12, 48) * HOUR_MS)],
  ];
  const tickets = table.flatMap(([weight, happen]) => Array.from({ length: weight }, () => happen));

  return {
    watch: clients.watch,
    async next() {
      const mayAskAgain = world.unheard.size > 0 && random.chance(UNHEARD_CHANCE);
      await (mayAskAgain ? clients.redeliverUnheard() : random.pick(tickets)());
    },
  };
}

/** When the next retry is due. */
export function nextRetryMs({ notifications }: Oracle): number | undefined {
  const times = Array.from(notifications.values(), ({ state, retryMs }) =>
    state === 'waiting' && retryMs !== undefined ? [retryMs] : [],
  );
  return times.flat().sort((one, other) => one - other)[0];
}
