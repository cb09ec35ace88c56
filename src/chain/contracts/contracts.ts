/**
 * Calls contracts. One node answers all calls of a reading, at one block.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hash, Hex } from '../../core/hex.ts';
import type { BlockHeader, BlockId, BlockReference } from '../../domain/block.ts';
import { quantityOf } from '../blocks/bundle.ts';
import { type Agree, keyOfAnswers } from '../nodes/call-votes.ts';
import { EXECUTION_CODES } from '../rpc/node-limits.ts';
import { parseHeader } from '../rpc/parse.ts';
import type { RpcAnswer } from '../rpc/rpc.ts';

/**
 * The nodes that answer contract calls. `agreed` is set if several nodes decide each answer; then they also decide
 * the block.
 */
export type ContractReader = {
  /** As `ChainNodes.ask` or `Voters.agree`. */
  ask: Agree;
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
  nodes: ContractReader,
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

/**
 * Reads at this block: by its hash, or by its number if that fails, because not every node accepts a block hash as the block
 * parameter (EIP-1898). By number, only answers of nodes whose block at this number has this hash count.
 * @throws the Faults of `read`, and Fault `unavailable` if no node has the block.
 */
export async function readAtBlock<T>(
  nodes: ContractReader,
  block: BlockId,
  read: (nodes: ContractReader, at: BlockReference) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await read(nodes, block.hash);
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    const answered = new Set<string>();
    const having = nodesWith(block, nodes, answered);
    const value = await read(having, block.number);
    // A node without batches answers the calls of a request in any order. So it is asked once more, and no other one instead.
    const name = await having.ask([], (_, checked) => checked, signal);
    if (nodes.agreed === undefined && (answered.size > 1 || !answered.has(name)))
      throw new Fault(
        'unavailable',
        `${[...answered, name].join(', ')} answered, so they may have had different blocks ${block.number}`,
      );
    return value;
  }
}

/**
 * Each request also asks for the block at its number, before and after the calls, so that a reorg between them is noticed. Adds the names
 * of the nodes that answer.
 */
function nodesWith({ number, hash }: BlockId, nodes: ContractReader, answered: Set<string>): ContractReader {
  const named = { method: 'eth_getBlockByNumber', params: [quantityOf(number), false] };
  return {
    ...nodes,
    async ask(calls, read, signal, keyOf) {
      const { value } = await nodes.ask(
        [named, ...calls, named],
        (all, name) => {
          const answers = all.slice(1, -1);
          for (const answer of [all.at(0), all.at(-1)]) {
            const block = requireResult(answer, name);
            if (block === null || parseHeader(block).hash !== hash)
              throw new Fault('unavailable', `${name} does not have ${hash} as block ${number}`);
          }
          // Before it is read: of an answer that is not accepted, a part may be kept.
          if (calls.length > 0) answered.add(name);
          const value = read(answers, name);
          // Clients add different fields to a block, so the blocks don't decide whether answers are equal.
          return { value, key: keyOf?.(value) ?? keyOfAnswers(answers) };
        },
        signal,
        ({ key }) => key,
      );
      return value;
    },
  };
}

/** The result of this answer. @throws Fault `unavailable` if it is an error, or missing. */
export function requireResult(answer: RpcAnswer | undefined, nodeName: string): unknown {
  if (answer?.ok === true) return answer.result;
  throw new Fault('unavailable', `${nodeName}: ${answer?.message ?? 'no answer'}`);
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
