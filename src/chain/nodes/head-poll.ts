/**
 * Asks nodes for their heads at the same time, and waits no longer than necessary.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { headPatienceMs, type Node } from './node.ts';

type HeadPollOptions = {
  clock: Clock;
  /** Reads one node's head. */
  ask(node: Node, signal: AbortSignal): Promise<BlockHeader>;
  /** Called with each head that a node gave. */
  note(node: Node, head: BlockHeader): void;
  /** Whether the votes so far name a new head. */
  isDecided(): boolean;
};

/**
 * The returned function resolves with the Faults of the nodes that failed. It resolves when all nodes have
 * answered, when the votes name a new head, or when the late nodes have used up their time.
 */
export function createHeadPoll({ clock, ask, note, isDecided }: HeadPollOptions) {
  async function askNode(node: Node, signal: AbortSignal): Promise<void> {
    node.headAskedAt ??= clock.now().getTime();
    try {
      note(node, await ask(node, signal));
    } catch (error) {
      node.vote = undefined;
      if (error instanceof Fault && error.code === 'conflict' && node.isUnsure) {
        node.head = undefined;
        node.isUnsure = false;
      }
      throw error;
    } finally {
      node.headAskedAt = undefined;
    }
  }

  return async (asked: readonly Node[], signal: AbortSignal): Promise<Map<Node, Fault>> => {
    const pending = new Set(asked);
    const faults = new Map<Node, Fault>();
    const decided = Promise.withResolvers<void>();
    const patience = new AbortController();
    let isPatient = true;
    for (const node of asked) {
      askNode(node, signal)
        .catch((error: unknown) => {
          if (error instanceof Fault) faults.set(node, error);
          else decided.reject(error);
        })
        .finally(() => {
          pending.delete(node);
          if (pending.size === 0 || isDecided()) return decided.resolve();
          if (!isPatient || pending.size === asked.length) return;
          isPatient = false;
          const graceMs = Math.max(...Array.from(pending, headPatienceMs));
          clock.wait(graceMs, patience.signal).then(decided.resolve, decided.reject);
        });
    }
    try {
      await decided.promise;
    } finally {
      patience.abort();
    }
    return faults;
  };
}
