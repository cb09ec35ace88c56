/**
 * Arrays in PostgreSQL's input formats, for statements with thousands of values: `${listOf(numbers)}::bigint[]`. The drivers'
 * own conversion is slower, because it checks and escapes each value.
 */
import type { Hex } from '../../core/hex.ts';

/** OID of bytea, in pg_type. */
const BYTEA = 17;
const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
/** The length that marks null. */
const NULL_LENGTH = -1;

/** Numbers and words that need no escaping, in the text format. */
export function listOf(values: readonly (number | bigint | string)[]): string {
  return `{${values.join()}}`;
}

/** Bytes in the binary format of PostgreSQL's array_send, in which the drivers send a Buffer. Undefined becomes null. */
export function bytesOf(values: readonly (Hex | undefined)[]): Buffer {
  const size = values.reduce((sum, hex) => sum + LENGTH_BYTES + byteLength(hex), HEADER_BYTES);
  const array = Buffer.alloc(size);
  // One dimension, no flags, element type, element count, index of the first element.
  let at = 0;
  for (const field of [1, 0, BYTEA, values.length, 1]) at = array.writeInt32BE(field, at);
  for (const hex of values) {
    at = array.writeInt32BE(hex === undefined ? NULL_LENGTH : byteLength(hex), at);
    if (hex !== undefined) at += array.write(hex.slice(2), at, 'hex');
  }
  return array;
}

const byteLength = (hex: Hex | undefined): number => (hex === undefined ? 0 : (hex.length - 2) / 2);
