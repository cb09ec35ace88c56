/**
 * Calls contracts. One node answers all calls of a reading, at one block.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hash, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { quantityOf } from '../blocks/bundle.ts';
import type { ChainNodes } from '../nodes/nodes.ts';
import type { RpcAnswer } from '../rpc/rpc.ts';

/**
 * The nodes that answer contract calls. `agreed` is set if several nodes decide each answer; then they also decide
 * the block.
 */
export type ContractReader = Pick<ChainNodes, 'ask'> & {
  agreed?: { findBlock(signal: AbortSignal): Promise<BlockHeader> };
};

export type ContractCall = { to: Address; data: Hex };

/** The block at which `eth_call` runs. A hash needs EIP-1898. */
export type ReadAt = BlockReference | 'latest';

/**
 * Makes the calls at this block and returns the data of each. Undefined for a call that reverted. A call to an
 * address without code returns `0x`.
 * @throws Fault if no node can answer for this block.
 */
export function callContracts(
  nodes: Pick<ChainNodes, 'ask'>,
  calls: readonly ContractCall[],
  at: ReadAt,
  signal: AbortSignal,
): Promise<(Hex | undefined)[]> {
  const block = blockParameter(at);
  return nodes.ask(
    calls.map((call) => ({ method: 'eth_call', params: [call, block] })),
    (answers, name) => answers.map((answer) => (isRevert(answer) ? undefined : parseHex(name, answer))),
    signal,
  );
}

/** The JSON-RPC parameter for this block. */
export function blockParameter(at: ReadAt): string | { blockHash: Hash } {
  if (at === 'latest') return at;
  return typeof at === 'number' ? quantityOf(at) : { blockHash: at };
}

/** The execution API has code 3 for a revert. Older nodes only say it in the message. */
function isRevert(answer: RpcAnswer): boolean {
  return !answer.ok && (answer.code === 3 || /revert|invalid opcode|out of gas|stack/i.test(answer.message));
}

function parseHex(name: string, answer: RpcAnswer): Hex {
  if (!answer.ok) throw new Fault('unavailable', `${name}: ${answer.message} (${answer.code})`);
  const { result } = answer;
  if (typeof result !== 'string' || !/^0x[\da-f]*$/i.test(result))
    throw new Fault('inconsistent', `${name} did not answer with hex data`);
  return `0x${result.slice(2).toLowerCase()}`;
}
