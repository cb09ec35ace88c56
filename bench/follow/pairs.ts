/**
 * Swap pairs on the contestants' chain: Uniswap V2's contract code with made-up tokens. Balances and reserves are so large
 * that the swaps of a benchmark never move the price.
 */
import { createRequire } from 'node:module';
import { keccak_256 } from '@noble/hashes/sha3';
import type { Anvil } from '../../devnet/anvil.ts';
import { encodeWord } from '../../src/core/abi.ts';
import type { Address, Hex } from '../../src/core/hex.ts';

export type SwapPair = { id: number; address: Address; token0: Address; token1: Address };

const PAIRS = 6;
/** The wrapped coin, which is token1 of all pairs. */
const WRAPPED: Address = `0x${'ee'.repeat(20)}`;
const RESERVE = 10n ** 24n;
const SWAP_IN = 10n ** 15n;
/** Less than what remains after the fee of 0.3 %. */
const SWAP_OUT = 9n * 10n ** 14n;
/** Storage slots of UniswapV2ERC20 and UniswapV2Pair. */
const SLOTS = { totalSupply: 0n, balanceOf: 1n, token0: 6n, token1: 7n, reserves: 8n, unlocked: 12n };

/** A transaction in the form that eth_sendTransaction takes. */
export type Transaction = { from: Address; to: Address; value?: Hex; data?: Hex };

const require = createRequire(import.meta.url);

/** Puts the pairs and their tokens on the chain, and gives `traders` enough of each token for all swaps. */
export async function installPairs(anvil: Anvil, traders: readonly Address[]): Promise<SwapPair[]> {
  const token = deployedCode('ERC20');
  const pair = deployedCode('UniswapV2Pair');
  const pairs = Array.from({ length: PAIRS }, (_, index) => pairOf(index + 1));
  const holders = [...traders, ...pairs.map(({ address }) => address)];
  for (const address of [WRAPPED, ...pairs.map(({ token0 }) => token0)]) {
    await anvil.rpc('anvil_setCode', [address, token]);
    for (const holder of holders) await store(anvil, address, balanceSlot(holder), RESERVE);
  }
  for (const { address, token0, token1 } of pairs) {
    await anvil.rpc('anvil_setCode', [address, pair]);
    const values = {
      ...{ totalSupply: RESERVE, token0: BigInt(token0), token1: BigInt(token1), unlocked: 1n },
      reserves: RESERVE | (RESERVE << 112n),
    };
    for (const [name, value] of Object.entries(values))
      await store(anvil, address, encodeWord(SLOTS[name as keyof typeof values]), value);
  }
  return pairs;
}

/** Swaps token0 for token1: one transaction pays and the next one takes. Makes two transfers, one Sync and one Swap. */
export function swapCalls({ address, token0 }: SwapPair, trader: Address): Transaction[] {
  const transfer = `a9059cbb${encodeWord(address)}${encodeWord(SWAP_IN)}`;
  // The empty bytes argument is encoded as its offset and a length of zero.
  const swap = `022c0d9f${[0n, SWAP_OUT, BigInt(trader), 128n, 0n].map(encodeWord).join('')}`;
  return [
    { from: trader, to: token0, data: `0x${transfer}` },
    { from: trader, to: address, data: `0x${swap}` },
  ];
}

function pairOf(id: number): SwapPair {
  const named = (prefix: string): Address => `0x${prefix.padEnd(38, '0')}${id.toString(16).padStart(2, '0')}`;
  return { id, address: named('aa'), token0: named('bb'), token1: WRAPPED };
}

function deployedCode(contract: string): Hex {
  const { evm } = require(`@uniswap/v2-core/build/${contract}.json`);
  return `0x${evm.deployedBytecode.object}`;
}

async function store(anvil: Anvil, address: Address, slot: string, value: bigint): Promise<void> {
  await anvil.rpc('anvil_setStorageAt', [address, `0x${slot}`, `0x${encodeWord(value)}`]);
}

/** The storage slot of a mapping's entry: keccak256 of key and slot. */
function balanceSlot(holder: Address): string {
  const place = Buffer.from(encodeWord(holder) + encodeWord(SLOTS.balanceOf), 'hex');
  return Buffer.from(keccak_256(place)).toString('hex');
}
