/**
 * Shares a bounded amount of memory, or of work, between requests. The caller chooses the unit. A request that finds too little
 * left waits. Watchers that hold less come first, so one watcher's requests wait for each other and not in front of others'.
 */
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

export type Room = {
  /**
   * Takes `units`, now or later, and holds them until the returned function is called.
   * While another request waits for them, `cut` is called again and again. It ends the request if its client is slow, and returns whether
   * it has.
   * @throws Fault `limited` when WAITING_MAX requests of the watcher are waiting, after WAIT_MS_MAX, and when the signal aborts.
   */
  take(
    watcherId: number,
    units: number,
    signal: AbortSignal,
    cut?: Demand['cut'],
  ): (() => void) | Promise<() => void>;
};

/** Common clients and proxies give up after a minute. */
const WAIT_MS_MAX = 30_000;
/** How often slow clients are looked for while requests wait. */
const CUT_MS = 1_000;
/** Waiting requests of one watcher. Each holds a connection and its headers. */
const WAITING_MAX = 100;

type Demand = { watcherId: number; units: number; cut(): boolean };
type Waiting = Demand & { admit(): void };

export function createRoom({
  clock,
  unitsMax,
  what,
}: {
  clock: Clock;
  unitsMax: number;
  what: string;
}): Room {
  const shares = createShares(unitsMax);
  const waiting = new Set<Waiting>();
  let timer: NodeJS.Timeout | undefined;

  function cutSlow(): void {
    const next = findNext();
    if (next !== undefined) shares.cutFor(next);
    if (waiting.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  function hold(demand: Demand): () => void {
    const release = shares.hold(demand);
    return () => {
      if (release()) admitNext();
    };
  }

  /**
   * The waiting request whose watcher holds least. A request beyond its watcher's share is passed over, because it waits for that
   * watcher's own requests.
   */
  function findNext(): Waiting | undefined {
    let next: Waiting | undefined;
    for (const one of waiting) {
      if (!shares.isWithinShare(one)) continue;
      if (next === undefined || shares.ownOf(one.watcherId) < shares.ownOf(next.watcherId)) next = one;
    }
    return next;
  }

  /** Admits requests in turn. If the first doesn't fit, all wait, so a large request is never overtaken. */
  function admitNext(): void {
    for (let next = findNext(); next !== undefined && next.units <= shares.left(); next = findNext()) {
      waiting.delete(next);
      next.admit();
    }
  }

  async function wait(demand: Demand, signal: AbortSignal): Promise<() => void> {
    const admitted = Promise.withResolvers<() => void>();
    const one: Waiting = { ...demand, admit: () => admitted.resolve(hold(demand)) };
    waiting.add(one);
    timer ??= setInterval(cutSlow, CUT_MS).unref();
    const release = await firstOrLate({ clock, signal }, [admitted.promise], WAIT_MS_MAX);
    if (release !== 'late') return release;
    // It was admitted in the same turn of the event loop in which its wait ended.
    if (!waiting.delete(one)) return admitted.promise;
    // Requests behind it may have waited for what it needed.
    admitNext();
    throw new Fault(
      'limited',
      `Too many ${what} are under way. This one has waited for ${WAIT_MS_MAX / 1000} s`,
    );
  }

  return {
    take(watcherId, units, signal, cut = () => false) {
      const demand = { watcherId, units, cut };
      let ownCount = 0;
      let isFirst = true;
      for (const one of waiting) {
        if (one.watcherId === watcherId) ownCount += 1;
        if (shares.isWithinShare(one)) isFirst = false;
      }
      if (isFirst && ownCount === 0 && units <= shares.left() && shares.isWithinShare(demand))
        return hold(demand);
      if (ownCount >= WAITING_MAX)
        throw new Fault('limited', `${WAITING_MAX} ${what} of this watcher are already waiting`);
      return wait(demand, signal);
    },
  };
}

/** The units that each request and each watcher holds, and those that are left. */
function createShares(unitsMax: number) {
  /** The requests that hold units, the oldest first. */
  const holding = new Set<Demand>();
  const held = new Map<number, number>();
  let left = unitsMax;
  const ownOf = (watcherId: number) => held.get(watcherId) ?? 0;

  return {
    ownOf,
    left: () => left,
    /** A watcher may always hold something. More only if as much as it then holds stays left for others. */
    isWithinShare: ({ watcherId, units }: Demand) =>
      ownOf(watcherId) === 0 || ownOf(watcherId) + units <= left - units,
    /** Returns the function that gives them back. It returns false when they were given back before. */
    hold(demand: Demand): () => boolean {
      const { watcherId, units } = demand;
      holding.add(demand);
      held.set(watcherId, ownOf(watcherId) + units);
      left -= units;
      let isHeld = true;
      return () => {
        if (!isHeld) return false;
        isHeld = false;
        holding.delete(demand);
        left += units;
        const own = ownOf(watcherId) - units;
        if (own > 0) held.set(watcherId, own);
        else held.delete(watcherId);
        return true;
      };
    },
    /** Cuts off as many slow clients as the next request needs, those that have held their units longest first. */
    cutFor(next: Demand): void {
      let willBeLeft = left;
      for (const holder of holding) {
        if (willBeLeft >= next.units) return;
        if (holder.cut()) willBeLeft += holder.units;
      }
    },
  };
}
