/**
 * Turns SIGINT, SIGTERM and SIGHUP (the terminal was closed) into an AbortSignal, so that an interrupted command stops cleanly.
 */
import { exitCodes } from './exit.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** For a command that can be ended at any moment: if a signal ends it, it says what to do and exits with 75. */
export async function endingWhenInterrupted(advice: string, work: () => Promise<void>): Promise<void> {
  const end = () => {
    process.stderr.write(`chainbell: interrupted. ${advice}\n`);
    process.exit(exitCodes.tryAgain);
  };
  for (const name of signals) process.on(name, end);
  try {
    await work();
  } finally {
    for (const name of signals) process.off(name, end);
  }
}

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

/** The same for a command with a result: if it is interrupted before it has one, it says so and exits with 75. */
export async function unlessInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  let hasEnded = false;
  await untilInterrupted(async (signal) => {
    await work(signal);
    hasEnded = true;
  });
  if (hasEnded) return;
  process.stderr.write('chainbell: interrupted\n');
  process.exitCode = exitCodes.tryAgain;
}
