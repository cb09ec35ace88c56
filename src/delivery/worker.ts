/**
 * This process as a delivery worker: a number that it keeps locked, by which others see that it runs, and when it may free the lanes
 * of workers that no longer run.
 */
import { randomInt } from 'node:crypto';
import { onAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import type { Database, Session } from '../store/db/db.ts';
import { freeAbandonedLanes, type Owners } from '../store/delivery/lanes.ts';
import { countWorkers, WORKER_LOCK_SPACE } from '../store/delivery/workers.ts';

export type Worker = {
  /** The worker's number, locked for as long as its session lives: a new one for each session. */
  number(): Promise<number>;
  /** The number while its lock is held. */
  current(): number | undefined;
  /** Frees lanes that no worker works any more, but none at work here. Returns how many. */
  freeAbandoned(now: Date): Promise<number>;
  /** Frees the worker's lanes that are not at work here. Call it while none is being leased. Returns how many are locked and left. */
  freeUnused(now: Date): Promise<number>;
};

type WorkerOptions = {
  database: Database;
  clock: Clock;
  session(): Promise<Session>;
  /** The lanes that are at work here, each with the number under which it was leased. */
  atWork(): readonly { id: number; owner: number }[];
  /** The number's lock ended with its session. */
  onLost(): void;
};

/**
 * After the database was away, each worker frees only its own former lanes for this long. It leaves lanes of a running worker alone for
 * as long after it has seen that their leases have ended, because that worker renews them as soon as the database allows it. Otherwise
 * webhooks that are under way would be sent again.
 */
const RESUME_MS = 4_000;
/** A worker that lost its session tries to get a new one at least this often. */
const RETRY_MS = RESUME_MS / 2;
/**
 * While the database doesn't answer, other workers can't show that they run. A little longer than from one heartbeat to the next, so that
 * a second needs three of them.
 */
const PAUSE_MS = 600;
/** A worker that lost only its own session has a new one sooner than this, and keeps its lanes. */
const MISSING_MS = 1_000;

export function createWorker(options: WorkerOptions): Worker {
  const { database, clock, atWork } = options;
  const numbers = createNumbers(options);
  const { current } = numbers;
  /** Numbers that own lanes and have no lock, and those of which a lease has ended. */
  const [missing, overdue] = [createSightings(clock), createSightings(clock)];

  const leftOut = () => atWork().map(({ id }) => id);

  /** Of which numbers, besides the former ones, lanes may be freed now: because they have no lock, or because their leases have ended. */
  async function othersLeft(number: number): Promise<{ gone: Owners; late: Owners }> {
    // No other process can work on it.
    if (database.kind === 'embedded') return { gone: 'all', late: 'all' };
    if (numbers.ageMs() >= RESUME_MS)
      return { gone: missing.forAtLeast(MISSING_MS), late: overdue.forAtLeast(RESUME_MS) };
    // Running workers free what a dead one left. If there are none, others that live get their sessions before this.
    const isAlone = numbers.isFirst() && (await countWorkers(database, number)).workers === 1;
    return { gone: isAlone ? missing.forAtLeast(RETRY_MS) : [], late: [] };
  }

  return {
    current,
    number: numbers.lock,
    async freeAbandoned(now) {
      const latest = numbers.latest();
      if (latest === undefined) return 0;
      await numbers.lockFormer();
      const others = await othersLeft(latest);
      const number = current();
      const ended = numbers.ended();
      const { freed, left, unlocked, ...seen } = await freeAbandonedLanes(database, {
        ...{ now, stepsMs: clock.stepsMs(), except: leftOut(), own: numbers.former() },
        ...(number === undefined ? { gone: [], late: [] } : others),
      });
      missing.note(unlocked);
      overdue.note(seen.overdue);
      // The server lost the session without a word, so that nothing is left of its lock.
      if (number !== undefined && unlocked.includes(number)) numbers.abandon(number);
      if (left === 0) await numbers.forget(ended);
      return freed;
    },
    async freeUnused(now) {
      const number = current();
      if (number === undefined) return 0;
      const { left } = await freeAbandonedLanes(database, {
        ...{ now, except: leftOut(), own: [number], gone: [], late: [] },
      });
      return left;
    },
  };
}

/** The number of this worker, one for each session, and the former ones, of which attempts may be under way. */
function createNumbers({ clock, session: open, atWork, onLost }: WorkerOptions) {
  let own: { session: Session; number: number } | undefined;
  let locking: Promise<number> | undefined;
  /** Since when this worker leaves others the time to resume. */
  let lockedMs = Number.NEGATIVE_INFINITY;
  /** Whether the worker is new. It doesn't know then whether the database was away. */
  let isFirst = false;
  const former = new Set<number>();

  const current = () => (own?.session.lost.aborted === false ? own.number : undefined);
  const isAtWork = (number: number) => atWork().some(({ owner }) => owner === number);

  async function lockFormerOf(session: Session): Promise<void> {
    for (const one of former) if (isAtWork(one)) await session.tryLock(WORKER_LOCK_SPACE, one);
  }

  async function lockOwn(): Promise<number> {
    const session = await open();
    await lockFormerOf(session);
    if (own?.session === session) return own.number;
    for (;;) {
      const number = randomInt(1, 2 ** 31 - 1);
      if (!(await session.tryLock(WORKER_LOCK_SPACE, number))) continue;
      isFirst = own === undefined;
      own = { session, number };
      lockedMs = clock.steadyMs();
      const lose = () => {
        former.add(number);
        onLost();
      };
      onAbort(session.lost, lose);
      if (session.lost.aborted) lose();
      return number;
    }
  }

  return {
    current,
    latest: () => own?.number,
    former: () => [...former],
    /** Former numbers without attempts. */
    ended: () => [...former].filter((one) => !isAtWork(one)),
    isFirst: () => isFirst,
    ageMs: () => clock.steadyMs() - lockedMs,
    lock() {
      locking ??= lockOwn().finally(() => {
        locking = undefined;
      });
      return locking;
    },
    /** Until their outcomes are recorded, others must see that attempts are under way. The server may have kept the old session's lock. */
    async lockFormer(): Promise<void> {
      if (own !== undefined && current() !== undefined) await lockFormerOf(own.session);
    },
    abandon(number: number): void {
      if (number === current()) own?.session.abandon();
    },
    async forget(ended: readonly number[]): Promise<void> {
      for (const one of ended) {
        if (current() !== undefined) await own?.session.unlock(WORKER_LOCK_SPACE, one);
        former.delete(one);
      }
    },
  };
}

/** For how long each of some workers has been seen without a break. Between two answers of the database this counts at most PAUSE_MS. */
function createSightings(clock: Pick<Clock, 'steadyMs'>) {
  let seen = new Map<number, number>();
  let notedMs = clock.steadyMs();
  const sinceMs = () => Math.min(clock.steadyMs() - notedMs, PAUSE_MS);
  return {
    note(numbers: readonly number[]): void {
      const ms = sinceMs();
      seen = new Map(
        numbers.map((one) => {
          const before = seen.get(one);
          return [one, before === undefined ? 0 : before + ms];
        }),
      );
      notedMs = clock.steadyMs();
    },
    forAtLeast: (ms: number): number[] =>
      [...seen].flatMap(([one, seenMs]) => (seenMs + sinceMs() >= ms ? [one] : [])),
  };
}
