/**
 * Runs the background loops of a process, and ends them together.
 */
import type { Clock } from '../core/clock.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { type LoopOptions, runLoop, type Step, type Wake } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import type { FailingWork } from '../store/deployment/processes.ts';

type LoopTiming = { idleMs(): number | Promise<number>; wake?: Wake; retryMsMax?: number };

export type Loops = {
  /** A bug ends the process. */
  run(name: string, step: Step, timing: LoopTiming): void;
  /** For work that blocks and webhooks don't depend on: a bug stops only this work, which is tried again. */
  runAside(name: string, step: Step, timing: LoopTiming): void;
  /** The work that a bug stops now. */
  failing(): FailingWork[];
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

type Needs = { clock: Clock; log: Log; metrics: Pick<Metrics, 'bugs'> };

export function createLoops({ clock, log, metrics }: Needs): Loops {
  const closing = new AbortController();
  const { signal } = closing;
  const failure = Promise.withResolvers<Error>();
  const loops = new Map<Promise<void>, string>();
  const failingSince = new Map<string, Date>();

  function start(name: string, step: Step, given: LoopTiming & Pick<LoopOptions, 'onBug'>): void {
    const onFault = (fault: Fault, retryMs: number) =>
      log.warn({ loop: name, code: fault.code, error: messageOf(fault), retryMs }, 'loop.fault');
    const loop = runLoop(step, { name, clock, signal, retryMsMax: RETRY_MS_MAX, onFault, ...given });
    const ended = loop
      .catch((error: Error) => failure.resolve(error))
      .finally(() => void loops.delete(ended));
    loops.set(ended, name);
  }

  return {
    signal,
    failed: failure.promise,
    fail: failure.resolve,
    run: start,
    runAside(name, step, timing) {
      const watched: Step = async (abort) => {
        const outcome = await step(abort);
        failingSince.delete(name);
        return outcome;
      };
      const onBug = (err: unknown, retryMs: number) => {
        if (!failingSince.has(name)) failingSince.set(name, clock.now());
        metrics.bugs.inc({ loop: name });
        log.error({ loop: name, err, retryMs }, 'loop.bug');
      };
      start(name, watched, { ...timing, onBug });
    },
    failing: () => Array.from(failingSince, ([work, since]) => ({ work, since })),
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
