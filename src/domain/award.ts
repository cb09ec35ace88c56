/**
 * An award: points that an activity on the chain, or a line of an import, earned for a user (spec 2.1).
 */
import type { Decimal } from '../core/decimal.ts';
import type { Address, Hash } from '../core/hex.ts';

export type Award = {
  /** Id of the rule, or of the import. */
  rule: string;
  version: number;
  category: string;
  user: Address;
  /** Above zero. An import may have negative points as a correction. */
  points: Decimal;
  txHash: Hash;
  /** The log's index within its receipt. For accruals and imports, any stable number. */
  ordinal: number;
  role: 'user' | 'referrer';
  /** Undefined for imports, which a reorg never removes. */
  block: { number: number; hash: Hash } | undefined;
  /** Block time. */
  awardedAt: Date;
  /** Inputs, price ids and intermediate results, for `points explain`. */
  inputs: Record<string, string>;
};
