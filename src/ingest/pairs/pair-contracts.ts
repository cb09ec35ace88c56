/**
 * Calls the contracts of pairs (IUniswapV2Pair, IUniswapV2Factory, EIP-20): to check the configuration when the service
 * starts, and to read reserves and supplies at a block.
 */
import {
  type ContractCall,
  type ContractReader,
  callContracts,
  type ReadAt,
} from '../../chain/contracts/contracts.ts';
import { decodeAddress, digitsAt, encodeWord, wordsOf } from '../../core/abi.ts';
import { Fault, type Problem } from '../../core/fault.ts';
import { type Address, type Hex, zeroAddress } from '../../core/hex.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { Pair } from '../../domain/pair.ts';
import type { PairReading } from '../../store/market/pair-readings.ts';

/** First four bytes of keccak256 of each signature. */
const selectors = {
  token0: '0x0dfe1681',
  token1: '0xd21220a7',
  decimals: '0x313ce567',
  factory: '0xc45a0155',
  getPair: '0xe6a43905',
  getReserves: '0x0902f1ac',
  totalSupply: '0x18160ddd',
  kLast: '0x7464fc3d',
  feeTo: '0x017e7e58',
} as const;

/** Pairs of one request: six calls each, a few hundred altogether. */
const CHECKED_MAX = 50;

/**
 * Compares the configured pairs with their contracts. Some answers may be missing, and then the configuration counts: a
 * token's decimals, a pair's factory, and the factory's `getPair`.
 * @throws Fault `conflict` that names every difference; `unavailable` when no node answers.
 */
export async function checkPairs(
  nodes: ContractReader,
  pairs: readonly Pair[],
  signal: AbortSignal,
): Promise<void> {
  const problems: Problem[] = [];
  for (let start = 0; start < pairs.length; start += CHECKED_MAX)
    problems.push(...(await findDifferences(nodes, pairs.slice(start, start + CHECKED_MAX), signal)));
  if (problems.length === 0) return;
  const list = problems.map(({ path, message }) => `${path}: ${message}`).join('\n');
  throw new Fault('conflict', `configured pairs differ from their contracts:\n${list}`, { problems });
}

async function findDifferences(
  nodes: ContractReader,
  pairs: readonly Pair[],
  signal: AbortSignal,
): Promise<Problem[]> {
  const replies = await askEach(nodes, pairs, 'latest', signal, ({ address, token0, token1 }) => [
    callOf(address, 'token0'),
    callOf(address, 'token1'),
    callOf(token0, 'decimals'),
    callOf(token1, 'decimals'),
    callOf(address, 'factory'),
  ]);
  const factories = replies.map((answers) => asAddress(answers[4]));
  const listed = await askEach(nodes, pairs, 'latest', signal, ({ token0, token1 }, index) => {
    const factory = factories[index];
    return isUnset(factory) ? [] : [callOf(factory, 'getPair', token0, token1)];
  });
  return pairs.flatMap((pair, index) => {
    const [token0, token1, decimals0, decimals1] = replies[index] ?? [];
    const path = `pair ${pair.id} (${pair.name})`;
    if (asAddress(token0) === undefined || asAddress(token1) === undefined)
      return [{ path, message: `address ${pair.address} is not the contract of a pair on this chain` }];
    const differ = (field: string, is: string | number | undefined, should: string | number) =>
      is === undefined || is === should
        ? []
        : [{ path, message: `${field} is ${is} on the chain, but ${should} in the configuration` }];
    return [
      ...differ('token0', asAddress(token0), pair.token0),
      ...differ('token1', asAddress(token1), pair.token1),
      ...differ('token0Decimals', asNumber(decimals0), pair.token0Decimals),
      ...differ('token1Decimals', asNumber(decimals1), pair.token1Decimals),
      ...differ(
        `address (the pair of both tokens by factory ${factories[index]})`,
        asAddress(listed[index]?.[0]),
        pair.address,
      ),
    ];
  });
}

/** Reserves, supply and fee of these pairs at one block. Contracts that do not answer like a pair are left out. */
export async function readPairs(
  nodes: ContractReader,
  pairs: readonly Pair[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<PairReading[]> {
  const replies = await askEach(nodes, pairs, at, signal, ({ address }) => [
    callOf(address, 'getReserves'),
    callOf(address, 'totalSupply'),
    callOf(address, 'kLast'),
  ]);
  const feeOn = await readFees(nodes, pairs, at, signal);
  return pairs.flatMap(({ id }, index) => {
    const [reserves, supply, kLast] = replies[index] ?? [];
    const [[reserve0, reserve1], [totalSupply]] = [wordsOf(reserves, 2), wordsOf(supply, 1)];
    if (reserve0 === undefined || reserve1 === undefined || totalSupply === undefined) return [];
    const lp = { totalSupply, kLast: wordsOf(kLast, 1)[0] ?? 0n, isFeeOn: feeOn.get(id) ?? false };
    return [{ pairId: id, reserve0, reserve1, ...lp }];
  });
}

/** Whether the protocol fee of each pair is on at this block: its factory names a receiver. */
export async function readFees(
  nodes: ContractReader,
  pairs: readonly Pair[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<Map<number, boolean>> {
  const named = await askEach(nodes, pairs, at, signal, ({ address }) => [callOf(address, 'factory')]);
  const factoryOf = new Map(pairs.map(({ id }, index) => [id, asAddress(named[index]?.[0])]));
  const factories = [...new Set(factoryOf.values())].filter((factory) => !isUnset(factory));
  const receivers = await askEach(nodes, factories, at, signal, (factory) => [callOf(factory, 'feeTo')]);
  const hasReceiver = new Map(
    factories.map((factory, index) => [factory, !isUnset(asAddress(receivers[index]?.[0]))]),
  );
  return new Map(
    [...factoryOf].map(([id, factory]) => [id, factory !== undefined && (hasReceiver.get(factory) ?? false)]),
  );
}

/** The answers to the calls of each subject, all from one node at one block. */
async function askEach<T>(
  nodes: ContractReader,
  subjects: readonly T[],
  at: ReadAt,
  signal: AbortSignal,
  callsOf: (subject: T, index: number) => ContractCall[],
): Promise<(Hex | undefined)[][]> {
  const calls = subjects.map(callsOf);
  if (calls.every((own) => own.length === 0)) return calls.map(() => []);
  const answers = await callContracts(nodes, calls.flat(), at, signal);
  return calls.map((own) => answers.splice(0, own.length));
}

function callOf(to: Address, method: keyof typeof selectors, ...values: Address[]): ContractCall {
  return { to, data: `${selectors[method]}${values.map(encodeWord).join('')}` };
}

/** Undefined if the call reverted, there is no contract, or the answer is not an address. */
function asAddress(data: Hex | undefined): Address | undefined {
  const digits = data === undefined ? undefined : digitsAt(data, 0);
  return digits === undefined ? undefined : decodeAddress(digits);
}

function asNumber(data: Hex | undefined): number | undefined {
  const [word] = wordsOf(data, 1);
  return word === undefined ? undefined : Number(word);
}

const isUnset = (address: Address | undefined): address is undefined =>
  address === undefined || address === zeroAddress;
