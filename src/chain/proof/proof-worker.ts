/**
 * A worker thread of the prover. It receives blocks as the node's JSON and returns the proof of each. It
 * receives signed transactions as bytes and returns their senders.
 */
import { parentPort } from 'node:worker_threads';
import type { RawBlock, SenderScope } from './block-checks.ts';
import { collectSenders } from './block-senders.ts';
import { proveBlock } from './prove-block.ts';
import { recoverSender } from './senders.ts';

/**
 * What goes to a worker. Copying objects costs both threads less than text does (docs/benchmarks.md, section
 * proof).
 */
export type ProofTask = { id: number } & ({ raw: RawBlock; scope: SenderScope } | { signed: Uint8Array[] });

// Undefined on the main thread, which should never load this file.
parentPort?.on('message', (task: ProofTask) => {
  if ('signed' in task) {
    parentPort?.postMessage({ id: task.id, answer: task.signed.map(recoverSender) });
    return;
  }
  const { id, raw, scope } = task;
  const senders = collectSenders();
  const checks = proveBlock(raw.block, raw.receipts, senders.add);
  const found = senders.finish(scope);
  const { signed } = found.senders;
  // Handed over, not copied.
  parentPort?.postMessage(
    { id, answer: { ...checks, ...found } },
    signed === undefined ? [] : [signed.bytes.buffer],
  );
});
