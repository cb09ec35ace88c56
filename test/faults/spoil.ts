/**
 * Ways to spoil a node's responses: NodeFaults for receipts, blocks and heads.
 */
import { quantity } from '../../devnet/wallet.ts';
import { headerHash } from '../../src/chain/proof/roots.ts';
import type { Ask, Call, NodeFault } from './node-proxy.ts';

export type Json = Record<string, unknown>;

/** Changes responses with a list of receipts. Leaves lists unchanged that are too short to spoil. */
export function receipts(spoil: (all: readonly Json[]) => unknown): NodeFault {
  return {
    async answer(call, ask) {
      if (call.method !== 'eth_getBlockReceipts') return undefined;
      const { result } = await ask(call);
      const told = Array.isArray(result) && result.length >= 3 ? spoil(result) : undefined;
      return told === undefined ? undefined : { result: told };
    },
  };
}

/** Changes responses with a block and its transactions. */
export function block(spoil: (one: Json) => unknown): NodeFault {
  return {
    async answer(call, ask) {
      if (!call.method.startsWith('eth_getBlockBy') || call.params[1] !== true) return undefined;
      const { result } = await ask(call);
      return isFull(result) ? { result: spoil(result) } : undefined;
    },
  };
}

/** Replaces the head, or the block of another tag, or returns it unchanged. */
export function heads(
  lie: (head: Json, ask: (number: number) => Promise<unknown>) => Promise<unknown>,
  tag: 'latest' | 'finalized' = 'latest',
): NodeFault {
  return {
    async answer(call, ask) {
      if (call.params[0] !== tag) return undefined;
      const byNumber = async (number: number) =>
        (await ask({ ...call, params: [quantity(number), false] })).result;
      const { result } = await ask(call);
      const told = await lie(result as Json, byNumber);
      return told === undefined ? undefined : { result: told };
    },
  };
}

export function both(one: NodeFault, other: NodeFault): NodeFault {
  const answer = async (call: Call, ask: Ask) => (await one.answer?.(call, ask)) ?? other.answer?.(call, ask);
  return { answer };
}

/** A header with a valid hash. Only the chain shows that it is not one of its blocks. */
async function raise(head: Json): Promise<Json> {
  const raised = { ...head, number: quantity(Number(head.number) + 1000) };
  return { ...raised, hash: headerHash(raised) };
}

/** A head that was never mined. */
export const farAhead = heads(raise);

/** A finalized block that was never mined. */
export const finalAhead = heads(raise, 'finalized');

/** The chain as it was at this height: an old head, and no newer blocks. */
export function only(number: number): NodeFault {
  return {
    async answer(call, ask) {
      if (!call.method.startsWith('eth_getBlock')) return undefined;
      if (call.params[0] === 'latest') return ask({ ...call, params: [quantity(number), call.params[1]] });
      const { result } = await ask(call);
      const [one] = Array.isArray(result) ? result : [result];
      return isJson(one) && Number(one.number ?? one.blockNumber) > number ? { result: null } : undefined;
    },
  };
}

/** The list with one object changed. */
export function change(all: readonly Json[], index: number, fields: Json): Json[] {
  return all.map((one, at) => (at === index ? { ...one, ...fields } : one));
}

/** Receipts with a change in the first log of the first receipt that has any. */
export function changeLog(all: readonly Json[], fields: Json): Json[] {
  const index = findLogs(all);
  return change(all, index, { logs: change(listOf(all[index]?.logs), 0, fields) });
}

/** Receipts without that log. */
export function dropLog(all: readonly Json[]): Json[] {
  const index = findLogs(all);
  return change(all, index, { logs: listOf(all[index]?.logs).slice(1) });
}

const findLogs = (all: readonly Json[]) => all.findIndex(({ logs }) => listOf(logs).length > 0);

export function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? value.filter(isJson) : [];
}

function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const isFull = (value: unknown): value is Json => isJson(value) && listOf(value.transactions).length > 0;
