/**
 * The requests that a dialog makes when it is submitted.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './client.ts';

/** Runs a request, unless one is under way, and keeps the reason if it is refused. */
export function useAttempt(): { problem: string | undefined; attempt(work: () => Promise<void>): void } {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  // Not a state: the second press of a double click comes before the next rendering.
  const isBusy = useRef(false);
  return {
    problem,
    attempt(work) {
      if (isBusy.current) return;
      isBusy.current = true;
      setProblem(undefined);
      work()
        .catch((error: unknown) => {
          if (!(error instanceof ApiError)) throw error;
          setProblem(error.whole);
        })
        .finally(() => {
          isBusy.current = false;
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
