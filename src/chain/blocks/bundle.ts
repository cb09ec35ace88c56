/**
 * Fetches blocks with their transactions, receipts and traces, from one node in one JSON-RPC batch, and checks
 * that the parts belong together.
 */
import { disproof, Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import { isRecord } from '../../core/json.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { checkBlock, type RawBlock, type SenderEvidence } from '../proof/block-checks.ts';
import { isDeposit, UNSIGNED, unencodableType } from '../proof/roots.ts';
import { notVerified } from '../proof/verifier.ts';
import {
  amount,
  type ChainBlock,
  type ChainReceipt,
  type ChainTransaction,
  list,
  parseBlock,
  parseReceipt,
  record,
} from '../rpc/parse.ts';
import { lacksMethod, type Rpc, type RpcAnswer, type RpcCall, resultOf } from '../rpc/rpc.ts';
import { isSame, parseCallTracer, parseTraceBlock, sumOfGas, type TransactionTrace } from './traces.ts';

export type TraceMethod = 'debug_traceBlockByHash' | 'debug_traceBlockByNumber' | 'trace_block';

/** The methods with which to request blocks from a node. Probing the node decides them (docs/explanation/architecture.md#nodes). */
export type FetchPlan = { batch: boolean; blockReceipts: boolean; traces: TraceMethod | 'none' };

export type BundleTransaction = ChainTransaction & { succeeded: boolean } & Pick<ChainReceipt, 'logs'> &
  Pick<TransactionTrace, 'calls'>;

export type Bundle = {
  header: BlockHeader;
  transactions: BundleTransaction[];
  proved: boolean;
  /** Whether the node also gave traces, which contain the internal transfers. */
  traced: boolean;
  /** The name of the node that gave the bundle. */
  node?: string;
  /**
   * `used` is the header's gas, `traced` the sum of the traces of all transactions. Undefined if either is missing.
   */
  gas?: { used: bigint; traced: bigint } | undefined;
  /** The evidence for senders. Undefined if proof is off. */
  senders?: SenderEvidence | undefined;
};

/** @throws Fault `inconsistent` if the block must not be used. */
type VerifyBundle = (bundle: Bundle, raw: RawBlock) => Promise<Pick<Bundle, 'proved' | 'senders'>>;

/** Larger batches are split, because each call in a batch costs the node work. */
const BATCH_CALLS_MAX = 60;

/**
 * Fetches the referenced blocks from this one node, in order. `verify` decides whether each is proved.
 * @throws Fault `unavailable` if the node fails or doesn't have a block yet, `inconsistent` if its answers don't
 * belong together or `verify` refuses a block.
 */
export async function fetchBundles(
  rpc: Rpc,
  references: readonly BlockReference[],
  plan: FetchPlan,
  signal: AbortSignal,
  verify: VerifyBundle = async () => notVerified,
): Promise<Bundle[]> {
  const calls = references.map((reference) => callsFor(reference, plan));
  const answers = await askAll(rpc, calls.flat(), plan.batch, signal);
  const parts: { bundle: Bundle; raw: RawBlock }[] = [];
  for (const [index, reference] of references.entries()) {
    // The number of calls can differ between a block requested by hash and one requested by number.
    const own = answers.splice(0, calls[index]?.length ?? 0);
    parts.push(await assemble(rpc, reference, own, plan, signal));
  }
  return Promise.all(parts.map(async ({ bundle, raw }) => ({ ...bundle, ...(await verify(bundle, raw)) })));
}

function callsFor(reference: BlockReference, plan: FetchPlan): RpcCall[] {
  const byHash = typeof reference === 'string';
  const id = byHash ? reference : quantityOf(reference);
  const calls: RpcCall[] = [
    { method: byHash ? 'eth_getBlockByHash' : 'eth_getBlockByNumber', params: [id, true] },
  ];
  if (plan.blockReceipts) calls.push({ method: 'eth_getBlockReceipts', params: [id] });
  // Traces by hash need the block's hash. If it isn't known yet, `readTraces` requests them after the block.
  if (plan.traces === 'debug_traceBlockByHash' && byHash) calls.push(traceCall(plan.traces, reference));
  if (plan.traces !== 'none' && plan.traces !== 'debug_traceBlockByHash' && !byHash)
    calls.push(traceCall(plan.traces, id));
  return calls;
}

export function traceCall(method: TraceMethod, id: string): RpcCall {
  return { method, params: method === 'trace_block' ? [id] : [id, { tracer: 'callTracer' }] };
}

async function assemble(
  rpc: Rpc,
  reference: BlockReference,
  answers: readonly RpcAnswer[],
  plan: FetchPlan,
  signal: AbortSignal,
): Promise<{ bundle: Bundle; raw: RawBlock }> {
  const blockJson = resultOf(rpc, 'block', answers[0]);
  if (blockJson === null) throw new Fault('unavailable', `${rpc.name} does not have block ${reference}`);
  const block = parseBlock(blockJson);
  const given = plan.blockReceipts ? readReceipts(rpc, answers[1]) : [];
  const receiptsJson = await fillReceipts(rpc, block, given, plan, signal);
  const receipts = checkBlock(reference, block, receiptsJson.map(parseReceipt));
  const traceAnswer = answers[plan.blockReceipts ? 2 : 1];
  const unsigned = unsignedIn(block, blockJson);
  const traces = await readTraces(rpc, { ...block, unsigned }, plan.traces, traceAnswer, signal);
  if (traces !== undefined) checkRoots(rpc, block, blockJson, traces.byTransaction);
  const bundle: Bundle = {
    header: block.header,
    proved: false,
    traced: traces !== undefined,
    node: rpc.name,
    gas: gasOf(blockJson, traces?.gas),
    transactions: block.transactions.map((transaction, index) => {
      const receipt = receipts[index];
      const trace = traces?.byTransaction.get(transaction.hash);
      const isMissing = traces !== undefined && trace === undefined && !unsigned.has(transaction.hash);
      if (receipt === undefined || isMissing) {
        throw new Fault('inconsistent', `${rpc.name} gave no trace of ${transaction.hash}`);
      }
      if (receipt.status === 1 && trace?.succeeded === false) {
        throw new Fault(
          'inconsistent',
          `${rpc.name} traced ${transaction.hash} as failed, and its receipt says that it succeeded`,
        );
      }
      // Before Byzantium receipts have no status, so the trace decides. Without either, the transfer counts.
      const succeeded = receipt.status === undefined ? (trace?.succeeded ?? true) : receipt.status === 1;
      return { ...transaction, succeeded, logs: receipt.logs, calls: succeeded ? (trace?.calls ?? []) : [] };
    }),
  };
  return { bundle, raw: { block: blockJson, receipts: receiptsJson } };
}

function readReceipts(rpc: Rpc, answer: RpcAnswer | undefined): unknown[] {
  const json = resultOf(rpc, 'eth_getBlockReceipts', answer);
  if (json === null) throw new Fault('unavailable', `${rpc.name} does not have the receipts yet`);
  return list(json, 'receipts');
}

/**
 * Fetches each receipt that the node's list leaves out separately, because Cronos nodes list fewer receipts than
 * transactions. An empty or repeated entry counts as left out.
 * @throws Fault that names the transaction whose receipt is missing.
 */
async function fillReceipts(
  rpc: Rpc,
  block: ChainBlock,
  given: readonly unknown[],
  plan: FetchPlan,
  signal: AbortSignal,
): Promise<unknown[]> {
  const known = new Map<Hash, unknown>(
    given
      .filter((receipt) => receipt !== null)
      .map((receipt) => [parseReceipt(receipt).transactionHash, receipt]),
  );
  const missing = block.transactions.filter(({ hash }) => !known.has(hash));
  const calls = missing.map(({ hash }) => ({ method: SINGLE_RECEIPT, params: [hash] }));
  for (const [index, answer] of (await askAll(rpc, calls, plan.batch, signal)).entries()) {
    const hash = missing[index]?.hash;
    if (hash !== undefined) known.set(hash, readSingleReceipt(rpc, { block, hash, plan }, answer));
  }
  return [...known.values()];
}

const SINGLE_RECEIPT = 'eth_getTransactionReceipt';

function readSingleReceipt(
  rpc: Rpc,
  { block, hash, plan }: { block: ChainBlock; hash: Hash; plan: FetchPlan },
  answer: RpcAnswer,
): unknown {
  if (answer.ok && answer.result !== null) {
    if (parseReceipt(answer.result).transactionHash === hash) return answer.result;
    throw disproof(`${rpc.name} ${SINGLE_RECEIPT} of ${hash} gave the receipt of another transaction`);
  }
  const why = answer.ok
    ? `${SINGLE_RECEIPT} returned null`
    : `${SINGLE_RECEIPT}: ${answer.message} (${answer.code})`;
  const { number, hash: blockHash } = block.header;
  const advice =
    lacksMethod(answer) && !plan.blockReceipts
      ? 'The node serves no receipts, without which no block can be followed: enable eth_getBlockReceipts or eth_getTransactionReceipt on it, or replace it in chain.rpc'
      : 'The block is held until a node has the receipt; add another node to chain.rpc if this one does not recover';
  // A node without the method will always lack it. Any other error may be temporary.
  throw new Fault(
    answer.ok || lacksMethod(answer) ? 'inconsistent' : 'unavailable',
    `${rpc.name} has no receipt of transaction ${hash} in block ${number} (${blockHash}): ${why}. ${advice}`,
  );
}

async function readTraces(
  rpc: Rpc,
  block: ChainBlock & { unsigned: ReadonlySet<Hash> },
  method: FetchPlan['traces'],
  given: RpcAnswer | undefined,
  signal: AbortSignal,
): Promise<{ byTransaction: Map<Hash, TransactionTrace>; gas: bigint | undefined } | undefined> {
  if (method === 'none') return undefined;
  const { header, transactions, unsigned } = block;
  if (transactions.length === 0) return { byTransaction: new Map(), gas: undefined };
  const id = method === 'debug_traceBlockByHash' ? header.hash : quantityOf(header.number);
  const json =
    given === undefined
      ? await rpc.call(method, traceCall(method, id).params, signal)
      : resultOf(rpc, method, given);
  const hashes = transactions.map(({ hash }) => hash);
  const gas = method === 'trace_block' ? undefined : sumOfGas(json);
  return { byTransaction: parseTraces(rpc, { method, hashes, unsigned, blockHash: header.hash }, json), gas };
}

/** Parses a node's traces of this block, which has these transactions. @throws Fault `inconsistent`, `unavailable`. */
export function parseTraces(
  rpc: Rpc,
  {
    method,
    hashes,
    unsigned,
    blockHash,
  }: { method: TraceMethod; hashes: readonly Hash[]; unsigned: ReadonlySet<Hash>; blockHash: Hash },
  json: unknown,
): Map<Hash, TransactionTrace> {
  if (method !== 'trace_block') return parseCallTracer(json, hashes, unsigned);
  const foreign = list(json, 'traces').find((trace) => isRecord(trace) && !isOf(trace, blockHash));
  // `trace_block` takes a number, so an honest node gives these while a reorg is under way: no disproof.
  if (foreign !== undefined)
    throw new Fault('inconsistent', `${rpc.name} gave traces of another block than ${blockHash}`);
  return parseTraceBlock(json);
}

/**
 * The transactions without a signature. They may lack a trace: Polygon's nodes list the state-sync transaction of a block, but don't
 * trace it.
 */
export function unsignedIn({ transactions }: ChainBlock, json: unknown): ReadonlySet<Hash> {
  const raw = transactionsIn(json);
  const isUnsigned = (index: number) => unencodableType(raw[index] ?? {}) === UNSIGNED;
  return new Set(transactions.filter((_, index) => isUnsigned(index)).map(({ hash }) => hash));
}

/**
 * Checks by their accounts whether traces are those of their transactions. A chain may trace transactions with other accounts, at least
 * those that it makes itself. So a trace that names its transaction is only refused if it begins like that of another one of the block.
 * @throws Fault `inconsistent`.
 */
function checkRoots(
  rpc: Rpc,
  { transactions }: ChainBlock,
  json: unknown,
  traces: ReadonlyMap<Hash, TransactionTrace>,
): void {
  const raw = transactionsIn(json);
  const partiesOf = ({ from, to }: TransactionTrace['root']) => `${from} ${to}`.toLowerCase();
  const parties = new Set(transactions.map(partiesOf));
  for (const [index, { hash, from, to }] of transactions.entries()) {
    const trace = traces.get(hash);
    const transaction = raw[index] ?? {};
    if (trace === undefined || trace.calls.length === 0) continue;
    if (isDeposit(transaction) || unencodableType(transaction) !== undefined) continue;
    const { root, isNamed } = trace;
    if (isSame(root.from, from) && (to === 'creation' || isSame(root.to, to))) continue;
    if (isNamed && !parties.has(partiesOf(root))) continue;
    throw new Fault(
      'inconsistent',
      `${rpc.name} gave the trace of another transaction ${isNamed ? 'as that' : 'at the position'} of ${hash}. If this lasts, set chain.internalTransfers to off`,
    );
  }
}

const transactionsIn = (block: unknown) =>
  list(record(block, 'block').transactions, 'block.transactions').map((one) => record(one, 'transaction'));

function gasOf(block: unknown, traced: bigint | undefined): Bundle['gas'] {
  const { gasUsed } = record(block, 'block');
  if (traced === undefined || gasUsed === undefined || gasUsed === null) return undefined;
  return { used: amount(gasUsed, 'block.gasUsed'), traced };
}

/** Not every trace names its block. */
const isOf = ({ blockHash }: Record<string, unknown>, hash: Hash) =>
  blockHash === undefined || (typeof blockHash === 'string' && blockHash.toLowerCase() === hash);

/** Makes all calls, in batches if the node accepts them. @returns the answers in the order of the calls. */
export async function askAll(
  rpc: Rpc,
  calls: readonly RpcCall[],
  inBatches: boolean,
  signal: AbortSignal,
): Promise<RpcAnswer[]> {
  const size = inBatches ? BATCH_CALLS_MAX : 1;
  const batches: RpcCall[][] = [];
  for (let start = 0; start < calls.length; start += size) batches.push(calls.slice(start, start + size));
  return (await Promise.all(batches.map((batch) => rpc.batch(batch, signal)))).flat();
}

/** A number as a JSON-RPC quantity. */
export function quantityOf(number: number): string {
  return `0x${number.toString(16)}`;
}
