/**
 * Keccak-256, Ethereum's hash function, in WebAssembly (docs/benchmarks.md, section proof, has the speed).
 */
import { createKeccak } from 'hash-wasm';
import { optimizedWasm } from '../../core/wasm.ts';

const hasher = await optimizedWasm(
  () => createKeccak(256),
  (created) => created.init().update(new Uint8Array(1)).digest('binary'),
);

/** The 32-byte hash of the bytes. */
export function keccak256(bytes: Uint8Array): Uint8Array {
  return hasher.init().update(bytes).digest('binary');
}
