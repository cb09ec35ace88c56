/**
 * Native balances of several addresses at one block: by Multicall3 where the chain has it, else by
 * eth_getBalance.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { parseHeader } from '../rpc/parse.ts';
import type { RpcAnswer } from '../rpc/rpc.ts';
import { blockParameter, type ContractReader } from './contracts.ts';
import { decodeBalances, encodeBalanceCalls } from './multicall.ts';

export type BalanceMethod = 'multicall3' | 'eth_getBalance';

type BalanceReading = {
  /** The block at whose end the balances are so. */
  block: BlockHeader;
  /** The node that gave them, as scheme://host. */
  nodeName: string;
  /** How most of them were asked for. */
  method: BalanceMethod;
  /** In wei. An address is missing here when no node gives its balance. */
  balances: ReadonlyMap<Address, bigint>;
};

type Given = { nodeName: string; balances: Map<Address, bigint> };

/**
 * The balances at the newest block. If nodes must agree, at a block that they all have. A spoilt answer costs
 * no other address its balance; it is asked for again, of the other nodes too.
 * @throws Fault when no node answers at all.
 */
export async function readBalancesAtHead(
  nodes: ContractReader,
  { addresses, multicall3 }: { addresses: readonly Address[]; multicall3: Address },
  signal: AbortSignal,
): Promise<BalanceReading> {
  const block = await (nodes.agreed?.findBlock(signal) ?? askLatest(nodes, signal));
  try {
    return { block, ...(await readAt(nodes, addresses, { multicall3, at: block.hash }, signal)) };
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    // Not every node takes a hash for a block (EIP-1898).
    return { block, ...(await readAt(nodes, addresses, { multicall3, at: block.number }, signal)) };
  }
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
  if (missing.length > 0) {
    const rest = await readOneByOne(nodes, missing, at, signal);
    for (const [address, balance] of rest.balances) together.balances.set(address, balance);
  }
  return { ...together, method: 'multicall3' };
}

/**
 * By one call; undefined where the chain has no Multicall3 at this address, or one that does something else.
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
      // Only a node that does not have the block cannot be asked one by one either.
      const data = parseHex(answer);
      const balances = data === undefined ? undefined : decodeBalances(data, addresses.length);
      return balances && { nodeName, balances: toMap(addresses, balances) };
    },
    signal,
  );
}

/**
 * Each address separately: one on which the nodes do not agree costs no other its balance.
 * @throws Fault when they agree on none.
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

/** The node that gives all of them, else as many as one gives. @throws Fault when none gives any. */
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

function requireResult(answer: RpcAnswer | undefined, nodeName: string): unknown {
  if (answer?.ok === true) return answer.result;
  throw new Fault('unavailable', `${nodeName}: ${answer?.message ?? 'no answer'}`);
}

function parseHex(answer: RpcAnswer | undefined): Hex | undefined {
  if (answer?.ok !== true || typeof answer.result !== 'string') return undefined;
  return /^0x[\da-f]+$/i.test(answer.result) ? `0x${answer.result.slice(2)}` : undefined;
}

/** A uint256; anything else is no balance. */
function parseQuantity(answer: RpcAnswer): bigint | undefined {
  const hex = parseHex(answer);
  return hex !== undefined && hex.length <= 66 ? BigInt(hex) : undefined;
}
