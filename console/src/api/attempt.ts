/**
 * The requests that a dialog makes when it is submitted.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './client.ts';

type Attempt = {
  problem: string | undefined;
  isBusy: boolean;
  attempt(work: () => Promise<void>): void;
};

/** Runs a request, and keeps the reason if it is refused. While one runs, another one is ignored. */
export function useAttempt(): Attempt {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setBusy] = useState(false);
  // A second click may come before the button is disabled.
  const isRunning = useRef(false);
  return {
    ...{ problem, isBusy },
    attempt(work) {
      if (isRunning.current) return;
      isRunning.current = true;
      setBusy(true);
      setProblem(undefined);
      work()
        .catch((error: unknown) => {
          if (!(error instanceof ApiError)) throw error;
          setProblem(error.whole);
        })
        .finally(() => {
          isRunning.current = false;
          setBusy(false);
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
