/**
 * Asking one node after the other for the same, and a second one beside a first that takes too long: within a
 * budget, so that nodes that are slow under load do not get more of it.
 */
import { startAbort, type WorkAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

export type Hedging<C> = {
  /** How long the first may take before the next is asked beside it. */
  afterMs(first: C, next: C): number;
  /** Whether there is budget for it; takes it. */
  start(next: C): boolean;
  /** The one that was asked beside it answered before it. */
  lost(first: C): void;
};

type Budget = { earn(): void; take(): boolean };

/** One extra request for so many ordinary ones, in the long run. */
const REQUESTS_PER_HEDGE = 20;
/** As many in a row, until a node that hangs is known to be slow. */
const HEDGES_MAX = 10;

export function createBudget(): Budget {
  let balance = HEDGES_MAX;
  return {
    earn() {
      balance = Math.min(HEDGES_MAX, balance + 1 / REQUESTS_PER_HEDGE);
    },
    take() {
      if (balance < 1) return false;
      balance -= 1;
      return true;
    },
  };
}

/**
 * The first answer that is not undefined of candidates asked in order: the next when one has failed or does
 * not know, and two at a time once the first takes too long. What is still under way then is aborted.
 * Undefined when one answered that and none answered better; else why each one failed.
 */
export async function firstAnswer<C, T>(
  { clock, signal, hedging }: { clock: Clock; signal: AbortSignal; hedging?: Hedging<C> | undefined },
  candidates: readonly C[],
  ask: (candidate: C, signal: AbortSignal) => Promise<T>,
): Promise<{ answer: T } | { faults: Fault[] }> {
  type Outcome = { candidate: C } & ({ answer: T } | { error: unknown });
  const waiting = [...candidates];
  const running = new Map<C, { abort: WorkAbort; outcome: Promise<Outcome> }>();
  const faults: Fault[] = [];
  let unknown: { answer: T } | undefined;
  let mayHedge = hedging !== undefined;
  /** How many are asked at a time: two once the first is late. */
  let width = 1;

  function start(candidate: C): void {
    waiting.shift();
    const abort = startAbort(signal);
    const outcome = ask(candidate, abort.signal)
      .then(
        (answer) => ({ candidate, answer }),
        (error: unknown) => ({ candidate, error }),
      )
      .finally(abort.release);
    running.set(candidate, { abort, outcome });
  }

  /** The first to end, or 'late' when it takes too long and there is somebody else to ask. */
  async function nextOutcome(): Promise<Outcome | 'late'> {
    const outcomes = Array.from(running.values(), ({ outcome }) => outcome);
    const [next] = waiting;
    const [first] = running.keys();
    if (!mayHedge || next === undefined || first === undefined || hedging === undefined)
      return Promise.race(outcomes);
    return firstOrLate({ clock, signal }, outcomes, hedging.afterMs(first, next));
  }

  try {
    for (;;) {
      const [next] = waiting;
      if (running.size < width && next !== undefined) start(next);
      if (running.size === 0) return unknown ?? { faults };
      const outcome = await nextOutcome();
      if (outcome === 'late') {
        mayHedge = false;
        const [beside] = waiting;
        if (!signal.aborted && beside !== undefined && hedging?.start(beside) === true) width = 2;
        continue;
      }
      running.delete(outcome.candidate);
      if ('answer' in outcome) {
        if (outcome.answer !== undefined) {
          for (const other of running.keys())
            if (candidates.indexOf(other) < candidates.indexOf(outcome.candidate)) hedging?.lost(other);
          return outcome;
        }
        unknown = outcome;
      } else if (outcome.error instanceof Fault && !signal.aborted) faults.push(outcome.error);
      else throw outcome.error;
    }
  } finally {
    for (const { abort } of running.values()) abort.abort();
  }
}
