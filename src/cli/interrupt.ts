/**
 * Turns SIGINT and SIGTERM into an AbortSignal, so that an interrupted command stops cleanly.
 */

/** Resolves when `work` has ended, interrupted or not. Rethrows its errors, except the signal's reason. */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  // A second signal has no effect, because stopping has its own time limits.
  const onSignal = () => interrupt.abort();
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    await work(signal);
  } catch (error) {
    if (error !== signal.reason) throw error;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}
