/**
 * One notification: what it is, and what each event makes of it, by the specification and DESIGN §4 to §6.
 */
import { sidesOf, type Transfer } from '../../src/domain/block.ts';
import type { WatchSettings } from '../../src/store/watchers/settings.ts';
import type { NewWatchedAddress } from '../../src/store/watchers/watched.ts';
import type { StoredNotification } from './state.ts';

/** A watched address, with what became of it. */
export type SimRecord = NewWatchedAddress & {
  /** In the story. */
  readonly name: string;
  readonly watcherId: number;
  settings: WatchSettings;
  /** Whether it has asked for removal notices, all its life. */
  removed: 'always' | 'never' | 'changed';
  isGone: boolean;
  /** Its URL or address was another one at some time. */
  hasMoved: boolean;
  /** Whatever it watches, it did not always. */
  hasChanged: boolean;
};

/** What an attempt knew of its notification: of another one it decides nothing. */
export type Version = { revision: number; redelivery: number; retries: number };

export type Notification = Version & {
  readonly record: SimRecord;
  transfer: Transfer;
  block: number;
  /** A reorg took it off the chain. */
  isOrphaned: boolean;
  /** The program counts it as seen. */
  mayBeSeen: boolean;
  /** Requests that have reached its receiver, or may still do so. */
  requests: number;
  state: 'held' | 'waiting' | 'processed' | 'withdrawn' | 'cancelled';
  retryMs: number | undefined;
  /** The tip with which it has its confirmations; 0 from then on. */
  releaseHeight: number;
  /** Its place among those that go one at a time. */
  turn: number | undefined;
  /** The revisions that a receiver has taken. */
  readonly heard: Set<number>;
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
 * It is on no block any more: where the record wants it, a receiver that may have seen it hears that it is gone; otherwise
 * its attempts end.
 */
export function undo(one: Notification): void {
  if (one.revision % 2 === 1) return;
  if ((one.state === 'processed' || isOpen(one)) && one.mayBeSeen && hearsOfRemovals(one))
    toRemovalNotices(one);
  else if (isOpen(one)) one.state = 'withdrawn';
}

/** Its transfer is on the chain again, or still: `fresh` is what a new one would be. `isSwitch`: it was never off it. */
export function onReinclusion(
  one: Notification,
  fresh: Pick<Notification, 'transfer' | 'block' | 'state' | 'releaseHeight' | 'turn'>,
  { isSwitch }: { isSwitch: boolean },
): void {
  const isSentAgain = one.revision % 2 === 1 || one.state === 'withdrawn';
  const stays =
    one.revision % 2 === 0 &&
    (one.state === 'processed' || (one.state === 'waiting' && one.mayBeSeen && isSwitch));
  const before = { state: one.state, releaseHeight: 0 };
  Object.assign(one, fresh, { isOrphaned: false, revision: one.revision + (one.revision % 2) });
  if (stays) Object.assign(one, before);
  if (isSentAgain) Object.assign(one, { retries: 0, retryMs: undefined });
}

/** The newest is told to be gone first, before all that comes. */
function toRemovalNotices(one: Notification): void {
  const { turn, revision } = one;
  const order = turn === undefined ? { state: 'waiting' } : { state: 'held', turn: -turn };
  Object.assign(one, { revision: revision + 1, retries: 0, retryMs: undefined, releaseHeight: 0, ...order });
}

/** The outcome of an attempt, which counts for what it was an attempt of; `retryMs` after a failure. */
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

/** Whoever has heard hears it again, whoever waits for a retry does not wait; whether it is so. */
export function redeliver(one: Notification, nowMs: number): boolean {
  if (one.record.isGone || (one.isOrphaned && one.revision % 2 === 0)) return false;
  if (one.state === 'processed')
    Object.assign(one, { state: 'waiting', retries: 0, redelivery: one.redelivery + 1 });
  else if (one.state === 'waiting' && (one.retryMs ?? 0) > nowMs) one.retryMs = nowMs;
  else return false;
  return true;
}

/** What is cancelled or withdrawn is due no more: its schedule says nothing. */
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
