/**
 * The program of the prover's worker threads. For a block as the node's JSON, it returns the proof. For signed
 * transactions as bytes, it returns the senders.
 */
import { parentPort } from 'node:worker_threads';
import type { Hash } from '../../core/hex.ts';
import type { RawBlock, SenderScope } from './block-checks.ts';
import { collectSenders, withSenders } from './block-senders.ts';
import { proveBlock } from './prove-block.ts';
import { recoverSender } from './senders.ts';

/**
 * The message to a worker. It has objects instead of text, because copying objects costs both threads less
 * (docs/benchmarks.md, section proof).
 */
export type ProofTask = { id: number } & (
  | { raw: RawBlock; scope: SenderScope; needed: readonly Hash[] }
  | { signed: Uint8Array[] }
);

// `parentPort` is undefined on the main thread, which should never load this file.
parentPort?.on('message', (task: ProofTask) => {
  if ('signed' in task) {
    parentPort?.postMessage({ id: task.id, answer: task.signed.map(recoverSender) });
    return;
  }
  const { id, raw, scope, needed } = task;
  const senders = collectSenders({ needed });
  const checks = proveBlock(raw.block, raw.receipts, senders.add);
  const answer = withSenders(checks, senders.finish(scope));
  const { signed } = answer.senders;
  // The signed bytes are transferred, not copied.
  parentPort?.postMessage({ id, answer }, signed === undefined ? [] : [signed.bytes.buffer]);
});
