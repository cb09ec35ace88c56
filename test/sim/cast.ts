/**
 * The actors: followers and delivery workers as production builds them, each with its own seat at the database. When an
 * actor dies, a new process takes its seat.
 */
import { type CommonClock, openCommonClock } from '../../src/app/common-clock.ts';
import type { Clock } from '../../src/core/clock.ts';
import { Fault, messageOf } from '../../src/core/fault.ts';
import type { Step } from '../../src/core/loop.ts';
import { createDeliverer, type Deliverer } from '../../src/delivery/deliver.ts';
import type { Message, Send, SendOutcome } from '../../src/delivery/send.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { webhookOrigin } from '../../src/domain/webhook-url.ts';
import { createDeferredWriter } from '../../src/ingest/deferred-writer.ts';
import { createFollower } from '../../src/ingest/follow.ts';
import { extractNothing } from '../../src/ingest/read-block.ts';
import type { Database } from '../../src/store/db/db.ts';
import { createAddressFilter } from '../../src/store/matching/address-filter.ts';
import { createPruner } from '../../src/store/retention/retention.ts';
import { noChecks } from '../kit/follower.ts';
import { type BugName, bugs } from './bugs.ts';
import { FINALITY_BLOCKS } from './chain.ts';
import { CHAIN_ID, createSimNodes } from './nodes.ts';
import type { Actor } from './scheduler.ts';
import { createSeat, type Done, type Mishap, type Point } from './seat.ts';
import { HOUR_MS, RETRY_MINUTES, type World } from './world.ts';

export type Cast = {
  living(): Actor[];
  /** Ends the process with everything that it has under way. */
  crash(actor: Actor): Promise<void>;
  /** Stops a worker as SIGTERM does. Does nothing for a follower. */
  stop(actor: Actor): void;
  /** Acts as NOTIFY does: a hint that an actor may miss. */
  ring(): void;
  /** Whether all actors have followed the clock. One that has not may schedule a first attempt in the future. */
  isInTime(): boolean;
  /** Whether the schedule has followed the clock. Until then, lanes may look forgotten. */
  hasRepaired(): boolean;
  /** How often each mishap happened at each point, with keys such as `settle, crash after`. */
  readonly mishaps: Map<string, number>;
};

/** The interval at which an actor repairs the schedule after a step of the clock. */
const REPAIR_MS = 10_000;
/** Less than the addresses of most stories. */
const FILTER_PAGE = 2;
/** How often a process prunes, because a step every minute would take most turns of a story. */
const PRUNE_MS = 6 * HOUR_MS;
const SEATS = ['follower 1', 'follower 2', 'worker 1', 'worker 2', 'worker 3'];
/** Low for reads, because they are frequent and their mishaps have few effects. Higher for rare points. */
const MISHAP_CHANCES: Partial<Record<Point, number>> = {
  read: 0.02,
  listDue: 0.02,
  write: 0.5,
  switchBranch: 0.4,
  followStep: 0.4,
  settle: 0.3,
  releaseLanes: 0.2,
  scheduleNextVisits: 0.2,
  renewLeases: 0.2,
  // Days are created before one is dropped.
  createPartition: 0.04,
  dropPartition: 0.6,
  prune: 0.25,
};
/** The lock space of the election: any space other than that of the workers. */
const ELECTION_LOCK_SPACE = 1;

export function createCast(world: World, bugName: BugName): Cast {
  const { random, clock, scheduler, sessions, witness, tell, stage, settings } = world;
  const { log, metrics, database } = stage;
  const actors = new Map<string, Actor>();
  const deliverers = new Map<Actor, Deliverer>();
  /** Actors whose clock is open, and the version of the common time that each has followed. */
  const opened = new Set<Actor>();
  const seen = new Map<Actor, number>();
  const mishaps = new Map<string, number>();
  let births = 0;

  function start(seatName: string): void {
    births += 1;
    const actor = { name: `${seatName}, ${births}`, isDead: false };
    actors.set(seatName, actor);
    const seat = createSeat({
      ...{ actor, scheduler, database, sessions, mishapAt, bug: bugs[bugName]() },
      onRead: (rows) => witness.read(actor, rows),
      onDone: (done) => onDone(actor, done),
    });
    begin(actor, seat).catch((error: unknown) => die(actor, error));
  }

  /** As in a service, the clock starts before the parts that use it. */
  async function begin(actor: Actor, seat: Database): Promise<void> {
    seen.set(actor, world.commonTime.version());
    const common = await openClock(actor, seat);
    opened.add(actor);
    if (actor.name.startsWith('follower')) startFollower(actor, seat, common.clock);
    else startWorker(actor, seat, common);
    // Only after a change, because a comparison every second would take most turns of a story.
    for (;;) {
      const pause = new AbortController();
      if (seen.get(actor) === world.commonTime.version())
        await Promise.race([world.commonTime.changed(), clock.wait(REPAIR_MS, pause.signal)]);
      pause.abort();
      const version = world.commonTime.version();
      if ((await takeStep(actor, common.step)) !== 'failed') seen.set(actor, version);
    }
  }

  async function openClock(actor: Actor, seat: Database): Promise<CommonClock> {
    const { commonTime } = world;
    for (;;) {
      await scheduler.turn(actor, 'step', async () => {
        // A process that starts before any other has seen the step cannot know of it: docs/explanation/clocks.md says so.
        if (!commonTime.isFollowed() && opened.size === 0) commonTime.setRight();
      });
      if (!commonTime.isFollowed()) continue;
      try {
        const { source } = commonTime;
        return await openCommonClock({ database: seat, log, retryMinutes: RETRY_MINUTES, source });
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
      }
    }
  }

  function startFollower(actor: Actor, seat: Database, own: Clock): void {
    const { confirmations, startBlock, hasFinalTag, hasFilter, deferral } = settings;
    const nodes = createSimNodes({
      ...{ actor, scheduler, hasFinalTag, chain: world.chain, quorum: bugs[bugName]().quorum ?? 2 },
      tell: (text) => tell(actor.name, text),
      view() {
        if (world.isCalm || random.chance(0.8)) return world.chain.head();
        return random.chance(0.3) ? undefined : random.pick([world.chain.head(), ...world.chain.oldHeads()]);
      },
    });
    let leads = () => false;
    async function isLeader(): Promise<boolean> {
      const session = await seat.session();
      const isFirst = await session.tryLock(ELECTION_LOCK_SPACE, 1);
      leads = () => isFirst && !session.lost.aborted;
      return isFirst;
    }
    const filter = createAddressFilter({
      ...{
        database: seat,
        clock: own,
        log,
        metrics,
        leads: () => leads(),
        minRecords: 1,
        pageSize: FILTER_PAGE,
      },
    });
    const follower = createFollower({
      ...{ database: seat, nodes, clock: own, log, metrics, chainId: CHAIN_ID, startBlock, confirmations },
      finalityDepth: FINALITY_BLOCKS,
      backfill: { advance: () => false },
      processors: [],
      extract: extractNothing,
      checks: noChecks,
      isLeader,
      ...(deferral && { deferral }),
      ...(hasFilter && { filter }),
    });
    loop(actor, follower.step);
    if (hasFilter) loop(actor, filter.step);
    if (deferral === undefined) return;
    const write = createDeferredWriter({
      database: seat,
      clock: own,
      confirmations,
      metrics,
      limits: deferral,
    });
    loop(actor, async (signal) => ((await isLeader()) ? write(signal) : 'idle'));
  }

  function startWorker(actor: Actor, seat: Database, { clock: own, mayPrune }: CommonClock): void {
    const deliverer = createDeliverer({
      ...{ database: seat, clock: own, log, metrics, nativeSymbol: 'ETH', retryMinutes: RETRY_MINUTES },
      keyRing: deriveKeyRing(Buffer.alloc(32)),
      session: seat.session,
      send: sendAs(actor, own),
    });
    deliverers.set(actor, deliverer);
    deliverer.failed.catch((error: unknown) => die(actor, error));
    loop(actor, deliverer.step);
    loop(actor, deliverer.heartbeat);
    if (settings.retention === undefined) return;
    const observationsMs = settings.retention.attemptsMs;
    const prune = createPruner({ ...settings.retention, database: seat, clock: own, observationsMs });
    const pruneInTime: Step = async (signal) => {
      world.prunedAt.set(actor, isInTime() ? world.commonTime.now() : world.commonTime.latest());
      return mayPrune() ? prune(signal) : 'idle';
    };
    keepPruning(actor, pruneInTime).catch((error: unknown) => die(actor, error));
  }

  async function keepPruning(actor: Actor, step: Step): Promise<void> {
    for (;;) {
      const result = await takeStep(actor, step);
      if (result !== 'worked') await clock.wait(PRUNE_MS, new AbortController().signal);
    }
  }

  /** Like runLoop, except that the scheduler decides when the next step begins. */
  function loop(actor: Actor, step: Step): void {
    const run = async (): Promise<void> => {
      for (;;) await takeStep(actor, step);
    };
    run().catch((error: unknown) => die(actor, error));
  }

  async function takeStep(actor: Actor, step: Step): Promise<Awaited<ReturnType<Step>> | 'failed'> {
    await scheduler.turn(actor, 'step', async () => {});
    try {
      return await step(new AbortController().signal);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      return 'failed';
    }
  }

  function die(actor: Actor, error: unknown): void {
    if (!actor.isDead) world.fail(`${actor.name} died of a bug: ${messageOf(error)}`);
  }

  /** A webhook is under way until the scheduler lets its receiver answer. */
  function sendAs(actor: Actor, own: Clock): Send {
    return (message, killed) => {
      const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<Send>>>();
      const startedMs = clock.now().getTime();
      const name = `webhook ${message.headers['webhook-id']}`;
      tell(actor.name, `sends ${name} to ${message.url}`);
      const sending = witness.send(actor, message, own.now().getTime());
      if (!deliverers.has(actor)) world.fail(`${actor.name} sends ${name} although it was told to stop`);
      killed.addEventListener('abort', () => reject(killed.reason), { once: true });
      // The receiver may store it before its answer arrives, and may crash or hang afterwards.
      const isTaken = random.chance(0.5);
      if (isTaken) takeIntoLedgers(message);
      const turn = scheduler.turn(actor, 'webhook', async () => {
        const outcome = outcomeAt(webhookOrigin(message.url), isTaken);
        if (outcome === 'success') takeIntoLedgers(message);
        tell(actor.name, `hears of ${name}: ${killed.aborted ? 'too late' : outcome}`);
        if (sending !== undefined && !killed.aborted) witness.answer(sending, outcome);
        const durationMs = clock.now().getTime() - startedMs;
        const mayHaveArrived = outcome !== 'connect';
        const requestCount = mayHaveArrived ? 1 : 0;
        return {
          outcome,
          status: undefined,
          durationMs,
          requestCount,
          mayHaveArrived,
          responseText: undefined,
        };
      });
      turn.then(resolve, reject);
      return promise;
    };
  }

  function takeIntoLedgers(message: Message): void {
    for (const ledger of [world.ledgers.headers, world.ledgers.plain]) ledger.take(message);
  }

  function outcomeAt(origin: string, hasArrived: boolean): SendOutcome {
    if (world.isCalm || (!world.stopped.has(origin) && random.chance(0.7))) return 'success';
    return random.pick(hasArrived ? ['http_5xx', 'timeout'] : ['http_5xx', 'timeout', 'connect']);
  }

  function mishapAt(point: Point): Mishap {
    if (world.isCalm || !random.chance(MISHAP_CHANCES[point] ?? 0.12)) return 'none';
    return random.pick(['fault before', 'fault after', 'crash before', 'crash after']);
  }

  async function onDone(actor: Actor, { point, mishap, hasWritten }: Done): Promise<void> {
    const name = mishap === 'none' ? point : `${point}, ${mishap}`;
    if (name !== 'read') tell(actor.name, name);
    if (mishap !== 'none') mishaps.set(name, (mishaps.get(name) ?? 0) + 1);
    if (hasWritten) await world.observe(actor);
    if (hasWritten && point === 'followStep') world.commonTime.follow();
    if (hasWritten && (point === 'commitBlocks' || point === 'switchBranch')) ring();
    if (hasWritten && point === 'settle' && mishap === 'fault after')
      for (const one of witness.lastProcessed()) world.unheard.add(one);
    // A process may leave a lane half done, and no other event may ever reach that lane.
    // Not checked during a step of the clock, because following it takes two transactions.
    if (mishap !== 'none' && hasRepaired()) await world.requireNoneForgotten();
    if (mishap.startsWith('crash')) await crash(actor);
  }

  async function crash(actor: Actor): Promise<void> {
    scheduler.bury(actor);
    deliverers.delete(actor);
    opened.delete(actor);
    await sessions.end(actor);
    for (const [seatName, one] of actors) if (one === actor) start(seatName);
  }

  function ring(): void {
    for (const deliverer of deliverers.values()) if (world.isCalm || random.chance(0.7)) deliverer.ring('*');
  }

  function isInTime(): boolean {
    const { commonTime } = world;
    return Array.from(actors.values()).every(
      (actor) => opened.has(actor) && seen.get(actor) === commonTime.version(),
    );
  }

  /** A process whose clock is not open yet does not count: it writes nothing. */
  function hasRepaired(): boolean {
    const version = world.commonTime.version();
    return opened.size > 0 && Array.from(opened).every((actor) => seen.get(actor) === version);
  }

  for (const seatName of SEATS) start(seatName);
  return {
    living: () => [...actors.values()],
    crash,
    stop(actor) {
      const deliverer = deliverers.get(actor);
      if (deliverer === undefined) return;
      tell(actor.name, 'is told to stop');
      deliverers.delete(actor);
      const ended = deliverer.stop().then(() => scheduler.turn(actor, 'call', () => crash(actor)));
      ended.catch((error: unknown) => die(actor, error));
    },
    ring,
    isInTime,
    hasRepaired,
    mishaps,
  };
}
