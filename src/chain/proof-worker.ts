/**
 * A worker thread of the prover: blocks come as JSON text, and what could be proved of each goes back.
 */
import { parentPort } from 'node:worker_threads';
import type { RawBlock } from './proof.ts';
import { proveBlock } from './prove-block.ts';

/** What goes to a worker. Text: it is copied to the thread faster than objects are. */
export type ProofTask = { id: number; text: string };

// Undefined on the main thread, where nobody should load this file.
parentPort?.on('message', ({ id, text }: ProofTask) => {
  const { block, receipts } = JSON.parse(text) as RawBlock;
  parentPort?.postMessage({ id, checks: proveBlock(block, receipts) });
});
