/**
 * Reads the events of configured pairs (Uniswap V2) from the logs of a block. Pure.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { ChainLog } from '../../chain/rpc/parse.ts';
import { addressOfTopic, wordsOf } from '../../core/abi.ts';
import { type Address, type Hash, zeroAddress } from '../../core/hex.ts';
import type { Pair, PairEvents, Swap } from '../../domain/pair.ts';
import { TRANSFER_TOPIC } from '../extract.ts';

/** keccak256("Swap(address,uint256,uint256,uint256,uint256,address)") */
const SWAP_TOPIC: Hash = '0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822';
/** keccak256("Sync(uint112,uint112)") */
const SYNC_TOPIC: Hash = '0x1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1';
/** keccak256("Mint(address,uint256,uint256)") */
const MINT_TOPIC: Hash = '0x4c209b5fc8ad50758f13e2e1088ba56a560dff690a1c6fef26394f4c03821c4f';
/** keccak256("Burn(address,uint256,uint256,address)") */
const BURN_TOPIC: Hash = '0xdccd412f0b1252819cb1fd330b93224ca42612892bb3f4f789976e6d81936496';

/** Reads the events of these pairs. A block without such events costs one map look-up per log. */
export function createPairReader(
  pairs: readonly Pick<Pair, 'id' | 'address'>[],
): (bundle: Pick<Bundle, 'transactions'>) => PairEvents[] {
  if (pairs.length === 0) return () => [];
  const idOf = new Map<Address, number>(pairs.map(({ id, address }) => [address, id]));
  return ({ transactions }) => {
    const found = new Map<number, PairEvents>();
    let logIndex = -1;
    for (const { hash, logs, succeeded } of transactions) {
      for (const [ordinal, log] of logs.entries()) {
        logIndex += 1;
        const pairId = idOf.get(log.address);
        if (pairId === undefined || !succeeded) continue;
        const events = found.get(pairId) ?? noEvents(pairId);
        found.set(pairId, events);
        addEvent(events, log, { txHash: hash, ordinal, logIndex });
      }
    }
    return [...found.values()].filter(({ swaps, reserves }) => swaps.length > 0 || reserves !== undefined);
  };
}

const RESERVE_MAX = 2n ** 112n - 1n;
const SUPPLY_MAX = 2n ** 256n - 1n;

/** The number of topics, and of words of data, of each event of a pair. */
const LAYOUTS = new Map<string, { topics: number; words: number }>([
  [SWAP_TOPIC, { topics: 3, words: 4 }],
  [SYNC_TOPIC, { topics: 1, words: 2 }],
  [MINT_TOPIC, { topics: 2, words: 2 }],
  [BURN_TOPIC, { topics: 3, words: 2 }],
  [TRANSFER_TOPIC, { topics: 3, words: 1 }],
]);

const noEvents = (pairId: number): PairEvents => ({
  pairId,
  swaps: [],
  reserves: undefined,
  supplyChange: 0n,
  liquidityK: undefined,
});

function addEvent(
  events: PairEvents,
  log: ChainLog,
  place: Pick<Swap, 'txHash' | 'ordinal' | 'logIndex'>,
): void {
  const { topics, data } = log;
  const layout = LAYOUTS.get(topics[0] ?? '');
  // Events of the same signature with other indexed parameters have their values in other places.
  if (layout?.topics !== topics.length || layout.words !== (data.length - 2) / 64) return;
  switch (topics[0]) {
    case SWAP_TOPIC: {
      const [amount0In, amount1In, amount0Out, amount1Out] = wordsOf(data, 4);
      if (amount0In === undefined || amount1In === undefined) return;
      if (amount0Out === undefined || amount1Out === undefined) return;
      events.swaps.push({ ...place, amount0In, amount1In, amount0Out, amount1Out });
      return;
    }
    case SYNC_TOPIC: {
      const [reserve0, reserve1] = wordsOf(data, 2);
      if (reserve0 === undefined || reserve1 === undefined) return;
      // Uniswap V2 has reserves of 112 bits. Larger ones are of another contract, and their product may exceed the column.
      if (reserve0 <= RESERVE_MAX && reserve1 <= RESERVE_MAX) events.reserves = { reserve0, reserve1 };
      return;
    }
    // Both come after the Sync of the same call. The contract has stored the product of its reserves as kLast.
    case MINT_TOPIC:
    case BURN_TOPIC:
      if (events.reserves !== undefined)
        events.liquidityK = events.reserves.reserve0 * events.reserves.reserve1;
      return;
    // The pair contract is the contract of its LP token too.
    case TRANSFER_TOPIC: {
      const change = events.supplyChange + supplyChangeOf(log);
      // No supply changes by more, except one that a contract makes up.
      if (change <= SUPPLY_MAX && change >= -SUPPLY_MAX) events.supplyChange = change;
      return;
    }
    default:
      return;
  }
}

/**
 * LP tokens are minted from the zero address, and burned by the pair contract. A holder who sends tokens to the zero address
 * doesn't change the supply.
 */
function supplyChangeOf({ address, topics, data }: ChainLog): bigint {
  const [, from, to] = topics;
  const [amount] = wordsOf(data, 1);
  if (from === undefined || to === undefined || amount === undefined) return 0n;
  if (addressOfTopic(from) === zeroAddress) return amount;
  return addressOfTopic(from) === address && addressOfTopic(to) === zeroAddress ? -amount : 0n;
}
