/**
 * Delivery: each step leases lanes (delivery queues) with something due, watcher by watcher, and starts working on them. Lanes run
 * concurrently and share slots fairly, so a receiver or a watcher that hangs delays no other.
 */
import assert from 'node:assert/strict';
import { never } from '../core/abort.ts';
import { backOffMs } from '../core/back-off.ts';
import { createGroups } from '../core/batching.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import { createWake, type Step, type Wake } from '../core/loop.ts';
import type { Database, Session } from '../store/db/db.ts';
import {
  type Lane,
  leaseLanes,
  REORG_PREFIX,
  releaseLanes,
  renewLeases,
  VISIT_LANES_MAX,
  VISIT_WATCHERS_MAX,
} from '../store/delivery/lanes.ts';
import { scheduleNextVisits } from '../store/delivery/visit-schedule.ts';
import { findNextDue, listSuspended, listWaitingWatchers } from '../store/delivery/visits.ts';
import { countWorkers } from '../store/delivery/workers.ts';
import { createFairSlots } from './fair.ts';
import { type DeliveryOptions, type LaneRun, runLane } from './lane.ts';
import { createDueReader } from './reader.ts';
import { untilUnlocked } from './retry-locked.ts';
import { createSettler } from './settler.ts';
import { createWaitLog } from './wait-log.ts';
import { createWorker } from './worker.ts';

type DelivererOptions = DeliveryOptions & {
  /** The connections that record outcomes, so that they don't wait for other statements; `database` by default. */
  settling?: Database;
  /** The current session of the process: a new one after the old one was lost. */
  session(): Promise<Session>;
  /** Lanes at work at once. */
  lanesMax?: number;
  /** Called with watchers whose attempts have been recorded. */
  onSettled?(watcherIds: readonly number[]): void;
};

export type Deliverer = {
  /** Leases what is due and starts working on it. */
  step: Step;
  /** Renews the leases of the lanes at work and frees the lanes of dead workers. Run it every HEARTBEAT_MS. */
  heartbeat: Step;
  /** How long the loop may wait until something is due. */
  idleMs(): Promise<number>;
  wake: Wake;
  /** The payload of a NOTIFY on LANE_CHANNEL. */
  ring(payload: string): void;
  /** What is under way in this process. */
  readonly inFlight: InFlight;
  /** Rejects with the first bug in a lane. */
  readonly failed: Promise<never>;
  /** Starts no further attempt, gives those under way `graceMs`, by default a short time, and gives the lanes back. */
  stop(graceMs?: number): Promise<void>;
};

export type InFlight = {
  /** Whether an attempt of this notification is being made. */
  isUnderWay(laneId: number, notificationId: number): boolean;
  /** The attempts at a receiver, and how many it takes at once; undefined if none of its delivery queues is leased here. */
  receiver(watcherId: number, origin: string): { open: number; limit: number } | undefined;
};

export const HEARTBEAT_MS = 500;
/** Longer than any attempt, so that a working lane is never taken from a living worker. */
export const LEASE_MS = 30_000;
const ATTEMPT_MS_MAX = 10_000;
assert(LEASE_MS > 2 * ATTEMPT_MS_MAX);
/** How often leases are renewed: three times within a lease. */
const RENEW_MS = 8_000;
const LANES_MAX = 4_096;
/** A lane that has been leased for this long gives way when its watcher, or this process, has no room for further lanes. */
const TURN_MS = 10_000;
/** Lanes that give way at once. */
const GIVE_WAY_MAX = 64;
/** Surplus lanes that are given back at once. */
const SURPLUS_MAX = 256;
/** How long a worker takes no lanes of watchers whose lanes it has given away: twice as long as other workers need to look. */
const SHARE_MS = 2_000;
/** If no worker took the lanes, the wait before the next try: doubled each time. */
const UNTAKEN_MS = { min: 60_000, max: 600_000 };
/** How often due lanes are looked for, even without a NOTIFY. */
const POLL_MS_MAX = 1_000;
/** How long freed slots are gathered before watchers with lanes here get further ones. */
const CREDIT_MS = 50;
/** Lanes that are given back with one statement. */
const RELEASED_MAX = 128;
/** How soon to try an overdue visit again that gave no lane because others have it locked. A NOTIFY comes sooner. */
const OVERDUE_MS = 10;
/** How long a stop waits by default for responses before it aborts the attempts, which are repeated later. */
const STOP_MS_MAX = 2_000;

/** A lane at work. `owner`: the number under which it was leased. */
type Entry = { run: LaneRun; startedMs: number; owner: number };

// oxlint-disable-next-line max-lines-per-function -- One worker's leases and lanes; its short functions share them as state.
export function createDeliverer(options: DelivererOptions): Deliverer {
  const { database, clock, log, metrics, lanesMax = LANES_MAX } = options;
  const lanes = new Map<number, Entry>();
  const stopping = new AbortController();
  const killed = new AbortController();
  const settler = createSettler({
    database: options.settling ?? database,
    clock,
    log,
    signal: killed.signal,
    onSettled: options.onSettled,
  });
  const wake = createWake(clock);
  const bug = Promise.withResolvers<never>();
  // Without a listener on `failed`, this must not become an unhandled rejection.
  bug.promise.catch(() => {});
  const worker = createWorker({
    ...{ database, clock, session: options.session, onLost: loseAll },
    atWork: () => [...lanes].map(([id, { owner }]) => ({ id, owner })),
  });
  let renewedMs = Number.NEGATIVE_INFINITY;
  /** Lanes whose leases are still to be renewed, because others had them locked. */
  let unrenewed: ReadonlySet<number> = new Set();
  /** Watchers whose lanes were given to other workers, and how long this worker takes none of them. */
  let left: { watcherIds: readonly number[]; untilMs: number } = {
    watcherIds: [],
    untilMs: Number.NEGATIVE_INFINITY,
  };
  /** `others`: lanes at work elsewhere when this worker last gave some away; undefined once the result has been checked. */
  let sharing: { fromMs: number; untakenCount: number; others?: number | undefined } = {
    fromMs: Number.NEGATIVE_INFINITY,
    untakenCount: 0,
  };
  /** Whether lanes may be leased that are not at work, because the database didn't answer to a lease or a release. */
  let mayHaveUnused = false;
  let polledMs = Number.NEGATIVE_INFINITY;
  let isCreditDue = false;
  const fair = createFairSlots({ clock, onCredit });
  const reader = createDueReader(options);
  const noteWait = createWaitLog(options);
  const releaseInGroups = createGroups<Lane, 'released' | 'locked'>({
    sizeMax: RELEASED_MAX,
    async work(group) {
      const locked = await releaseLanes(database, group, clock.now());
      return (lane) => (locked.has(lane) ? 'locked' : 'released');
    },
  });

  /** Wakes the loop once for all slots that are freed within CREDIT_MS. */
  function onCredit(): void {
    if (isCreditDue) return;
    isCreditDue = true;
    void clock.wait(CREDIT_MS, stopping.signal).then(() => {
      isCreditDue = false;
      wake.ring();
    });
  }

  /** A lane that is locked keeps its lease until it can be given back; a shutdown leaves it to the other workers. */
  async function release(lane: Lane): Promise<void> {
    await untilUnlocked(clock, killed.signal, () => releaseInGroups(lane));
  }

  /** The number's lock ended with its session, so any worker may take its lanes now. */
  function loseAll(): void {
    for (const { run } of lanes.values()) run.lose();
    // A new session at once, so that the attempts under way stay this worker's. If that fails, the next step tries again.
    if (lanes.size > 0) void worker.number().catch(() => {});
    wake.ring();
  }

  async function noteUnused<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      mayHaveUnused = true;
      throw error;
    }
  }

  /** Otherwise nothing would be sent from such lanes until their leases have ended. */
  async function freeUnused(now: Date): Promise<void> {
    if (!mayHaveUnused) return;
    mayHaveUnused = false;
    if ((await noteUnused(worker.freeUnused(now))) > 0) mayHaveUnused = true;
  }

  async function step(): Promise<'worked' | 'idle'> {
    if (stopping.signal.aborted) return 'idle';
    const owner = await worker.number();
    const [now, stepsMs] = [clock.now(), clock.stepsMs()];
    await freeUnused(now);
    const room = lanesMax - lanes.size;
    if (room <= 0) {
      await makeRoom(now);
      return 'idle';
    }
    const watchersMax = Math.min(VISIT_WATCHERS_MAX, room);
    const lanesEach = Math.min(VISIT_LANES_MAX, Math.floor(room / watchersMax));
    const askedMs = clock.steadyMs();
    const { leased, drained, visited } = await noteUnused(
      leaseLanes(database, {
        ...{ owner, now, stepsMs, leaseUntil: new Date(now.getTime() + LEASE_MS) },
        ...{ full: unwanted(), watchersMax, lanesEach },
      }),
    );
    if (clock.steadyMs() - askedMs > RENEW_MS || worker.current() !== owner || stopping.signal.aborted) {
      // The leases may be over, or the lock is gone, and the lanes another worker's.
      mayHaveUnused = true;
      if (leased.length > 0) await releaseLanes(database, leased, clock.now());
      return 'idle';
    }
    for (const lane of leased) begin(lane, owner);
    // After the lanes have begun, so that their first webhooks don't wait for it.
    await scheduleNextVisits(database, drained, now);
    return leased.length > 0 && (visited === watchersMax || drained.length < visited) ? 'worked' : 'idle';
  }

  /** Watchers of which this worker takes no further lane at the moment. */
  function unwanted(): number[] {
    return clock.steadyMs() < left.untilMs ? [...fair.full(), ...left.watcherIds] : fair.full();
  }

  /** The lanes leased longest give way to waiting ones, and are leased again after them. */
  async function makeRoom(now: Date): Promise<void> {
    const nextDue = await findNextDue(database, unwanted());
    if (nextDue !== undefined && nextDue <= now) giveWay(GIVE_WAY_MAX);
  }

  /** Gives back lanes whose watchers no longer have slots for them: another process may have some, and memory is limited. */
  function giveBackSurplus(): void {
    for (const id of fair.surplus().slice(0, SURPLUS_MAX)) lanes.get(id)?.run.giveWay();
  }

  /** For watchers without room for further lanes here, lanes leased for long give way to other lanes of the same watcher. */
  async function rotate(): Promise<void> {
    const waiting = new Set(await listWaitingWatchers(database, fair.full(), clock.now()));
    // A lane that waits for its first attempt here would only wait elsewhere.
    if (waiting.size > 0) giveWay(GIVE_WAY_MAX, (run) => run.hadTurn() && waiting.has(run.lane.watcherId));
  }

  /** Gives back the lanes of suspended watchers once their attempts under way have ended. */
  async function stopSuspended(): Promise<void> {
    const watcherIds = [...new Set(Array.from(lanes.values(), ({ run }) => run.lane.watcherId))];
    const suspended = new Set(await listSuspended(database, watcherIds));
    if (suspended.size === 0) return;
    for (const { run } of lanes.values()) if (suspended.has(run.lane.watcherId)) run.giveWay();
  }

  /**
   * Lanes with much to do would stay for hours with the worker that came first: others that live get their share. One that is
   * stopped (SIGSTOP) lives but takes none, and waiting for it would delay the webhooks of these lanes again and again.
   */
  async function shareOut(owner: number): Promise<void> {
    const nowMs = clock.steadyMs();
    if (lanes.size < 2 || nowMs < Math.max(left.untilMs, sharing.fromMs)) return;
    const { workers, lanes: atWork, own } = await countWorkers(database, owner);
    const others = atWork - own;
    if (sharing.others !== undefined) {
      // Those that work may have finished as many as they took.
      const isTaken = others > 0 && others >= sharing.others;
      const { untakenCount } = sharing;
      sharing = isTaken
        ? { fromMs: nowMs, untakenCount: 0 }
        : { fromMs: nowMs + backOffMs(UNTAKEN_MS, untakenCount), untakenCount: untakenCount + 1 };
      return;
    }
    const excess = workers < 2 ? 0 : own - Math.ceil(atWork / workers);
    const given = excess > 0 ? giveWay(excess) : [];
    if (given.length === 0) return;
    const watcherIds = [...new Set(given.map(({ lane }) => lane.watcherId))];
    left = { watcherIds, untilMs: clock.steadyMs() + SHARE_MS };
    sharing.others = others;
  }

  /** Asks the lanes leased longest, if for at least TURN_MS, to give way. Returns those that weren't ending already. */
  function giveWay(limit: number, isMeant: (run: LaneRun) => boolean = () => true): LaneRun[] {
    const nowMs = clock.steadyMs();
    // A Map lists in the order of insertion: the oldest first.
    const hadTheirTurn = [...lanes.values()].filter(
      ({ run, startedMs }) => nowMs - startedMs >= TURN_MS && isMeant(run),
    );
    return hadTheirTurn.slice(0, limit).flatMap(({ run }) => (run.giveWay() ? [run] : []));
  }

  function begin(lane: Lane, owner: number): void {
    const { id } = lane;
    const signals = { stopping: stopping.signal, killed: killed.signal };
    let hasReleased = false;
    const giveBack = async (own: Lane) => {
      await release(own);
      hasReleased = true;
    };
    const run = runLane(lane, { ...options, settler, reader, fair, noteWait, release: giveBack, ...signals });
    const entry = { run, startedMs: clock.steadyMs(), owner };
    lanes.set(id, entry);
    metrics.deliveryQueues.set(lanes.size);
    run.done.catch(bug.reject).finally(() => {
      if (lanes.get(id) === entry) lanes.delete(id);
      mayHaveUnused ||= !hasReleased;
      metrics.deliveryQueues.set(lanes.size);
      // The lane may have become due again between its last read and its release.
      wake.ring();
    });
  }

  async function heartbeat(): Promise<'idle'> {
    const now = clock.now();
    const owner = worker.current();
    // Before another worker takes them for those of a dead one.
    if (owner !== undefined) await renewDue(now);
    if ((await worker.freeAbandoned(now)) > 0) wake.ring();
    if (owner === undefined) return 'idle';
    if (clock.steadyMs() - polledMs >= POLL_MS_MAX) {
      polledMs = clock.steadyMs();
      for (const { run } of lanes.values()) run.poll();
      await stopSuspended();
    }
    giveBackSurplus();
    await shareOut(owner);
    await rotate();
    return 'idle';
  }

  async function renewDue(now: Date): Promise<void> {
    const askedMs = clock.steadyMs();
    const isDue = askedMs - renewedMs >= RENEW_MS;
    const entries = [...lanes].filter(([id]) => isDue || unrenewed.has(id));
    unrenewed = new Set(entries.length === 0 ? [] : await renew(entries, now));
    // Leases count from the request, however late the response is.
    if (isDue) renewedMs = askedMs;
  }

  /** Returns the lanes whose leases others have locked. */
  async function renew(entries: readonly [number, Entry][], now: Date): Promise<number[]> {
    const { kept, locked } = await renewLeases(database, {
      owners: [...new Set(entries.map(([, { owner }]) => owner))],
      laneIds: entries.map(([id]) => id),
      leaseUntil: new Date(now.getTime() + LEASE_MS),
    });
    // A lane that was given back meanwhile may have been leased again.
    for (const [id, entry] of entries) if (!kept.has(id) && lanes.get(id) === entry) entry.run.lose();
    return locked;
  }

  /** While attempts are under way, the others must see that this worker runs, even if its session is lost. */
  async function keepLocked(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && lanes.size > 0) {
      // Until the database is back.
      await worker
        .number()
        .then(() => renewDue(clock.now()))
        .catch(() => {});
      await clock.wait(HEARTBEAT_MS, signal);
    }
  }

  return {
    step,
    heartbeat,
    wake,
    inFlight: {
      isUnderWay: (laneId, notificationId) => lanes.get(laneId)?.run.isUnderWay(notificationId) ?? false,
      receiver(watcherId, origin) {
        const found = fair.receiver(watcherId, origin);
        return found && { open: found.open, limit: found.pace.limit };
      },
    },
    failed: bug.promise,
    async idleMs() {
      if (lanes.size >= lanesMax) return POLL_MS_MAX;
      const nextDue = await findNextDue(database, unwanted());
      const untilMs = nextDue === undefined ? POLL_MS_MAX : nextDue.getTime() - clock.now().getTime();
      return Math.min(untilMs > 0 ? untilMs : OVERDUE_MS, POLL_MS_MAX);
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
    async stop(graceMs = STOP_MS_MAX) {
      stopping.abort();
      const ended = new AbortController();
      const finished = Promise.allSettled([...lanes.values()].map(({ run }) => run.done)).finally(() =>
        ended.abort(),
      );
      void keepLocked(ended.signal);
      await firstOrLate({ clock, signal: never }, [finished], graceMs);
      killed.abort();
      await finished;
    },
  };
}
