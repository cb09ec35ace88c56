/**
 * Room in memory for what requests hold, in units that its user chooses. Who finds it taken waits: watchers with less of it
 * come first, so one watcher's requests wait for each other, and other watchers' requests don't wait for them.
 */
import { startAbort } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

export type Room = {
  /**
   * Takes `units`, now or later, until the returned function is called.
   * @throws Fault `limited` when as many of the watcher's requests wait already, after WAIT_MS_MAX, and when the signal aborts.
   */
  take(watcherId: number, units: number, signal: AbortSignal): (() => void) | Promise<() => void>;
};

/** Shorter than the minute after which common clients and proxies give up. */
const WAIT_MS_MAX = 30_000;
/** Requests of one watcher that wait. Each holds a connection and its headers. */
const WAITING_MAX = 100;

type Waiting = { watcherId: number; units: number; admit(): void };

export function createRoom({
  clock,
  unitsMax,
  what,
}: {
  clock: Clock;
  unitsMax: number;
  what: string;
}): Room {
  const taken = new Map<number, number>();
  const waiting = new Set<Waiting>();
  let left = unitsMax;

  const ownOf = (watcherId: number) => taken.get(watcherId) ?? 0;
  /** Never more than what is left then, so that no watcher takes the last of it; something of it always. */
  const isShare = (watcherId: number, units: number) =>
    ownOf(watcherId) === 0 || ownOf(watcherId) + units <= left - units;

  function hold(watcherId: number, units: number): () => void {
    taken.set(watcherId, ownOf(watcherId) + units);
    left -= units;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      left += units;
      const own = ownOf(watcherId) - units;
      if (own > 0) taken.set(watcherId, own);
      else taken.delete(watcherId);
      admitNext();
    };
  }

  /** Those that may wait for their own requests alone. The first of the others takes what it needs before all behind it. */
  function admitNext(): void {
    for (;;) {
      let next: Waiting | undefined;
      for (const one of waiting) {
        if (!isShare(one.watcherId, one.units)) continue;
        if (next === undefined || ownOf(one.watcherId) < ownOf(next.watcherId)) next = one;
      }
      if (next === undefined || next.units > left) return;
      waiting.delete(next);
      next.admit();
    }
  }

  async function wait(watcherId: number, units: number, signal: AbortSignal): Promise<() => void> {
    const admitted = Promise.withResolvers<() => void>();
    const one: Waiting = {
      ...{ watcherId, units },
      admit: () => admitted.resolve(hold(watcherId, units)),
    };
    const waiter = startAbort(signal);
    waiting.add(one);
    try {
      const release = await Promise.race([admitted.promise, clock.wait(WAIT_MS_MAX, waiter.signal)]);
      if (release !== undefined) return release;
    } finally {
      waiter.abort();
      waiter.release();
    }
    // Admitted in the turn in which the wait ended.
    if (!waiting.delete(one)) return admitted.promise;
    // Those behind it may have waited for what it needed.
    admitNext();
    throw new Fault(
      'limited',
      `Too many ${what} are under way; this one has waited for ${WAIT_MS_MAX / 1000} s`,
    );
  }

  return {
    take(watcherId, units, signal) {
      let ownCount = 0;
      let isFirst = true;
      for (const one of waiting) {
        if (one.watcherId === watcherId) ownCount += 1;
        if (isShare(one.watcherId, one.units)) isFirst = false;
      }
      if (isFirst && ownCount === 0 && units <= left && isShare(watcherId, units))
        return hold(watcherId, units);
      if (ownCount >= WAITING_MAX)
        throw new Fault('limited', `${WAITING_MAX} ${what} of this watcher wait already`);
      return wait(watcherId, units, signal);
    },
  };
}
