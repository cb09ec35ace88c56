/**
 * How much is asked of one node at a time, learned from its answers: requests under way grow by one after a
 * run of good ones and are halved at a limit; the calls of a batch likewise. A wait that the node asks for is
 * kept to the end.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Limit } from './node-limits.ts';

export type ThrottleStatus = {
  /** How many requests may be under way, and how many are. */
  concurrency: number;
  inFlight: number;
  /** Undefined as long as no batch was too large. */
  batchCallsMax: number | undefined;
  /** The node asks to be left alone until then, and why. */
  limited: { until: Date; reason: string } | undefined;
};

export type Throttle = {
  /** Takes a slot at once; false when none is free or the node wants to be left alone. */
  tryEnter(): boolean;
  /**
   * Takes a slot when one is free.
   * @throws Fault `unavailable` when the node's wait ends after `giveUpAtMs`.
   */
  enter(signal: AbortSignal, giveUpAtMs: number): Promise<void>;
  /** Gives the slot back. */
  leave(): void;
  /** An exchange of this many calls was answered. */
  noteAnswered(callCount: number): void;
  /** An exchange of this many calls met a limit. */
  noteLimit(limit: Limit, callCount: number, reason: string): void;
  /** The calls that one batch may have. */
  batchCallsMax(): number;
  /** Whether the node wants to be left alone. */
  isLimited(): boolean;
  /** Until when it wanted that last, in ms. */
  limitedUntilMs(): number;
  status(): ThrottleStatus;
};

/** Connections to one node. A node of one's own takes that many; a provider says when it does not. */
export const CONCURRENCY_MAX = 16;
/** Good exchanges in a row before one more is allowed, per request under way. */
const GROW_AFTER = 10;
/** Good full batches before a batch may have one call more: a refused batch costs a request. */
const GROW_BATCH_AFTER = 20;
/** Where the node does not say how long: doubling, from the window in which most providers count. */
const WAIT_MS_MIN = 1_000;
const WAIT_MS_MAX = 60_000;
/** A quota of a day does not come back within seconds. */
const QUOTA_WAIT_MS = 600_000;
/** What a node asks for is kept, except that "0 s" is no wait and a year would be for ever. */
const ASKED_WAIT_MS_MIN = 100;
const ASKED_WAIT_MS_MAX = 86_400_000;

export function createThrottle(clock: Clock, name: string): Throttle {
  let concurrency = CONCURRENCY_MAX;
  let inFlight = 0;
  let goodCount = 0;
  let batchCallsMax = Number.POSITIVE_INFINITY;
  let goodBatchCount = 0;
  let limitsInRow = 0;
  let limitedUntil = Number.NEGATIVE_INFINITY;
  let reason = '';
  const queue: (() => void)[] = [];
  const nowMs = () => clock.now().getTime();

  function wakeNext(): void {
    for (let free = concurrency - inFlight; free > 0; free -= 1) queue.shift()?.();
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
    if (inFlight >= concurrency || now < limitedUntil) return false;
    inFlight += 1;
    return true;
  }

  return {
    tryEnter: () => tryEnter(),
    async enter(signal, giveUpAtMs) {
      for (;;) {
        // Read once: a pause that ends between two readings would leave it waiting for a slot that is free.
        const now = nowMs();
        if (!signal.aborted && tryEnter(now)) return;
        const until = limitedUntil;
        const isLimited = until > now;
        if (signal.aborted || (isLimited && until > giveUpAtMs)) {
          // Who was woken and does not go in lets the next one.
          wakeNext();
          const reasonToEnd = signal.aborted
            ? 'no longer wanted'
            : `limits requests until ${new Date(until).toISOString()}: ${reason}`;
          throw new Fault('unavailable', `${name} ${reasonToEnd}`);
        }
        await (isLimited ? clock.wait(until - now, signal) : waitForSlot(signal));
      }
    },
    leave() {
      inFlight -= 1;
      wakeNext();
    },
    noteAnswered(callCount) {
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
    noteLimit(limit, callCount, why) {
      if (limit.kind === 'too much') {
        goodBatchCount = 0;
        // One call that is too much alone says nothing about batches.
        if (callCount > 1) batchCallsMax = Math.min(batchCallsMax, callCount >> 1);
        return;
      }
      const now = nowMs();
      // Those that were under way when the first of them was refused say nothing new.
      if (now >= limitedUntil) {
        concurrency = Math.max(1, concurrency >> 1);
        limitsInRow += 1;
      }
      goodCount = 0;
      const own = limit.isQuota ? QUOTA_WAIT_MS : Math.min(WAIT_MS_MIN * 2 ** (limitsInRow - 1), WAIT_MS_MAX);
      const waitMs = Math.min(Math.max(limit.waitMs ?? own, ASKED_WAIT_MS_MIN), ASKED_WAIT_MS_MAX);
      limitedUntil = Math.max(limitedUntil, now + waitMs);
      reason = why;
    },
    batchCallsMax: () => batchCallsMax,
    isLimited: () => nowMs() < limitedUntil,
    limitedUntilMs: () => limitedUntil,
    status: () => ({
      concurrency,
      inFlight,
      batchCallsMax: Number.isFinite(batchCallsMax) ? batchCallsMax : undefined,
      limited: limitedUntil > nowMs() ? { until: new Date(limitedUntil), reason } : undefined,
    }),
  };
}
