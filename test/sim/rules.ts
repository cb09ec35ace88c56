/**
 * One notification: what it is, and what each event makes of it, by the specification and DESIGN §4 to §6.
 */
import { sidesOf, type Transfer } from '../../src/core/block.ts';
import type { WatchSettings } from '../../src/store/settings.ts';
import type { NewWatchedAddress } from '../../src/store/watched.ts';
import type { StoredNotification } from './state.ts';

/** A watched address, with what became of it. */
export type SimRecord = NewWatchedAddress & {
  /** In the story. */
  readonly name: string;
  readonly watcherId: number;
  settings: WatchSettings;
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
  readonly transfer: Transfer;
  block: number;
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
  { address, watchCoin, watchToken, settings, isGone }: SimRecord,
  transfer: Transfer,
): boolean {
  const { direction, minAmount, tokens } = settings;
  const { token, amount, receiver, sender } = transfer;
  const isSide = { in: address === receiver, out: address === sender, both: true }[direction];
  if (isGone || !isSide || !sidesOf(transfer).includes(address)) return false;
  if (token === undefined) return watchCoin && amount >= minAmount;
  const least = tokens.size === 0 ? 0n : tokens.get(token);
  return watchToken && least !== undefined && amount >= least;
}

/** Its block died: what was told is told to be gone where the record wants it; what was never attempted is withdrawn. */
export function undo(one: Notification): void {
  if (one.revision % 2 === 1) return;
  const isTold = one.state === 'processed' || (isOpen(one) && one.retries + one.revision > 0);
  if (isTold && hearsOfRemovals(one)) takeBack(one);
  else if (isOpen(one) && one.retries + one.redelivery === 0) one.state = 'withdrawn';
}

/** The newest is told to be gone first, before all that comes. */
function takeBack(one: Notification): void {
  const { turn, revision } = one;
  const order = turn === undefined ? { state: 'waiting' } : { state: 'held', turn: -turn };
  Object.assign(one, { revision: revision + 1, retries: 0, retryMs: undefined, releaseHeight: 0, ...order });
}

/** The outcome of an attempt, which counts for what it was an attempt of; `retryMs` after a failure. */
export function settle(one: Notification, of: Version, retryMs: number | undefined): void {
  const isOfThis = one.revision === of.revision && one.redelivery === of.redelivery;
  if (one.state === 'withdrawn' && hearsOfRemovals(one)) takeBack(one);
  else if (one.state === 'processed' || !isOfThis) return;
  else if (retryMs === undefined) Object.assign(one, { state: 'processed', retryMs });
  else if (one.retries === of.retries) {
    Object.assign(one, { retries: one.retries + 1, retryMs });
    if (one.state === 'withdrawn') one.state = 'waiting';
  }
}

/** Whoever has heard hears it again, whoever waits for a retry does not wait; whether it is so. */
export function redeliver(one: Notification, nowMs: number): boolean {
  if (one.record.isGone) return false;
  if (one.state === 'processed')
    Object.assign(one, { state: 'waiting', retries: 0, redelivery: one.redelivery + 1 });
  else if (one.state === 'waiting' && (one.retryMs ?? 0) > nowMs) one.retryMs = nowMs;
  else return false;
  return true;
}

export const wantedRow = ({
  state,
  block,
  revision,
  redelivery,
  retries,
  retryMs,
  transfer,
}: Notification) => [
  // What is cancelled is due no more.
  ...[state, block, revision, redelivery, retries, state === 'cancelled' ? null : (retryMs ?? null)],
  ...[transfer.sender, transfer.receiver ?? null, String(transfer.amount), transfer.token ?? null],
];

export const storedRow = (row: StoredNotification) => [
  ...[row.state, row.block, row.revision, row.redelivery, row.retries],
  row.state === 'cancelled' ? null : row.retry_ms,
  ...[row.sender, row.receiver, row.amount, row.token],
];
