/**
 * Time, as a dependency: production passes `systemClock`, tests pass a clock that they move.
 */
export type Clock = {
  /** The present, UTC. */
  now(): Date;
  /** Resolves after `ms`, or at once when the signal aborts; never rejects. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
};

/** The machine's clock, shifted by what `offsetMs` is at the time (the database's clock minus this machine's). */
export function systemClock(offsetMs: () => number = () => 0): Clock {
  return {
    now: () => new Date(Date.now() + offsetMs()),
    // Not by node:timers/promises: there each wait that ends early costs an error with its stack.
    wait: (ms, signal) =>
      new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          signal.removeEventListener('abort', end);
          resolve();
        };
        const timer = setTimeout(end, signal.aborted ? 0 : ms);
        signal.addEventListener('abort', end);
      }),
  };
}
