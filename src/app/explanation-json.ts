/**
 * Why a transaction earned its points, as JSON: the output of `chainbell points explain --json` and of the operator API.
 */
import { exactNumber } from '../core/decimal.ts';
import type { Hash } from '../core/hex.ts';
import type { Award } from '../domain/award.ts';
import type { Explanation } from './explain-transaction.ts';

/** `logs` is null if no node returned them; `missing` says why. */
export function explanationJson(hash: Hash, { awards, transaction }: Explanation) {
  const found = 'logs' in transaction ? transaction : undefined;
  return {
    hash,
    block_number: found?.block.number ?? null,
    block_hash: found?.block.hash ?? null,
    succeeded: found?.succeeded ?? null,
    missing: 'missing' in transaction ? { what: transaction.missing, message: transaction.message } : null,
    awards: awards.map(awardJson),
    logs:
      found?.logs.map(({ verdicts, topic = null, ...log }) => ({
        ...{ ...log, topic },
        verdicts: verdicts.map(({ version = null, ...verdict }) => ({ ...verdict, version })),
      })) ?? null,
  };
}

function awardJson({ block, points, awardedAt, txHash, ...award }: Award) {
  return {
    rule: award.rule,
    version: award.version,
    category: award.category,
    role: award.role,
    user: award.user,
    points: exactNumber(points),
    awarded_at: awardedAt.toISOString(),
    hash: txHash,
    ordinal: award.ordinal,
    block_number: block?.number ?? null,
    block_hash: block?.hash ?? null,
    inputs: award.inputs,
  };
}
