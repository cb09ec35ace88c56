/**
 * Calls contracts. One node answers all calls of a reading, at one block.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hash, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { quantityOf } from '../blocks/bundle.ts';
import type { ChainNodes } from '../nodes/nodes.ts';
import { EXECUTION_CODES } from '../rpc/node-limits.ts';
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
 * Makes the calls at this block and returns the data of each. Undefined for a call that reverted or halted in another way. A call to
 * an address without code returns `0x`.
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

/**
 * How nodes name an execution that failed, which every node does for the same call: go-ethereum and its descendants in words
 * (core/vm/errors.go), Reth and anvil by revm's HaltReason, as in `EVM error: InvalidJump`.
 */
const EXECUTION_FAILURES = new RegExp(
  [
    ...[
      'revert',
      'invalid opcode',
      'opcode not found',
      'out ?of ?gas',
      'stack',
      'invalid ?jump',
      'bad jump destination',
    ],
    ...['write protection', 'return data out of bounds', 'gas uint64 overflow', 'max call depth exceeded'],
    ...[
      'insufficient balance for transfer',
      'contract address collision',
      'invalid code: must not begin with',
    ],
    ...['max (init)?code size exceeded', 'nonce uint64 overflow', 'illegal state change'],
    ...['InvalidFEOpcode', 'OpcodeNotFound', 'NotActivated', 'OutOfOffset', 'OutOfFunds?', 'CallTooDeep'],
    ...['CallNotAllowedInsideStatic', 'StateChangeDuringStaticCall', 'PrecompileError', 'NonceOverflow'],
    ...['OverflowPayment', 'CreateCollision', 'CreateContract\\w+', 'CreateInitCodeSizeLimit'],
  ].join('|'),
  'i',
);

function isRevert(answer: RpcAnswer): boolean {
  return !answer.ok && (EXECUTION_CODES.has(answer.code) || EXECUTION_FAILURES.test(answer.message));
}

function parseHex(name: string, answer: RpcAnswer): Hex {
  if (!answer.ok) throw new Fault('unavailable', `${name}: ${answer.message} (${answer.code})`);
  const { result } = answer;
  if (typeof result !== 'string' || !/^0x[\da-f]*$/i.test(result))
    throw new Fault('inconsistent', `${name} did not answer with hex data`);
  return `0x${result.slice(2).toLowerCase()}`;
}
