/**
 * Whether a notification of a canonical transfer is on its way to its receiver: acknowledged, or scheduled where a worker
 * finds it, or held for a reason that ends. Pure.
 */
import { counted } from '../core/plural.ts';
import { messageKind } from '../domain/message-kind.ts';
import { webhookOrigin } from '../domain/webhook-url.ts';
import type { StoredLane, StoredNotification, StoredWatch } from '../store/audit/comparison.ts';
import { CONFIRMATIONS_MAX } from '../store/watchers/settings.ts';

export type DeliverySide = {
  /** The database's time when it was read. */
  now: Date;
  /** The newest stored block. */
  tipNumber: number;
  /** Those of the service. */
  confirmations: number;
  /** From failure number n (the first is 1) to the next attempt. */
  retryDelayMs(failureCount: number): number;
  /** The delivery queues of the notifications and of their records. */
  lanes: ReadonlyMap<number, StoredLane>;
  /** By record with strict order: the notification whose turn it is. */
  firstInSequence: ReadonlyMap<string, number>;
};

/** `isLate`: the schedule itself is wrong, so the notification is due now. */
type DeliveryFault = { message: string; isLate: boolean };

/** The clocks of a process and of the database may differ by this much. */
const SLACK_MS = 1_000;

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

/** Workers read a queue by its own shard, and send to its origin. */
function findLaneFault(
  one: StoredNotification,
  { webhookUrl, updatedAt }: StoredWatch,
  side: DeliverySide,
): DeliveryFault | undefined {
  const { shardId, laneId } = one;
  const lane = side.lanes.get(laneId);
  const origin = webhookOrigin(webhookUrl);
  // After a change of the record a worker moves what is still in the former queue, at the latest when it is due.
  const mayMove = updatedAt > one.createdAt;
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

/** A queue without a worker is leased when its time comes; a worker that gives it back computes that time. */
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
  { settings, updatedAt }: StoredWatch,
  { tipNumber, confirmations, firstInSequence }: DeliverySide,
): DeliveryFault | undefined {
  if (releaseNumber !== undefined) {
    // The former settings of a record that was changed since then are unknown.
    const asked = updatedAt > createdAt ? CONFIRMATIONS_MAX : settings.confirmations;
    if (releaseNumber > blockNumber + asked)
      return fault(
        `it is held until block ${releaseNumber}, but its watched address asks for ${asked} confirmations`,
      );
    return releaseNumber > tipNumber - confirmations
      ? undefined
      : fault(`it is held until block ${releaseNumber}, which has its confirmations`);
  }
  if (sequence === undefined) return fault('it is held without a reason');
  return firstInSequence.get(watchedAddressId) === id
    ? fault('it is held for strict order, but no notification of its watched address comes before it')
    : undefined;
}

const fault = (message: string): DeliveryFault => ({ message, isLate: false });
