/**
 * Stops the parts of a process within `stopSeconds`. Whatever is still under way then is cut off, and other processes continue it.
 */
import type { Config } from '../config/schema.ts';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Foundation } from './foundation.ts';

/** The end of the time, for what remains when a stop is cut. */
const CUT_MS = 1_000;
/** After the last attempt, for its outcome and for giving the delivery queues back. */
const SETTLE_MS = 2_000;

/** How long a stop waits for delivery attempts under way. With the default, that is longer than an attempt may take. */
export const attemptsMsOf = (config: Config): number => Math.max(0, drainMsOf(config) - SETTLE_MS);

const drainMsOf = ({ stopSeconds }: Config) => stopSeconds * 1_000 - CUT_MS;

export type StopParts = {
  /** Closes everything, and waits for `drain`. */
  running: AsyncDisposableStack;
  /** Ends the loops and delivery. */
  drain(): Promise<void>;
  /** Whether a bug ends the process, or its start failed. */
  hasFailed(): boolean;
};

export async function stopWithin(
  { config, steadyClock, loops, database, log }: Foundation,
  { running, drain, hasFailed }: StopParts,
): Promise<void> {
  const drainMs = drainMsOf(config);
  const limits = { clock: steadyClock, signal: never };
  // The loops end while the API does, so that their times don't add up.
  const ended = Promise.all([drain(), running.disposeAsync()]).then(() => 'ended' as const);
  if ((await firstOrLate(limits, [ended], drainMs)) === 'ended') {
    if (!hasFailed()) log.info('service.stopped');
    return;
  }
  log.warn({ left: loops.running(), afterMs: drainMs }, 'service.stop_cut');
  database.cut();
  // Without their connections, the parts that waited for the database end too.
  await firstOrLate(limits, [ended], CUT_MS);
}
