/**
 * Probes a node for its identity and its capabilities.
 */
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { type FetchPlan, quantityOf, type TraceMethod } from '../blocks/bundle.ts';
import { flawOfCallTracer, hasCallTrace } from '../blocks/traces.ts';
import { parseHeader, quantity } from '../rpc/parse.ts';
import { lacksMethod, type ObservedRpc, RefusedFault, type Rpc, type RpcAnswer } from '../rpc/rpc.ts';

/** The methods and tags that a node supports. */
export type Capabilities = FetchPlan & { finalizedTag: boolean };

export type ChainIdentity = { chainId: number; genesisHash: Hash | undefined };

/**
 * Checks that the node is on the expected chain, and finds its capabilities. They are uncertain while the chain
 * has only the genesis block, because no node can trace that one. `untraced` is set if the node may have
 * a trace method, but answered with an error, for example because it doesn't have its newest block yet, or with traces that can't be
 * used; `traces` is `none` then. `unfit`: the methods that have given such traces, which it keeps up to date; undefined to look for none.
 * @throws Fault, `conflict` for another chain
 */
export async function probe(
  rpc: ObservedRpc,
  { expected, unfit }: { expected: ChainIdentity; unfit: Set<Capabilities['traces']> | undefined },
  signal: AbortSignal,
): Promise<{ capabilities: Capabilities; isCertain: boolean; untraced: Untraced | undefined }> {
  await readIdentity(rpc, expected, signal);
  const head = parseHeader(await rpc.call('eth_getBlockByNumber', ['latest', false], signal));
  const receipts = await ask(rpc, 'eth_getBlockReceipts', [head.hash], signal);
  const [finalized] = await rpc.batch(
    [{ method: 'eth_getBlockByNumber', params: ['finalized', false] }],
    signal,
  );
  const traces = unfit === undefined ? ABSENT : await findTraceMethod(rpc, { head, unfit }, signal);
  const capabilities: Capabilities = {
    batch: await canBatch(rpc, signal),
    blockReceipts: !receipts.isRefused && !lacksMethod(receipts.answer),
    finalizedTag: finalized?.ok === true && finalized.result !== null,
    traces: traces.method,
  };
  const isCertain = head.number > 0 || unfit === undefined || traces.method !== 'none';
  return { capabilities, isCertain, untraced: traces.untraced };
}

/**
 * Chain id and genesis hash. The hash is undefined if the node no longer has block 0.
 * @throws Fault `conflict` if the node has another chain id or another genesis block than expected
 */
export async function readIdentity(
  rpc: Rpc,
  expected: ChainIdentity,
  signal: AbortSignal,
): Promise<ChainIdentity> {
  const chainId = quantity(await rpc.call('eth_chainId', [], signal), 'eth_chainId');
  if (chainId !== expected.chainId) {
    throw new Fault(
      'conflict',
      `${rpc.name} is on chain ${chainId}, chain.id says ${expected.chainId}: correct one of the two`,
    );
  }
  const { answer: genesis } = await ask(rpc, 'eth_getBlockByNumber', ['0x0', false], signal);
  const hasGenesis = genesis?.ok === true && genesis.result !== null;
  const genesisHash = hasGenesis ? parseHeader(genesis.result).hash : undefined;
  if (
    genesisHash !== undefined &&
    expected.genesisHash !== undefined &&
    genesisHash !== expected.genesisHash
  ) {
    throw new Fault(
      'conflict',
      `${rpc.name} has another genesis block (${genesisHash}) than ${expected.genesisHash}, which is followed: remove it from chain.rpc, or use a new database to follow its chain`,
    );
  }
  return { chainId, genesisHash };
}

type Probed = { answer: RpcAnswer | undefined; isRefused: boolean };

/** The answer to a call that not every node serves. A gateway may refuse it with an HTTP status, which counts as an error. */
async function ask(
  rpc: Rpc,
  method: string,
  params: readonly unknown[],
  signal: AbortSignal,
): Promise<Probed> {
  try {
    const [answer] = await rpc.batch([{ method, params }], signal);
    return { answer, isRefused: false };
  } catch (error) {
    if (!(error instanceof RefusedFault)) throw error;
    return { answer: { ok: false, code: 0, message: error.message }, isRefused: true };
  }
}

async function canBatch(rpc: ObservedRpc, signal: AbortSignal): Promise<boolean> {
  const call = { method: 'eth_chainId', params: [] };
  try {
    const answers = await rpc.batch([call, call], signal);
    return answers.length === 2 && answers.every((answer) => answer.ok);
  } catch (error) {
    // A rate limit says nothing about batches.
    if (!(error instanceof Fault) || signal.aborted || rpc.throttle.isLimited()) throw error;
    return false;
  }
}

/** `lacking`: the methods that the node says it lacks, and those whose answers can't be used. */
type Untraced = { error: string; lacking: ReadonlySet<TraceMethod | 'none'> };
type FoundTraces = { method: TraceMethod | 'none'; untraced: Untraced | undefined };
const ABSENT: FoundTraces = { method: 'none', untraced: undefined };

/**
 * Traces the newest block, and its parent if the node may lack the newest one, or if that is empty and shows nothing of the traces.
 */
async function findTraceMethod(
  rpc: Rpc,
  { head, unfit }: { head: BlockHeader; unfit: Set<Capabilities['traces']> },
  signal: AbortSignal,
): Promise<FoundTraces> {
  const isUnsafe = await hangsWhenTraced(rpc, signal);
  const parent = { hash: head.parentHash, number: head.number - 1 };
  const lacking = new Set<TraceMethod>();
  let empty: TraceMethod | undefined;
  let flaw: string | undefined;
  let error: string | undefined;
  for (const block of parent.number > 0 ? [head, parent] : [head]) {
    for (const [method, params] of candidatesFor(block, isUnsafe)) {
      if (lacking.has(method)) continue;
      const { answer } = await ask(rpc, method, params, signal);
      if (answer?.ok !== true || !Array.isArray(answer.result)) {
        if (lacksMethod(answer)) lacking.add(method);
        else error = `${method}: ${answer?.ok === false ? answer.message : 'no traces'}`;
        continue;
      }
      const found = method === 'trace_block' ? undefined : flawOfCallTracer(answer.result);
      const isShown = method === 'trace_block' || hasCallTrace(answer.result);
      if (found === undefined && isShown) {
        unfit.delete(method);
        return { method, untraced: undefined };
      }
      if (found === undefined && !unfit.has(method)) {
        if (block === parent) return { method, untraced: undefined };
        empty = method;
        break;
      }
      if (found !== undefined) unfit.add(method);
      lacking.add(method);
      flaw = `${method}: ${found ?? 'its traces of an earlier block could not be used'}`;
    }
  }
  if (empty !== undefined && !lacking.has(empty)) return { method: empty, untraced: undefined };
  if (flaw !== undefined) return { method: 'none', untraced: { error: flaw, lacking } };
  const isSure = lacking.size === candidatesFor(head, isUnsafe).length;
  return isSure || error === undefined ? ABSENT : { method: 'none', untraced: { error, lacking } };
}

function candidatesFor(
  { hash, number }: Pick<BlockHeader, 'hash' | 'number'>,
  isUnsafe: boolean,
): Candidate[] {
  const tracer = { tracer: 'callTracer' };
  const byCallTracer: Candidate[] = [
    ['debug_traceBlockByHash', [hash, tracer]],
    ['debug_traceBlockByNumber', [quantityOf(number), tracer]],
  ];
  const block: Candidate = ['trace_block', [quantityOf(number)]];
  return isUnsafe ? [block, ...byCallTracer] : [...byCallTracer, block];
}

type Candidate = [TraceMethod, unknown[]];

/**
 * anvil 1.7.1 takes a lock twice while it replays a transaction for `callTracer`. If it mines a block in between, it hangs for
 * good: about once in 7,000 blocks that are traced as they come. Its `trace_block` replays nothing.
 */
async function hangsWhenTraced(rpc: Rpc, signal: AbortSignal): Promise<boolean> {
  const { answer } = await ask(rpc, 'web3_clientVersion', [], signal);
  return answer?.ok === true && typeof answer.result === 'string' && answer.result.startsWith('anvil/');
}
