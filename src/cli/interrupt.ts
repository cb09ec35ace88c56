/**
 * SIGINT and SIGTERM as an AbortSignal: a command ends what it has begun, in order.
 */

/** Whether `work` came to its end; false when it was interrupted. What else it throws passes through. */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
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
  return !signal.aborted;
}
