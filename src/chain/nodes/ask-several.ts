/**
 * Asking several nodes at once, without waiting for those that hang.
 */
import { startAbort } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';

/**
 * The answer of each voter within `ms`, or until there are enough; requests still in progress are then
 * aborted. Voters that did not answer are missing in the result.
 */
export async function gather<Voter, Answer>({
  clock,
  signal,
  voters,
  ask,
  ms,
  isEnough = () => false,
}: {
  clock: Clock;
  signal: AbortSignal;
  voters: readonly Voter[];
  ask(voter: Voter, signal: AbortSignal): Promise<Answer>;
  ms: number;
  isEnough?(answers: ReadonlyMap<Voter, Answer | Fault>): boolean;
}): Promise<Map<Voter, Answer | Fault>> {
  const answers = new Map<Voter, Answer | Fault>();
  const work = startAbort(signal);
  const timer = new AbortController();
  const done = Promise.withResolvers<void>();
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
      });
  }
  try {
    await Promise.race([done.promise, clock.wait(ms, timer.signal)]);
    return new Map(answers);
  } finally {
    timer.abort();
    work.abort();
    work.release();
  }
}
