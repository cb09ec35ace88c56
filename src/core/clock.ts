/**
 * Time as a dependency: production uses a clock that follows the database's (`common-clock.ts`), tests use one that
 * they move.
 */
import { uptime } from 'node:os';

export type Clock = {
  /** The current time, UTC. It steps when the common clock is adjusted, so use `steadyMs` for durations. */
  now(): Date;
  /** Monotonic milliseconds. The zero is arbitrary. */
  steadyMs(): number;
  /** The steps of the common clock that `now` contains, added up (see store/deployment/clock-steps.ts). */
  stepsMs(): number;
  /** Resolves after `ms`, or at once when the signal aborts; never rejects. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
};

/** The machine's clock, for commands that run without a service. */
export function systemClock(): Clock {
  return {
    now: () => new Date(Date.now()),
    steadyMs: machineSteadyMs,
    stepsMs: () => 0,
    wait: waitMs,
  };
}

/** The same clock, except that `now` no longer steps. For durations within one process. */
export function steadyFrom(clock: Clock): Clock {
  const startMs = clock.now().getTime() - clock.steadyMs();
  return { ...clock, now: () => new Date(startMs + clock.steadyMs()) };
}

/** Resolves as `Clock.wait`. It doesn't use node:timers/promises, which creates an error with a stack for each aborted wait. */
export function waitMs(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, signal.aborted ? 0 : ms);
    signal.addEventListener('abort', end);
  });
}

/** The uptime has a resolution of 10 ms, so only a clearly larger difference counts as sleep. */
const SLEEP_MS_MIN = 1_000;
/** By how much the uptime is ahead of performance.now(), which stops while the machine sleeps. */
const aheadMs = () => uptime() * 1_000 - performance.now();
const aheadAtStartMs = aheadMs();
/** Reading the uptime opens a file and takes 20 µs, which is too long for each call. */
const UPTIME_READ_MS_MIN = 20;
let sleptMs = 0;
let readMs = performance.now();

/** Milliseconds since the process started, including the machine's sleep. */
export function machineSteadyMs(): number {
  const nowMs = performance.now();
  if (nowMs - readMs >= UPTIME_READ_MS_MIN) {
    readMs = nowMs;
    const ms = aheadMs() - aheadAtStartMs;
    if (ms - sleptMs > SLEEP_MS_MIN) sleptMs = ms;
  }
  return nowMs + sleptMs;
}
