/**
 * Asks several nodes at once, without waiting for nodes that hang.
 */
import { never, startAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

/**
 * The answers that arrive within `ms`, or until `isEnough`. While they are too few for `atLeast`, it waits longer, for that only. Aborts
 * the requests that are then still under way.
 * The result has no entry for a voter that did not answer.
 */
export async function gather<Voter, Answer>({
  clock,
  signal,
  voters,
  ask,
  ms,
  isEnough = () => false,
  atLeast,
}: {
  clock: Clock;
  signal: AbortSignal;
  voters: readonly Voter[];
  ask(voter: Voter, signal: AbortSignal): Promise<Answer>;
  ms: number;
  isEnough?(answers: ReadonlyMap<Voter, Answer | Fault>): boolean;
  atLeast?: { ms: number; isMet(answers: ReadonlyMap<Voter, Answer | Fault>): boolean };
}): Promise<Map<Voter, Answer | Fault>> {
  const answers = new Map<Voter, Answer | Fault>();
  const work = startAbort(signal);
  const done = Promise.withResolvers<void>();
  const met = Promise.withResolvers<void>();
  let pendingCount = voters.length;
  if (pendingCount === 0) return answers;
  for (const voter of voters) {
    ask(voter, work.signal)
      .then(
        (answer) => answers.set(voter, answer),
        (error: unknown) => (error instanceof Fault ? answers.set(voter, error) : done.reject(error)),
      )
      .finally(() => {
        pendingCount -= 1;
        if (pendingCount === 0 || isEnough(answers)) done.resolve();
        if (atLeast?.isMet(answers) === true) met.resolve();
      });
  }
  try {
    await firstOrLate({ clock, signal: never }, [done.promise], ms);
    if (atLeast !== undefined && !atLeast.isMet(answers))
      await firstOrLate({ clock, signal: never }, [done.promise, met.promise], atLeast.ms - ms);
    return new Map(answers);
  } finally {
    work.abort();
    work.release();
  }
}
