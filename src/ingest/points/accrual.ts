/**
 * Balance × time, in integers: adds up the balance of each second, day by day (UTC). A touch is a change of
 * the balance; it costs the same however many seconds have passed since the last one. A day that has ended is closed, and
 * never changes. Pure.
 */
import type { Address, Hash } from '../../core/hex.ts';
import { dayOf, startOf } from '../../domain/points/window.ts';
import type { Position } from '../../store/points/accruals.ts';

export type ClosedDay = Pick<Position, 'rule' | 'user' | 'txHash' | 'touch' | 'day' | 'balanceSeconds'>;

export type Touch = { at: Date; change: bigint; txHash: Hash; touch: number };

/** A position whose balance was zero until this first touch. */
export function openPosition(rule: string, user: Address, { at, change, txHash, touch }: Touch): Position {
  return { rule, user, balance: change, day: dayOf(at), balanceSeconds: 0n, touchedAt: at, txHash, touch };
}

/** The position after a touch, and the days that ended before it. A touch beyond the largest balance changes nothing. */
export function touchPosition(position: Position, { at, change, txHash, touch }: Touch) {
  const { position: advanced, closed } = advance(position, at);
  const sum = advanced.balance + change;
  const balance = isBalance(sum) ? sum : advanced.balance;
  return { position: { ...advanced, balance, txHash, touch }, closed };
}

/** Whether the column can hold this balance. A larger one comes only from values that a contract makes up. */
export const isBalance = (balance: bigint): boolean => balance < BALANCE_END && balance > -BALANCE_END;

const BALANCE_END = 10n ** 98n;

/** The position at the start of `day`, and the days that ended before. */
export function closeUntil(position: Position, day: number) {
  return advance(position, startOf(day));
}

/** Whether the position has a day to close. */
export function isOpen({ balance, balanceSeconds }: Position): boolean {
  return balance > 0n || balanceSeconds > 0n;
}

function advance(position: Position, until: Date): { position: Position; closed: ClosedDay[] } {
  const closed: ClosedDay[] = [];
  let { day, touchedAt, balanceSeconds } = position;
  const { rule, user, balance, txHash, touch } = position;
  const lastDay = dayOf(until);
  while (day < lastDay) {
    balanceSeconds += held(balance, touchedAt, startOf(day + 1));
    if (balanceSeconds > 0n) closed.push({ rule, user, txHash, touch, day, balanceSeconds });
    balanceSeconds = 0n;
    // Skip days on which the balance is zero or negative.
    day = balance > 0n ? day + 1 : lastDay;
    touchedAt = startOf(day);
  }
  balanceSeconds += held(balance, touchedAt, until);
  return { position: { ...position, day, balanceSeconds, touchedAt: later(touchedAt, until) }, closed };
}

/** Negative balances and times that run backwards count as zero. */
function held(balance: bigint, from: Date, to: Date): bigint {
  const seconds = (to.getTime() - from.getTime()) / 1000;
  return balance > 0n && seconds > 0 ? balance * BigInt(seconds) : 0n;
}

const later = (one: Date, other: Date): Date => (one > other ? one : other);
