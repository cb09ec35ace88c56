/**
 * Reads the events of configured pairs (Uniswap V2) from the logs of a block. Pure.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { ChainLog } from '../../chain/rpc/parse.ts';
import { type Address, type Hash, type Hex, zeroAddress } from '../../core/hex.ts';
import type { Pair, PairEvents } from '../../domain/pair.ts';

/** keccak256("Swap(address,uint256,uint256,uint256,uint256,address)") */
const SWAP_TOPIC: Hash = '0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822';
/** keccak256("Sync(uint112,uint112)") */
const SYNC_TOPIC: Hash = '0x1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1';
/** keccak256("Mint(address,uint256,uint256)") */
const MINT_TOPIC: Hash = '0x4c209b5fc8ad50758f13e2e1088ba56a560dff690a1c6fef26394f4c03821c4f';
/** keccak256("Burn(address,uint256,uint256,address)") */
const BURN_TOPIC: Hash = '0xdccd412f0b1252819cb1fd330b93224ca42612892bb3f4f789976e6d81936496';
/** keccak256("Transfer(address,address,uint256)"): the pair contract is its LP token's contract too. */
const TRANSFER_TOPIC: Hash = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

/** One word of data in hexadecimal digits. */
const WORD_DIGITS = 64;

/** Reads the events of these pairs. A block without such events costs one map look-up per log. */
export function createPairReader(
  pairs: readonly Pick<Pair, 'id' | 'address'>[],
): (bundle: Pick<Bundle, 'transactions'>) => PairEvents[] {
  if (pairs.length === 0) return () => [];
  const idOf = new Map<Address, number>(pairs.map(({ id, address }) => [address, id]));
  return ({ transactions }) => {
    const found = new Map<number, PairEvents>();
    for (const { hash, logs, succeeded } of transactions) {
      if (!succeeded) continue;
      for (const [ordinal, log] of logs.entries()) {
        const pairId = idOf.get(log.address);
        if (pairId === undefined) continue;
        const events = found.get(pairId) ?? noEvents(pairId);
        found.set(pairId, events);
        addEvent(events, log, hash, ordinal);
      }
    }
    return [...found.values()].filter(({ swaps, reserves }) => swaps.length > 0 || reserves !== undefined);
  };
}

const noEvents = (pairId: number): PairEvents => ({
  pairId,
  swaps: [],
  reserves: undefined,
  supplyChange: 0n,
  liquidityK: undefined,
});

function addEvent(events: PairEvents, log: ChainLog, txHash: Hash, ordinal: number): void {
  const { topics, data } = log;
  switch (topics[0]) {
    case SWAP_TOPIC: {
      const [amount0In, amount1In, amount0Out, amount1Out] = wordsOf(data);
      if (amount0In === undefined || amount1In === undefined) return;
      if (amount0Out === undefined || amount1Out === undefined) return;
      events.swaps.push({ txHash, ordinal, amount0In, amount1In, amount0Out, amount1Out });
      return;
    }
    case SYNC_TOPIC: {
      const [reserve0, reserve1] = wordsOf(data);
      if (reserve0 !== undefined && reserve1 !== undefined) events.reserves = { reserve0, reserve1 };
      return;
    }
    // Both come after the Sync of the same call. The contract has stored the product of its reserves as kLast.
    case MINT_TOPIC:
    case BURN_TOPIC:
      if (events.reserves !== undefined)
        events.liquidityK = events.reserves.reserve0 * events.reserves.reserve1;
      return;
    case TRANSFER_TOPIC:
      events.supplyChange += supplyChangeOf(log);
      return;
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
  const [amount] = wordsOf(data);
  if (from === undefined || to === undefined || amount === undefined) return 0n;
  if (low(from) === zeroAddress) return amount;
  return low(from) === address && low(to) === zeroAddress ? -amount : 0n;
}

/** The whole words of event data. */
function wordsOf(data: Hex): bigint[] {
  const words: bigint[] = [];
  for (let end = 2 + WORD_DIGITS; end <= data.length; end += WORD_DIGITS)
    words.push(BigInt(`0x${data.slice(end - WORD_DIGITS, end)}`));
  return words;
}

/** The address in the low 20 bytes of a topic. */
function low(topic: Hash): Address {
  return `0x${topic.slice(-40)}`;
}
