/**
 * Runs the background loops of a process, and ends them together.
 */
import type { Clock } from '../core/clock.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { runLoop, type Step, type Wake } from '../core/loop.ts';

type LoopTiming = { idleMs(): number | Promise<number>; wake?: Wake; retryMsMax?: number };

export type Loops = {
  run(name: string, step: Step, timing: LoopTiming): void;
  /** Resolves when the loops of this name have ended. */
  ended(name: string): Promise<void>;
  /** The loops that have not ended, once each. */
  running(): string[];
  /** Aborts when the loops must end. */
  readonly signal: AbortSignal;
  /** Resolves with the error when a bug has ended a loop. */
  readonly failed: Promise<Error>;
  /** Reports a bug in a part that runs no loop. */
  fail(error: Error): void;
  /** Aborts the signal; resolves when `others` and all loops have ended. */
  end(others?: () => Promise<void>): Promise<void>;
};

const RETRY_MS_MAX = 15_000;
/** Following and delivery resume this soon after a standby has taken over the database. */
export const RESUME_MS_MAX = 2_000;

export function createLoops({ clock, log }: { clock: Clock; log: Log }): Loops {
  const closing = new AbortController();
  const { signal } = closing;
  const failure = Promise.withResolvers<Error>();
  const loops = new Map<Promise<void>, string>();
  return {
    signal,
    failed: failure.promise,
    fail: failure.resolve,
    run(name, step, timing) {
      const onFault = (fault: Fault, retryMs: number) =>
        log.warn({ loop: name, code: fault.code, error: messageOf(fault), retryMs }, 'loop.fault');
      const loop = runLoop(step, { name, clock, signal, retryMsMax: RETRY_MS_MAX, onFault, ...timing });
      const ended = loop
        .catch((error: Error) => failure.resolve(error))
        .finally(() => void loops.delete(ended));
      loops.set(ended, name);
    },
    async ended(name) {
      await Promise.all(loops.entries().flatMap(([loop, other]) => (other === name ? [loop] : [])));
    },
    running: () => [...new Set(loops.values())],
    async end(others) {
      closing.abort();
      await others?.();
      await Promise.all(loops.keys());
    },
  };
}
