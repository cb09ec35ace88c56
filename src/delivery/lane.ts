/**
 * Works one leased lane (the delivery queue of one shard for one receiver origin): sends its next due notification whenever the
 * fair queue gives it a slot, and gives the lane back when nothing is due.
 */
import { onAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import { nextRetryAt } from '../domain/retry-schedule.ts';
import type { Database } from '../store/db/db.ts';
import type { DueNotification } from '../store/delivery/due.ts';
import type { Lane } from '../store/delivery/lanes.ts';
import type { Begin, Ticket } from './account.ts';
import { type Credentials, sendWith } from './credentials.ts';
import type { FairSlots } from './fair.ts';
import { renderMessage } from './payload.ts';
import type { Due, DueReader } from './reader.ts';
import { aheadOf, noteAhead } from './receiver.ts';
import type { Send, SendResult } from './send.ts';
import type { Settler } from './settler.ts';
import type { NoteWait } from './wait-log.ts';

/** The dependencies of delivery, which each lane shares. */
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

type LaneOptions = DeliveryOptions & {
  settler: Settler;
  reader: DueReader;
  fair: FairSlots;
  noteWait: NoteWait;
  /** Gives the lane back. */
  release(lane: Lane): Promise<void>;
  /** Aborts when no further attempt may start. */
  stopping: AbortSignal;
  /** Aborts the attempts under way. */
  killed: AbortSignal;
};

export type LaneRun = {
  readonly lane: Lane;
  /** Whether it has started an attempt since it was leased. */
  hadTurn(): boolean;
  /** Whether an attempt of this notification is being made. */
  isUnderWay(notificationId: number): boolean;
  /** Something new may be due in this lane. */
  ring(): void;
  /**
   * Rings only if an attempt is under way, because a retry that comes due meanwhile sends no NOTIFY, or if retries that were read
   * wait for other lanes of the receiver.
   */
  poll(): void;
  /** Drops the rows read ahead, because a reorg changed some of them. */
  forget(): void;
  /** The lease is lost: start no further attempt. */
  lose(): void;
  /** Starts no further attempt and gives the lane back, because other lanes wait. False if the lane is already ending. */
  giveWay(): boolean;
  readonly done: Promise<void>;
};

/** Rows read ahead are used within this time or read again, because the watched address may change meanwhile. */
const READ_AHEAD_MS_MAX = 1_000;
/** If reading takes long, they are used within twice that time instead, up to this. Otherwise nothing would be sent, however often it is read. */
const SLOW_READ_AHEAD_MS_MAX = 4_000;
const RETRY_MS = 250;

/** Works the lane until nothing is due, it is lost, or it has to give way. `done` rejects only for a bug. */
// oxlint-disable-next-line max-lines-per-function -- One state machine; its short functions share a dozen variables of the lane.
export function runLane(lane: Lane, options: LaneOptions): LaneRun {
  const { clock, log, metrics, reader, stopping } = options;
  const underWay = new Set<number>();
  let retriesUnderWay = 0;
  /**
   * Whether the last attempt that started was a retry. Successive leases begin alternately with a retry and a first attempt, because a lease
   * may make only one attempt.
   */
  let wasRetry = lane.epoch % 2 === 0;
  let firsts: Due[] = [];
  let retries: Due[] = [];
  /** Until when the rows read ahead are used. */
  let usableMs = Number.NEGATIVE_INFINITY;
  /** Whether the last read found as many first attempts, or retries, as it asked for. */
  let wasFull = false;
  let isReading = false;
  /** After a failed read, until the next one. */
  let isPausing = false;
  let hadTurn = false;
  /** Counts reorgs. Rows that were requested before one are not used after it. */
  let generation = 0;
  /** Attempts that ended without an outcome; their request may have arrived. */
  const undecided = new Set<number>();
  let mayHaveMore = { firsts: true, retries: true };
  let end: 'lost' | 'gives way' | undefined;
  let isOver = false;
  const done = Promise.withResolvers<void>();
  const seat = options.fair.join(lane, take);

  /** The next attempt for the slot that the fair queue offers; or the end of reading, if rows have to be read first. */
  function take(): Begin | Promise<void> | undefined {
    if (isReading || isPausing || isEnding()) return undefined;
    // While first attempts remain, retries that have come due since are read together with the next ones.
    const isUsedUp =
      firsts.length === 0 && (mayHaveMore.firsts || (retries.length === 0 && mayHaveMore.retries));
    const isLate = clock.steadyMs() > usableMs;
    if (isUsedUp || isLate) {
      if (isLate && firsts.length + retries.length > 0) noteAhead(seat.pace, 'late');
      else if (wasFull && !isLate) noteAhead(seat.pace, 'used up');
      return read();
    }
    const due = nextQueue()?.shift();
    return due && ((ticket) => start(due, ticket));
  }

  const isEnding = () => end !== undefined || stopping.aborted;

  /** Refills the rows read ahead. */
  async function read(): Promise<void> {
    isReading = true;
    mayHaveMore = { firsts: false, retries: false };
    wasFull = false;
    const readGeneration = generation;
    const limit = aheadOf(seat.pace);
    try {
      const found = await reader.read({ lane, exclude: [...underWay], limit });
      if (found === 'lost') end = 'lost';
      // The worker takes no lanes of lost shards, and leases this one again when its shard has caught up.
      else if (found === 'absent') end ??= 'gives way';
      else if (generation !== readGeneration) mayHaveMore = { firsts: true, retries: true };
      else {
        const { due, readMs } = found;
        firsts = due.filter(({ notification }) => notification.retryCount === 0);
        retries = due.filter(({ notification }) => notification.retryCount > 0);
        wasFull = firsts.length === limit || retries.length === limit;
        mayHaveMore.firsts ||= firsts.length === limit;
        mayHaveMore.retries ||= retries.length === limit;
        usableMs = usableUntil(readMs, due);
      }
    } catch (error) {
      if (!(error instanceof Fault)) {
        done.reject(error);
        return;
      }
      options.noteWait(lane.id, error);
      // The rows read before may be out of date: the key may be revoked, or the watched address deleted.
      forgetRows();
      mayHaveMore = { firsts: true, retries: true };
      // The fair queue keeps a slot for the read, which other lanes may use during the pause.
      void pause();
    }
    isReading = false;
    proceed();
  }

  function usableUntil(readMs: number, due: readonly Due[]): number {
    const tookMs = clock.steadyMs() - readMs;
    if (tookMs > SLOW_READ_AHEAD_MS_MAX && due.length > 0)
      options.noteWait(
        lane.id,
        new Fault('unavailable', `database: a read took ${Math.round(tookMs)} ms, so it is repeated`),
      );
    return readMs + Math.min(Math.max(READ_AHEAD_MS_MAX, 2 * tookMs), SLOW_READ_AHEAD_MS_MAX);
  }

  async function pause(): Promise<void> {
    isPausing = true;
    await clock.wait(RETRY_MS, stopping);
    isPausing = false;
    proceed();
  }

  function forgetRows(): void {
    firsts = [];
    retries = [];
  }

  function countRetry(by: 1 | -1): void {
    retriesUnderWay += by;
    seat.countRetry(by);
  }

  /** Retries if no first attempts are left, and otherwise as many at once as those, or in turn with them. */
  function nextQueue(): Due[] | undefined {
    const isTurn = underWay.size === 0 ? !wasRetry : retriesUnderWay < underWay.size - retriesUnderWay;
    const isTurnOfRetry = firsts.length === 0 || isTurn;
    if (isTurnOfRetry && retries.length > 0 && seat.mayRetry()) return retries;
    return firsts.length > 0 ? firsts : undefined;
  }

  function start(due: Due, ticket: Ticket): void {
    const { id, retryCount } = due.notification;
    const isRetry = retryCount > 0;
    underWay.add(id);
    hadTurn = true;
    wasRetry = isRetry;
    if (isRetry) countRetry(1);
    attemptOnce(due, ticket)
      .catch(done.reject)
      .finally(() => {
        underWay.delete(id);
        if (isRetry) countRetry(-1);
        ticket.end();
        proceed();
      });
  }

  /** Asks for the next slot, or finishes when nothing is left to do. */
  function proceed(): void {
    // The lane is being given back. The next lease reads whatever came meanwhile.
    if (isOver) return;
    const hasMore = firsts.length > 0 || retries.length > 0 || mayHaveMore.firsts || mayHaveMore.retries;
    if (hasMore && !isEnding()) {
      if (!isPausing) seat.want();
    } else if (underWay.size === 0 && !isReading) finish().catch(done.reject);
  }

  async function finish(): Promise<void> {
    isOver = true;
    leaveStopping();
    seat.leave();
    if (end !== 'lost') await giveBack();
    done.resolve();
  }

  async function attemptOnce({ notification, credentials }: Due, ticket: Ticket): Promise<void> {
    const startedAt = clock.now();
    const render = (current: Credentials) =>
      renderMessage(notification, { ...current, nativeSymbol: options.nativeSymbol, now: clock.now() });
    const { watcherId } = notification;
    let result: SendResult;
    try {
      result = await sendWith(credentials, { watcherId, render, signal: options.killed }, options);
    } catch (error) {
      // Aborted by the shutdown, or its credentials can't be read: no outcome, so it doesn't count and is repeated.
      if (options.killed.aborted) return;
      if (!(error instanceof Fault)) throw error;
      options.noteWait(lane.id, error);
      undecided.add(notification.id);
      mayHaveMore = { firsts: true, retries: true };
      return;
    }
    const [settledAt, stepsMs] = [clock.now(), clock.stepsMs()];
    const failureCount = notification.retryCount + 1;
    const retryAt =
      result.outcome === 'success' ? undefined : nextRetryAt(settledAt, failureCount, options.retryMinutes);
    ticket.decided({
      isAnswered: result.status !== undefined,
      isOverloaded: result.outcome === 'timeout' || result.outcome === 'connect',
      durationMs: result.durationMs,
    });
    // The next attempt starts while the database records this one.
    if (options.settler.keepsUp()) ticket.end();
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
        requestCount: result.requestCount,
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
    // In strict order, this outcome made the next notification due. Giving the lane back now would make it wait for a new lease.
    else if (notification.isOrdered && retryAt === undefined) mayHaveMore.firsts = true;
    report(notification, result, retryAt, settled);
  }

  function report(
    notification: DueNotification,
    result: SendResult,
    retryAt: Date | undefined,
    settled: 'settled' | 'lost',
  ) {
    const { outcome, status, durationMs, requestCount } = result;
    metrics.webhookAttempts.inc({ outcome });
    if (requestCount > 1) metrics.webhookRequestsRepeated.inc(requestCount - 1);
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
      ...(requestCount > 1 && { requests: requestCount }),
      nextRetryAt: retryAt?.toISOString(),
      ...(settled === 'lost' && { settled }),
    };
    log[outcome === 'success' ? 'debug' : 'warn'](fields, 'delivery.attempted');
  }

  async function giveBack(): Promise<void> {
    try {
      await options.release(lane);
    } catch (error) {
      // The worker's next step frees it.
      if (!(error instanceof Fault)) throw error;
      log.warn({ lane: lane.id, error: messageOf(error) }, 'delivery.release_failed');
    }
  }

  function ring(): void {
    mayHaveMore = { firsts: true, retries: true };
    proceed();
  }

  const leaveStopping = onAbort(stopping, proceed);
  proceed();

  return {
    lane,
    hadTurn: () => hadTurn,
    isUnderWay: (notificationId) => underWay.has(notificationId),
    ring,
    poll: () => (underWay.size > 0 || retries.length > 0) && ring(),
    forget() {
      generation += 1;
      forgetRows();
    },
    lose() {
      end = 'lost';
      proceed();
    },
    giveWay() {
      if (end !== undefined) return false;
      end = 'gives way';
      proceed();
      return true;
    },
    done: done.promise,
  };
}
