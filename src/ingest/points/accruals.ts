/**
 * Moves accruing balances with new blocks. It also closes days that have ended, a limited number in each commit, so that
 * balances that never move again earn points too.
 */
import { floor } from '../../core/fraction.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { evaluateBoolean, evaluateNumber } from '../../domain/expression/evaluate.ts';
import type { Activity, BlockActivity } from '../../domain/points/activity.ts';
import { MOVEMENTS_MAX, type Movement } from '../../domain/points/rules.ts';
import { dayOf } from '../../domain/points/window.ts';
import type { Tx } from '../../store/db/db.ts';
import {
  listOpenPositions,
  listPositions,
  type Position,
  type PositionBefore,
  type PositionKey,
  pruneFinalAccruals,
  savePositions,
} from '../../store/points/accruals.ts';
import { type ClosedDay, closeUntil, isBalance, openPosition, type Touch, touchPosition } from './accrual.ts';
import { type Inputs, logEnvironment, type PriceAt, userOf } from './environment.ts';

/** A closed day, with the block in whose commit it was closed. */
export type Closed = { day: ClosedDay; block: BlockHeader };

/** Days closed in one transaction, per block and altogether. */
const CLOSED_PER_BLOCK_MAX = 5_000;
const CLOSED_MAX = 20_000;
/** More rows of former positions than one commit writes. */
const FORGOTTEN_MAX = 50_000;

/** Moves the balances. Returns the days that ended before these movements. */
export async function moveBalances(
  tx: Tx,
  movements: readonly BlockActivity<Movement>[],
  priceAt: PriceAt,
): Promise<Closed[]> {
  const moves = movements.flatMap(({ activity, block }) => {
    const user = userOf(activity.listener.user, activity);
    const change = user && changeOf(activity, { block, priceAt });
    // Anybody can transfer nothing from anybody (EIP-20). The award would then name the stranger's transaction.
    if (user === undefined || typeof change !== 'bigint' || change === 0n) return [];
    const { txHash, ordinal, listener } = activity;
    const touch: Touch = {
      at: block.minedAt,
      change,
      txHash,
      touch: ordinal * MOVEMENTS_MAX + listener.index,
    };
    return [{ key: { rule: listener.rule, user }, touch, block }];
  });
  if (moves.length === 0) return [];
  const keys = new Map(moves.map(({ key }) => [textOf(key), key]));
  const positions = new Map((await listPositions(tx, [...keys.values()])).map((one) => [textOf(one), one]));
  const before = new Map<string, PositionBefore>();
  const closed: Closed[] = [];
  for (const { key, touch, block } of moves) {
    const text = textOf(key);
    const position = positions.get(text);
    const beforeKey = `${block.number} ${text}`;
    if (!before.has(beforeKey)) before.set(beforeKey, { ...key, blockNumber: block.number, position });
    if (position === undefined) {
      positions.set(text, openPosition(key.rule, key.user, touch));
      continue;
    }
    const moved = touchPosition(position, touch);
    positions.set(text, moved.position);
    closed.push(...moved.closed.map((day) => ({ day, block })));
  }
  await savePositions(tx, [...positions.values()], [...before.values()]);
  return closed;
}

/** Closes the days of the balances that ended before the last of these blocks, the oldest first, up to the limit of one transaction. */
export async function closeDays(
  tx: Tx,
  rules: readonly string[],
  blocks: readonly { header: BlockHeader }[],
): Promise<Closed[]> {
  const block = blocks.at(-1)?.header;
  if (block === undefined || rules.length === 0) return [];
  const limit = Math.min(CLOSED_PER_BLOCK_MAX * blocks.length, CLOSED_MAX);
  const today = dayOf(block.minedAt);
  const days: ClosedDay[] = [];
  // Few balances on a quiet chain may have years to close, which one round closes. Many of them share what is left.
  for (let left = limit; left > 0; ) {
    const open = await listOpenPositions(tx, { rules, today, limit: left });
    if (open.length === 0) break;
    const each = Math.max(1, Math.floor(left / open.length));
    const results = open.map((position) => closeUntil(position, Math.min(today, position.day + each)));
    await savePositions(
      tx,
      results.map(({ position }) => position),
      open.map((position) => beforeOf(position, block)),
    );
    for (const { closed } of results) {
      days.push(...closed);
      left -= Math.max(1, closed.length);
    }
  }
  await pruneFinalAccruals(tx, FORGOTTEN_MAX);
  return days.toSorted((one, other) => one.day - other.day).map((day) => ({ day, block }));
}

const beforeOf = (position: Position, { number }: BlockHeader): PositionBefore => {
  const { rule, user } = position;
  return { rule, user, blockNumber: number, position };
};

/** The change of the balance, or why the movement doesn't apply to this log. Notes the values that it reads in `inputs`. */
export function changeOf(
  activity: Activity<Movement>,
  { block, priceAt, inputs = {} }: { block: BlockHeader; priceAt: PriceAt; inputs?: Inputs },
): bigint | 'condition_false' | 'too_many' {
  const { when, change } = activity.listener;
  const environment = logEnvironment(activity, { priceAt, at: block.minedAt, inputs });
  if (when !== undefined && evaluateBoolean(when, environment) !== true) return 'condition_false';
  const value = evaluateNumber(change, environment);
  if (value === undefined) return 'condition_false';
  const moved = floor(value);
  return isBalance(moved) ? moved : 'too_many';
}

const textOf = ({ rule, user }: PositionKey): string => `${rule} ${user}`;
