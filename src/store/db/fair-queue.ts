/**
 * Shares the one connection of the embedded database between the parts of the process, fairly by the time that each has used
 * (start-time fair queueing). However much work one part has, another one waits for little more than the statement under way.
 */
import { setImmediate as pause } from 'node:timers/promises';
import { Fault } from '../../core/fault.ts';
import { type Share, shares } from './db.ts';

type FairQueue = {
  /**
   * Runs `work` when it is the share's turn, first in first out within the share. @throws Fault `unavailable` if too many
   * wait.
   */
  run<T>(share: Share, work: () => Promise<T>): Promise<T>;
  /** Resolves when nothing is running or waiting. */
  idle(): Promise<void>;
};

/**
 * Limits of waiting work per share. For the API, more requests would be late by seconds. For delivery, all lanes that a process
 * may lease can read at once. The other shares have a handful of loops or commands.
 */
const WAITING_MAX: Record<Share, number> = {
  ...{ follower: 100, settle: 100, delivery: 5_000, api: 1_000, operator: 100 },
};
/** An operator's millisecond costs this many of another share's, so that the service's own work goes first. */
const OPERATOR_COST = 4;
/** The embedded database runs in this thread. Without a pause a long queue would block requests, timers and signals. */
const PAUSE_EVERY_MS = 10;
/** The minimum cost of a piece of work. Without it, work too short to measure would be free. */
const WORK_MS_MIN = 0.05;

type Queue = {
  waiting: (() => Promise<void>)[];
  cost: number;
  /** Virtual time that the share has used. It moves up to the others' when the share has work again after being idle. */
  usedMs: number;
};

export function createFairQueue(steadyMs: () => number): FairQueue {
  const queues = new Map<Share, Queue>(
    shares.map((share) => [
      share,
      { waiting: [], cost: share === 'operator' ? OPERATOR_COST : 1, usedMs: 0 },
    ]),
  );
  /** The virtual time of the work that started last. */
  let presentMs = 0;
  let running: Promise<void> | undefined;

  /** The queue with work that has used the least time. */
  const next = () =>
    Array.from(queues.values())
      .filter(({ waiting }) => waiting.length > 0)
      .reduce<Queue | undefined>(
        (least, queue) => (least === undefined || queue.usedMs < least.usedMs ? queue : least),
        undefined,
      );

  async function runAll(): Promise<void> {
    let pausedMs = steadyMs();
    for (let queue = next(); queue !== undefined; queue = next()) {
      const work = queue.waiting.shift();
      presentMs = queue.usedMs;
      const startedMs = steadyMs();
      await work?.();
      queue.usedMs += queue.cost * Math.max(steadyMs() - startedMs, WORK_MS_MIN);
      if (steadyMs() - pausedMs < PAUSE_EVERY_MS) continue;
      await pause();
      pausedMs = steadyMs();
    }
    // This runs in the same event loop turn as the last `next`, so no work can be left waiting.
    running = undefined;
  }

  return {
    run<T>(share: Share, work: () => Promise<T>): Promise<T> {
      const queue = queues.get(share);
      if (queue === undefined || queue.waiting.length >= WAITING_MAX[share]) {
        const message = `database: ${WAITING_MAX[share]} statements of ${share} are already waiting`;
        return Promise.reject(new Fault('unavailable', message));
      }
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      if (queue.waiting.length === 0) queue.usedMs = Math.max(queue.usedMs, presentMs);
      queue.waiting.push(() => work().then(resolve, reject));
      running ??= Promise.resolve().then(runAll);
      return promise;
    },
    async idle() {
      while (running !== undefined) await running;
    },
  };
}
