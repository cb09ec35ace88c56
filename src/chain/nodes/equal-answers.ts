/**
 * Asks nodes until enough of them give equal answers. This decides data that no hash covers: traces, results of
 * contract calls, and senders without a usable signature.
 */
import { startAbort, type WorkAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

/** The answer of one node. Two answers are equal if their keys are equal. */
export type Vote<C, T> = { voter: C; key: string; answer: T };

export type Poll<C, T> = {
  /** The votes for the answer that enough voters gave. Undefined if there is no such answer. */
  agreed: Vote<C, T>[] | undefined;
  votes: Vote<C, T>[];
  faults: Fault[];
};

/** If a voter takes longer, the next one is asked too. */
export const LATE_MS = 1_000;
/** Once another voter has voted, one that has been silent gets only this long. */
const SILENT_PATIENCE_MS = 100;

/**
 * Asks voters in their order until `quorum` of them have given equal answers. It asks only as many at a time as
 * are still needed, and one more whenever an answer is late. `cast` holds votes that are already known.
 * @throws errors that are not Faults
 */
export async function poll<C, T>(
  { clock, signal, quorum, cast = [], isSilent = () => false }: PollOptions<C, T>,
  voters: readonly C[],
  ask: (voter: C, signal: AbortSignal) => Promise<{ key: string; answer: T }>,
): Promise<Poll<C, T>> {
  const waiting = voters.filter((voter) => cast.every((vote) => vote.voter !== voter));
  const running = new Map<C, { abort: WorkAbort; outcome: Promise<Outcome<C, T>> }>();
  const votes = [...cast];
  const faults: Fault[] = [];
  let lateCount = 0;

  function start(voter: C): void {
    const abort = startAbort(signal);
    const outcome = ask(voter, abort.signal)
      .then(
        (given): Outcome<C, T> => ({ voter, vote: { voter, ...given } }),
        (error: unknown): Outcome<C, T> => ({ voter, error }),
      )
      .finally(abort.release);
    running.set(voter, { abort, outcome });
  }

  /** The largest group of equal answers. */
  function largest(): Vote<C, T>[] {
    const groups = Map.groupBy(votes, ({ key }) => key);
    return [...groups.values()].sort((one, other) => other.length - one.length)[0] ?? [];
  }

  async function nextOutcome(): Promise<Outcome<C, T> | 'late'> {
    const outcomes = Array.from(running.values(), ({ outcome }) => outcome);
    const isHasty = votes.length + faults.length > 0 && running.keys().every(isSilent);
    if (waiting.length === 0 && !isHasty) return Promise.race(outcomes);
    return firstOrLate({ clock, signal }, outcomes, isHasty ? SILENT_PATIENCE_MS : LATE_MS);
  }

  try {
    for (;;) {
      const best = largest();
      if (best.length >= quorum) return { agreed: best, votes, faults };
      const wanted = quorum - best.length + lateCount;
      for (const voter of waiting.splice(0, Math.max(0, wanted - running.size))) start(voter);
      if (running.size === 0) return { agreed: undefined, votes, faults };
      const outcome = await nextOutcome();
      if (outcome === 'late') {
        if (signal.aborted) throw new Fault('unavailable', 'these answers are no longer wanted');
        // A silent voter may have answered another poll meanwhile.
        if (waiting.length === 0 && running.keys().every(isSilent))
          return { agreed: undefined, votes, faults };
        lateCount += 1;
        continue;
      }
      running.delete(outcome.voter);
      if ('vote' in outcome) votes.push(outcome.vote);
      else if (outcome.error instanceof Fault && !signal.aborted) faults.push(outcome.error);
      else throw outcome.error;
    }
  } finally {
    for (const { abort } of running.values()) abort.abort();
  }
}

type PollOptions<C, T> = {
  clock: Clock;
  signal: AbortSignal;
  quorum: number;
  cast?: readonly Vote<C, T>[];
  /** Whether the poll hardly waits for this voter. The last of the others gets as long as requests may last. */
  isSilent?(voter: C): boolean;
};

type Outcome<C, T> = { voter: C } & ({ vote: Vote<C, T> } | { error: unknown });
