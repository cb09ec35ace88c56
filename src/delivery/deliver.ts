/**
 * Delivering: one step leases lanes that have something due and sets each to work; lanes run beside one another, so a
 * receiver that hangs holds up no other one.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { createWake, type Step, type Wake } from '../core/loop.ts';
import type { Session } from '../store/db.ts';
import {
  countWorkers,
  findNextDue,
  freeDeadLanes,
  type Lane,
  leaseLanes,
  REORG_PREFIX,
  renewLeases,
  WORKER_LOCK_SPACE,
} from '../store/lanes.ts';
import { type DeliveryOptions, type LaneRun, runLane } from './lane.ts';
import { CONNECTIONS_PER_ORIGIN_MAX } from './send.ts';
import { createSettler } from './settler.ts';
import { createSlots } from './slots.ts';

export type DelivererOptions = DeliveryOptions & {
  /** The process's session; a new one after the old one was lost. */
  session(): Promise<Session>;
  /** Lanes at work at once. */
  lanesMax?: number;
};

export type Deliverer = {
  /** Leases what is due and starts working on it. */
  step: Step;
  /** Renews the leases of the lanes at work and frees those of dead workers; to be run every HEARTBEAT_MS. */
  heartbeat: Step;
  /** Until something is due, for the loop's wait. */
  idleMs(): Promise<number>;
  wake: Wake;
  /** The payload of a NOTIFY on LANE_CHANNEL. */
  ring(payload: string): void;
  /** Rejects with the first bug in a lane. */
  readonly failed: Promise<never>;
  /** Starts nothing more, gives attempts under way a short time, and returns the lanes. */
  stop(): Promise<void>;
};

export const HEARTBEAT_MS = 500;
/** Longer than any attempt, so that a working lane is never taken from a living worker. */
export const LEASE_MS = 30_000;
const ATTEMPT_MS_MAX = 10_000;
assert(LEASE_MS > 2 * ATTEMPT_MS_MAX);
/** How often leases are renewed: three chances before the end. */
const RENEW_MS = 8_000;
const LANES_PER_STEP_MAX = 64;
const LANES_MAX = 4_096;
/** When there are more lanes than that with something due, one that has had this long gives way. */
const TURN_MS = 10_000;
/** A worker that has given lanes to those with fewer takes none for as long: twice as long as it takes the others to look. */
const SHARE_MS = 2_000;
/**
 * Attempts under way in this process, which bounds sockets and memory; half of them may be such as will probably hang.
 * To one receiver there are as many as the sender has connections: an attempt that is rendered does not wait for one.
 */
const SLOT_LIMITS = { all: 1_024, doubtful: 512, perOrigin: CONNECTIONS_PER_ORIGIN_MAX };
/** Lanes whose low concurrency is remembered between their turns. */
const LEARNED_MAX = 10_000;
/** A queue that is never rung for is checked this often. */
const POLL_MS_MAX = 1_000;
/** How long a shutdown waits for answers before it breaks attempts off; they will be made again. */
const STOP_MS_MAX = 2_000;

export function createDeliverer(options: DelivererOptions): Deliverer {
  const { database, clock, log, metrics, lanesMax = LANES_MAX } = options;
  const lanes = new Map<number, { run: LaneRun; startedMs: number }>();
  const stopping = new AbortController();
  const killed = new AbortController();
  const settler = createSettler({ database, clock, log, signal: killed.signal });
  const wake = createWake(clock);
  const bug = Promise.withResolvers<never>();
  // Users of `failed` see it; without one it must not become an unhandled rejection.
  bug.promise.catch(() => {});
  let worker: { session: Session; number: number } | undefined;
  let renewedMs = Number.NEGATIVE_INFINITY;
  let takesNoneUntil = Number.NEGATIVE_INFINITY;
  const slots = createSlots(SLOT_LIMITS);
  const learned = new Map<number, number>();

  /** This worker's number, locked for as long as the session lives: a new one for each session. */
  async function workerNumber(): Promise<number> {
    const session = await options.session();
    if (worker?.session === session) return worker.number;
    loseAll();
    for (;;) {
      const number = randomInt(1, 2 ** 31 - 1);
      if (!(await session.tryLock(WORKER_LOCK_SPACE, number))) continue;
      worker = { session, number };
      session.lost.addEventListener('abort', loseAll, { once: true });
      return number;
    }
  }

  /** The number's lock ended with its session: its lanes are anybody's now. */
  function loseAll(): void {
    for (const { run } of lanes.values()) run.lose();
  }

  async function step(): Promise<'worked' | 'idle'> {
    if (stopping.signal.aborted) return 'idle';
    const owner = await workerNumber();
    const [now, stepsMs] = [clock.now(), clock.stepsMs()];
    if (clock.steadyMs() < takesNoneUntil) return 'idle';
    const limit = Math.min(LANES_PER_STEP_MAX, lanesMax - lanes.size);
    if (limit <= 0) {
      await makeRoom(now);
      return 'idle';
    }
    const leaseUntil = new Date(now.getTime() + LEASE_MS);
    const leased = await leaseLanes(database, { owner, now, stepsMs, leaseUntil, limit });
    for (const lane of leased) begin(lane);
    return leased.length === limit ? 'worked' : 'idle';
  }

  /** The longest at work give way to those that wait; they come back after them. */
  async function makeRoom(now: Date): Promise<void> {
    const nextDue = await findNextDue(database);
    if (nextDue !== undefined && nextDue <= now) giveWay(LANES_PER_STEP_MAX);
  }

  /** Lanes with much to do would stay for hours with the worker that came first: others that live get their share. */
  async function shareOut(owner: number): Promise<void> {
    if (lanes.size < 2) return;
    const { workers, lanes: atWork, own } = await countWorkers(database, owner);
    if (workers < 2) return;
    const excess = own - Math.ceil(atWork / workers);
    if (excess > 0 && giveWay(excess) > 0) takesNoneUntil = clock.steadyMs() + SHARE_MS;
  }

  /** Tells the longest at work, if they have had their turn; how many did not know. */
  function giveWay(limit: number): number {
    const nowMs = clock.steadyMs();
    // A Map lists in the order of insertion: the oldest first.
    const hadTheirTurn = [...lanes.values()].filter(({ startedMs }) => nowMs - startedMs >= TURN_MS);
    return hadTheirTurn.slice(0, limit).filter(({ run }) => run.giveWay()).length;
  }

  function begin(lane: Lane): void {
    const { id } = lane;
    const signals = { stopping: stopping.signal, killed: killed.signal };
    const run = runLane(lane, { ...options, settler, slots, concurrency: learned.get(id), ...signals });
    const entry = { run, startedMs: clock.steadyMs() };
    lanes.set(id, entry);
    metrics.webhookLanes.set(lanes.size);
    run.done.catch(bug.reject).finally(() => {
      if (lanes.get(id) === entry) lanes.delete(id);
      metrics.webhookLanes.set(lanes.size);
      remember(id, run.learnedConcurrency());
      // It may have become due again between its last look and its return.
      wake.ring();
    });
  }

  /** What a receiver does not take is not tried again at each turn. */
  function remember(laneId: number, concurrency: number | undefined): void {
    learned.delete(laneId);
    if (concurrency === undefined) return;
    learned.set(laneId, concurrency);
    const [oldest] = learned.keys();
    if (learned.size > LEARNED_MAX && oldest !== undefined) learned.delete(oldest);
  }

  async function heartbeat(): Promise<'idle'> {
    if (await freeDeadLanes(database)) wake.ring();
    const now = clock.now();
    if (worker === undefined) return 'idle';
    await shareOut(worker.number);
    if (clock.steadyMs() - renewedMs < RENEW_MS) return 'idle';
    const laneIds = [...lanes.keys()];
    const leaseUntil = new Date(now.getTime() + LEASE_MS);
    const kept = await renewLeases(database, { owner: worker.number, laneIds, leaseUntil });
    for (const id of laneIds) if (!kept.has(id)) lanes.get(id)?.run.lose();
    renewedMs = clock.steadyMs();
    return 'idle';
  }

  return {
    step,
    heartbeat,
    wake,
    failed: bug.promise,
    async idleMs() {
      if (lanes.size >= lanesMax) return POLL_MS_MAX;
      const pauseMs = takesNoneUntil - clock.steadyMs();
      if (pauseMs > 0) return pauseMs;
      const nextDue = await findNextDue(database);
      const untilMs = nextDue === undefined ? POLL_MS_MAX : nextDue.getTime() - clock.now().getTime();
      return Math.min(Math.max(untilMs, 1), POLL_MS_MAX);
    },
    ring(payload) {
      const isReorg = payload.startsWith(REORG_PREFIX);
      const ids = isReorg ? payload.slice(REORG_PREFIX.length) : payload;
      for (const id of ids === '*' ? lanes.keys() : ids.split(',').map(Number)) {
        const run = lanes.get(id)?.run;
        if (isReorg) run?.forget();
        run?.ring();
      }
      wake.ring();
    },
    async stop() {
      stopping.abort();
      const finished = Promise.allSettled([...lanes.values()].map(({ run }) => run.done));
      const timer = new AbortController();
      await Promise.race([finished, clock.wait(STOP_MS_MAX, timer.signal)]);
      timer.abort();
      killed.abort();
      await finished;
    },
  };
}
