/**
 * Defines compiled point rules: all texts are parsed and all names are resolved (by compile.ts).
 */
import type { Fraction } from '../../core/fraction.ts';
import type { Address } from '../../core/hex.ts';
import type { EventSignature } from '../event-signature.ts';
import type { CheckedExpression } from '../expression/check.ts';
import type { TokenInfo } from './tokens.ts';
import { type Edge, isReached, isWithin, type Moment, type Window } from './window.ts';

/** The sender of the transaction, or an argument by its index. */
export type UserSource = { kind: 'sender' } | { kind: 'argument'; index: number };

export type Multiplier = { name: string; window: Window; factor: Fraction };

export type CommonRule = {
  id: string;
  version: number;
  category: string;
  window: Window;
  /** The start of each later version of the same rule. Undefined for a version that is always in force. */
  successors: readonly (Edge | undefined)[];
  deny: ReadonlySet<Address>;
  when: CheckedExpression | undefined;
  points: CheckedExpression;
  multipliers: readonly Multiplier[];
  perUserPerDay: Fraction | undefined;
  /** The referrer's share of the points of each award. 0 for no share. */
  referralShare: Fraction;
};

export type EventRule = CommonRule & { user: UserSource; perTx: Fraction | undefined };

export type AccrualRule = CommonRule & { tokens: ReadonlyMap<string, TokenInfo> };

/** An event to find, and for each of its contracts the tokens that expressions may name. */
type Listening = { signature: EventSignature; tokens: ReadonlyMap<Address, ReadonlyMap<string, TokenInfo>> };

/** More than any balance needs. The index of a movement is stored in four bits. */
export const MOVEMENTS_MAX = 16;

/** An event that changes the balance of an accrual rule. All versions of the rule share it. */
export type Movement = Listening & {
  kind: 'movement';
  rule: string;
  /** Position among the movements of the rule. */
  index: number;
  user: UserSource;
  change: CheckedExpression;
  when: CheckedExpression | undefined;
};

export type EventListener = Listening & { kind: 'event'; rule: EventRule };

/** `user` and `referrer` are indexes of the event's arguments. */
export type ReferralListener = Listening & { kind: 'referral'; user: number; referrer: number };

export type Listener = EventListener | Movement | ReferralListener;

/** Whether the listener gives points or a balance to the sender of the transaction, whom no hash covers. */
export function readsSender(listener: Listener): boolean {
  if (listener.kind === 'referral') return false;
  const { user } = listener.kind === 'event' ? listener.rule : listener;
  return user.kind === 'sender';
}

export type Rules = {
  listeners: readonly Listener[];
  /** All versions of each rule, by id. */
  accruals: ReadonlyMap<string, readonly AccrualRule[]>;
  referral: { firstWins: boolean; noSelf: boolean } | undefined;
};

/** Whether this version of the rule is in force. */
export function isInForce(rule: CommonRule, moment: Moment): boolean {
  return forceOf(rule, moment) === 'in_force';
}

/** Whether this version is in force, or why not: its period has not started, or is over, or a later version replaced it. */
export function forceOf(
  { window, successors }: CommonRule,
  moment: Moment,
): 'in_force' | 'not_yet' | 'ended' | 'replaced' {
  if (isWithin(window, moment))
    return successors.some((edge) => edge === undefined || isReached(edge, moment)) ? 'replaced' : 'in_force';
  return window.from !== undefined && !isReached(window.from, moment) ? 'not_yet' : 'ended';
}
