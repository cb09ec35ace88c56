/**
 * Limits the requests to one node and adapts to its answers. The concurrency and the size of batches grow by one
 * after a run of good answers, and are halved at a limit. A pause that the node requests is kept to its end.
 */
import { backOffMs } from '../../core/back-off.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Limit } from './node-limits.ts';

export type ThrottleStatus = {
  /** Requests that may be under way, and those that are. */
  concurrency: number;
  inFlight: number;
  /** Undefined until a batch was too large. */
  batchCallsMax: number | undefined;
  /** The end of the pause that the node requested, and its reason. */
  limited: { until: Date; reason: string } | undefined;
};

export type Throttle = {
  /** Takes a slot at once. False if none is free or the node has requested a pause. */
  tryEnter(): boolean;
  /**
   * Waits for a slot and takes it.
   * @throws Fault `unavailable` if the pause of the node ends after `giveUpAtMs`, or if the signal aborts
   */
  enter(signal: AbortSignal, giveUpAtMs: number): Promise<void>;
  /** Gives the slot back. */
  leave(): void;
  /** An exchange of this many calls was answered. */
  noteAnswered(callCount: number): void;
  /** An exchange of this many calls met a limit. */
  noteLimit(limit: Limit, callCount: number, reason: string): void;
  /** The maximum number of calls in a batch. */
  batchCallsMax(): number;
  /** Whether the node has requested a pause that is not over. */
  isLimited(): boolean;
  /** The end of the last requested pause, in ms. */
  limitedUntilMs(): number;
  status(): ThrottleStatus;
};

/** Connections to one node. The operator's own node can take that many, and a hosted one reports its limit. */
export const CONCURRENCY_MAX = 16;
/** Good exchanges in a row for each request under way before the concurrency grows by one. */
const GROW_AFTER = 10;
/** Good full batches before batches grow by one call. Slow, because a refused batch costs a request. */
const GROW_BATCH_AFTER = 20;
/** The pause if the node doesn't name one. It doubles, and begins with the window in which most hosted nodes count. */
const WAIT_MS = { min: 1_000, max: 60_000 };
/** A daily quota does not come back within seconds. */
const QUOTA_WAIT_MS = 600_000;
/** Bounds of the pause that a node requests, because "0 s" is no pause and a year would be forever. */
const ASKED_WAIT_MS_MIN = 100;
const ASKED_WAIT_MS_MAX = 86_400_000;

export function createThrottle(clock: Clock, name: string): Throttle {
  const limits = createLimits(clock);
  let inFlight = 0;
  const queue: (() => void)[] = [];
  const nowMs = () => clock.now().getTime();

  function wakeNext(): void {
    for (let free = limits.concurrency() - inFlight; free > 0; free -= 1) queue.shift()?.();
  }

  function waitForSlot(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => {
      signal.removeEventListener('abort', giveUp);
      resolve();
    };
    const giveUp = () => {
      queue.splice(queue.indexOf(wake), 1);
      resolve();
    };
    signal.addEventListener('abort', giveUp, { once: true });
    queue.push(wake);
    return promise;
  }

  function tryEnter(now = nowMs()): boolean {
    if (inFlight >= limits.concurrency() || now < limits.limitedUntilMs()) return false;
    inFlight += 1;
    return true;
  }

  return {
    tryEnter: () => tryEnter(),
    async enter(signal, giveUpAtMs) {
      for (;;) {
        // Read the time once. If the pause ended between two readings, this would wait for a slot that is free.
        const now = nowMs();
        if (!signal.aborted && tryEnter(now)) return;
        const until = limits.limitedUntilMs();
        const isLimited = until > now;
        if (signal.aborted || (isLimited && until > giveUpAtMs)) {
          // A woken request that doesn't enter lets the next one enter.
          wakeNext();
          const reasonToEnd = signal.aborted
            ? 'no longer wanted'
            : `limits requests until ${new Date(until).toISOString()}: ${limits.reason()}`;
          throw new Fault('unavailable', `${name} ${reasonToEnd}`);
        }
        await (isLimited ? clock.wait(until - now, signal) : waitForSlot(signal));
      }
    },
    leave() {
      inFlight -= 1;
      wakeNext();
    },
    noteAnswered: limits.noteAnswered,
    noteLimit: limits.noteLimit,
    batchCallsMax: limits.batchCallsMax,
    isLimited: () => nowMs() < limits.limitedUntilMs(),
    limitedUntilMs: limits.limitedUntilMs,
    status() {
      const [until, callsMax] = [limits.limitedUntilMs(), limits.batchCallsMax()];
      return {
        concurrency: limits.concurrency(),
        inFlight,
        batchCallsMax: Number.isFinite(callsMax) ? callsMax : undefined,
        limited: until > nowMs() ? { until: new Date(until), reason: limits.reason() } : undefined,
      };
    },
  };
}

/** The limits of a node, adapted to its answers. */
function createLimits(clock: Clock) {
  let concurrency = CONCURRENCY_MAX;
  let goodCount = 0;
  let batchCallsMax = Number.POSITIVE_INFINITY;
  let goodBatchCount = 0;
  let limitsInRow = 0;
  let limitedUntil = Number.NEGATIVE_INFINITY;
  let reason = '';
  const nowMs = () => clock.now().getTime();

  return {
    concurrency: () => concurrency,
    batchCallsMax: () => batchCallsMax,
    limitedUntilMs: () => limitedUntil,
    reason: () => reason,
    noteAnswered(callCount: number): void {
      if (nowMs() >= limitedUntil) limitsInRow = 0;
      goodCount += 1;
      if (goodCount >= GROW_AFTER * concurrency && concurrency < CONCURRENCY_MAX) {
        concurrency += 1;
        goodCount = 0;
      }
      if (callCount < batchCallsMax) return;
      goodBatchCount += 1;
      if (goodBatchCount < GROW_BATCH_AFTER) return;
      batchCallsMax += 1;
      goodBatchCount = 0;
    },
    noteLimit(limit: Limit, callCount: number, why: string): void {
      if (limit.kind === 'too much') {
        goodBatchCount = 0;
        // A single call that is too large says nothing about batches.
        if (callCount > 1) batchCallsMax = Math.min(batchCallsMax, callCount >> 1);
        return;
      }
      const now = nowMs();
      // Requests that were under way at the first refusal say nothing new.
      if (now >= limitedUntil) {
        concurrency = Math.max(1, concurrency >> 1);
        limitsInRow += 1;
      }
      goodCount = 0;
      const own = limit.isQuota ? QUOTA_WAIT_MS : backOffMs(WAIT_MS, limitsInRow - 1);
      const waitMs = Math.min(Math.max(limit.waitMs ?? own, ASKED_WAIT_MS_MIN), ASKED_WAIT_MS_MAX);
      limitedUntil = Math.max(limitedUntil, now + waitMs);
      reason = why;
    },
  };
}
