/**
 * Compares blocks whose hashes don't prove their content. It compares their links, and a digest of the data from
 * which transfers are extracted.
 */
import { createHash } from 'node:crypto';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import type { Bundle } from './bundle.ts';

/** Whether each header is the parent of the next one. */
export function areLinked(headers: readonly BlockHeader[]): boolean {
  return headers.every((header, index) => {
    const previous = headers[index - 1];
    return (
      previous === undefined || (header.parentHash === previous.hash && header.number === previous.number + 1)
    );
  });
}

/**
 * A digest that is equal for equal headers, transactions, outcomes and logs. It leaves traces out, because not
 * every node has them.
 */
export function digestOf(bundles: readonly Bundle[]): Hash {
  const digest = createHash('sha256');
  for (const { header, transactions } of bundles) {
    digest.update(`${header.number} ${header.hash} ${header.parentHash} ${header.minedAt.getTime()}\n`);
    for (const { hash, from, to, value, succeeded, logs } of transactions)
      digest.update(
        `${JSON.stringify([hash, from, to ?? null, value?.toString() ?? null, succeeded, logs])}\n`,
      );
  }
  return `0x${digest.digest('hex')}`;
}
