/**
 * Runs one story from one seed. Two followers and three workers take turns on one database, with blocks, reorgs, failing
 * nodes and receivers, changing watched addresses, leaps of time, lost sessions and crashes. Then the faults stop, and all
 * due work must complete.
 */
import { type Bug, type BugName, bugs } from './bugs.ts';
import { createCast } from './cast.ts';
import { FINALITY_BLOCKS } from './chain.ts';
import { createHappenings, nextRetryMs } from './happenings.ts';
import { judgeLedgers } from './ledger.ts';
import type { Turn } from './scheduler.ts';
import { createWorld, DAY_MS, type Stage, type World } from './world.ts';

type StoryOptions = {
  seed: number;
  /** Turns before the faults stop. */
  steps?: number;
  bug?: BugName;
};

export type Story = {
  seed: number;
  /** The turns that were taken before the faults stopped or a promise was broken. */
  steps: number;
  /** The first promise that was broken. */
  problem: string | undefined;
  lines: readonly string[];
  /** How often each mishap happened at each point, with keys such as `settle, crash after`. */
  mishaps: ReadonlyMap<string, number>;
  /** The numbers of attempts, and of notifications by their last state. */
  counts: Record<string, number>;
};

const STEPS = 300;
const FIRST_RECORDS = 3;
/** Rounds of all loops in which all due work must complete. A retry takes a few rounds. */
const CALM_ROUNDS_MAX = 400;
/** Turns of one round. More turns mean that a step never ends. */
const CALM_TURNS_MAX = 5_000;
const CALM_MS = 1_000;
/** More than the retention, a day, and the day after a step of the clock in which nothing is pruned. */
const PRUNE_DAYS = 3;
/** Rounds in which retention must delete everything that is old. Each drops up to one day of each table. */
const PRUNE_ROUNDS_MAX = 40;

export async function simulate(
  stage: Stage,
  { seed, steps = STEPS, bug = 'none' }: StoryOptions,
): Promise<Story> {
  const world = await createWorld(stage, seed);
  const cast = createCast(world, bug);
  const planted: Bug = bugs[bug]();
  const happenings = createHappenings(world, cast, planted);
  const { scheduler, random, clock, chain } = world;
  let taken = 0;
  try {
    chain.mine();
    for (const watch of Array.from({ length: FIRST_RECORDS }, () => happenings.watch)) await watch();
    for (; taken < steps && world.problem() === undefined; taken += 1) {
      clock.advance(1);
      const turn = random.chance(world.unheard.size > 0 ? 0.7 : 0.2)
        ? undefined
        : chooseTurn(world, planted.wakeChance);
      if (turn === undefined) await happenings.next();
      else await scheduler.take(turn);
    }
    if (world.problem() === undefined) await calm(world);
    if (world.problem() === undefined) await world.requireNoneForgotten();
  } finally {
    for (const actor of cast.living()) scheduler.bury(actor);
    await world.sessions.endAll();
  }
  const { lines } = world;
  return {
    seed,
    steps: taken,
    problem: world.problem(),
    lines,
    mishaps: cast.mishaps,
    counts: countStates(world),
  };
}

/** Prefers a follower, and otherwise an actor in the middle of a step. */
function chooseTurn({ scheduler, random, stalled }: World, wakeChance = 0.03): Turn | undefined {
  if (random.chance(wakeChance)) stalled.clear();
  const waiting = scheduler.waiting().filter(({ actor }) => !stalled.has(actor));
  const choices = [
    random.chance(0.4) ? waiting.filter(({ actor }) => actor.name.startsWith('follower')) : [],
    random.chance(0.8) ? waiting.filter(({ kind }) => kind !== 'step') : [],
    waiting,
  ];
  const choice = choices.find((turns) => turns.length > 0);
  return choice && random.pick(choice);
}

/** Lets the chain grow for a while. Every loop gets its turns, and receivers answer. */
async function calm(world: World): Promise<void> {
  const { chain, clock, oracle, witness, settings, tell, fail } = world;
  world.isCalm = true;
  tell('all', 'the faults stop');
  // An orphaned branch may be longer than the chain. Followers leave it once the chain is longer.
  for (let more = FINALITY_BLOCKS + settings.confirmations; more > 0; more -= 1) chain.mine();
  for (let rounds = 1; world.problem() === undefined; rounds += 1) {
    await takeRound(world);
    const unfinished = oracle.findUnfinished();
    if (unfinished === undefined) {
      oracle.judge();
      judgeLedgers(oracle, world.ledgers, fail);
      witness.judge();
      return settings.retention === undefined ? undefined : pruneAll(world);
    }
    if (rounds > CALM_ROUNDS_MAX) return fail(`after ${CALM_ROUNDS_MAX} calm rounds ${unfinished}`);
    const untilRetryMs = (nextRetryMs(oracle) ?? 0) - clock.now().getTime();
    clock.advance(rounds % 4 === 0 ? Math.max(untilRetryMs, CALM_MS) : CALM_MS);
  }
}

/** Lets some days pass, after which retention must have deleted what is finished and final now. */
async function pruneAll(world: World): Promise<void> {
  const finalNumber = world.chain.finalNumber();
  world.clock.advance(PRUNE_DAYS * DAY_MS);
  for (let rounds = 1; world.problem() === undefined; rounds += 1) {
    world.chain.mine();
    await takeRound(world);
    world.clock.advance(CALM_MS);
    const kept = await world.findKept(finalNumber);
    if (kept === undefined) return;
    if (rounds > PRUNE_ROUNDS_MAX)
      return world.fail(`after ${rounds} more rounds retention has left ${kept}`);
  }
}

/** Attempts, and notifications by state. */
function countStates({ oracle, witness }: World): Record<string, number> {
  const counts: Record<string, number> = { attempts: witness.attemptCount() };
  for (const { state } of oracle.notifications.values()) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/** Runs one step of each loop, with all turns that follow from it. */
async function takeRound({ scheduler, clock, problem, fail }: World): Promise<void> {
  for (const turn of scheduler.waiting().filter(({ kind }) => kind === 'step')) await scheduler.take(turn);
  for (let turns = 0; problem() === undefined; turns += 1) {
    const turn = scheduler.waiting().find(({ kind }) => kind !== 'step');
    if (turn === undefined) return;
    if (turns > CALM_TURNS_MAX) return fail(`${turn.actor.name} never ends its step`);
    clock.advance(1);
    await scheduler.take(turn);
  }
}
