/**
 * Arrays as PostgreSQL writes them, for statements that take thousands of values: `${listOf(numbers)}::bigint[]`.
 * The drivers' own way asks each value what it is and escapes it.
 */
import type { Hex } from '../core/hex.ts';

/** Numbers and plain words. */
export function listOf(values: readonly (number | bigint | string)[]): string {
  return `{${values.join()}}`;
}

/** Bytes; undefined becomes null. */
export function bytesOf(values: readonly (Hex | undefined)[]): string {
  return `{${values.map((hex) => (hex === undefined ? 'null' : `"\\\\x${hex.slice(2)}"`)).join()}}`;
}
