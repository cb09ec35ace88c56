/**
 * The requests that a dialog makes when it is submitted.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './client.ts';

type Attempt = {
  problem: string | undefined;
  isBusy: boolean;
  /** `subject`: for a list in which each row has its own request. */
  attempt(work: () => Promise<void>, subject?: number): void;
};

/** Runs a request, and keeps the reason if it is refused. While one runs, another one for the same subject is ignored. */
export function useAttempt(): Attempt {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setBusy] = useState(false);
  // A second click may come before the button is disabled.
  const running = useRef(new Set<number | undefined>());
  return {
    ...{ problem, isBusy },
    attempt(work, subject) {
      if (running.current.has(subject)) return;
      running.current.add(subject);
      setBusy(true);
      setProblem(undefined);
      work()
        .catch((error: unknown) => {
          if (!(error instanceof ApiError)) throw error;
          setProblem(error.whole);
        })
        .finally(() => {
          running.current.delete(subject);
          setBusy(running.current.size > 0);
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
