/**
 * Turns activities into pending awards: the points that each rule gives to whom, before caps. Pure.
 */
import { compare, type Fraction, fractionOf, multiply, zero } from '../../core/fraction.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { type Environment, evaluateBoolean, evaluateNumber } from '../../domain/expression/evaluate.ts';
import type { Activity } from '../../domain/points/activity.ts';
import {
  type AccrualRule,
  type CommonRule,
  type EventListener,
  forceOf,
  isInForce,
} from '../../domain/points/rules.ts';
import { dayText, isWithin, type Moment, startOf } from '../../domain/points/window.ts';
import type { ReferredBefore } from '../../store/points/referrals.ts';
import type { ClosedDay } from './accrual.ts';
import {
  type Inputs,
  logEnvironment,
  numberEnvironment,
  type PriceAt,
  textOf,
  userOf,
} from './environment.ts';

export type PendingAward = {
  rule: CommonRule & { perTx?: Fraction | undefined };
  user: Address;
  /** Above zero, with multipliers applied. */
  points: Fraction;
  txHash: Hash;
  ordinal: number;
  /** The block in which the event happened, or in whose commit the day was closed. */
  block: BlockHeader;
  earnedAt: Date;
  referredBefore: ReferredBefore;
  inputs: Inputs;
};

/** The reason why an event earns nothing, and the values that were read until then. */
export type Refusal = {
  reason:
    | Exclude<ReturnType<typeof forceOf>, 'in_force'>
    | 'zero_address'
    | 'denied'
    /** The condition is false, or divides by zero. */
    | 'condition_false'
    /** The points are not above zero, or divide by zero. */
    | 'nothing'
    | 'too_many';
  inputs: Inputs;
};

type Context = { block: BlockHeader; priceAt: PriceAt };

/** A higher number of points for one activity is a mistake in the rule, and isn't awarded. */
const POINTS_MAX = fractionOf(10n ** 48n);
/** The ordinal of a day's award has the day above the touch (accruals.ts): 21 bits of log, 4 of movement. */
const TOUCHES_MAX = 2 ** 25;

/** The pending award of an event; undefined if it earns nothing. */
export function awardEvent(activity: Activity<EventListener>, context: Context): PendingAward | undefined {
  const judged = judgeEvent(activity, context);
  return 'reason' in judged ? undefined : judged;
}

/** The pending award of an event, or the reason why it earns nothing. */
export function judgeEvent(
  activity: Activity<EventListener>,
  { block, priceAt }: Context,
): PendingAward | Refusal {
  const { rule } = activity.listener;
  const { txHash, contract, ordinal, logIndex, listener } = activity;
  const inputs: Inputs = { event: listener.signature.name, contract, log: String(ordinal) };
  const force = forceOf(rule, block);
  if (force !== 'in_force') return { reason: force, inputs };
  const user = userOf(rule.user, activity);
  if (user === undefined) return { reason: 'zero_address', inputs };
  if (rule.deny.has(user)) return { reason: 'denied', inputs };
  const environment = logEnvironment(activity, { priceAt, at: block.minedAt, inputs });
  const points = pointsOf(rule, { environment, inputs, moment: block });
  if (typeof points === 'string') return { reason: points, inputs };
  const referredBefore = { blockNumber: block.number, logIndex };
  return { rule, user, points, txHash, ordinal, block, earnedAt: block.minedAt, referredBefore, inputs };
}

/** The pending award for a day's balance, earned in the last moment of the day; undefined if it earns nothing. */
export function awardDay(
  rule: AccrualRule,
  { user, day, balanceSeconds, txHash, touch }: ClosedDay,
  { block, priceAt }: Context,
): PendingAward | undefined {
  const moment = { number: block.number, minedAt: startOf(day) };
  if (!isInForce(rule, moment) || rule.deny.has(user)) return undefined;
  const earnedAt = lastMomentOf(day);
  const inputs: Inputs = { day: dayText(day) };
  const { tokens } = rule;
  const environment = numberEnvironment(balanceSeconds, { tokens, priceAt, at: earnedAt, inputs });
  const points = pointsOf(rule, { environment, inputs, moment });
  const ordinal = day * TOUCHES_MAX + touch;
  // The referrer at the end of the day counts, whenever the day is closed.
  const referredBefore = { time: startOf(day + 1) };
  if (typeof points === 'string') return undefined;
  return { rule, user, points, txHash, ordinal, block, earnedAt, referredBefore, inputs };
}

/** The last millisecond, because a Date has that resolution. */
export function lastMomentOf(day: number): Date {
  return new Date(startOf(day + 1).getTime() - 1);
}

function pointsOf(
  { when, points: expression, multipliers }: CommonRule,
  { environment, inputs, moment }: { environment: Environment; inputs: Inputs; moment: Moment },
): Fraction | Extract<Refusal['reason'], 'condition_false' | 'nothing' | 'too_many'> {
  if (when !== undefined && evaluateBoolean(when, environment) !== true) return 'condition_false';
  const computed = evaluateNumber(expression, environment);
  if (computed === undefined || compare(computed, zero) <= 0) return 'nothing';
  inputs.computed = textOf(computed);
  let points = computed;
  for (const { name, window, factor } of multipliers) {
    if (!isWithin(window, moment)) continue;
    inputs[`multiplier.${name}`] = textOf(factor);
    points = multiply(points, factor);
  }
  return compare(points, POINTS_MAX) > 0 ? 'too_many' : points;
}
