/**
 * The states of one notification, and the effect of each event on it, by the specification and
 * docs/explanation/reorgs.md.
 */
import { sidesOf, type Transfer } from '../../src/domain/block.ts';
import type { WatchSettings } from '../../src/store/watchers/settings.ts';
import type { NewWatchedAddress } from '../../src/store/watchers/watched.ts';
import type { StoredNotification } from './state.ts';

/** A watched address and its history. */
export type SimRecord = NewWatchedAddress & {
  /** Its name in the story. */
  readonly name: string;
  readonly watcherId: number;
  settings: WatchSettings;
  /** Whether its `removed` setting was on all the time, off all the time, or changed. */
  removed: 'always' | 'never' | 'changed';
  isGone: boolean;
  /** Its URL or address has changed. */
  hasMoved: boolean;
  /** Its filters have changed, so it did not always watch the same transfers. */
  hasChanged: boolean;
};

/** The version of the notification that an attempt sent. Its outcome decides nothing about another version. */
export type Version = { revision: number; redelivery: number; retries: number };

export type Notification = Version & {
  readonly record: SimRecord;
  transfer: Transfer;
  block: number;
  /** A reorg orphaned its transfer. */
  isOrphaned: boolean;
  /** The program counts it as seen. */
  mayBeSeen: boolean;
  /** Requests that have reached its receiver, or may still do so. */
  requests: number;
  state: 'held' | 'waiting' | 'processed' | 'withdrawn' | 'cancelled';
  retryMs: number | undefined;
  /** Its transfer has returned to the chain after an attempt that failed, so its retry is due since a moment ago. */
  isResumed?: boolean;
  /** The height of the tip at which it has its confirmations; 0 from then on. */
  releaseHeight: number;
  /** Its position in strict order. */
  turn: number | undefined;
  /** The revisions that its receiver has accepted. */
  readonly received: Set<number>;
  /** Its time of creation in the database; undefined until it is written. */
  createdMs: number | undefined;
  /** Retention has deleted it. */
  isDeleted: boolean;
};

export const isOpen = ({ state }: Notification) => state === 'held' || state === 'waiting';
const hearsOfRemovals = ({ record }: Notification) => !record.isGone && record.settings.removed;

export function watches(
  { watchCoin, watchToken, settings, isGone, ...record }: SimRecord,
  transfer: Transfer,
  address = record.address,
): boolean {
  const { direction, minAmount, tokens } = settings;
  const { token, amount, receiver, sender } = transfer;
  const isSide = { in: address === receiver, out: address === sender, both: true }[direction];
  if (isGone || !isSide || !sidesOf(transfer).includes(address)) return false;
  if (token === undefined) return watchCoin && amount >= minAmount;
  const least = tokens.size === 0 ? 0n : tokens.get(token);
  return watchToken && least !== undefined && amount >= least;
}

/**
 * Its transfer was orphaned. If a receiver may have seen it and the watched address has `removed`, it becomes a removal
 * notice. Otherwise its attempts end.
 */
export function undo(one: Notification): void {
  if (one.revision % 2 === 1) return;
  if ((one.state === 'processed' || isOpen(one)) && one.mayBeSeen && hearsOfRemovals(one))
    toRemovalNotices(one);
  else if (isOpen(one)) one.state = 'withdrawn';
}

/** Whether its watched address is deleted, and nothing more is sent of it. */
export const hasEndedGone = ({ record, revision, state }: Notification): boolean =>
  record.isGone && revision % 2 === 0 && (state === 'processed' || state === 'cancelled');

/** Its transfer is on the chain again. `fresh` is a new notification of it. `isSwitch`: it is in both branches of a reorg. */
export function onReinclusion(
  one: Notification,
  fresh: Pick<Notification, 'transfer' | 'block' | 'state' | 'releaseHeight' | 'turn'>,
  { isSwitch }: { isSwitch: boolean },
): void {
  const isResumed = one.revision % 2 === 0 && one.state === 'withdrawn';
  const isNewMessage = one.revision % 2 === 1;
  const stays =
    one.revision % 2 === 0 &&
    (one.state === 'processed' || (one.state === 'waiting' && one.mayBeSeen && isSwitch));
  const before = { state: one.state, releaseHeight: 0 };
  Object.assign(one, fresh, { isOrphaned: false, revision: one.revision + (one.revision % 2) });
  if (stays) Object.assign(one, before);
  if (isNewMessage) Object.assign(one, { retries: 0, retryMs: undefined, redelivery: 0 });
  // A retry is due at once.
  if (isResumed) Object.assign(one, { retryMs: undefined, isResumed: one.retries > 0 });
}

/** The removal notice of the newest notification is sent first, before all new notifications. */
function toRemovalNotices(one: Notification): void {
  const { turn, revision } = one;
  const order = turn === undefined ? { state: 'waiting' } : { state: 'held', turn: -turn };
  const version = { revision: revision + 1, redelivery: 0, retries: 0, retryMs: undefined };
  Object.assign(one, { ...version, isResumed: false, releaseHeight: 0, ...order });
}

/** Applies the outcome of an attempt to the version that was sent. `retryMs` is the next retry after a failure. */
export function settle(
  one: Notification,
  of: Version,
  { retryMs, hasArrived }: { retryMs: number | undefined; hasArrived: boolean },
): void {
  const isOfThis = one.revision === of.revision && one.redelivery === of.redelivery;
  const isTold = one.revision % 2 === 0 && hasArrived && hearsOfRemovals(one);
  if (one.state === 'withdrawn' && isTold) toRemovalNotices(one);
  else if (one.state === 'processed' || !isOfThis) return;
  else if (retryMs === undefined) Object.assign(one, { state: 'processed', retryMs });
  else if (one.retries === of.retries) Object.assign(one, { retries: one.retries + 1, retryMs });
}

/** Sends a processed notification again, or a waiting one at once. Returns whether it applies. */
export function redeliver(one: Notification, nowMs: number): boolean {
  if (one.isDeleted || one.record.isGone || (one.isOrphaned && one.revision % 2 === 0)) return false;
  if (one.state === 'processed')
    Object.assign(one, { state: 'waiting', retries: 0, redelivery: one.redelivery + 1 });
  else if (one.state === 'waiting' && (one.retryMs ?? 0) > nowMs) one.retryMs = nowMs;
  else return false;
  return true;
}

/** A cancelled or withdrawn notification is never due, so its schedule is not compared. */
const isEnded = (state: string) => state === 'cancelled' || state === 'withdrawn';

export const wantedRow = ({
  state,
  block,
  isOrphaned,
  revision,
  redelivery,
  retries,
  retryMs,
  transfer,
}: Notification) => [
  ...[state, block, isOrphaned, revision, redelivery, retries, isEnded(state) ? null : (retryMs ?? null)],
  ...[transfer.sender, transfer.receiver ?? null, String(transfer.amount), transfer.token ?? null],
];

export const storedRow = (row: StoredNotification) => [
  ...[row.state, row.block, row.orphaned, row.revision, row.redelivery, row.retries],
  isEnded(row.state) ? null : row.retry_ms,
  ...[row.sender, row.receiver, row.amount, row.token],
];
