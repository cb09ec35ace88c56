/**
 * Defines point rules in the form of the configuration, and the tokens and pairs that they may name.
 */
import type { Address } from '../../core/hex.ts';

/** A day such as 2026-01-31, which means its first moment in UTC, or a block number. */
export type Mark = string | number;

/** From `from` to just before `to`. */
export type WindowText = { from?: Mark; to?: Mark };

export type SourceText = { event: string; contracts: string[] };

export type MultiplierText = { season?: string; from?: string; to?: string; x: number };

type RuleText = WindowText & {
  id: string;
  version: number;
  category: string;
  deny?: Address[];
  when?: string;
  points: string;
  multipliers?: MultiplierText[];
  /** Overrides the share of the referral. */
  referralShare?: number;
};

export type EventRuleText = RuleText & {
  type: 'event';
  source: SourceText;
  user: string;
  caps?: { perTx?: number; perUserPerDay?: number };
};

export type MovementText = SourceText & { user: string; change: string; when?: string };

export type AccrualRuleText = RuleText & {
  type: 'accrual';
  token?: string;
  movements?: MovementText[];
  caps?: { perUserPerDay?: number };
};

type ReferralText = {
  source: SourceText;
  user: string;
  referrer: string;
  share: number;
  firstWins: boolean;
  noSelf: boolean;
};

export type PointsText = {
  seasons: Record<string, { from: string; to: string }>;
  referral?: ReferralText;
  rules: (EventRuleText | AccrualRuleText)[];
};

/** Everything that the texts of rules may name. */
export type Surroundings = {
  nativeSymbol: string;
  rewardSymbol: string;
  /** The contract of the wrapped native coin. */
  wrapped: Address | undefined;
  /** The price feeds by symbol, and the age beyond which a price of that feed isn't used. */
  feeds: Record<string, { maxAgeMs?: number }>;
  tokens: Record<string, { address: Address; decimals: number; usd?: number }>;
  pairs: {
    id: number;
    address: Address;
    token0: Address;
    token1: Address;
    token0Decimals: number;
    token1Decimals: number;
  }[];
};
