/**
 * Reads price feeds on the chain. They are contracts with Chainlink's AggregatorV3Interface.
 */
import { wordsOf } from '../../core/abi.ts';
import { Fault } from '../../core/fault.ts';
import type { Address, Hex } from '../../core/hex.ts';
import { YEAR_MAX } from '../../core/iso-time.ts';
import { type ContractCall, type ContractReader, callContracts, readAtBlock } from './contracts.ts';

type AggregatorRound = {
  /** In the feed's smallest unit: 250000000000 with 8 decimals is 2500. May be 0 or negative, which isn't a price. */
  answer: bigint;
  decimals: number;
  updatedAt: Date;
};

/** latestRoundData(): roundId, answer, startedAt, updatedAt, answeredInRound (deprecated). */
const LATEST_ROUND_DATA: Hex = '0xfeaf968c';
const DECIMALS: Hex = '0x313ce567';
/** A uint256 has at most 78 digits. */
const DECIMALS_MAX = 77n;
/** The last second of the last year that times may have. A feed in milliseconds is later. */
const SECONDS_MAX = BigInt(Date.UTC(YEAR_MAX + 1, 0)) / 1_000n - 1n;

/**
 * Reads the newest round of the feed. If nodes must agree, it reads the round at a block that they all have.
 * @throws Fault `inconsistent` if the contract is not a feed, and the Faults of `ChainNodes.ask`.
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
    throw new Fault('inconsistent', `${address} has ${decimalsWord} decimals, or an invalid time`);
  return {
    answer: BigInt.asIntN(256, answer),
    decimals: Number(decimalsWord),
    updatedAt: new Date(Number(updatedAt) * 1000),
  };
}

async function callAtHead(nodes: ContractReader, calls: readonly ContractCall[], signal: AbortSignal) {
  const block = await nodes.agreed?.findBlock(signal);
  if (block === undefined) return callContracts(nodes, calls, 'latest', signal);
  return readAtBlock(nodes, block, (having, at) => callContracts(having, calls, at, signal), signal);
}
