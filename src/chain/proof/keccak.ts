/**
 * Keccak-256, Ethereum's hash function, in WebAssembly (docs/benchmarks.md, section proof, has the speed).
 */
import { createKeccak } from 'hash-wasm';

const hasher = await createKeccak(256);

/** The 32-byte hash of the bytes. */
export function keccak256(bytes: Uint8Array): Uint8Array {
  return hasher.init().update(bytes).digest('binary');
}
