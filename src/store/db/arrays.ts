/**
 * Arrays in the forms that PostgreSQL reads, for statements that take thousands of values:
 * `${listOf(numbers)}::bigint[]`. The drivers' own way asks each value what it is and escapes it.
 */
import type { Hex } from '../../core/hex.ts';

/** OID of bytea, in pg_type. */
const BYTEA = 17;
const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
/** The length of null. */
const NULL_LENGTH = -1;

/** Numbers and plain words, as text. */
export function listOf(values: readonly (number | bigint | string)[]): string {
  return `{${values.join()}}`;
}

/** Bytes, as the drivers send any Buffer: in the binary form (array_send of PostgreSQL); undefined becomes null. */
export function bytesOf(values: readonly (Hex | undefined)[]): Buffer {
  const size = values.reduce((sum, hex) => sum + LENGTH_BYTES + byteLength(hex), HEADER_BYTES);
  const array = Buffer.alloc(size);
  // One dimension, no flags, the type of its elements, how many, and the first one's index.
  let at = 0;
  for (const field of [1, 0, BYTEA, values.length, 1]) at = array.writeInt32BE(field, at);
  for (const hex of values) {
    at = array.writeInt32BE(hex === undefined ? NULL_LENGTH : byteLength(hex), at);
    if (hex !== undefined) at += array.write(hex.slice(2), at, 'hex');
  }
  return array;
}

const byteLength = (hex: Hex | undefined): number => (hex === undefined ? 0 : (hex.length - 2) / 2);
