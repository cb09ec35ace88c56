/**
 * Writes swaps and pair states with their blocks: each swap with its USD value at that time, and the reserves of each pair
 * after each block that changed them.
 */
import type { Clock } from '../../core/clock.ts';
import { decimal } from '../../core/decimal.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import {
  isCounted,
  type PairEvents,
  pairPrice,
  swapTokenValue,
  swapValue,
  type ValuedPair,
} from '../../domain/pair.ts';
import type { Tx } from '../../store/db/db.ts';
import {
  deletePairStatesAbove,
  insertPairStates,
  type PairStateChange,
} from '../../store/market/pair-states.ts';
import { followPairs, unfollowPairsAbove } from '../../store/market/pairs.ts';
import { deleteSwapsAbove, insertSwaps, type PricedSwap, type SwapPrice } from '../../store/market/swaps.ts';
import { listPrices, type Price } from '../../store/prices/prices.ts';
import type { BlockProcessor } from '../block-processor.ts';

/** The part of a block that this processor needs. */
type MarketBlock = { header: BlockHeader; pairEvents: readonly PairEvents[] };

/** The processor of these pairs. Without pairs it runs one statement at the start, which stops following the former pairs. */
export function createMarketProcessor(pairs: readonly ValuedPair[], clock: Clock): BlockProcessor {
  /**
   * The last block that this process committed. If its child comes next, no other process has written meanwhile, and the followed pairs are
   * still the same. The number alone doesn't tell, because another process may have replaced the block.
   */
  let committed: Hash | undefined;
  let written: Hash | undefined;
  return {
    async write(tx, blocks) {
      const [first, last] = [blocks[0]?.header, blocks.at(-1)?.header];
      if (first === undefined || last === undefined) return;
      if (first.parentHash !== committed) await followPairs(tx, pairs, { header: first, now: clock.now() });
      await writePairEvents(tx, pairs, blocks);
      written = last.hash;
    },
    // If the transaction failed, another process with other pairs may write the same blocks.
    committed() {
      committed = written;
    },
    forget() {
      committed = undefined;
    },
    async undo(tx, ancestorNumber) {
      [committed, written] = [undefined, undefined];
      await deleteSwapsAbove(tx, ancestorNumber);
      await deletePairStatesAbove(tx, ancestorNumber);
      await unfollowPairsAbove(tx, ancestorNumber);
    },
  };
}

/** Stores swaps and states of these blocks. Rows that are already stored stay as they are. */
export async function writePairEvents(
  tx: Tx,
  pairs: readonly ValuedPair[],
  blocks: readonly MarketBlock[],
): Promise<void> {
  if (blocks.every(({ pairEvents }) => pairEvents.length === 0)) return;
  const byId = new Map(pairs.map((pair) => [pair.id, pair]));
  const placed = blocks.flatMap(({ header, pairEvents }) =>
    pairEvents.flatMap((events) => {
      const pair = byId.get(events.pairId);
      return pair === undefined ? [] : [{ header, pair, events }];
    }),
  );
  const swaps = await priceSwaps(tx, placed);
  if (swaps.length > 0) await insertSwaps(tx, swaps);
  const states = placed.flatMap(toState);
  if (states.length > 0) await insertPairStates(tx, states);
}

/** The events of one pair in one block. */
type PairInBlock = { header: BlockHeader; pair: ValuedPair; events: PairEvents };

/** The state of the pair after the block; empty if its reserves did not change. */
export function toState({ header, pair, events }: PairInBlock): PairStateChange[] {
  const { reserves, supplyChange, liquidityK } = events;
  if (reserves === undefined) return [];
  const price = pairPrice(pair, reserves);
  const place = { pairId: pair.id, blockNumber: header.number, minedAt: header.minedAt };
  return [{ ...place, ...reserves, price, supplyChange, liquidityK }];
}

async function priceSwaps(tx: Tx, placed: readonly PairInBlock[]): Promise<PricedSwap[]> {
  const traded = placed.filter(({ events }) => events.swaps.length > 0);
  const feeds = await readFeeds(tx, traded);
  return traded.flatMap(({ header, pair, events }) =>
    events.swaps.map((event) => {
      const swap = { ...event, pairId: pair.id, blockNumber: header.number, minedAt: header.minedAt };
      return { ...swap, price: valueAt(pair, swap, (asset) => feeds.get(feedKey(asset, header))) };
    }),
  );
}

/** The prices in force at the times of the blocks, of each asset that values one of the pairs. */
async function readFeeds(tx: Tx, traded: readonly PairInBlock[]): Promise<Map<string, Price>> {
  const headersOf = new Map<string, Set<BlockHeader>>();
  for (const { header, pair } of traded) {
    const value = swapTokenValue(pair);
    if (value === undefined || 'fixed' in value) continue;
    const headers = headersOf.get(value.asset) ?? new Set();
    headersOf.set(value.asset, headers.add(header));
  }
  const feeds = new Map<string, Price>();
  for (const [asset, set] of headersOf) {
    const headers = [...set];
    const prices = await listPrices(
      tx,
      asset,
      headers.map(({ minedAt }) => minedAt),
    );
    for (const [index, header] of headers.entries()) {
      const price = prices[index];
      if (price !== undefined) feeds.set(feedKey(asset, header), price);
    }
  }
  return feeds;
}

const zero = decimal('0');

const feedKey = (asset: string, { number }: BlockHeader) => `${number} ${asset}`;

/** The value of a swap; undefined if its token has a feed, but no valid price at that time. */
export function valueAt(
  pair: ValuedPair,
  swap: Parameters<typeof swapValue>[1] & { minedAt: Date },
  priceOf: (asset: string) => Price | undefined,
): SwapPrice | undefined {
  const value = swapTokenValue(pair);
  if (value === undefined) return { usdValue: zero, priceId: undefined };
  if ('fixed' in value) return { usdValue: swapValue(pair, swap, value.fixed), priceId: undefined };
  const price = priceOf(value.asset);
  if (price === undefined || !isCounted(value, price.observedAt, swap.minedAt)) return undefined;
  return { usdValue: swapValue(pair, swap, price.price), priceId: price.id };
}
