/**
 * Asks one node after the other for the same data, and a second node at the same time if the first takes too long.
 * A budget limits the additional requests, so nodes that are slow under load don't get more of it.
 */
import { startAbort, type WorkAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

export type Hedging<C> = {
  /** How long the first candidate may take before the next one is asked too. */
  afterMs(first: C, next: C): number;
  /** Takes one request from the budget. False if nothing is left or `next` is not ready. */
  start(next: C): boolean;
  /** Called if a candidate that was asked later answers before `first`. */
  lost(first: C): void;
};

type Budget = { earn(): void; take(): boolean };

/** In the long run, one additional request is allowed for this many ordinary ones. */
const REQUESTS_PER_HEDGE = 20;
/** Additional requests allowed in a row, enough until a node that hangs is known to be slow. */
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
 * The first answer that is not undefined. It asks candidates in their order, and the next one after a Fault or an
 * `undefined`. If one answer is late and the budget allows it, it asks two at a time. It aborts the requests that
 * are still under way at the end. If a candidate answered `undefined` and none gave an answer, the answer is
 * undefined. If all failed, it returns their Faults.
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
  /** How many candidates are asked at a time. */
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

  /** The first outcome, or 'late' if it takes too long and there is another candidate to ask. */
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
