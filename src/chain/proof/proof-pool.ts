/**
 * Proves blocks in worker threads, so that hashing doesn't block the rest of the program.
 */
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockProof, RawBlock, SenderScope } from './block-checks.ts';
import type { ProofTask } from './proof-worker.ts';

export type Prover = {
  /**
   * Proves a block from the node's JSON. `scope` selects the senders to recover, by default `matched`. Those of the
   * transactions in `needed` are always recovered.
   * @throws Fault `unavailable` if the prover is closed or its queue is full, `inconsistent` if the block
   * repeatedly ends its worker.
   */
  prove(raw: RawBlock, scope?: SenderScope, needed?: readonly Hash[]): Promise<BlockProof>;
  /**
   * Recovers the signer of each transaction from its bytes as mined; undefined if its signature is invalid.
   * @throws the same Faults as `prove`.
   */
  recover(signed: readonly Uint8Array[]): Promise<(Address | undefined)[]>;
  /** Ends the threads. Waiting callers get a Fault. A second call is safe. */
  close(): Promise<void>;
};

type ProverOptions = {
  /** The program that the threads run. Tests replace it. */
  program?: URL;
};

/** One core stays free for the rest of the program. More than two threads would only wait for the nodes. */
const WORKERS_MAX = 2;
/** With two, a worker already has its next block when it finishes one. */
const TASKS_PER_WORKER_MAX = 2;
/** The follower asks for at most 100 blocks. This limit bounds unforeseen callers. */
const QUEUE_BLOCKS_MAX = 1_000;
/** The prover gives up a block that has ended a worker this many times. */
const ATTEMPTS_MAX = 2;

type Work = { raw: RawBlock; scope: SenderScope; needed: readonly Hash[] } | { signed: Uint8Array[] };
/** `resolve` accepts any answer of a worker. The kind of work determines the answer's type. */
type Task = { work: Work; attempts: number } & Pick<PromiseWithResolvers<unknown>, 'resolve' | 'reject'>;
type Slot = { worker: Worker | undefined; running: Map<number, Task> };

/** The threads start with the first block. A new thread replaces one that dies, and proves its blocks. */
export function createProver({ program = PROGRAM }: ProverOptions = {}): Prover {
  const size = Math.min(WORKERS_MAX, Math.max(1, availableParallelism() - 1));
  const slots: Slot[] = Array.from({ length: size }, () => ({ worker: undefined, running: new Map() }));
  const queue: Task[] = [];
  let lastId = 0;
  let isClosed = false;

  /** Hands waiting tasks to the workers with the fewest. */
  function dispatch(): void {
    while (queue.length > 0 && !isClosed) {
      const [slot] = slots
        .filter(({ running }) => running.size < TASKS_PER_WORKER_MAX)
        .sort((one, other) => one.running.size - other.running.size);
      const task = slot === undefined ? undefined : queue.shift();
      if (slot === undefined || task === undefined) return;
      lastId += 1;
      slot.running.set(lastId, task);
      slot.worker ??= startWorker(slot);
      send(slot.worker, slot.running, { id: lastId, ...task.work });
    }
  }

  function startWorker(slot: Slot): Worker {
    const worker = new Worker(program, { resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB_MAX } });
    let reason = 'it ended';
    worker.on('message', ({ id, answer }: { id: number; answer: unknown }) => {
      slot.running.get(id)?.resolve(answer);
      slot.running.delete(id);
      dispatch();
    });
    worker.on('error', (error) => {
      reason = messageOf(error);
    });
    worker.on('exit', () => {
      const [culprit, ...others] = slot.running.values();
      slot.worker = undefined;
      slot.running.clear();
      // A thread proves its blocks in order, so it died at the first one. The others return to the front of the queue.
      queue.unshift(...others);
      if (culprit !== undefined) retry(culprit, reason);
      dispatch();
    });
    return worker;
  }

  function retry(task: Task, reason: string): void {
    task.attempts += 1;
    if (isClosed || task.attempts < ATTEMPTS_MAX) queue.unshift(task);
    else task.reject(new Fault('inconsistent', `proving the block ended its worker: ${reason}`));
  }

  async function run<Answer>(work: Work): Promise<Answer> {
    if (isClosed) throw closedFault();
    if (queue.length >= QUEUE_BLOCKS_MAX) throw new Fault('unavailable', 'too many blocks wait for proof');
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    // The cast is safe because `proof-worker.ts` answers each kind of work with the matching type.
    queue.push({ work, attempts: 0, resolve: (answer) => resolve(answer as Answer), reject });
    dispatch();
    return promise;
  }

  return {
    prove: (raw, scope = 'matched', needed = []) => run<BlockProof>({ raw, scope, needed }),
    recover: (signed) => run<(Address | undefined)[]>({ signed: [...signed] }),
    async close() {
      isClosed = true;
      await Promise.all(slots.map(async ({ worker }) => worker?.terminate()));
      // Ending the threads has put their tasks back into the queue.
      for (const task of queue.splice(0)) task.reject(closedFault());
    },
  };
}

/** Sends a task to the worker. Only sending copies a block, so a waiting block isn't in memory twice. */
function send(worker: Worker, running: Slot['running'], message: ProofTask): void {
  try {
    worker.postMessage(message);
  } catch (error) {
    // Copying fails for lists nested deeper than the stack allows. No real block has such lists.
    running
      .get(message.id)
      ?.reject(
        new Fault('inconsistent', "the node's block is nested deeper than any real one", { cause: error }),
      );
    running.delete(message.id);
  }
}

const PROGRAM = new URL('./proof-worker.ts', import.meta.url);
/** A proved block is garbage at once, so a small young generation is enough and keeps the threads' memory small. */
const YOUNG_MB_MAX = 8;

const closedFault = () => new Fault('unavailable', 'the prover is closed');
