/**
 * Compares the swaps of blocks with the stored swaps. Pure.
 */
import type { Swap } from '../domain/pair.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { PairCoverage } from '../store/market/pairs.ts';
import type { BlockSwap } from '../store/market/swaps.ts';
import { type Difference, differenceOf } from './compare.ts';

type SwapSide<Stored extends BlockSwap> = {
  /** Blocks that are stored as they are on the chain. */
  blocks: readonly ReadBlock[];
  stored: readonly Stored[];
  /** The blocks that were read for each followed pair. */
  coverage: readonly PairCoverage[];
  /** Older swaps may have been deleted. */
  keptSince: Date;
};

/** Returns a function that says whether a block was read for a pair. */
export function coverageOf(
  blocks: readonly ReadBlock[],
  coverage: readonly PairCoverage[],
): (pairId: number, blockNumber: number) => boolean {
  const byPair = new Map(coverage.map((one) => [one.pairId, one]));
  const headers = new Map(blocks.map(({ header }) => [header.number, header]));
  return (pairId, blockNumber) => {
    const [pair, header] = [byPair.get(pairId), headers.get(blockNumber)];
    if (pair === undefined || header === undefined || blockNumber < pair.readFrom) return false;
    return blockNumber >= pair.followedFrom || header.minedAt > pair.readAfter;
  };
}

/**
 * Returns equal swaps, differences, and the number of swaps that may have been deleted because of their age. Ignores swaps in
 * blocks that were not read for their pair.
 */
export function compareSwaps<Stored extends BlockSwap>({
  blocks,
  stored,
  coverage,
  keptSince,
}: SwapSide<Stored>): { equal: Stored[]; pruned: number; differences: Difference[] } {
  const isCovered = coverageOf(blocks, coverage);
  const onChain = new Map<string, SwapInBlock>();
  for (const { header, pairEvents } of blocks) {
    for (const { pairId, swaps } of pairEvents) {
      if (!isCovered(pairId, header.number)) continue;
      for (const swap of swaps) {
        const placed = { ...swap, pairId, blockNumber: header.number, minedAt: header.minedAt };
        onChain.set(keyOf(placed), placed);
      }
    }
  }
  const differences: Difference[] = [];
  const equal: Stored[] = [];
  let pruned = 0;
  for (const swap of stored) {
    if (!isCovered(swap.pairId, swap.blockNumber)) continue;
    const own = onChain.get(keyOf(swap));
    onChain.delete(keyOf(swap));
    const changes = own === undefined ? [] : changesOf(swap, own);
    if (own === undefined)
      differences.push(difference('unexpected', swap, 'there is no such swap on the chain'));
    else if (changes.length > 0) differences.push(difference('changed', swap, changes.join(', ')));
    else equal.push(swap);
  }
  for (const swap of onChain.values()) {
    if (swap.minedAt < keptSince) pruned += 1;
    else differences.push(difference('missing', swap, 'it is not stored'));
  }
  return { equal, pruned, differences };
}

type SwapInBlock = Swap & { pairId: number; blockNumber: number; minedAt: Date };

const keyOf = ({ blockNumber, txHash, ordinal }: SwapInBlock) => `${blockNumber} ${txHash} ${ordinal}`;

/** Describes each field that differs from the chain. */
function changesOf(stored: SwapInBlock, own: SwapInBlock): string[] {
  const fields = ['pairId', 'logIndex', 'amount0In', 'amount1In', 'amount0Out', 'amount1Out'] as const;
  const changes = fields.flatMap((field) =>
    stored[field] === own[field]
      ? []
      : [`${field} ${stored[field]} is stored, ${own[field]} is on the chain`],
  );
  if (stored.minedAt.getTime() === own.minedAt.getTime()) return changes;
  const [is, should] = [stored.minedAt.toISOString(), own.minedAt.toISOString()];
  return [...changes, `minedAt ${is} is stored, ${should} is on the chain`];
}

function difference(kind: Difference['kind'], swap: SwapInBlock, why: string): Difference {
  const { pairId, txHash, ordinal, blockNumber } = swap;
  const subject = `swap ${ordinal} of ${txHash} in pair ${pairId}`;
  return differenceOf(kind, blockNumber, `${kind}: ${subject}: ${why}`, subject);
}
