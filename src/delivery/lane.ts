/**
 * Working one leased lane: reads its due notifications in order, keeps a bounded number of attempts under way, and
 * gives the lane back when nothing is due.
 */
import { startAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { KeyRing } from '../core/key-ring.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { Database } from '../store/db.ts';
import { type Lane, releaseLane } from '../store/lanes.ts';
import { type DueNotification, listDue } from '../store/outbox.ts';
import { type Credentials, readCredentials, sendWith } from './credentials.ts';
import { renderMessage } from './payload.ts';
import { nextRetryAt } from './schedule.ts';
import type { Send, SendResult } from './send.ts';
import type { Settler } from './settler.ts';
import type { SlotKind, Slots } from './slots.ts';

/** What delivering needs, from the whole down to one lane. */
export type DeliveryOptions = {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  keyRing: KeyRing;
  nativeSymbol: string;
  retryMinutes: readonly number[];
  send: Send;
};

export type LaneOptions = DeliveryOptions & {
  settler: Settler;
  slots: Slots;
  /** How many attempts at once the lane took when it was last worked, where that is known and low. */
  concurrency: number | undefined;
  /** No new attempts from here on. */
  stopping: AbortSignal;
  /** Break off what is under way. */
  killed: AbortSignal;
};

export type LaneRun = {
  readonly lane: Lane;
  /** There may be something new in this lane. */
  ring(): void;
  /** Rows that were read before are out of date: a reorg changed some of them. */
  forget(): void;
  /** The lease is gone: start nothing more. */
  lose(): void;
  /** Others wait: start nothing more, and give the lane back. False when it is ending already. */
  giveWay(): boolean;
  readonly done: Promise<void>;
  /** Attempts at once that the receiver takes; undefined while nothing speaks against the usual beginning. */
  learnedConcurrency(): number | undefined;
};

/** Attempts of one lane under way: start, ceiling, and the floor that keeps due times exact (delivery reference, trap 13). */
const CONCURRENCY_START = 16;
const CONCURRENCY_MAX = 64;
const CONCURRENCY_MIN = 4;
/** Rows read ahead are used within this time, or read again: the record may change or go meanwhile. */
const READ_AHEAD_MS_MAX = 1_000;
const READ_MAX = 128;
const RETRY_MS = 250;

type Due = { notification: DueNotification; credentials: Credentials };

/** Works the lane until nothing is due, it is lost, or it has to give way. `done` rejects only for a bug. */
export function runLane(lane: Lane, options: LaneOptions): LaneRun {
  const { database, clock, log, metrics, slots, stopping } = options;
  const underWay = new Map<number, Promise<void>>();
  let retriesUnderWay = 0;
  let concurrency = options.concurrency ?? CONCURRENCY_START;
  let firsts: Due[] = [];
  let retries: Due[] = [];
  let readMs = Number.NEGATIVE_INFINITY;
  /** Counts reorgs: what was asked for before one is not used after it. */
  let generation = 0;
  /** Attempts that were broken off undecided: their request may have arrived. */
  const undecided = new Set<number>();
  let mayHaveMore = { firsts: true, retries: true };
  let end: 'lost' | 'gives way' | undefined;
  let wakeUp = () => {};
  const onSlotFree = () => wakeUp();

  async function work(): Promise<void> {
    while (!stopping.aborted && end === undefined) {
      if (underWay.size < concurrency) {
        await readAhead();
        // It may have been told to end while it read.
        if (stopping.aborted || end !== undefined) break;
        startWhatMay();
      }
      const hasRows = firsts.length > 0 || retries.length > 0;
      if (underWay.size > 0 || hasRows) await nextEvent();
      else if (!mayHaveMore.firsts && !mayHaveMore.retries) break;
    }
    slots.leave(lane.origin, onSlotFree);
    await Promise.all(underWay.values());
    if (end !== 'lost') await giveBack();
  }

  /** Refills the rows read ahead when those of a kind are used up, or all are old, and there may be more. */
  async function readAhead(): Promise<void> {
    const [now, nowMs, stepsMs] = [clock.now(), clock.steadyMs(), clock.stepsMs()];
    const isOld = nowMs - readMs > READ_AHEAD_MS_MAX;
    const isWanted =
      (firsts.length === 0 && mayHaveMore.firsts) || (retries.length === 0 && mayHaveMore.retries);
    if (!isOld && !isWanted) return;
    try {
      mayHaveMore = { firsts: false, retries: false };
      const exclude = [...underWay.keys()];
      const readGeneration = generation;
      const rows = await listDue(database, lane, { now, stepsMs, exclude, limit: READ_MAX });
      if (rows === 'lost') {
        end = 'lost';
        return;
      }
      const [first] = rows;
      const credentials = first && (await readCredentials(options, first.watcherId));
      const isOutOfDate = generation !== readGeneration;
      if (isOutOfDate) mayHaveMore = { firsts: true, retries: true };
      const due =
        credentials === undefined || isOutOfDate
          ? []
          : rows.map((row) => ({ notification: row, credentials }));
      firsts = due.filter(({ notification }) => notification.retryCount === 0);
      retries = due.filter(({ notification }) => notification.retryCount > 0);
      mayHaveMore.firsts ||= firsts.length === READ_MAX;
      mayHaveMore.retries ||= retries.length === READ_MAX;
      readMs = nowMs;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      log.warn({ lane: lane.id, error: messageOf(error) }, 'delivery.lane_waits');
      // What was read before is of the past: its key may be revoked, its record gone.
      firsts = [];
      retries = [];
      mayHaveMore = { firsts: true, retries: true };
      await clock.wait(RETRY_MS, stopping);
    }
  }

  /** As many attempts as the lane and the process take; where both wait, first attempts and retries share the lane. */
  function startWhatMay(): void {
    while (underWay.size < concurrency) {
      const queue = nextQueue();
      const due = queue?.[0];
      if (due === undefined) return;
      const isDoubtful = due.notification.retryCount > 0 || concurrency <= CONCURRENCY_MIN;
      const kind = isDoubtful ? 'doubtful' : 'promising';
      if (!slots.tryTake(lane.origin, kind, onSlotFree)) return;
      queue?.shift();
      start(due, kind);
    }
  }

  /** One place is always left to first attempts. */
  function nextQueue(): Due[] | undefined {
    const mayRetry = retries.length > 0 && retriesUnderWay < concurrency - 1;
    if (firsts.length === 0) return mayRetry ? retries : undefined;
    return mayRetry && retriesUnderWay < underWay.size - retriesUnderWay ? retries : firsts;
  }

  function start(due: Due, kind: SlotKind): void {
    const { id, retryCount } = due.notification;
    if (retryCount > 0) retriesUnderWay += 1;
    const attempt = attemptOnce(due).finally(() => {
      slots.give(lane.origin, kind);
      if (retryCount > 0) retriesUnderWay -= 1;
      underWay.delete(id);
      wakeUp();
    });
    underWay.set(id, attempt);
  }

  async function attemptOnce({ notification, credentials }: Due): Promise<void> {
    const startedAt = clock.now();
    const render = (current: Credentials) =>
      renderMessage(notification, { ...current, nativeSymbol: options.nativeSymbol, now: clock.now() });
    const { watcherId } = notification;
    let result: SendResult;
    try {
      result = await sendWith(credentials, { watcherId, render, signal: options.killed }, options);
    } catch (error) {
      // Broken off by the shutdown, or without its credentials: undecided, so it does not count and will be made again.
      if (options.killed.aborted) return;
      if (!(error instanceof Fault)) throw error;
      log.warn({ lane: lane.id, error: messageOf(error) }, 'delivery.lane_waits');
      undecided.add(notification.id);
      mayHaveMore = { firsts: true, retries: true };
      return;
    }
    const [settledAt, stepsMs] = [clock.now(), clock.stepsMs()];
    const failureCount = notification.retryCount + 1;
    const retryAt =
      result.outcome === 'success' ? undefined : nextRetryAt(settledAt, failureCount, options.retryMinutes);
    adapt(result.outcome);
    const settled = await options.settler
      .submit({
        lane,
        notificationId: notification.id,
        revision: notification.revision,
        mayHaveArrived: result.mayHaveArrived || undecided.delete(notification.id),
        retryCount: notification.retryCount,
        redeliveryCount: notification.redeliveryCount,
        startedAt,
        durationMs: Math.round(result.durationMs),
        outcome: result.outcome,
        status: result.status,
        response: result.responseText,
        nextRetryAt: retryAt,
        settledAt,
        stepsMs,
      })
      .catch((error: unknown) => {
        if (options.killed.aborted) return 'lost' as const;
        throw error;
      });
    if (settled === 'lost') end = 'lost';
    report(notification, result, retryAt, settled);
  }

  /** Additive increase, halved when the receiver does not take connections or does not answer. */
  function adapt(outcome: SendResult['outcome']): void {
    if (outcome === 'success') concurrency = Math.min(concurrency + 1, CONCURRENCY_MAX);
    else if (outcome === 'timeout' || outcome === 'connect')
      concurrency = Math.max(concurrency >> 1, CONCURRENCY_MIN);
  }

  function report(
    notification: DueNotification,
    result: SendResult,
    retryAt: Date | undefined,
    settled: 'settled' | 'lost',
  ) {
    const { outcome, status, durationMs } = result;
    metrics.webhookAttempts.inc({ outcome });
    metrics.webhookAttemptSeconds.observe(durationMs / 1000);
    if (outcome === 'success' && notification.redeliveryCount === 0) {
      metrics.webhookLatencySeconds.observe(
        (clock.now().getTime() - notification.createdTime.getTime()) / 1000,
      );
    }
    const fields = {
      notification: notification.id,
      watchedAddress: notification.watchedAddressId,
      watcher: notification.watcherId,
      attempt: notification.retryCount + 1,
      outcome,
      status,
      durationMs: Math.round(durationMs),
      nextRetryAt: retryAt?.toISOString(),
      ...(settled === 'lost' && { settled }),
    };
    log[outcome === 'success' ? 'info' : 'warn'](fields, 'delivery.attempted');
  }

  async function giveBack(): Promise<void> {
    try {
      await releaseLane(database, lane, clock.now());
    } catch (error) {
      // The lease runs out by itself; nothing is lost but a few seconds.
      if (!(error instanceof Fault)) throw error;
      log.warn({ lane: lane.id, error: messageOf(error) }, 'delivery.release_failed');
    }
  }

  /** The end of an attempt, a ring, a stop, or the end of the time for which rows may be held in memory. */
  async function nextEvent(): Promise<void> {
    const early = startAbort(stopping);
    wakeUp = () => early.abort();
    await clock.wait(READ_AHEAD_MS_MAX, early.signal);
    wakeUp = () => {};
    early.release();
  }

  return {
    lane,
    ring() {
      mayHaveMore = { firsts: true, retries: true };
      wakeUp();
    },
    forget() {
      generation += 1;
      firsts = [];
      retries = [];
    },
    lose() {
      end = 'lost';
      wakeUp();
    },
    giveWay() {
      if (end !== undefined) return false;
      end = 'gives way';
      wakeUp();
      return true;
    },
    done: work(),
    learnedConcurrency: () => (concurrency < CONCURRENCY_START ? concurrency : undefined),
  };
}
