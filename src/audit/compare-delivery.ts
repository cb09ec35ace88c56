/**
 * Checks that a notification of a canonical transfer will reach its receiver: it is acknowledged, or scheduled in a queue
 * that a worker will lease, or held for a reason that ends. Pure.
 */
import { counted } from '../core/plural.ts';
import { messageKind } from '../domain/message-kind.ts';
import { webhookOrigin } from '../domain/webhook-url.ts';
import type { StoredNotification, StoredWatch } from '../store/audit/comparison.ts';
import type { StoredLane } from '../store/audit/delivery-state.ts';
import { CONFIRMATIONS_MAX } from '../store/watchers/settings.ts';

export type DeliverySide = {
  /** The database's time when it was read. */
  now: Date;
  /** The service's setting. */
  confirmations: number;
  /** Notifications that are held until this block, or an older one, should have been released. */
  releasedNumber: number;
  /** The delay from failure number n (the first is 1) to the next attempt. */
  retryDelayMs(failureCount: number): number;
  /** The delivery queues of the notifications and of their records. */
  lanes: ReadonlyMap<number, StoredLane>;
  /** The first pending notification of each record with strict order. */
  firstInSequence: ReadonlyMap<string, number>;
};

/** `isLate`: the scheduled time is wrong, and the notification is due now. */
type DeliveryFault = { message: string; isLate: boolean };

/** The clocks of a process and of the database may differ by this much. */
const SLACK_MS = 1_000;

/**
 * The times of blocks and records are taken before their transactions commit. If they are closer together than this, it is
 * unknown whether the block's commit saw the record.
 */
export const ORDER_MS_MIN = 10_000;

/** Whether the record may have been changed after a block was committed. `time`: when the block and its notifications were stored. */
export const mayHaveChangedSince = ({ createdAt, updatedAt }: StoredWatch, time: Date): boolean =>
  updatedAt > createdAt && updatedAt.getTime() >= time.getTime() - ORDER_MS_MIN;

/** The reason why no worker would deliver it; undefined if there is none. */
export function findDeliveryFault(
  one: StoredNotification,
  watch: StoredWatch,
  side: DeliverySide,
): DeliveryFault | undefined {
  if (messageKind(one) === 'removal')
    return fault(`its removal is announced (revision ${one.revision}), but its transfer is on the chain`);
  switch (one.state) {
    case 'processed':
      return undefined;
    case 'waiting':
      return findLaneFault(one, watch, side) ?? findScheduleFault(one, side) ?? findSleepingLane(one, side);
    case 'held':
      return findLaneFault(one, watch, side) ?? findHeldFault(one, watch, side);
    default:
      return fault(`it is ${one.state}, but its watched address exists`);
  }
}

/** Workers read a queue by shard, and send its notifications to the queue's origin. */
function findLaneFault(
  one: StoredNotification,
  watch: StoredWatch,
  side: DeliverySide,
): DeliveryFault | undefined {
  const { shardId, laneId } = one;
  const lane = side.lanes.get(laneId);
  const origin = webhookOrigin(watch.webhookUrl);
  // After a change of the record, a worker moves notifications from the former queue, at the latest when they are due.
  const mayMove = mayHaveChangedSince(watch, one.createdAt);
  if (lane?.shardId === shardId && (lane.origin === origin || mayMove)) return undefined;
  const is = lane === undefined ? 'does not exist' : `belongs to ${lane.origin} of shard ${lane.shardId}`;
  const isLate = one.state === 'waiting' && findScheduleFault(one, side) !== undefined;
  return { message: `its delivery queue ${laneId} ${is}, but its webhook is at ${origin}`, isLate };
}

function findScheduleFault(
  { retryCount, nextAttemptAt }: StoredNotification,
  { now, retryDelayMs }: DeliverySide,
): DeliveryFault | undefined {
  const delayMs = retryCount === 0 ? 0 : retryDelayMs(retryCount);
  if (nextAttemptAt.getTime() <= now.getTime() + delayMs + SLACK_MS) return undefined;
  const allowed =
    retryCount === 0
      ? 'the first attempt is due at once'
      : `after ${counted(retryCount, 'failure')} it is due within ${counted(delayMs / 60_000, 'minute')}`;
  return { message: `it is scheduled for ${nextAttemptAt.toISOString()}, but ${allowed}`, isLate: true };
}

/** A queue that no worker has leased is leased at its `nextDue`. A worker that gives it back computes that time. */
function findSleepingLane(
  { laneId, nextAttemptAt }: StoredNotification,
  { lanes, now }: DeliverySide,
): DeliveryFault | undefined {
  const lane = lanes.get(laneId);
  if (lane === undefined || lane.isLeased) return undefined;
  const latestMs = Math.max(nextAttemptAt.getTime(), now.getTime()) + SLACK_MS;
  if (lane.nextDue !== undefined && lane.nextDue.getTime() <= latestMs) return undefined;
  const due = lane.nextDue === undefined ? 'never due' : `due only at ${lane.nextDue.toISOString()}`;
  return fault(`its delivery queue ${laneId} is ${due}, and no worker has leased it`);
}

function findHeldFault(
  { id, releaseNumber, blockNumber, sequence, createdAt, watchedAddressId }: StoredNotification,
  watch: StoredWatch,
  { confirmations, releasedNumber, firstInSequence }: DeliverySide,
): DeliveryFault | undefined {
  if (releaseNumber !== undefined) {
    // If the record was changed since then, its former settings are unknown.
    const own = mayHaveChangedSince(watch, createdAt) ? CONFIRMATIONS_MAX : watch.settings.confirmations;
    const asked = Math.max(own, confirmations);
    if (releaseNumber > blockNumber + asked)
      return fault(
        `it is held until block ${releaseNumber}, but ${own < confirmations ? 'the configuration' : 'its watched address'} asks for ${asked} confirmations`,
      );
    return releaseNumber > releasedNumber
      ? undefined
      : fault(`it is held until block ${releaseNumber}, which has its confirmations`);
  }
  if (sequence === undefined) return fault('it is held without a reason');
  return firstInSequence.get(watchedAddressId) === id
    ? fault('it is held for strict order, but no notification of its watched address comes before it')
    : undefined;
}

const fault = (message: string): DeliveryFault => ({ message, isLate: false });
