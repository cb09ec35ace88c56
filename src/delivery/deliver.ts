/**
 * Delivering: one step leases lanes that have something due and sets each to work; lanes run beside one another, so a
 * receiver that hangs holds up nobody else.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { createWake, type Step, type Wake } from '../core/loop.ts';
import type { Session } from '../store/db.ts';
import { findNextDue, freeDeadLanes, leaseLanes, renewLeases, WORKER_LOCK_SPACE } from '../store/lanes.ts';
import { type DeliveryOptions, type LaneRun, runLane } from './lane.ts';
import { createSettler } from './settler.ts';

export type DelivererOptions = DeliveryOptions & {
  /** The process's session; a new one after the old one was lost. */
  session(): Promise<Session>;
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
const LEASE_MS = 30_000;
const ATTEMPT_MS_MAX = 10_000;
assert(LEASE_MS > 2 * ATTEMPT_MS_MAX);
/** How often leases are renewed: three chances before the end. */
const RENEW_MS = 8_000;
const LANES_PER_STEP_MAX = 64;
const LANES_MAX = 4_096;
/** Attempts under way in this process: bounds sockets and memory. */
const ATTEMPTS_MAX = 1_024;
/** A queue that nobody rings for is looked at this often. */
const POLL_MS_MAX = 1_000;
/** How long a shutdown waits for answers before it breaks attempts off; they will be made again. */
const STOP_MS_MAX = 2_000;

export function createDeliverer(options: DelivererOptions): Deliverer {
  const { database, clock, log, metrics } = options;
  const lanes = new Map<number, LaneRun>();
  const stopping = new AbortController();
  const killed = new AbortController();
  const settler = createSettler({ database, clock, log, signal: killed.signal });
  const wake = createWake(clock);
  const bug = Promise.withResolvers<never>();
  // Whoever watches `failed` sees it; without a watcher it must not be an unhandled rejection.
  bug.promise.catch(() => {});
  let worker: { session: Session; number: number } | undefined;
  let renewedAt = 0;
  let attempts = 0;
  const slots = {
    free: () => ATTEMPTS_MAX - attempts,
    take: () => {
      attempts += 1;
    },
    give: () => {
      attempts -= 1;
    },
  };

  /** This worker's number, locked for as long as the session lives: a new one for each session. */
  async function workerNumber(): Promise<number> {
    const session = await options.session();
    if (worker?.session === session) return worker.number;
    // The old number's lock ended with its session: its lanes are anybody's now.
    for (const run of lanes.values()) run.lose();
    for (;;) {
      const number = randomInt(1, 2 ** 31 - 1);
      if (!(await session.tryLock(WORKER_LOCK_SPACE, number))) continue;
      worker = { session, number };
      return number;
    }
  }

  async function step(): Promise<'worked' | 'idle'> {
    if (stopping.signal.aborted) return 'idle';
    const owner = await workerNumber();
    const limit = Math.min(LANES_PER_STEP_MAX, LANES_MAX - lanes.size);
    if (limit <= 0) return 'idle';
    const now = clock.now();
    const leased = await leaseLanes(database, {
      owner,
      now,
      leaseUntil: new Date(now.getTime() + LEASE_MS),
      limit,
    });
    for (const lane of leased)
      begin(runLane(lane, { ...options, settler, slots, stopping: stopping.signal, killed: killed.signal }));
    return leased.length === limit ? 'worked' : 'idle';
  }

  function begin(run: LaneRun): void {
    const { id } = run.lane;
    lanes.set(id, run);
    metrics.webhookLanes.set(lanes.size);
    run.done.catch(bug.reject).finally(() => {
      if (lanes.get(id) === run) lanes.delete(id);
      metrics.webhookLanes.set(lanes.size);
      // It may have become due again between its last look and its return.
      wake.ring();
    });
  }

  async function heartbeat(): Promise<'idle'> {
    if (await freeDeadLanes(database)) wake.ring();
    const now = clock.now();
    if (worker === undefined || now.getTime() - renewedAt < RENEW_MS) return 'idle';
    const laneIds = [...lanes.keys()];
    const leaseUntil = new Date(now.getTime() + LEASE_MS);
    const kept = await renewLeases(database, { owner: worker.number, laneIds, leaseUntil });
    for (const id of laneIds) if (!kept.has(id)) lanes.get(id)?.lose();
    renewedAt = now.getTime();
    return 'idle';
  }

  return {
    step,
    heartbeat,
    wake,
    failed: bug.promise,
    async idleMs() {
      const nextDue = await findNextDue(database);
      const untilMs = nextDue === undefined ? POLL_MS_MAX : nextDue.getTime() - clock.now().getTime();
      return Math.min(Math.max(untilMs, 1), POLL_MS_MAX);
    },
    ring(payload) {
      for (const id of payload === '*' ? lanes.keys() : payload.split(',').map(Number)) lanes.get(id)?.ring();
      wake.ring();
    },
    async stop() {
      stopping.abort();
      const finished = Promise.allSettled([...lanes.values()].map((run) => run.done));
      const timer = new AbortController();
      await Promise.race([finished, clock.wait(STOP_MS_MAX, timer.signal)]);
      timer.abort();
      killed.abort();
      await finished;
    },
  };
}
