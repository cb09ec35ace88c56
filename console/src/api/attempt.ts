/**
 * A request that a dialog makes when it is submitted.
 */
import { useState } from 'preact/hooks';
import { ApiError } from './client.ts';

/** Runs a request, and keeps the reason if it is refused. */
export function useAttempt(): { problem: string | undefined; attempt(work: () => Promise<void>): void } {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  return {
    problem,
    attempt(work) {
      setProblem(undefined);
      work().catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        setProblem([error.message, ...error.problems.map(({ message }) => message)].join(': '));
      });
    },
  };
}
