/**
 * The status of a notification as people see it, derived from its stored state. The API, its filters and the console use this one
 * mapping.
 */

/** The stored state: where a notification is in its life. */
export type NotificationState = 'held' | 'waiting' | 'processed' | 'withdrawn' | 'cancelled';

/** The statuses that the database alone can tell, in the order of a notification's life. */
export const storedStatuses = [
  'held',
  'waiting',
  'retrying',
  'failing',
  'delivered',
  'orphaned',
  'cancelled',
] as const;
export type StoredStatus = (typeof storedStatuses)[number];

/** `sending` is known only to the process that has the attempt under way. */
export type DeliveryStatus = StoredStatus | 'sending';
export const deliveryStatuses: readonly DeliveryStatus[] = [...storedStatuses, 'sending'];

/** From this many failures on, a notification is failing. With the default schedule its receiver has then failed for 14 minutes. */
const FAILING_MIN = 4;

/** A status and the rows that have it. A row must match all parts that are given. */
type StatusRule = {
  status: StoredStatus;
  state: NotificationState;
  /** Failed attempts, both inclusive. */
  failures?: { from: number; to: number };
  /** Whether a reorg orphaned the transfer, and the message is still the transfer and not its removal notice. */
  isOrphanedTransfer?: boolean;
};

/** Every notification matches exactly one of these. */
export const statusRules: readonly StatusRule[] = [
  { status: 'held', state: 'held' },
  { status: 'waiting', state: 'waiting', failures: { from: 0, to: 0 } },
  { status: 'retrying', state: 'waiting', failures: { from: 1, to: FAILING_MIN - 1 } },
  { status: 'failing', state: 'waiting', failures: { from: FAILING_MIN, to: Number.MAX_SAFE_INTEGER } },
  { status: 'delivered', state: 'processed', isOrphanedTransfer: false },
  { status: 'orphaned', state: 'processed', isOrphanedTransfer: true },
  { status: 'orphaned', state: 'withdrawn' },
  { status: 'cancelled', state: 'cancelled' },
];

/** What decides the status. `isUnderWay`: an attempt is being made right now. */
export type Progress = {
  state: NotificationState;
  failures: number;
  isOrphanedTransfer: boolean;
  isUnderWay?: boolean;
};

export function statusOf({ state, failures, isOrphanedTransfer, isUnderWay }: Progress): DeliveryStatus {
  if (isUnderWay === true && state === 'waiting') return 'sending';
  const rule = statusRules.find(
    (one) =>
      one.state === state &&
      (one.failures === undefined || (failures >= one.failures.from && failures <= one.failures.to)) &&
      (one.isOrphanedTransfer === undefined || one.isOrphanedTransfer === isOrphanedTransfer),
  );
  if (rule === undefined) throw new Error(`no status for ${state} with ${failures} failures`);
  return rule.status;
}
