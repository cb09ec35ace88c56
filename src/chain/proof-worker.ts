/**
 * A worker thread of the prover: blocks come as the node's JSON, and what could be proved of each goes back.
 */
import { parentPort } from 'node:worker_threads';
import type { RawBlock } from './proof.ts';
import { proveBlock } from './prove-block.ts';

/** What goes to a worker. Copying objects costs both threads less than text does (docs/benchmarks.md, section proof). */
export type ProofTask = { id: number; raw: RawBlock };

// Undefined on the main thread, where nobody should load this file.
parentPort?.on('message', ({ id, raw }: ProofTask) => {
  parentPort?.postMessage({ id, checks: proveBlock(raw.block, raw.receipts) });
});
