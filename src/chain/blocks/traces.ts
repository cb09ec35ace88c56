/**
 * Reads internal native transfers from a node's call traces. callTracer (geth) and trace_block (Parity style) give
 * the same transfers in the same order. Frames that move nothing are left out, because not every tracer shows them.
 */
import { Fault } from '../../core/fault.ts';
import { type Address, type Hash, zeroAddress } from '../../core/hex.ts';
import { isRecord } from '../../core/json.ts';
import { address, amount, excerptOf, list, quantity, record } from '../rpc/parse.ts';

/** A call below the transaction's top-level call that moved native coin and has no reverted ancestor. */
type ValueCall = { sender: Address; receiver: Address; amount: bigint };

/** One transaction's outcome and internal transfers by its trace. */
export type TransactionTrace = {
  succeeded: boolean;
  calls: ValueCall[];
  /** The accounts of the transaction's own frame. */
  root: { from: string | undefined; to: string | undefined };
  /** Whether the node says whose trace it is. Otherwise only the position does. */
  isNamed: boolean;
};

const ADVICE = 'If this lasts, set chain.internalTransfers to off';

/** The node has the trace method, but what it answers doesn't show the calls of transactions. */
export class UnfitTracesFault extends Fault {
  constructor(why: string) {
    super('inconsistent', `the node's traces can't be used: ${why}. ${ADVICE}`);
  }
}

/** One more than the EVM's limit of the call depth (yellow paper, section 9.1): a call beyond it is listed as failed. */
const DEPTH_MAX = 1_025;
/** A message quotes this much of a node's error for a transaction that it can't trace. */
const ERROR_CHARACTERS_MAX = 300;
const HASH_CHARACTERS = 66;

/**
 * Parses the answer of debug_traceBlockByHash or debug_traceBlockByNumber with callTracer, by transaction. Some
 * nodes leave out `txHash`; then the position identifies the transaction, and the traces must be as many as the transactions. The
 * `unsigned` ones may be missing.
 * @throws Fault `inconsistent`, also if a transaction has two traces, or `unavailable` if the node could not trace a transaction.
 */
export function parseCallTracer(
  json: unknown,
  hashes: readonly Hash[],
  unsigned: ReadonlySet<Hash> = new Set(),
): Map<Hash, TransactionTrace> {
  const traces = new Map<Hash, TransactionTrace>();
  const entries = list(json, 'traces');
  const traced = entries.length === hashes.length ? hashes : hashes.filter((hash) => !unsigned.has(hash));
  const flaw = flawOfCallTracer(json);
  if (flaw !== undefined) throw new UnfitTracesFault(flaw);
  entries.forEach((json, index) => {
    const entry = record(json, 'trace');
    const { txHash, result } = entry;
    const isNamed = typeof txHash === 'string';
    if (!isNamed && entries.length !== traced.length)
      throw new Fault(
        'inconsistent',
        `the node gave ${entries.length} traces, some without txHash, of a block with ${hashes.length} transactions`,
      );
    const hash = isNamed ? txHash.toLowerCase() : traced[index];
    const why = isCallTrace(entry) ? undefined : whyUntraced(entry);
    if (why !== undefined)
      throw new Fault(
        'unavailable',
        `the node could not trace ${hash === undefined ? 'a transaction' : excerptOf(hash, HASH_CHARACTERS)}: ${excerptOf(why, ERROR_CHARACTERS_MAX)}`,
      );
    const frame = record(result, 'trace.result');
    const calls: ValueCall[] = [];
    const succeeded = !hasFailed(frame);
    if (succeeded) collectFrames(frame, 1, calls);
    if (hash === undefined) return;
    const key = asHash(hash);
    if (traces.has(key))
      throw new Fault(
        'inconsistent',
        `the node gave two traces of ${excerptOf(key, HASH_CHARACTERS)}. ${ADVICE}`,
      );
    traces.set(key, { succeeded, calls, root: partiesOf(frame), isNamed });
  });
  return traces;
}

/**
 * Why the answer doesn't show the calls of transactions. Undefined if nothing speaks against it. One call trace shows that the node has
 * callTracer, so an entry beside it that is none only says that a transaction could not be traced.
 */
export function flawOfCallTracer(json: unknown): string | undefined {
  const entries = list(json, 'traces').filter(isRecord);
  if (entries.some(beginsAtBootloader)) return BOOTLOADER_TRACES;
  return !entries.some(isCallTrace) && entries.some(isOtherTrace) ? NOT_CALL_TRACER : undefined;
}

/** Whether the answer has the calls of a transaction. An empty block has none, and a transaction may have failed to be traced. */
export const hasCallTrace = (json: unknown): boolean =>
  list(json, 'traces').some((entry) => isRecord(entry) && isCallTrace(entry));

const isCallTrace = ({ result }: Record<string, unknown>) =>
  isRecord(result) && typeof result.from === 'string';

/** An error only says why a transaction could not be traced, unless it names the tracer. Besu gave opcodes without a `result` until 2025. */
const isOtherTrace = (entry: Record<string, unknown>) =>
  isRecord(entry.result)
    ? !isCallTrace(entry)
    : entry.structLogs !== undefined || LACKS_TRACER.test(textOf(entry.error) ?? '');

const whyUntraced = (entry: Record<string, unknown>) =>
  textOf(entry.error) ?? (isOtherTrace(entry) ? 'it gave no trace of callTracer' : undefined);

const LACKS_TRACER = /tracer not found|(no|unknown|unsupported) tracer/i;

/** The text of an error, which Erigon gives as an object. */
function textOf(error: unknown): string | undefined {
  if (isRecord(error)) return typeof error.message === 'string' ? error.message : undefined;
  return typeof error === 'string' ? error : undefined;
}

const NOT_CALL_TRACER = 'the trace of a transaction names no sender, so it is not one of callTracer';

const BOOTLOADER_TRACES =
  'each trace begins at the bootloader of ZKsync, under which transactions and their fees are calls like any other';

const beginsAtBootloader = ({ result }: Record<string, unknown>) =>
  isRecord(result) && isSame(result.from, zeroAddress) && isSame(result.to, BOOTLOADER);

/** Runs every transaction of a ZKsync chain. On other chains there is no code at this address. */
const BOOTLOADER = '0x0000000000000000000000000000000000008001';

/**
 * The gas of all transactions of the block by callTracer. Undefined if a trace doesn't name its gas.
 */
export function sumOfGas(json: unknown): bigint | undefined {
  let sum = 0n;
  for (const entry of list(json, 'traces')) {
    const { result } = record(entry, 'trace');
    const used = isRecord(result) ? result.gasUsed : undefined;
    if (typeof used !== 'string') return undefined;
    sum += amount(used, 'trace.gasUsed');
  }
  return sum;
}

/** Adds the value-carrying frames below `frame` in execution order. A failed frame voids all calls below it. */
function collectFrames(frame: Record<string, unknown>, depth: number, calls: ValueCall[]): void {
  if (frame.calls === undefined || frame.calls === null) return;
  for (const entry of list(frame.calls, 'trace.calls')) {
    const call = record(entry, 'trace.call');
    if (hasFailed(call)) continue;
    requireDepth(depth);
    const type = typeOf(call);
    if (type === 'SELFDESTRUCT') pushDestruction(calls, call, accountOf(frame));
    else if (MOVES_VALUE.has(type)) push(calls, call.from, call.to, call.value);
    else if (!MOVES_NOTHING.has(type) && movesValue(call)) throw refuseType('type', call.type);
    collectFrames(call, depth + 1, calls);
  }
}

function partiesOf({ from, to }: Record<string, unknown>): TransactionTrace['root'] {
  const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
  return { from: text(from), to: text(to) };
}

function requireDepth(depth: number): void {
  if (depth > DEPTH_MAX)
    throw new Fault('inconsistent', `the node's trace has calls deeper than ${DEPTH_MAX}`);
}

/**
 * ZKsync nodes leave `error` null in a call that reverted. @throws Fault `inconsistent` for an error that is no text: without knowing whether
 * the call failed, its transfer would be left out or made up.
 */
function hasFailed({ error, revertReason }: Record<string, unknown>): boolean {
  if (error === undefined || error === null) return typeof revertReason === 'string' && revertReason !== '';
  if (typeof error === 'string' && error !== '') return true;
  throw new Fault(
    'inconsistent',
    `the node's trace.error is neither missing nor the text of an error. ${ADVICE}`,
  );
}

const typeOf = ({ type }: Record<string, unknown>) => (typeof type === 'string' ? type.toUpperCase() : '');

/** A call of a type that Chainbell doesn't know may have moved its value. */
const movesValue = ({ value }: Record<string, unknown>) => amount(value ?? '0x0', 'trace.value') > 0n;

const refuseType = (field: 'type' | 'action.callType', type: unknown) =>
  new Fault(
    'inconsistent',
    `the node's trace.${field} is not known: ${typeof type === 'string' ? excerptOf(type) : 'no text'}. ${ADVICE}`,
  );

/** CALLCODE and DELEGATECALL run other code on the caller's balance, so they move nothing. */
const MOVES_VALUE = new Set(['CALL', 'CREATE', 'CREATE2']);
const MOVES_NOTHING = new Set(['CALLCODE', 'DELEGATECALL', 'STATICCALL']);

/** The account whose balance the frame's code can spend. */
const accountOf = (frame: Record<string, unknown>) =>
  ['DELEGATECALL', 'CALLCODE'].includes(typeOf(frame)) ? frame.from : frame.to;

/**
 * Parses the answer of trace_block, by transaction. Block rewards are not transfers.
 * @throws Fault `inconsistent`, also if calls are listed twice or before the call that made them. `subtraces` isn't compared with
 * the calls listed, because Nethermind counted calls that it left out until 2023, and Besu missed some until 2024.
 */
export function parseTraceBlock(json: unknown): Map<Hash, TransactionTrace> {
  const traces = new Map<Hash, FlatTrace>();
  for (const entry of list(json, 'traces')) {
    const item = record(entry, 'trace');
    if (typeof item.transactionHash !== 'string') {
      if (isOfNoTransaction(item)) continue;
      throw new Fault('inconsistent', `the node's trace.transactionHash is missing. ${ADVICE}`);
    }
    const hash = asHash(item.transactionHash.toLowerCase());
    const trace: FlatTrace = traces.get(hash) ?? {
      succeeded: true,
      calls: [],
      root: { from: undefined, to: undefined },
      isNamed: true,
      voided: new Set(),
      frames: new Map(),
    };
    traces.set(hash, trace);
    const steps = list(item.traceAddress, 'trace.traceAddress').map(
      (index) => `${quantity(index, 'trace.traceAddress')}/`,
    );
    requireDepth(steps.length);
    const path = steps.join('');
    const isRoot = path === '';
    const parent = steps.slice(0, -1).join('');
    const frame = addFrame(trace, item, { hash, path, parent });
    const isVoided = hasFailed(item) || (!isRoot && trace.voided.has(parent));
    if (isVoided) trace.voided.add(path);
    if (isVoided && isRoot) trace.succeeded = false;
    if (isRoot) trace.root = partiesOf(record(item.action, 'trace.action'));
    const spender = trace.frames.get(parent)?.account;
    collectTrace(item, frame, { calls: trace.calls, spender, counts: !isRoot && !isVoided });
  }
  return traces;
}

/** Of an entry without a transaction hash: whether nothing else says that it is part of a transaction. */
const isOfNoTransaction = ({ type, transactionPosition }: Record<string, unknown>) =>
  type === 'reward' || transactionPosition === undefined || transactionPosition === null;

/** `voided` has the paths of frames that failed, and of those below them. `frames` has each frame by its path. */
type FlatTrace = TransactionTrace & { voided: Set<string>; frames: Map<string, FlatFrame> };

type FlatFrame = {
  /** The account whose balance the code of the frame can spend. */
  account: unknown;
  /** Whether it is a call without value. */
  isIdle: boolean;
  hasCalls: boolean;
  isRepeated: boolean;
};

/**
 * Each frame comes once and after its parent. Otherwise it would count twice, or although its parent failed. Only calls that move nothing
 * and make no calls may share a path, because Nethermind repeated those of precompiles until 2022 (NethermindEth/nethermind#4208).
 */
function addFrame(
  { frames }: FlatTrace,
  item: Record<string, unknown>,
  { hash, path, parent }: { hash: Hash; path: string; parent: string },
): FlatFrame {
  const refuse = (how: string) =>
    new Fault(
      'inconsistent',
      `the node's trace_block lists a call of ${excerptOf(hash, HASH_CHARACTERS)} ${how}. ${ADVICE}`,
    );
  const isRoot = path === '';
  const isIdle = item.type === 'call' && isRecord(item.action) && movesNothing(item.action);
  const former = frames.get(path);
  const above = isRoot ? undefined : frames.get(parent);
  const mayRepeat = !isRoot && former?.hasCalls === false && former.isIdle && isIdle;
  if ((former !== undefined && !mayRepeat) || above?.isRepeated === true) throw refuse('twice');
  if (!isRoot && above === undefined) throw refuse('without the call that made it before it');
  if (above !== undefined) above.hasCalls = true;
  const frame = { account: undefined, isIdle, hasCalls: false, isRepeated: former !== undefined };
  frames.set(path, frame);
  return frame;
}

const movesNothing = ({ callType, value }: Record<string, unknown>) =>
  (typeof value === 'string' && /^0x0+$/.test(value)) ||
  (typeof callType === 'string' && MOVES_NOTHING.has(callType.toUpperCase()));

/** `spender` is the account whose balance the code that made the call can spend. */
function collectTrace(
  item: Record<string, unknown>,
  frame: FlatFrame,
  { calls, spender, counts }: { calls: ValueCall[]; spender: unknown; counts: boolean },
): void {
  const action = record(item.action, 'trace.action');
  switch (item.type) {
    case 'call':
      frame.account = accountOf({ ...action, type: action.callType });
      if (counts) collectCall(action, calls);
      return;
    case 'create': {
      // Polygon's Bor names an account without code only in the action.
      const created = (isRecord(item.result) ? item.result.address : undefined) ?? action.to;
      frame.account = created;
      if (counts) push(calls, action.from, created, action.value);
      return;
    }
    case 'suicide':
    case 'selfdestruct': {
      if (!counts) return;
      // Polygon's Bor names the parts as those of a call.
      const from = address(action.address ?? action.from, 'trace.action.address');
      const [to, value] = [action.refundAddress ?? action.to, action.balance ?? action.value];
      pushDestruction(calls, { from, to, value }, spender);
      return;
    }
    default:
      if (counts && item.type !== 'reward' && movesValue(action)) throw refuseType('type', item.type);
      return;
  }
}

function collectCall(action: Record<string, unknown>, calls: ValueCall[]): void {
  const { callType, from, to, value } = action;
  if (typeof callType !== 'string')
    throw new Fault('inconsistent', `the node's trace.action.callType is missing`);
  const type = callType.toUpperCase();
  if (type === 'CALL') push(calls, from, to, value);
  else if (!MOVES_NOTHING.has(type) && movesValue(action)) throw refuseType('action.callType', callType);
}

/**
 * Adds the transfer of a self-destruct. A self-destruct in favor of the same account moves nothing. Some nodes
 * (revm before its fix, bluealloy/revm#3805) then repeat the transaction's last transfer instead. Such an entry is
 * recognizable, because its account is not the one whose code runs.
 */
function pushDestruction(
  calls: ValueCall[],
  { from, to, value }: Record<string, unknown>,
  account: unknown,
): void {
  if (isSame(from, to) || (account !== undefined && !isSame(from, account))) return;
  push(calls, from, to, value);
}

/** Whether both are the same account. */
export const isSame = (one: unknown, other: unknown) =>
  typeof one === 'string' && typeof other === 'string' && one.toLowerCase() === other.toLowerCase();

function push(calls: ValueCall[], from: unknown, to: unknown, value: unknown): void {
  const wei = amount(value, 'trace.value');
  if (wei === 0n) return;
  calls.push({ sender: address(from, 'trace.from'), receiver: address(to, 'trace.to'), amount: wei });
}

function asHash(text: string): Hash {
  return text.startsWith('0x') ? `0x${text.slice(2)}` : `0x${text}`;
}
