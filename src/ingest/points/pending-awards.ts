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
  /** More than zero; multipliers are in it. */
  points: Fraction;
  txHash: Hash;
  ordinal: number;
  /** That brings it. */
  block: BlockHeader;
  earnedAt: Date;
  referredBefore: ReferredBefore;
  inputs: Inputs;
};

/** Why an event has earned nothing, and what was asked for until that was known. */
export type Refusal = {
  refused:
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

/** More than this for one activity is a rule's mistake, and is not given. */
const POINTS_MAX = fractionOf(10n ** 48n);
/** The ordinal of a day's award has the day above the touch (accruals.ts): 21 bits of log, 4 of movement. */
const TOUCHES_MAX = 2 ** 25;

/** What an event has earned; undefined when it is nothing. */
export function awardEvent(activity: Activity<EventListener>, context: Context): PendingAward | undefined {
  const judged = judgeEvent(activity, context);
  return 'refused' in judged ? undefined : judged;
}

/** What an event has earned, or why nothing. */
export function judgeEvent(
  activity: Activity<EventListener>,
  { block, priceAt }: Context,
): PendingAward | Refusal {
  const { rule } = activity.listener;
  const { txHash, contract, ordinal, logIndex, listener } = activity;
  const inputs: Inputs = { event: listener.signature.name, contract, log: String(ordinal) };
  const force = forceOf(rule, block);
  if (force !== 'in_force') return { refused: force, inputs };
  const user = userOf(rule.user, activity);
  if (user === undefined) return { refused: 'zero_address', inputs };
  if (rule.deny.has(user)) return { refused: 'denied', inputs };
  const environment = logEnvironment(activity, { priceAt, at: block.minedAt, inputs });
  const points = pointsOf(rule, { environment, inputs, moment: block });
  if (typeof points === 'string') return { refused: points, inputs };
  const referredBefore = { blockNumber: block.number, logIndex };
  return { rule, user, points, txHash, ordinal, block, earnedAt: block.minedAt, referredBefore, inputs };
}

/** What a day's balance has earned; undefined when it is nothing. It is earned in the last moment of the day. */
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
  // Whenever the day is closed, it is as if it were in its last moment.
  const referredBefore = { time: startOf(day + 1) };
  if (typeof points === 'string') return undefined;
  return { rule, user, points, txHash, ordinal, block, earnedAt, referredBefore, inputs };
}

/** In the resolution of a Date. */
export function lastMomentOf(day: number): Date {
  return new Date(startOf(day + 1).getTime() - 1);
}

function pointsOf(
  { when, points: expression, multipliers }: CommonRule,
  { environment, inputs, moment }: { environment: Environment; inputs: Inputs; moment: Moment },
): Fraction | Extract<Refusal['refused'], 'condition_false' | 'nothing' | 'too_many'> {
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
