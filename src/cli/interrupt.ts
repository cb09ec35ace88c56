/**
 * SIGINT and SIGTERM as an AbortSignal: a command ends what it has begun, in order.
 */

/** Resolves when `work` has ended, interrupted or not. What it throws passes through, but for the signal's reason. */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  // Twice is as good as once: the stop has its own time limits.
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
