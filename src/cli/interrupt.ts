/**
 * Turns SIGINT, SIGTERM and SIGHUP (the terminal was closed) into an AbortSignal, so that an interrupted command stops cleanly.
 */

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Resolves when `work` has ended, interrupted or not. Rethrows its errors, except the signal's reason. */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  // A second signal has no effect, because stopping has its own time limits.
  const onSignal = () => interrupt.abort();
  for (const name of signals) process.on(name, onSignal);
  try {
    await work(signal);
  } catch (error) {
    if (error !== signal.reason) throw error;
  } finally {
    for (const name of signals) process.off(name, onSignal);
  }
}
