/**
 * Calls the contracts of pairs (IUniswapV2Pair, IUniswapV2Factory, EIP-20): to check the configuration, and to read reserves and
 * supplies at a block. Their owners can change many of them, so one that doesn't answer affects no other pair.
 */
import {
  type ContractCall,
  type ContractReader,
  callContracts,
  type ReadAt,
} from '../../chain/contracts/contracts.ts';
import { decodeAddress, digitsAt, encodeWord, wordsOf } from '../../core/abi.ts';
import { Fault, messageOf, type Problem } from '../../core/fault.ts';
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

/** Pairs, tokens or factories of one request, with up to three calls each. */
const ASKED_MAX = 50;

/** `isSilent`: the contract of the pair, of a token or of the factory did not answer, so it could not be compared. */
type Difference = { pair: Pair; message: string; isSilent: boolean };

type Answers = (Hex | undefined)[];

/**
 * Compares configured pairs with their contracts.
 * @throws Fault `conflict` that names every difference; `unavailable` if no node answers, or a contract of a pair doesn't.
 */
export async function checkPairs(
  nodes: ContractReader,
  pairs: readonly Pair[],
  signal: AbortSignal,
): Promise<void> {
  const differences = await comparePairs(nodes, pairs, signal);
  if (differences.length === 0) return;
  const found = differences.filter(({ isSilent }) => !isSilent);
  const problems = (found.length > 0 ? found : differences).map(
    ({ pair: { id, name }, message }): Problem => ({ path: `pair ${id} (${name})`, message }),
  );
  const list = problems.map(({ path, message }) => `${path}: ${message}`).join('\n');
  // Without these answers, wrong decimals would be stored, and stay.
  if (found.length === 0) throw new Fault('unavailable', list);
  throw new Fault('conflict', `configured pairs differ from their contracts:\n${list}`, { problems });
}

/**
 * How these pairs differ from their contracts. Some calls may revert, and then the configuration counts: a token's decimals, a
 * pair's factory, and the factory's `getPair`. @throws Fault `unavailable` if no node answers.
 */
export async function comparePairs(
  nodes: ContractReader,
  pairs: readonly Pair[],
  signal: AbortSignal,
): Promise<Difference[]> {
  const replies = await askEach(nodes, pairs, 'latest', signal, ({ address }) => [
    callOf(address, 'token0'),
    callOf(address, 'token1'),
    callOf(address, 'factory'),
  ]);
  const tokens = [...new Set(pairs.flatMap(({ token0, token1 }) => [token0, token1]))];
  const decimals = await askEach(nodes, tokens, 'latest', signal, (token) => [callOf(token, 'decimals')]);
  const decimalsOf = new Map(tokens.map((token, index) => [token, asNumber(answerOf(decimals[index], 0))]));
  const factories = replies.map((answers) => asAddress(answerOf(answers, 2)));
  const listed = await askEach(nodes, pairs, 'latest', signal, ({ token0, token1 }, index) => {
    const factory = factories[index];
    return isUnset(factory) ? [] : [callOf(factory, 'getPair', token0, token1)];
  });
  return pairs.flatMap((pair, index): Difference[] => {
    const answers = replies[index];
    if (answers instanceof Fault) return [{ pair, message: messageOf(answers), isSilent: true }];
    const [token0, token1] = [asAddress(answers?.[0]), asAddress(answers?.[1])];
    const differ = (message: string): Difference => ({ pair, message, isSilent: false });
    if (token0 === undefined || token1 === undefined)
      return [differ(`address ${pair.address} is not the contract of a pair on this chain`)];
    const compare = (field: string, is: string | number | undefined, should: string | number) =>
      is === undefined || is === should
        ? []
        : [differ(`${field} is ${is} on the chain, but ${should} in the configuration`)];
    const missing = [
      decimals[tokens.indexOf(pair.token0)],
      decimals[tokens.indexOf(pair.token1)],
      listed[index],
    ];
    return [
      ...missing.flatMap((given) =>
        given instanceof Fault
          ? [{ pair, message: `a token or the factory does not answer: ${messageOf(given)}`, isSilent: true }]
          : [],
      ),
      ...compare('token0', token0, pair.token0),
      ...compare('token1', token1, pair.token1),
      ...compare('token0Decimals', decimalsOf.get(pair.token0), pair.token0Decimals),
      ...compare('token1Decimals', decimalsOf.get(pair.token1), pair.token1Decimals),
      ...compare(
        `address (the pair of both tokens by factory ${factories[index]})`,
        asAddress(answerOf(listed[index], 0)),
        pair.address,
      ),
    ];
  });
}

/** Reserves, supply and fee of each of these pairs at one block. A Fault for a contract that does not answer like a pair. */
export async function readPairs(
  nodes: ContractReader,
  pairs: readonly Pair[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<(PairReading | Fault)[]> {
  const replies = await askEach(nodes, pairs, at, signal, ({ address }) => [
    callOf(address, 'getReserves'),
    callOf(address, 'totalSupply'),
    callOf(address, 'kLast'),
  ]);
  const feeOn = await readFees(nodes, pairs, at, signal);
  return pairs.map((pair, index) => {
    const [answers, isFeeOn = false] = [replies[index], feeOn.get(pair.id)];
    if (answers instanceof Fault) return silent(pair, answers);
    if (isFeeOn instanceof Fault) return isFeeOn;
    const [reserves, supply, kLast] = answers ?? [];
    const [[reserve0, reserve1], [totalSupply]] = [wordsOf(reserves, 2), wordsOf(supply, 1)];
    if (reserve0 === undefined || reserve1 === undefined || totalSupply === undefined) return silent(pair);
    const lp = { totalSupply, kLast: wordsOf(kLast, 1)[0] ?? 0n, isFeeOn };
    return { pairId: pair.id, reserve0, reserve1, ...lp };
  });
}

/**
 * Whether the protocol fee of each pair is on at this block: its factory names a receiver. A Fault if its contract or its factory does not
 * answer.
 */
export async function readFees(
  nodes: ContractReader,
  pairs: readonly Pair[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<Map<number, boolean | Fault>> {
  const named = await askEach(nodes, pairs, at, signal, ({ address }) => [callOf(address, 'factory')]);
  const factoryOf = named.map((answers) => asAddress(answerOf(answers, 0)));
  const factories = [...new Set(factoryOf)].filter((factory) => !isUnset(factory));
  const receivers = await askEach(nodes, factories, at, signal, (factory) => [callOf(factory, 'feeTo')]);
  return new Map(
    pairs.map((pair, index): [number, boolean | Fault] => {
      const [own, factory] = [named[index], factoryOf[index]];
      const given = isUnset(factory) ? undefined : receivers[factories.indexOf(factory)];
      const fault = [own, given].find((answers) => answers instanceof Fault);
      if (fault !== undefined) return [pair.id, silent(pair, fault)];
      return [pair.id, !isUnset(asAddress(answerOf(given, 0)))];
    }),
  );
}

const silent = ({ id, name }: Pair, cause?: Fault) =>
  new Fault('unavailable', `the contract of pair ${id} (${name}) does not answer`, { cause });

/** The answers to the calls of each subject, or why it did not answer. @throws Fault if no node answers calls at this block. */
async function askEach<T>(
  nodes: ContractReader,
  subjects: readonly T[],
  at: ReadAt,
  signal: AbortSignal,
  callsOf: (subject: T, index: number) => ContractCall[],
): Promise<(Answers | Fault)[]> {
  const calls = subjects.map(callsOf);
  const answers: (Answers | Fault)[] = [];
  for (let start = 0; start < calls.length; start += ASKED_MAX)
    answers.push(...(await askTogether(nodes, calls.slice(start, start + ASKED_MAX), at, signal)));
  return answers;
}

/**
 * All answers from one node. A contract can make such a request fail for all others, by an answer that is too large, takes too long or
 * differs from node to node. Then each is asked alone.
 */
async function askTogether(
  nodes: ContractReader,
  calls: readonly ContractCall[][],
  at: ReadAt,
  signal: AbortSignal,
): Promise<(Answers | Fault)[]> {
  if (calls.every((own) => own.length === 0)) return calls.map(() => []);
  try {
    const answers = await callContracts(nodes, calls.flat(), at, signal);
    return calls.map((own) => answers.splice(0, own.length));
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
  }
  // Throws if the nodes are the reason: there is no code at this address.
  await callContracts(nodes, [{ to: zeroAddress, data: '0x' }], at, signal);
  return Promise.all(
    calls.map(async (own) => {
      try {
        return own.length === 0 ? [] : await callContracts(nodes, own, at, signal);
      } catch (error) {
        if (!(error instanceof Fault) || signal.aborted) throw error;
        return error;
      }
    }),
  );
}

const answerOf = (answers: Answers | Fault | undefined, index: number): Hex | undefined =>
  answers instanceof Fault ? undefined : answers?.[index];

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
