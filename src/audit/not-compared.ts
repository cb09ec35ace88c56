/**
 * Stored figures that `verify` can't derive again.
 */
import type { CompareOptions } from './compare-batch.ts';

/** `count` is how many there are in the range, if they are counted. */
export type NotCompared = { figure: string; count?: number; reason: string };

export type NotComparedCounts = {
  /** Awards for balances over days. */
  accrued: number;
  /** Awards of rules that are not configured. */
  unknownRule: number;
  /** Prices without stored observations. */
  unobserved: number;
};

/** The figures that this deployment has. */
export function listNotCompared(
  { pairs, rules }: Pick<CompareOptions, 'pairs' | 'rules'>,
  { accrued, unknownRule, unobserved }: NotComparedCounts,
): NotCompared[] {
  const listed: (NotCompared & { isMet: boolean })[] = [
    {
      ...{ figure: 'LP supplies', isMet: pairs.length > 0 },
      reason: 'they were read from contracts at blocks whose state nodes do not keep',
    },
    {
      ...{ figure: 'prices without observations', count: unobserved, isMet: unobserved > 0 },
      reason: 'they are older than retention.observations, or no feed gave them',
    },
    {
      ...{ figure: 'awards for balances over days', count: accrued, isMet: rules.accruals.size > 0 },
      reason: 'they depend on every movement since the first followed block',
    },
    {
      ...{ figure: 'referral links', isMet: rules.referral !== undefined },
      reason: 'which link of a user counts depends on blocks outside the range',
    },
    {
      ...{ figure: 'awards of other rules', count: unknownRule, isMet: unknownRule > 0 },
      reason: 'the configuration does not have that version of the rule',
    },
  ];
  return listed.flatMap(({ isMet, ...one }) => (isMet ? [one] : []));
}
