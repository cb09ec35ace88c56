/**
 * One round of votes about the head: asks the nodes for their heads, and asks again those that lag behind a push. It waits no
 * longer than necessary.
 */
import type { Clock } from '../../core/clock.ts';
import type { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import type { Quorum } from '../../domain/quorum.ts';
import { gather } from './ask-several.ts';
import { createHeadPoll } from './head-poll.ts';
import { addAncestor, type HeadVote, reachedBy } from './head-votes.ts';
import { isOverdue, isReady, type Node } from './node.ts';

/** What the votes so far say. */
type Count = {
  hasVote(node: Node): boolean;
  votes(): HeadVote[];
  /** The highest block that a quorum names. */
  find(): BlockId | undefined;
  /** The same block if it is a new head. */
  findNew(): BlockId | undefined;
  /** Whether the last round ended without a quorum. */
  isHeld(): boolean;
};

type HeadRoundOptions = {
  /** In order of preference. */
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  /** Reads one node's head. */
  ask(node: Node, signal: AbortSignal): Promise<BlockHeader>;
  /** Reads the node's block hash at a height. Undefined if it has none. */
  askAt(node: Node, number: number, signal: AbortSignal): Promise<Hash | undefined>;
  /** Called with each head that a node gave. */
  note(node: Node, head: BlockHeader): void;
  count: Count;
};

/** Pauses before lagging nodes are asked again after a push. Propagation takes a fraction of a second. */
const AFTER_PUSH_MS = [25, 50, 100, 200];
/** How long to wait for a node's block at the height of a lower head. */
const BELOW_MS_MAX = 1_000;

/**
 * The returned function runs a round and resolves with the Faults of the nodes that failed. `announced` is the height of a
 * block that a node has just pushed.
 */
export function createHeadRound({ nodes, quorum, clock, ask, askAt, note, count }: HeadRoundOptions) {
  const askEach = createHeadPoll({ clock, ask, note, isDecided: () => count.findNew() !== undefined });
  const nowMs = () => clock.now().getTime();

  /** Leaves out nodes that rest, are limited or still owe an answer, unless a quorum needs them. */
  function askable(): readonly Node[] {
    const now = nowMs();
    const free = nodes.filter((node) => !isOverdue(node, now));
    const ready = free.filter((node) => isReady(node, now));
    if (ready.length >= quorum.needed() && !count.isHeld()) return ready;
    return free.length > 0 ? free : nodes;
  }

  async function askLagging(announced: number, signal: AbortSignal): Promise<void> {
    for (const pauseMs of AFTER_PUSH_MS) {
      if (count.findNew() !== undefined || announced <= (count.find()?.number ?? -1)) return;
      await clock.wait(pauseMs, signal);
      const now = nowMs();
      const lagging = askable().filter(
        (node) => (node.vote?.head.number ?? -1) < announced && !isOverdue(node, now),
      );
      if (lagging.length === 0) return;
      await askEach(lagging, signal);
    }
  }

  /** If heads differ by two blocks or more, asks the higher nodes for their block at the lower head's height. */
  async function compareBelow(signal: AbortSignal): Promise<void> {
    const height = reachedBy(count.votes(), quorum.needed());
    if (height === undefined || (count.find()?.number ?? -1) >= height) return;
    const higher = nodes.filter(
      (node) =>
        count.hasVote(node) && (node.vote?.head.number ?? 0) > height && !node.vote?.hashes.has(height),
    );
    const askBelow = (node: Node, abort: AbortSignal) => askAt(node, height, abort);
    const answers = await gather({ clock, signal, voters: higher, ask: askBelow, ms: BELOW_MS_MAX });
    for (const [node, hash] of answers)
      if (typeof hash === 'string' && node.vote !== undefined)
        node.vote = addAncestor(node.vote, { number: height, hash });
  }

  return async (signal: AbortSignal, announced?: number): Promise<Map<Node, Fault>> => {
    const faults = await askEach(askable(), signal);
    if (announced !== undefined) await askLagging(announced, signal);
    const missing = nodes.filter((node) => !count.hasVote(node));
    // If all are, Chainbell itself may be cut off, and the first node to answer again must not be followed alone.
    if (missing.length === nodes.length) quorum.noteOutage();
    else for (const node of missing) quorum.noteMiss(node);
    await compareBelow(signal);
    return faults;
  };
}
