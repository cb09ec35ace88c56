/**
 * A signed transaction in the JSON form of a node, decoded by another implementation (viem).
 */
import { type Hex, parseTransaction } from 'viem';
import type { Json } from './scripted-node.ts';

const TYPES: Record<string, string> = {
  legacy: '0x0',
  eip2930: '0x1',
  eip1559: '0x2',
  eip4844: '0x3',
  eip7702: '0x4',
};

/** Without the hash, the sender and the position in a block. */
export function transactionJson(signed: Hex): Json {
  const fields = JSON.parse(
    JSON.stringify(parseTransaction(signed), (_key, value: unknown) =>
      typeof value === 'bigint' || typeof value === 'number' ? `0x${value.toString(16)}` : value,
    ),
  ) as Json;
  const defaults = { to: null, value: '0x0', nonce: '0x0', accessList: [], maxPriorityFeePerGas: '0x0' };
  return { ...defaults, ...fields, type: TYPES[String(fields.type)], input: fields.data ?? '0x' };
}
