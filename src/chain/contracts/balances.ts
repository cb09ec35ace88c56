/**
 * Reads the native balances of several addresses at one block. It uses Multicall3 if the chain has it, else
 * eth_getBalance.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { parseHeader } from '../rpc/parse.ts';
import type { RpcAnswer } from '../rpc/rpc.ts';
import { blockParameter, type ContractReader, readAtBlock, requireResult } from './contracts.ts';
import { decodeBalances, encodeBalanceCalls } from './multicall.ts';

export type BalanceMethod = 'multicall3' | 'eth_getBalance';

type BalanceReading = {
  /** The balances are those at the end of this block. */
  block: BlockHeader;
  /** The node that gave the balances, as scheme://host. */
  nodeName: string;
  /** The method that gave most of the balances. */
  method: BalanceMethod;
  /** In wei. An address is missing if no node gives its balance. */
  balances: ReadonlyMap<Address, bigint>;
};

type Given = { nodeName: string; balances: Map<Address, bigint> };

/**
 * Reads the balances at the newest block. If nodes must agree, it reads them at a block that they all have. An
 * invalid answer for one address doesn't affect the others: that address is requested again, also from other nodes.
 * @throws Fault if no node answers at all.
 */
export async function readBalancesAtHead(
  nodes: ContractReader,
  { addresses, multicall3 }: { addresses: readonly Address[]; multicall3: Address },
  signal: AbortSignal,
): Promise<BalanceReading> {
  const block = await (nodes.agreed?.findBlock(signal) ?? askLatest(nodes, signal));
  const given = await readAtBlock(
    nodes,
    block,
    (having, at) => readAt(having, addresses, { multicall3, at }, signal),
    signal,
  );
  return { block, ...given };
}

const askLatest = (nodes: ContractReader, signal: AbortSignal): Promise<BlockHeader> =>
  nodes.ask(
    [{ method: 'eth_getBlockByNumber', params: ['latest', false] }],
    ([answer], name) => parseHeader(requireResult(answer, name)),
    signal,
  );

async function readAt(
  nodes: ContractReader,
  addresses: readonly Address[],
  { multicall3, at }: { multicall3: Address; at: BlockReference },
  signal: AbortSignal,
): Promise<Given & { method: BalanceMethod }> {
  const together = await readTogether(nodes, addresses, { multicall3, at }, signal);
  const missing = addresses.filter((address) => together?.balances.has(address) !== true);
  if (together === undefined)
    return { ...(await readOneByOne(nodes, addresses, at, signal)), method: 'eth_getBalance' };
  // By number, only one node may answer.
  if (missing.length > 0 && typeof at !== 'number') {
    const rest = await readOneByOne(nodes, missing, at, signal);
    for (const [address, balance] of rest.balances) together.balances.set(address, balance);
  }
  return { ...together, method: 'multicall3' };
}

/**
 * Reads all balances in one call. Undefined if there is no contract at this address, or one that isn't Multicall3.
 */
function readTogether(
  nodes: ContractReader,
  addresses: readonly Address[],
  { multicall3, at }: { multicall3: Address; at: BlockReference },
  signal: AbortSignal,
): Promise<Given | undefined> {
  const call = { to: multicall3, data: encodeBalanceCalls(multicall3, addresses) };
  return nodes.ask(
    [{ method: 'eth_call', params: [call, blockParameter(at)] }],
    ([answer], nodeName) => {
      // A refused call isn't a Fault, because the node may still answer eth_getBalance. A node without the block answers neither.
      const data = parseHex(answer);
      const balances = data === undefined ? undefined : decodeBalances(data, addresses.length);
      return balances && { nodeName, balances: toMap(addresses, balances) };
    },
    signal,
  );
}

/**
 * Reads each balance separately, so that nodes that disagree about one address don't affect the others.
 * @throws Fault if they agree on none.
 */
async function readEach(
  nodes: ContractReader,
  addresses: readonly Address[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<Given> {
  const outcomes = await Promise.allSettled(
    addresses.map((address) =>
      nodes.ask(
        [{ method: 'eth_getBalance', params: [address, blockParameter(at)] }],
        ([answer], nodeName) => {
          const balance = answer && parseQuantity(answer);
          if (balance === undefined)
            throw new Fault('unavailable', `${nodeName} gave no balance of ${address}`);
          return { nodeName, balance };
        },
        signal,
      ),
    ),
  );
  const balances = new Map<Address, bigint>();
  let nodeName: string | undefined;
  let fault: unknown;
  for (const [index, outcome] of outcomes.entries()) {
    const address = addresses[index];
    if (outcome.status === 'rejected') {
      if (!(outcome.reason instanceof Fault)) throw outcome.reason;
      fault = outcome.reason;
    } else if (address !== undefined) {
      balances.set(address, outcome.value.balance);
      nodeName = outcome.value.nodeName;
    }
  }
  if (nodeName === undefined) throw fault;
  return { nodeName, balances };
}

/**
 * Reads all balances from one node that gives every one. If no node does, it returns those of the node that gives
 * the most. If nodes must agree, each balance is decided separately (`readEach`).
 * @throws Fault if no node gives any.
 */
async function readOneByOne(
  nodes: ContractReader,
  addresses: readonly Address[],
  at: BlockReference,
  signal: AbortSignal,
): Promise<Given> {
  if (nodes.agreed !== undefined) return readEach(nodes, addresses, at, signal);
  let best: Given | undefined;
  try {
    return await nodes.ask(
      addresses.map((address) => ({ method: 'eth_getBalance', params: [address, blockParameter(at)] })),
      (answers, nodeName) => {
        const given = { nodeName, balances: toMap(addresses, answers.map(parseQuantity)) };
        if (given.balances.size > (best?.balances.size ?? 0)) best = given;
        if (given.balances.size === addresses.length) return given;
        const refusal = answers.find((answer) => !answer.ok);
        const reason = refusal?.ok === false ? `: ${refusal.message}` : '';
        throw new Fault(
          'unavailable',
          `${nodeName} gave ${given.balances.size} of ${addresses.length} balances${reason}`,
        );
      },
      signal,
    );
  } catch (error) {
    if (best === undefined || !(error instanceof Fault)) throw error;
    return best;
  }
}

function toMap(
  addresses: readonly Address[],
  balances: readonly (bigint | undefined)[],
): Map<Address, bigint> {
  return new Map(
    addresses.flatMap((address, index): [Address, bigint][] => {
      const balance = balances[index];
      return balance === undefined ? [] : [[address, balance]];
    }),
  );
}

function parseHex(answer: RpcAnswer | undefined): Hex | undefined {
  if (answer?.ok !== true || typeof answer.result !== 'string') return undefined;
  return /^0x[\da-f]+$/i.test(answer.result) ? `0x${answer.result.slice(2)}` : undefined;
}

/** Parses a balance, which is a uint256. Undefined for anything else. */
function parseQuantity(answer: RpcAnswer): bigint | undefined {
  const hex = parseHex(answer);
  return hex !== undefined && hex.length <= 66 ? BigInt(hex) : undefined;
}
