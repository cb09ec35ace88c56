/**
 * Compares stored pair states with the blocks, and values of swaps with amounts and prices. Pure.
 */
import { type Decimal, decimal, decimalText } from '../core/decimal.ts';
import { isCounted, type Reserves, swapTokenValue, swapValue, type ValuedPair } from '../domain/pair.ts';
import { toState } from '../ingest/pairs/market.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { PairStateChange } from '../store/market/pair-states.ts';
import type { PairCoverage } from '../store/market/pairs.ts';
import type { StoredSwap } from '../store/market/swaps.ts';
import type { Price } from '../store/prices/prices.ts';
import { type ComparisonOutcome, type Difference, differenceOf } from './compare.ts';
import { coverageOf } from './compare-swaps.ts';

type StateSide = {
  pairs: readonly ValuedPair[];
  /** Blocks that are stored as they are on the chain, and follow one another. */
  blocks: readonly ReadBlock[];
  stored: readonly PairStateChange[];
  /** The newest stored state of each pair before the first block, if the coverage includes one. */
  previous: readonly (Reserves & { pairId: number })[];
  coverage: readonly PairCoverage[];
  /** Of older states, only the last one of each hour is kept. */
  keptSince: Date;
};

/** Verdicts about states that differ or can't be compared. */
export function compareStates({
  pairs,
  blocks,
  stored,
  previous,
  coverage,
  keptSince,
}: StateSide): ComparisonOutcome[] {
  const isCovered = coverageOf(blocks, coverage);
  const derived = new Map<string, PairStateChange>();
  const byId = new Map(pairs.map((pair) => [pair.id, pair]));
  for (const { header, pairEvents } of blocks) {
    for (const events of pairEvents) {
      const pair = byId.get(events.pairId);
      if (pair === undefined || !isCovered(pair.id, header.number)) continue;
      for (const state of toState({ header, pair, events })) derived.set(keyOf(state), state);
    }
  }
  const outcomes: ComparisonOutcome[] = [];
  for (const state of stored) {
    if (!isCovered(state.pairId, state.blockNumber)) continue;
    const own = derived.get(keyOf(state));
    derived.delete(keyOf(state));
    // The previous state of one that is older may have been deleted.
    const past = state.minedAt < keptSince ? [] : previous;
    if (own === undefined) outcomes.push(judgeRead(state, blocks, past));
    else {
      const changes = changesOf(state, own);
      if (changes.length > 0) outcomes.push(stateDifference('changed', state, changes.join(', ')));
    }
  }
  for (const state of derived.values())
    outcomes.push(
      state.minedAt < keptSince ? 'pruned' : stateDifference('missing', state, 'it is not stored'),
    );
  return outcomes;
}

/**
 * Judges the state of a block without an event. It was read from the contract when the pair was new. Its reserves must be
 * those after the last event before it, in one of these blocks or as stored before them, if that event is known.
 */
function judgeRead(
  state: PairStateChange,
  blocks: readonly ReadBlock[],
  previous: StateSide['previous'],
): ComparisonOutcome {
  const { pairId, blockNumber, supplyChange, liquidityK } = state;
  const event = blocks
    .filter(({ header }) => header.number < blockNumber)
    .flatMap(({ pairEvents }) => pairEvents.filter((events) => events.pairId === pairId))
    .findLast(({ reserves }) => reserves !== undefined)?.reserves;
  const before = event ?? previous.find((one) => one.pairId === pairId);
  const isEqual = before === undefined || areEqual(state, before);
  if (isEqual && supplyChange === 0n && liquidityK === undefined) return 'state_read';
  return stateDifference('unexpected', state, 'the block has no event that leads to this state');
}

const areEqual = (one: Reserves, other: Reserves) =>
  one.reserve0 === other.reserve0 && one.reserve1 === other.reserve1;

const keyOf = ({ pairId, blockNumber }: PairStateChange) => `${pairId} ${blockNumber}`;

function changesOf(stored: PairStateChange, own: PairStateChange): string[] {
  const textsOf = ({ minedAt, price, ...state }: PairStateChange) => ({
    minedAt: minedAt.toISOString(),
    reserve0: state.reserve0,
    reserve1: state.reserve1,
    price: price && decimalText(price),
    supplyChange: state.supplyChange,
    liquidityK: state.liquidityK,
  });
  const [is, should] = [textsOf(stored), textsOf(own)];
  const fields = Object.keys(is) as (keyof typeof is)[];
  return fields.flatMap((field) =>
    is[field] === should[field]
      ? []
      : [`${field} ${is[field] ?? 'none'} is stored, ${should[field] ?? 'none'} is on the chain`],
  );
}

function stateDifference(
  kind: 'changed' | 'missing' | 'unexpected',
  { pairId, blockNumber }: PairStateChange,
  why: string,
): Difference {
  const subject = `state of pair ${pairId}`;
  return differenceOf(kind, blockNumber, `${kind}: ${subject}: ${why}`, subject);
}

type ValueSide = {
  pair: ValuedPair;
  /** When the swap's block was stored; undefined for blocks before the first followed one. */
  storedAt: Date | undefined;
  /** The price that the swap refers to, if it exists. */
  price: Price | undefined;
  /** The prices of an asset at the time of the swap. */
  pricesOf(asset: string): PricesAround;
};

/** The price in force at a time, and the next one after it. */
export type PricesAround = { inForce: Price | undefined; next: Price | undefined };

/** The block's commit may have missed a price that arrived less than this before it. */
const SEEN_MS_MIN = 10_000;
/** `maxAgeSeconds` may have been different then, but hardly shorter than this. */
const AGE_MS_MIN = 60_000;

/** Undefined if the value follows from the amounts and the price in force. */
export function judgeValue(swap: StoredSwap, side: ValueSide): ComparisonOutcome | undefined {
  const { usdValue, priceId } = swap;
  if (usdValue === undefined) return judgeUnvalued(swap, side);
  return priceId === undefined
    ? judgeUnpriced(swap, usdValue, side)
    : judgePriced(swap, { usdValue, priceId }, side);
}

/** A swap that waits for the next price of its token. */
function judgeUnvalued(
  swap: StoredSwap,
  { pair, storedAt, pricesOf }: ValueSide,
): ComparisonOutcome | undefined {
  const value = swapTokenValue(pair);
  if (value === undefined || 'fixed' in value) return 'valued_otherwise';
  const price = ownPrice(value, pricesOf(value.asset), swap.minedAt);
  if (price === undefined) return undefined;
  if (price.observedAt > swap.minedAt || !wasSeen(price, storedAt)) return 'price_new';
  return valueDifference(swap, `it has no value, but price ${price.id} of ${price.asset} was in force`);
}

/** A swap whose value comes from the configuration. */
function judgeUnpriced(
  swap: StoredSwap,
  usdValue: Decimal,
  { pair }: ValueSide,
): ComparisonOutcome | undefined {
  const value = swapTokenValue(pair);
  if (value !== undefined && 'asset' in value) return 'valued_otherwise';
  const own = value === undefined ? decimal('0') : swapValue(pair, swap, value.fixed);
  return compareValues(swap, usdValue, own);
}

function judgePriced(
  swap: StoredSwap,
  { usdValue, priceId }: { usdValue: Decimal; priceId: number },
  { pair, storedAt, price, pricesOf }: ValueSide,
): ComparisonOutcome | undefined {
  if (price === undefined) return valueDifference(swap, `its price ${priceId} does not exist`);
  const outcome = compareValues(swap, usdValue, swapValue(pair, swap, price.price));
  if (outcome !== undefined) return outcome;
  const value = swapTokenValue(pair);
  if (value === undefined || 'fixed' in value || value.asset !== price.asset) return 'valued_otherwise';
  const around = pricesOf(price.asset);
  const own = ownPrice(value, around, swap.minedAt);
  if (own === undefined || own.id === priceId) return undefined;
  if (wasAgedOtherwise(priceId, around, swap.minedAt)) return 'valued_otherwise';
  if (!wasSeen(own, storedAt)) return 'price_new';
  return valueDifference(swap, `price ${priceId} of ${price.asset} was used, ${own.id} was in force`);
}

/** The price for a swap at this time: the one in force, or the next one if that was too old. */
function ownPrice(
  value: { maxAgeMs?: number },
  { inForce, next }: PricesAround,
  at: Date,
): Price | undefined {
  return inForce !== undefined && isCounted(value, inForce.observedAt, at) ? inForce : next;
}

/** Whether another `maxAgeSeconds` than the configured one explains the price. */
function wasAgedOtherwise(priceId: number, { inForce, next }: PricesAround, at: Date): boolean {
  if (inForce === undefined || isCounted({ maxAgeMs: AGE_MS_MIN }, inForce.observedAt, at)) return false;
  return priceId === inForce.id || priceId === next?.id;
}

const wasSeen = ({ observedAt }: Price, storedAt: Date | undefined) =>
  storedAt !== undefined && observedAt.getTime() < storedAt.getTime() - SEEN_MS_MIN;

function compareValues(swap: StoredSwap, stored: Decimal, own: Decimal): Difference | undefined {
  if (stored.eq(own)) return undefined;
  return valueDifference(swap, `${decimalText(stored)} USD is stored, ${decimalText(own)} is calculated`);
}

function valueDifference({ pairId, blockNumber, txHash, ordinal }: StoredSwap, why: string): Difference {
  const subject = `value of swap ${ordinal} of ${txHash} in pair ${pairId}`;
  return differenceOf('changed', blockNumber, `changed: ${subject}: ${why}`, subject);
}
