/**
 * Compares consecutive blocks with everything that one snapshot of the database stores about them.
 */
import { type Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockHeader } from '../domain/block.ts';
import type { ValuedPair } from '../domain/pair.ts';
import type { Rules } from '../domain/points/rules.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import { listStoredBlocks, type StoredBlock } from '../store/audit/comparison.ts';
import type { Db } from '../store/db/db.ts';
import { listLatestPairStates, listPairStatesOf } from '../store/market/pair-states.ts';
import { listPairCoverage } from '../store/market/pairs.ts';
import { listSwapsOf, type StoredSwap } from '../store/market/swaps.ts';
import { findFirstDeferred } from '../store/matching/deferred.ts';
import { findPrice, listNextPrices, listPricesById } from '../store/prices/prices.ts';
import { type ComparisonOutcome, compareBlock, type Difference, differenceOf } from './compare.ts';
import { compareAwards } from './compare-awards.ts';
import { compareStates, judgeValue, type PricesAround } from './compare-market.ts';
import { compareRecords, type RecordOptions, ROWS_MAX } from './compare-records.ts';
import { compareSwaps } from './compare-swaps.ts';

export type CompareOptions = Pick<RecordOptions, 'confirmations' | 'retryDelayMs' | 'primary'> & {
  isProofOn: boolean;
  /** The pairs whose swaps and states are compared. */
  pairs: readonly ValuedPair[];
  /** The rules whose awards are compared. */
  rules: Rules;
  /** Of one comparison; `ROWS_MAX` by default. */
  rowsMax?: number;
};

/** Notifications, swaps and states from before these times may have been deleted. */
export type KeptSince = { keptSince: Date; swapsKeptSince: Date; statesKeptSince: Date };

/** A block that is not stored, or stored under another hash. */
export type Astray = { header: BlockHeader; storedHash: Hash | undefined };

export type Compared = {
  /** Blocks that are stored as they are on the chain. */
  blocks: number;
  /** Equal swaps and awards. */
  swaps: number;
  awards: number;
  /** Awards for balances over days, and of rules that are not configured. */
  accrued: number;
  unknownRule: number;
  /** Blocks whose notifications are not all written yet. Nothing of them is compared. */
  deferred: number;
  astray: Astray[];
  outcomes: ComparisonOutcome[];
};

/** Compares blocks in a new snapshot. */
export type CompareStored = (read: readonly ReadBlock[]) => Promise<Compared | 'too many'>;

/**
 * The outcomes about these blocks; 'too many' if more data is stored for them than is compared at once. A reorg can defer
 * notifications at any moment, so the snapshot decides which blocks have all of theirs.
 */
export async function compareBatch(
  snapshot: Db,
  read: readonly ReadBlock[],
  options: CompareOptions & KeptSince,
): Promise<Compared | 'too many'> {
  const first = (await findFirstDeferred(snapshot)) ?? Number.POSITIVE_INFINITY;
  const written = read.filter(({ header }) => header.number < first);
  const compared = written.length === 0 ? nothing : await compareWritten(snapshot, written, options);
  return compared === 'too many' ? compared : { ...compared, deferred: read.length - written.length };
}

type ComparedWritten = Omit<Compared, 'deferred'>;
const nothing: ComparedWritten = {
  ...{ blocks: 0, swaps: 0, awards: 0, accrued: 0, unknownRule: 0 },
  ...{ astray: [], outcomes: [] },
};

async function compareWritten(
  snapshot: Db,
  read: readonly ReadBlock[],
  options: CompareOptions & KeptSince,
): Promise<ComparedWritten | 'too many'> {
  const { isProofOn } = options;
  const span = { from: read[0]?.header.number ?? 0, to: read.at(-1)?.header.number ?? 0 };
  const stored = await listStoredBlocks(snapshot, span);
  const blocks = new Map<number, { read: ReadBlock; stored: StoredBlock }>();
  const astray: Astray[] = [];
  for (const one of read) {
    const { header } = one;
    const found = stored.get(header.number);
    if (found?.hash === header.hash) blocks.set(header.number, { read: one, stored: found });
    else astray.push({ header, storedHash: found?.hash });
  }
  const notifications = await compareRecords(snapshot, { span, blocks, rowsMax: ROWS_MAX, ...options });
  if (notifications === 'too many') return 'too many';
  const market = await compareMarket(snapshot, [...blocks.values()], options);
  const awards = await compareAwards(snapshot, {
    ...{ rules: options.rules, blocks: [...blocks.values()], limit: ROWS_MAX },
  });
  if (market === 'too many' || awards === 'too many') return 'too many';
  const outcomes = [
    ...astray.map(differenceOfAstray),
    ...[...blocks.values()].flatMap((one) => compareBlock(one.read, one.stored, isProofOn)),
    ...notifications,
    ...market.outcomes,
    ...awards.outcomes,
  ];
  const { equal, accrued, unknownRule } = awards;
  return { blocks: blocks.size, swaps: market.swaps, awards: equal, accrued, unknownRule, astray, outcomes };
}

/** Compares swaps, their values, and states of the configured pairs. */
async function compareMarket(
  snapshot: Db,
  blocks: readonly { read: ReadBlock; stored: StoredBlock }[],
  { pairs, swapsKeptSince, statesKeptSince }: CompareOptions & KeptSince,
): Promise<{ swaps: number; outcomes: ComparisonOutcome[] } | 'too many'> {
  const [from, to] = [blocks[0]?.stored.number, blocks.at(-1)?.stored.number];
  if (pairs.length === 0 || from === undefined || to === undefined) return { swaps: 0, outcomes: [] };
  const ids = pairs.map(({ id }) => id);
  const storedSwaps = await listSwapsOf(snapshot, { from, to }, ROWS_MAX);
  const states = await listPairStatesOf(snapshot, ids, { from, to }, ROWS_MAX);
  if (storedSwaps.length === ROWS_MAX || states.length === ROWS_MAX) return 'too many';
  const coverage = await listPairCoverage(snapshot, ids);
  const previous = states.length === 0 ? [] : await listLatestPairStates(snapshot, ids, from);
  const read = blocks.map((block) => block.read);
  const swaps = compareSwaps({ blocks: read, stored: storedSwaps, coverage, keptSince: swapsKeptSince });
  const storedAt = new Map(blocks.map(({ stored }) => [stored.number, stored.storedAt]));
  const values = await judgeValues(snapshot, swaps.equal, { pairs, storedAt });
  const wrong = values.filter((outcome) => typeof outcome !== 'string').length;
  const outcomes = [
    ...swaps.differences,
    ...Array.from({ length: swaps.pruned }, (): ComparisonOutcome => 'pruned'),
    ...values,
    ...compareStates({
      ...{ pairs, blocks: read, stored: states, previous, coverage, keptSince: statesKeptSince },
    }),
  ];
  return { swaps: swaps.equal.length - wrong, outcomes };
}

/** The assets whose prices value the swaps of these pairs. */
export function assetsOf(pairs: readonly ValuedPair[]): string[] {
  const values = pairs.flatMap(({ value0, value1 }) => [value0, value1]);
  return [
    ...new Set(values.flatMap((value) => (value !== undefined && 'asset' in value ? [value.asset] : []))),
  ];
}

async function judgeValues(
  snapshot: Db,
  swaps: readonly StoredSwap[],
  { pairs, storedAt }: { pairs: readonly ValuedPair[]; storedAt: ReadonlyMap<number, Date> },
): Promise<ComparisonOutcome[]> {
  const ids = new Set(swaps.flatMap(({ priceId }) => priceId ?? []));
  const prices = new Map((await listPricesById(snapshot, [...ids])).map((price) => [price.id, price]));
  const byId = new Map(pairs.map((pair) => [pair.id, pair]));
  const assets = assetsOf(pairs);
  /** By block and asset, because swaps of one block have the same time. */
  const around = new Map<string, PricesAround>();
  const outcomes: ComparisonOutcome[] = [];
  for (const swap of swaps) {
    const pair = byId.get(swap.pairId);
    if (pair === undefined) continue;
    for (const asset of assets) {
      const key = `${swap.blockNumber} ${asset}`;
      if (around.has(key)) continue;
      const inForce = await findPrice(snapshot, asset, swap.minedAt);
      const [next] = await listNextPrices(snapshot, asset, [swap.minedAt]);
      around.set(key, { inForce, next });
    }
    const outcome = judgeValue(swap, {
      ...{ pair, storedAt: storedAt.get(swap.blockNumber) },
      price: swap.priceId === undefined ? undefined : prices.get(swap.priceId),
      pricesOf: (asset) =>
        around.get(`${swap.blockNumber} ${asset}`) ?? { inForce: undefined, next: undefined },
    });
    if (outcome !== undefined) outcomes.push(outcome);
  }
  return outcomes;
}

function differenceOfAstray({ header: { number, hash }, storedHash }: Astray): Difference {
  return storedHash === undefined
    ? differenceOf('not_stored', number, `not stored; on the chain it is ${hash}`)
    : differenceOf('hash', number, `stored as ${storedHash}, on the chain it is ${hash}`);
}

/** The difference for a block that is stored under its hash, but that a node could not give with a proof. */
export const notProved = (number: number, fault: Fault): Difference =>
  differenceOf('not_proved', number, `could not be proved: ${messageOf(fault)}`);
