/**
 * The requests that a dialog makes when it is submitted.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
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
        setProblem(error.whole);
      });
    },
  };
}

/** Whether requests that repeat themselves shall stop: once the dialog is closed, or `current` is set. */
export function useStop(): { current: boolean } {
  const stop = useRef(false);
  useEffect(
    () => () => {
      stop.current = true;
    },
    [],
  );
  return stop;
}
