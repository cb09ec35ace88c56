/**
 * The head of the chain by the word of several nodes: the newest that a second one has too, as soon as that can be said.
 */
import type { BlockHeader } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { headPatienceMs, isOverdue, isReady, type Node } from './node.ts';

export type HeadReader = {
  /**
   * The head: never lower than the last one. Nodes that are late are not waited for. Of the only node that answers, its
   * own. @throws Fault when none answers, `conflict` when all are on another chain.
   */
  read(signal: AbortSignal): Promise<BlockHeader>;
  /** The last head; undefined before the first. */
  served(): BlockHeader | undefined;
  /** Takes a head that needs no second word. */
  serve(head: BlockHeader): BlockHeader;
  /** The head with this hash could not be had: lower ones count again. */
  forget(hash: Hash): void;
};

/** `ask` reads one node's head. */
export function createHeadReader(
  nodes: readonly Node[],
  clock: Clock,
  ask: (node: Node, signal: AbortSignal) => Promise<BlockHeader>,
): HeadReader {
  let served: BlockHeader | undefined;

  function serve(head: BlockHeader): BlockHeader {
    if (served === undefined || head.number >= served.number) served = head;
    return served;
  }

  /** Those worth asking: without the ones that rest, are limited or still owe an answer, unless there are no others. */
  function askable(): readonly Node[] {
    const now = clock.now().getTime();
    const ready = nodes.filter((node) => isReady(node, now));
    const prompt = ready.filter((node) => !isOverdue(node, now));
    return [prompt, ready, nodes].find((some) => some.length > 0) ?? [];
  }

  async function askNode(node: Node, signal: AbortSignal): Promise<BlockHeader> {
    node.headAskedAt ??= clock.now().getTime();
    try {
      node.head = await ask(node, signal);
      return node.head;
    } finally {
      node.headAskedAt = undefined;
    }
  }

  return {
    served: () => served,
    serve,
    forget(hash) {
      if (served?.hash === hash) served = undefined;
    },
    async read(signal) {
      const asked = askable();
      const pending = new Set(asked);
      const heads = new Map<Node, BlockHeader>();
      const faults: Fault[] = [];
      const decided = Promise.withResolvers<void>();
      const patience = new AbortController();
      let isPatient = true;

      function decide(): void {
        if (pending.size === 0 || isNews(heads, served)) decided.resolve();
        else if (heads.size > 0 && isPatient) {
          isPatient = false;
          const graceMs = Math.max(...Array.from(pending, headPatienceMs));
          clock.wait(graceMs, patience.signal).then(decided.resolve, decided.reject);
        }
      }
      for (const node of asked) {
        askNode(node, signal)
          .then(
            (head) => heads.set(node, head),
            (error: unknown) => (error instanceof Fault ? faults.push(error) : decided.reject(error)),
          )
          .finally(() => {
            pending.delete(node);
            decide();
          });
      }
      try {
        await decided.promise;
      } finally {
        patience.abort();
      }
      const head = corroborated(
        nodes.flatMap((node) => heads.get(node) ?? []),
        served,
      );
      if (head !== undefined) return serve(head);
      const code = faults.every((fault) => fault.code === 'conflict') ? 'conflict' : 'unavailable';
      throw new Fault(code, faults.map(messageOf).join('; '));
    },
  };
}

/** Whether two nodes already agree on a head above the last one: what the others say can wait for the next time. */
function isNews(heads: ReadonlyMap<Node, BlockHeader>, served: BlockHeader | undefined): boolean {
  const [highest, second] = [...heads.values()].sort((one, other) => other.number - one.number);
  if (highest === undefined || highest.hash !== second?.hash) return false;
  return served === undefined || highest.number > served.number;
}

/**
 * The second highest number, and of the heads with it the one that most nodes have; among equals the one that was served,
 * so that a fork of two nodes does not go back and forth, else the preferred node's.
 */
function corroborated(
  heads: readonly BlockHeader[],
  served: BlockHeader | undefined,
): BlockHeader | undefined {
  const sorted = [...heads].sort((one, other) => other.number - one.number);
  const second = sorted[Math.min(1, sorted.length - 1)];
  const rivals = heads.filter(({ number }) => number === second?.number);
  const votes = (head: BlockHeader) =>
    rivals.filter(({ hash }) => hash === head.hash).length + (head.hash === served?.hash ? 0.5 : 0);
  return rivals.sort((one, other) => votes(other) - votes(one))[0];
}
