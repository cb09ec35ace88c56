/**
 * Working one leased lane: reads its due notifications in order, keeps a bounded number of attempts under way, and
 * gives the lane back when nothing is due.
 */
import { startAbort } from '../core/abort.ts';
import { type ApiKey, decryptKey, type KeyRing } from '../core/api-key.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { Database } from '../store/db.ts';
import { findDeliveryKey } from '../store/keys.ts';
import { type Lane, releaseLane } from '../store/lanes.ts';
import { type DueNotification, listDue } from '../store/outbox.ts';
import { renderMessage } from './payload.ts';
import { nextRetryAt } from './schedule.ts';
import type { Send, SendResult } from './send.ts';
import type { Settler } from './settler.ts';

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
  /** Attempts of all lanes together: how many more may start now. */
  slots: { free(): number; take(): void; give(): void };
  /** No new attempts from here on. */
  stopping: AbortSignal;
  /** Break off what is under way. */
  killed: AbortSignal;
};

export type LaneRun = {
  readonly lane: Lane;
  /** There may be something new in this lane. */
  ring(): void;
  /** The lease is gone: start nothing more. */
  lose(): void;
  readonly done: Promise<void>;
};

/** Attempts of one lane under way: start, ceiling, and the floor that keeps due times exact (delivery reference, trap 13). */
const CONCURRENCY_START = 16;
const CONCURRENCY_MAX = 64;
const CONCURRENCY_MIN = 4;
/** Rows read ahead are used within this time, or read again: the record may change or go meanwhile. */
const READ_AHEAD_MS_MAX = 1_000;
const READ_MAX = 128;
const RETRY_MS = 250;

type Due = { notification: DueNotification; apiKey: ApiKey | undefined };

export function runLane(lane: Lane, options: LaneOptions): LaneRun {
  const { database, clock, log, metrics, slots, stopping } = options;
  const underWay = new Map<number, Promise<void>>();
  let concurrency = CONCURRENCY_START;
  let ahead: Due[] = [];
  let readAt = Number.NEGATIVE_INFINITY;
  let mayHaveMore = true;
  let isLost = false;
  let wakeUp = () => {};

  const ring = () => {
    mayHaveMore = true;
    wakeUp();
  };

  async function work(): Promise<void> {
    while (!stopping.aborted && !isLost) {
      const free = Math.min(concurrency - underWay.size, slots.free());
      if (free > 0) await readAhead();
      // It may have been told to end while it read.
      if (stopping.aborted || isLost) break;
      for (const due of ahead.splice(0, Math.max(0, free))) start(due);
      if (underWay.size === 0 && ahead.length === 0 && !mayHaveMore) break;
      if (underWay.size > 0 || ahead.length > 0) await nextEvent();
    }
    await Promise.all(underWay.values());
    if (!isLost) await giveBack();
  }

  /** Refills the rows read ahead when they are used up or old and there may be more. */
  async function readAhead(): Promise<void> {
    const now = clock.now();
    const isOld = now.getTime() - readAt > READ_AHEAD_MS_MAX;
    if (isOld) ahead = [];
    if (ahead.length > 0 || !(mayHaveMore || isOld)) return;
    try {
      mayHaveMore = false;
      const rows = await listDue(database, lane, { now, exclude: [...underWay.keys()], limit: READ_MAX });
      const [first] = rows;
      const apiKey = first && (await findKeyText(first.watcherId, now));
      ahead = rows.map((notification) => ({ notification, apiKey }));
      mayHaveMore ||= rows.length === READ_MAX;
      readAt = now.getTime();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      log.warn({ lane: lane.id, error: messageOf(error) }, 'delivery.lane_waits');
      mayHaveMore = true;
      await clock.wait(RETRY_MS, stopping);
    }
  }

  async function findKeyText(watcherId: number, now: Date): Promise<ApiKey | undefined> {
    const key = await findDeliveryKey(database, watcherId, now);
    return (
      key && { id: key.id, text: decryptKey(key.ciphertext, { keyId: key.id, watcherId }, options.keyRing) }
    );
  }

  function start(due: Due): void {
    slots.take();
    const { id } = due.notification;
    const attempt = attemptOnce(due).finally(() => {
      slots.give();
      underWay.delete(id);
      wakeUp();
    });
    underWay.set(id, attempt);
  }

  async function attemptOnce({ notification, apiKey }: Due): Promise<void> {
    const startedAt = clock.now();
    const message = renderMessage(notification, {
      apiKey: apiKey?.text,
      nativeSymbol: options.nativeSymbol,
      now: startedAt,
    });
    let result: SendResult;
    try {
      result = await options.send(message, options.killed);
    } catch (error) {
      // Broken off by the shutdown: undecided, so it does not count and will be made again.
      if (options.killed.aborted) return;
      throw error;
    }
    const settledAt = clock.now();
    const failureCount = notification.retryCount + 1;
    const retryAt =
      result.outcome === 'success' ? undefined : nextRetryAt(settledAt, failureCount, options.retryMinutes);
    adapt(result.outcome);
    const settled = await options.settler
      .submit({
        lane,
        notificationId: notification.id,
        retryCount: notification.retryCount,
        startedAt,
        durationMs: Math.round(result.durationMs),
        outcome: result.outcome,
        status: result.status,
        response: result.responseText,
        nextRetryAt: retryAt,
        settledAt,
      })
      .catch((error: unknown) => {
        if (options.killed.aborted) return 'lost' as const;
        throw error;
      });
    if (settled === 'lost') isLost = true;
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
    if (outcome === 'success') {
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
      await releaseLane(database, lane);
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
    ring,
    lose() {
      isLost = true;
      wakeUp();
    },
    done: work(),
  };
}
