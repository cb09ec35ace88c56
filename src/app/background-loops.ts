/**
 * Runs the background loops of a process, and ends them together.
 */
import type { Clock } from '../core/clock.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { createLogLimit } from '../core/log-limit.ts';
import { type LoopOptions, runLoop, type Step, type Wake } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { createWorkWatch, type WorkWatch } from './work-watch.ts';

type LoopTiming = { idleMs(): number | Promise<number>; wake?: Wake; retryMsMax?: number };

export type Loops = {
  /** A bug ends the process. */
  run(name: string, step: Step, timing: LoopTiming): void;
  /** For work that blocks and webhooks don't depend on: a bug stops only this work, which is tried again. */
  runAside(name: string, step: Step, timing: LoopTiming): void;
  /** Like `run`, but the loop goes on until the others and the rest of the process have ended. */
  runToTheEnd(name: string, step: Step, timing: LoopTiming): void;
  /** The work that fails now. */
  readonly failing: WorkWatch['failing'];
  /** Resolves when the loops of this name have ended. */
  ended(name: string): Promise<void>;
  /** The loops that have not ended, once each, without those that wait for them. */
  running(): string[];
  /** Aborts when the loops must end, except those that go on to the end. */
  readonly signal: AbortSignal;
  /** Resolves with the error when a bug has ended a loop. */
  readonly failed: Promise<Error>;
  /** Reports a bug in a part that runs no loop. */
  fail(error: Error): void;
  /** Aborts the signal, and the loops that go on to the end after `others` and the other loops. Resolves when all have ended. */
  end(others?: () => Promise<void>): Promise<void>;
};

const RETRY_MS_MAX = 15_000;
/** A bug may come with every second item of the work, or with each reading of /status. */
export const BUG_LOG_MS = 60_000;
/** Following and delivery resume this soon after a standby has taken over the database. */
export const RESUME_MS_MAX = 2_000;

type Needs = { clock: Clock; log: Log; metrics: Pick<Metrics, 'bugs'> };

export function createLoops({ clock, log, metrics }: Needs): Loops {
  const closing = new AbortController();
  const { signal } = closing;
  const failure = Promise.withResolvers<Error>();
  const ended = new AbortController();
  const loops = new Map<Promise<void>, string>();
  const lastLoops = new Map<Promise<void>, string>();
  const work = createWorkWatch(clock);

  function start(
    name: string,
    step: Step,
    given: LoopTiming & Partial<LoopOptions>,
    group: Map<Promise<void>, string> = loops,
  ): void {
    const onFault = (fault: Fault, retryMs: number) => {
      work.fault(name);
      log.warn({ loop: name, code: fault.code, error: messageOf(fault), retryMs }, 'loop.fault');
    };
    const watched: Step = async (abort) => {
      const outcome = await step(abort);
      work.success(name);
      return outcome;
    };
    const loop = runLoop(watched, { name, clock, signal, retryMsMax: RETRY_MS_MAX, onFault, ...given });
    const running = loop
      .catch((error: Error) => failure.resolve(error))
      .finally(() => void group.delete(running));
    group.set(running, name);
  }

  return {
    signal,
    failed: failure.promise,
    fail: failure.resolve,
    run: (name, step, timing) => start(name, step, timing),
    runToTheEnd: (name, step, timing) => start(name, step, { ...timing, signal: ended.signal }, lastLoops),
    runAside(name, step, timing) {
      const watched: Step = async (abort) => {
        work.begin(name);
        return step(abort);
      };
      const limit = createLogLimit(clock, BUG_LOG_MS);
      const onBug = (err: unknown, retryMs: number) => {
        work.bug(name);
        metrics.bugs.inc({ loop: name });
        const others = limit();
        if (others !== undefined) log.error({ loop: name, err, retryMs, others }, 'loop.bug');
      };
      start(name, watched, { ...timing, onBug });
    },
    failing: work.failing,
    async ended(name) {
      await Promise.all(loops.entries().flatMap(([loop, other]) => (other === name ? [loop] : [])));
    },
    running: () => [...new Set((loops.size > 0 ? loops : lastLoops).values())],
    async end(others) {
      closing.abort();
      try {
        await others?.();
        await Promise.all(loops.keys());
      } finally {
        ended.abort();
      }
      await Promise.all(lastLoops.keys());
    },
  };
}
