/**
 * Worker threads that prove blocks, so that hashing keeps nothing else waiting.
 */
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Address } from '../../core/hex.ts';
import type { BlockProof, RawBlock, SenderScope } from './block-checks.ts';
import type { ProofTask } from './proof-worker.ts';

export type Prover = {
  /**
   * What the node's JSON proves, with the senders of this scope (by default none yet). @throws Fault
   * `unavailable` when the prover is closed or has too much to do, `inconsistent` for a block at which
   * workers die again and again.
   */
  prove(raw: RawBlock, scope?: SenderScope): Promise<BlockProof>;
  /**
   * The signer of each transaction, given as it was mined; undefined where the signature is none.
   * @throws as `prove`.
   */
  recover(signed: readonly Uint8Array[]): Promise<(Address | undefined)[]>;
  /** Ends the threads; waiting callers get a Fault. May be called again. */
  close(): Promise<void>;
};

type ProverOptions = {
  /** The program of the threads; another one in tests. */
  program?: URL;
};

/** One core is left to the rest of the program; more than two would wait for the nodes. */
const WORKERS_MAX = 2;
/** Two, so that a worker has its next block when it has done one. */
const TASKS_PER_WORKER_MAX = 2;
/** The follower asks for 100 blocks at most; this bounds unforeseen callers. */
const QUEUE_BLOCKS_MAX = 1_000;
/** A block that kills a worker this often is given up. */
const ATTEMPTS_MAX = 2;

type Work = { raw: RawBlock; scope: SenderScope } | { signed: Uint8Array[] };
/** `resolve` takes any answer of a worker; its type follows from the kind of work. */
type Task = { work: Work; attempts: number } & Pick<PromiseWithResolvers<unknown>, 'resolve' | 'reject'>;
type Slot = { worker: Worker | undefined; running: Map<number, Task> };

/** Threads start with the first block. A thread that dies is replaced, and the next one proves its blocks. */
export function createProver({ program = PROGRAM }: ProverOptions = {}): Prover {
  const size = Math.min(WORKERS_MAX, Math.max(1, availableParallelism() - 1));
  const slots: Slot[] = Array.from({ length: size }, () => ({ worker: undefined, running: new Map() }));
  const queue: Task[] = [];
  let lastId = 0;
  let isClosed = false;

  /** Gives waiting blocks to the workers with the fewest tasks. */
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
      // Blocks are proved in order, so the thread died at the first one. The others go back to the front of the queue.
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
    // The worker's code answers each kind of work with the matching type.
    queue.push({ work, attempts: 0, resolve: (answer) => resolve(answer as Answer), reject });
    dispatch();
    return promise;
  }

  return {
    prove: (raw, scope = 'matched') => run<BlockProof>({ raw, scope }),
    recover: (signed) => run<(Address | undefined)[]>({ signed: [...signed] }),
    async close() {
      isClosed = true;
      await Promise.all(slots.map(async ({ worker }) => worker?.terminate()));
      // Running tasks have come back to the queue.
      for (const task of queue.splice(0)) task.reject(closedFault());
    },
  };
}

/** Sends a task to the worker. Only this makes a copy, so waiting blocks cost none. */
function send(worker: Worker, running: Slot['running'], message: ProofTask): void {
  try {
    worker.postMessage(message);
  } catch (error) {
    // Lists nested deeper than the stack. No real block has them.
    running
      .get(message.id)
      ?.reject(new Fault('inconsistent', 'the block cannot be copied', { cause: error }));
    running.delete(message.id);
  }
}

const PROGRAM = new URL('./proof-worker.ts', import.meta.url);
/** What a block leaves behind is garbage at once; a small nursery keeps the threads' memory small. */
const YOUNG_MB_MAX = 8;

const closedFault = () => new Fault('unavailable', 'the prover is closed');
