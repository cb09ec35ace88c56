/**
 * Internal native transfers from a node's call traces: callTracer (geth) and trace_block (Parity style) give the same.
 */
import { Fault } from '../core/fault.ts';
import type { Address, Hash } from '../core/hex.ts';
import { address, amount, list, quantity, record } from './parse.ts';
import { isRecord } from './rpc.ts';

/** A call below the transaction's own that moved native coin, with no reverted ancestor. */
export type ValueCall = { sender: Address; receiver: Address; amount: bigint };

/** What a trace says of one transaction. */
export type TransactionTrace = { succeeded: boolean; calls: ValueCall[] };

/** Calls deeper than the EVM's stack limit cannot be (yellow paper, section 9.1). */
const DEPTH_MAX = 1_024;

/**
 * The answer of debug_traceBlockByHash/-ByNumber with callTracer, by transaction. Nodes that leave out `txHash` are
 * matched by position. @throws Fault `inconsistent`.
 */
export function parseCallTracer(json: unknown, hashes: readonly Hash[]): Map<Hash, TransactionTrace> {
  const traces = new Map<Hash, TransactionTrace>();
  list(json, 'traces').forEach((entry, index) => {
    const { txHash, result } = record(entry, 'trace');
    const root = record(result, 'trace.result');
    const calls: ValueCall[] = [];
    const succeeded = !hasFailed(root);
    if (succeeded) collectFrames(root, 1, calls);
    const hash = typeof txHash === 'string' ? txHash.toLowerCase() : hashes[index];
    if (hash !== undefined) traces.set(asHash(hash), { succeeded, calls });
  });
  return traces;
}

/** Adds the value-carrying frames below `frame` in execution order; a failed frame voids what it called. */
function collectFrames(frame: Record<string, unknown>, depth: number, calls: ValueCall[]): void {
  if (frame.calls === undefined || frame.calls === null) return;
  for (const entry of list(frame.calls, 'trace.calls')) {
    const call = record(entry, 'trace.call');
    if (hasFailed(call)) continue;
    if (depth > DEPTH_MAX)
      throw new Fault('inconsistent', `the node's trace has calls deeper than ${DEPTH_MAX}`);
    if (MOVES_VALUE.has(typeof call.type === 'string' ? call.type.toUpperCase() : ''))
      push(calls, call.from, call.to, call.value);
    collectFrames(call, depth + 1, calls);
  }
}

const hasFailed = ({ error }: Record<string, unknown>) => error !== undefined && error !== null;

/** CALLCODE and DELEGATECALL run other code on the caller's own balance: nothing moves. */
const MOVES_VALUE = new Set(['CALL', 'CREATE', 'CREATE2', 'SELFDESTRUCT']);

/** The answer of trace_block, by transaction; block rewards are not transfers. @throws Fault `inconsistent`. */
export function parseTraceBlock(json: unknown): Map<Hash, TransactionTrace> {
  const traces = new Map<Hash, TransactionTrace & { voided: string[] }>();
  for (const entry of list(json, 'traces')) {
    const item = record(entry, 'trace');
    if (typeof item.transactionHash !== 'string') continue;
    const hash = asHash(item.transactionHash.toLowerCase());
    const trace = traces.get(hash) ?? { succeeded: true, calls: [], voided: [] };
    traces.set(hash, trace);
    const path = list(item.traceAddress, 'trace.traceAddress')
      .map((index) => `${quantity(index, 'trace.traceAddress')}/`)
      .join('');
    const isRoot = path === '';
    if (hasFailed(item)) {
      trace.voided.push(path);
      if (isRoot) trace.succeeded = false;
    }
    if (isRoot || trace.voided.some((prefix) => path.startsWith(prefix))) continue;
    collectTrace(item, trace.calls);
  }
  return traces;
}

function collectTrace(item: Record<string, unknown>, calls: ValueCall[]): void {
  const action = record(item.action, 'trace.action');
  switch (item.type) {
    case 'call':
      if (action.callType === 'call') push(calls, action.from, action.to, action.value);
      return;
    case 'create':
      push(calls, action.from, isRecord(item.result) ? item.result.address : undefined, action.value);
      return;
    case 'suicide':
    case 'selfdestruct':
      push(calls, action.address, action.refundAddress, action.balance);
      return;
    default:
      return;
  }
}

function push(calls: ValueCall[], from: unknown, to: unknown, value: unknown): void {
  if (value === undefined || value === null) return;
  const wei = amount(value, 'trace.value');
  if (wei === 0n) return;
  calls.push({ sender: address(from, 'trace.from'), receiver: address(to, 'trace.to'), amount: wei });
}

function asHash(text: string): Hash {
  return text.startsWith('0x') ? `0x${text.slice(2)}` : `0x${text}`;
}
