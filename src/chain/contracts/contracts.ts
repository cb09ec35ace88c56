/**
 * Reading contracts: all calls of one reading from one node, at one block.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hash, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { quantityOf } from '../blocks/bundle.ts';
import type { ChainNodes } from '../nodes/nodes.ts';
import type { RpcAnswer } from '../rpc/rpc.ts';

/**
 * Whom contracts are asked through; `agreed` where several nodes decide the answers, and therefore also at
 * which block.
 */
export type ContractReader = Pick<ChainNodes, 'ask'> & {
  agreed?: { findBlock(signal: AbortSignal): Promise<BlockHeader> };
};

export type ContractCall = { to: Address; data: Hex };

/** A block as `eth_call` names it (EIP-1898 for hashes). */
export type ReadAt = BlockReference | 'latest';

/**
 * What each call returned at this block; undefined where it reverted. An address without code returns `0x`.
 * @throws Fault when no node can answer for this block.
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

/** The parameter by which a block is named. */
export function blockParameter(at: ReadAt): string | { blockHash: Hash } {
  if (at === 'latest') return at;
  return typeof at === 'number' ? quantityOf(at) : { blockHash: at };
}

/** Code 3 by the execution API; older nodes say it in words only. */
function isRevert(answer: RpcAnswer): boolean {
  return !answer.ok && (answer.code === 3 || /revert|invalid opcode|out of gas|stack/i.test(answer.message));
}

function parseHex(name: string, answer: RpcAnswer): Hex {
  if (!answer.ok) throw new Fault('unavailable', `${name}: ${answer.message} (${answer.code})`);
  const { result } = answer;
  if (typeof result !== 'string' || !/^0x[\da-f]*$/i.test(result))
    throw new Fault('inconsistent', `${name} answered what is no hex data`);
  return `0x${result.slice(2)}`;
}
