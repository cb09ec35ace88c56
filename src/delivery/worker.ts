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
  /** Frees lanes that no worker works any more, but none in `except` or at work here. Returns how many. */
  freeAbandoned(now: Date, except: readonly number[]): Promise<number>;
  /** Frees the worker's lanes that are not at work here. Call it while none is being leased. */
  freeUnused(now: Date): Promise<void>;
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
 * After the database was away, each worker frees only its own former lanes for so long, and as long the lanes of a running worker whose
 * leases have ended: that one renews them as soon as the database allows it. Otherwise webhooks that are under way would be sent again.
 */
const RESUME_MS = 4_000;
/** A worker that lost its session tries to get a new one at least this often. */
const RETRY_MS = RESUME_MS / 2;
/** A worker that lost only its own session has a new one sooner than this, and keeps its lanes. */
const MISSING_MS = 1_000;

export function createWorker({ database, clock, atWork, onLost, ...options }: WorkerOptions): Worker {
  let own: { session: Session; number: number } | undefined;
  /** Since when this worker leaves others the time to resume. */
  let resumedMs = Number.NEGATIVE_INFINITY;
  /** Whether it is new. It doesn't know then whether the database was away. */
  let isNew = false;
  /** Numbers of this worker whose sessions have ended. */
  const former = new Set<number>();
  /** Numbers that own lanes and have no lock, and those of which a lease has ended. */
  const [missing, overdue] = [createSightings(clock), createSightings(clock)];

  const current = () => (own?.session.lost.aborted === false ? own.number : undefined);
  const isAtWork = (number: number) => atWork().some(({ owner }) => owner === number);

  /** Until their outcomes are recorded, others must see that attempts under a former number are under way. */
  async function lockFormer(session: Session): Promise<void> {
    for (const one of former) if (isAtWork(one)) await session.tryLock(WORKER_LOCK_SPACE, one);
  }

  /** Of which numbers, besides the former ones, lanes may be freed now: because they have no lock, or because their leases have ended. */
  async function othersLeft(number: number): Promise<{ gone: Owners; late: Owners }> {
    // No other process can work on it.
    if (database.kind === 'embedded') return { gone: 'all', late: 'all' };
    if (clock.steadyMs() - resumedMs >= RESUME_MS)
      return { gone: missing.forAtLeast(MISSING_MS), late: overdue.forAtLeast(RESUME_MS) };
    // Running workers free what a dead one left. If there are none, others that live get their sessions before this.
    const isAlone = isNew && (await countWorkers(database, number)).workers === 1;
    return { gone: isAlone ? missing.forAtLeast(RETRY_MS) : [], late: [] };
  }

  return {
    current,
    async number() {
      const session = await options.session();
      await lockFormer(session);
      if (own?.session === session) return own.number;
      for (;;) {
        const number = randomInt(1, 2 ** 31 - 1);
        if (!(await session.tryLock(WORKER_LOCK_SPACE, number))) continue;
        isNew = own === undefined;
        own = { session, number };
        resumedMs = clock.steadyMs();
        const lose = () => {
          former.add(number);
          onLost();
        };
        onAbort(session.lost, lose);
        if (session.lost.aborted) lose();
        return number;
      }
    },
    async freeAbandoned(now, except) {
      if (own === undefined) return 0;
      // The server may have kept a lock of the old session until now.
      if (current() !== undefined) await lockFormer(own.session);
      const others = await othersLeft(own.number);
      const number = current();
      const ended = [...former].filter((one) => !isAtWork(one));
      const { freed, ...left } = await freeAbandonedLanes(database, {
        ...{ now, stepsMs: clock.stepsMs(), except: [...except, ...atWork().map(({ id }) => id)] },
        ...{ own: [...former], ...(number === undefined ? { gone: [], late: [] } : others) },
      });
      missing.note(left.unlocked);
      overdue.note(left.overdue);
      // The server lost the session without a word, so that nothing is left of its lock.
      if (number !== undefined && number === current() && left.unlocked.includes(number))
        own.session.abandon();
      for (const one of ended) {
        if (number !== undefined && number === current()) await own.session.unlock(WORKER_LOCK_SPACE, one);
        former.delete(one);
      }
      return freed;
    },
    async freeUnused(now) {
      const number = current();
      if (number === undefined) return;
      await freeAbandonedLanes(database, {
        ...{ now, except: atWork().map(({ id }) => id), own: [number], gone: [], late: [] },
      });
    },
  };
}

/** Since when each of some workers has been seen without a break. */
function createSightings(clock: Pick<Clock, 'steadyMs'>) {
  let seen = new Map<number, number>();
  return {
    note(numbers: readonly number[]): void {
      const nowMs = clock.steadyMs();
      seen = new Map(numbers.map((one) => [one, seen.get(one) ?? nowMs]));
    },
    forAtLeast(ms: number): number[] {
      const nowMs = clock.steadyMs();
      return [...seen].flatMap(([one, fromMs]) => (nowMs - fromMs >= ms ? [one] : []));
    },
  };
}
