/**
 * Repeats a step of background work. All background work of the program runs in such loops.
 */
import { startAbort } from './abort.ts';
import { backOffMs } from './back-off.ts';
import type { Clock } from './clock.ts';
import { Fault, messageOf } from './fault.ts';

/** After 'worked', there may be more to do at once. A step is bounded, restartable work with at most one commit. */
export type StepOutcome = 'worked' | 'idle';
export type Step = (signal: AbortSignal) => Promise<StepOutcome>;

/** A bell that ends an idle wait early. If it rings while nothing waits, the next wait returns at once. */
export type Wake = { ring(): void; wait(ms: number, signal: AbortSignal): Promise<void> };

export type LoopOptions = {
  name: string;
  clock: Clock;
  signal: AbortSignal;
  /** How long to wait after 'idle' unless the bell rings. */
  idleMs(): number | Promise<number>;
  wake?: Wake;
  /** Maximum wait between attempts after a Fault. The wait doubles up to it. */
  retryMsMax: number;
  /** Called with each Fault and the wait before the next attempt. */
  onFault(fault: Fault, retryMs: number): void;
  /** Where given, a bug doesn't end the loop. Called with each, and the wait before the next attempt. */
  onBug?(error: unknown, retryMs: number): void;
};

const RETRY_MS_MIN = 50;
/** Time doesn't mend a bug, but other data or an upgraded database may. */
const BUG_MS = { min: 1_000, max: 300_000 };

/**
 * Repeats `step` until the signal aborts: at once after 'worked', after `idleMs` or the bell after 'idle', and with a doubling
 * wait after a Fault. Any other error is a bug. Without `onBug` it ends the loop, and the promise rejects.
 */
export async function runLoop(step: Step, options: LoopOptions): Promise<void> {
  const { clock, signal, wake } = options;
  let failures = 0;
  while (!signal.aborted) {
    try {
      const outcome = await step(signal);
      const idleMs = outcome === 'worked' ? undefined : await options.idleMs();
      failures = 0;
      if (idleMs === undefined) continue;
      if (wake === undefined) await clock.wait(idleMs, signal);
      else await wake.wait(idleMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      const isFault = error instanceof Fault;
      if (!isFault && options.onBug === undefined)
        throw new Error(`${options.name} failed: ${messageOf(error)}`, { cause: error });
      const bounds = isFault ? { min: RETRY_MS_MIN, max: options.retryMsMax } : BUG_MS;
      const retryMs = backOffMs(bounds, failures);
      failures += 1;
      if (isFault) options.onFault(error, retryMs);
      else options.onBug?.(error, retryMs);
      await clock.wait(retryMs, signal);
    }
  }
}

/** A Wake on the given clock. */
export function createWake(clock: Clock): Wake {
  let rung = false;
  let wakeUp: (() => void) | undefined;
  return {
    ring() {
      rung = true;
      wakeUp?.();
    },
    async wait(ms, signal) {
      if (!rung) {
        const early = startAbort(signal);
        wakeUp = () => early.abort();
        await clock.wait(ms, early.signal);
        wakeUp = undefined;
        early.release();
      }
      rung = false;
    },
  };
}
