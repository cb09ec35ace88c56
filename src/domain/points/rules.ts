/**
 * The rules of points as they are applied: every text parsed, every name resolved (compile.ts makes them).
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
  /** Where the later versions of the same rule begin; undefined: always. */
  successors: readonly (Edge | undefined)[];
  deny: ReadonlySet<Address>;
  when: CheckedExpression | undefined;
  points: CheckedExpression;
  multipliers: readonly Multiplier[];
  perUserPerDay: Fraction | undefined;
  /** Of the points of each award, for who has referred the user; 0 is none. */
  referralShare: Fraction;
};

export type EventRule = CommonRule & { user: UserSource; perTx: Fraction | undefined };

export type AccrualRule = CommonRule & { tokens: ReadonlyMap<string, TokenInfo> };

/** An event that is looked for at some contracts, with the tokens that its expressions may mean at each of them. */
type Listening = { signature: EventSignature; tokens: ReadonlyMap<Address, ReadonlyMap<string, TokenInfo>> };

/** More than any balance needs; they are numbered in four bits. */
export const MOVEMENTS_MAX = 16;

/** A change of a balance that an accrual rule (all its versions) counts. */
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

/** Indexes of the arguments. */
export type ReferralListener = Listening & { kind: 'referral'; user: number; referrer: number };

export type Listener = EventListener | Movement | ReferralListener;

export type Rules = {
  listeners: readonly Listener[];
  /** By id, all versions. */
  accruals: ReadonlyMap<string, readonly AccrualRule[]>;
  referral: { firstWins: boolean; noSelf: boolean } | undefined;
};

/** Whether this version of the rule is the one that holds. */
export function isInForce(rule: CommonRule, moment: Moment): boolean {
  return forceOf(rule, moment) === 'in_force';
}

/** The same, and why not: its time has not come, or has gone, or a later version has taken its place. */
export function forceOf(
  { window, successors }: CommonRule,
  moment: Moment,
): 'in_force' | 'not_yet' | 'ended' | 'replaced' {
  if (isWithin(window, moment))
    return successors.some((edge) => edge === undefined || isReached(edge, moment)) ? 'replaced' : 'in_force';
  return window.from !== undefined && !isReached(window.from, moment) ? 'not_yet' : 'ended';
}
