/**
 * Balance × time, in integers: the balance of each second is added up, day by day (UTC). A touch costs the same however
 * long ago the one before it was; a day that has ended is closed and never changes. Pure.
 */
import type { Address, Hash } from '../../core/hex.ts';
import { dayOf, startOf } from '../../domain/points/window.ts';
import type { Position } from '../../store/points/accruals.ts';

export type ClosedDay = Pick<Position, 'rule' | 'user' | 'txHash' | 'touch' | 'day' | 'balanceSeconds'>;

export type Touch = { at: Date; change: bigint; txHash: Hash; touch: number };

/** A position that has had nothing until this first touch. */
export function openPosition(rule: string, user: Address, { at, change, txHash, touch }: Touch): Position {
  return { rule, user, balance: change, day: dayOf(at), balanceSeconds: 0n, touchedAt: at, txHash, touch };
}

/** The position after a change of its balance, and the days that ended before it. */
export function touchPosition(position: Position, { at, change, txHash, touch }: Touch) {
  const { position: advanced, closed } = advance(position, at);
  return { position: { ...advanced, balance: advanced.balance + change, txHash, touch }, closed };
}

/** The position after one of its days, which has ended. */
export function closeDay(position: Position) {
  return advance(position, startOf(position.day + 1));
}

/** Whether there is anything to close. */
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
    // Days on which nothing is held need no look at each.
    day = balance > 0n ? day + 1 : lastDay;
    touchedAt = startOf(day);
  }
  balanceSeconds += held(balance, touchedAt, until);
  return { position: { ...position, day, balanceSeconds, touchedAt: later(touchedAt, until) }, closed };
}

/** What is owed is not counted, nor is time that runs backwards. */
function held(balance: bigint, from: Date, to: Date): bigint {
  const seconds = (to.getTime() - from.getTime()) / 1000;
  return balance > 0n && seconds > 0 ? balance * BigInt(seconds) : 0n;
}

const later = (one: Date, other: Date): Date => (one > other ? one : other);
