/**
 * Price feeds on the chain: contracts with Chainlink's AggregatorV3Interface.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hex } from '../../core/hex.ts';
import { type ContractCall, type ContractReader, callContracts } from './contracts.ts';

type AggregatorRound = {
  /** As the feed counts: 250000000000 of 8 decimals is 2500. May be 0 or less, which is no price. */
  answer: bigint;
  decimals: number;
  updatedAt: Date;
};

/** latestRoundData(): roundId, answer, startedAt, updatedAt, answeredInRound (deprecated). */
const LATEST_ROUND_DATA: Hex = '0xfeaf968c';
const DECIMALS: Hex = '0x313ce567';
const WORD_DIGITS = 64;
/** A uint256 has 78 digits. */
const DECIMALS_MAX = 77n;
/** Seconds that a Date can hold. */
const SECONDS_MAX = 8_640_000_000_000n;

/**
 * The newest round of the feed. If nodes must agree, the round at a block that they all have.
 * @throws Fault `inconsistent` if the contract is not a feed; the Faults of ChainNodes.ask.
 */
export async function readAggregator(
  nodes: ContractReader,
  address: Address,
  signal: AbortSignal,
): Promise<AggregatorRound> {
  const calls = [LATEST_ROUND_DATA, DECIMALS].map((data) => ({ to: address, data }));
  const [round, decimals] = await callAtHead(nodes, calls, signal);
  const [, answer, , updatedAt] = wordsOf(round, 5);
  const [decimalsWord] = wordsOf(decimals, 1);
  if (answer === undefined || updatedAt === undefined || decimalsWord === undefined)
    throw new Fault('inconsistent', `${address} does not answer as a price feed`);
  if (decimalsWord > DECIMALS_MAX || updatedAt > SECONDS_MAX)
    throw new Fault('inconsistent', `${address} has ${decimalsWord} decimals, or a time that is none`);
  return {
    answer: BigInt.asIntN(256, answer),
    decimals: Number(decimalsWord),
    updatedAt: new Date(Number(updatedAt) * 1000),
  };
}

async function callAtHead(nodes: ContractReader, calls: readonly ContractCall[], signal: AbortSignal) {
  const block = await nodes.agreed?.findBlock(signal);
  if (block === undefined) return callContracts(nodes, calls, 'latest', signal);
  try {
    return await callContracts(nodes, calls, block.hash, signal);
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    // Not every node takes a hash for a block (EIP-1898).
    return callContracts(nodes, calls, block.number, signal);
  }
}

/** That many words of 32 bytes; none where the call reverted or returned anything shorter. */
function wordsOf(data: Hex | undefined, count: number): bigint[] {
  if (data === undefined || data.length < 2 + count * WORD_DIGITS) return [];
  return Array.from({ length: count }, (_, index) =>
    BigInt(`0x${data.slice(2 + index * WORD_DIGITS, 2 + (index + 1) * WORD_DIGITS)}`),
  );
}
