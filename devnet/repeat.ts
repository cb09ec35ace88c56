/**
 * An activity that the demo repeats until it is stopped.
 */
import type { Clock } from '../src/core/clock.ts';
import type { Fault } from '../src/core/fault.ts';
import { runLoop } from '../src/core/loop.ts';

export type Repeating = {
  /** Resolves when it has stopped. */
  stop(): Promise<void>;
  /** Rejects if there is a bug. Resolves after `stop`. */
  ended: Promise<void>;
};

const RETRY_MS_MAX = 5_000;

/** Repeats the activity at the interval. After a Fault it continues a little later. */
export function repeat(
  once: () => Promise<void>,
  options: { name: string; clock: Clock; intervalMs: number; onFault(fault: Fault): void },
): Repeating {
  const { name, clock, intervalMs, onFault } = options;
  const stopping = new AbortController();
  const step = async () => {
    await once();
    return 'idle' as const;
  };
  const timing = { idleMs: () => intervalMs, retryMsMax: RETRY_MS_MAX };
  const ended = runLoop(step, { name, clock, signal: stopping.signal, onFault, ...timing });
  return {
    ended,
    stop() {
      stopping.abort();
      return ended;
    },
  };
}
