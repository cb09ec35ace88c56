/**
 * Finds the head of the chain from the votes of the nodes: the highest block whose hash a quorum names
 * (docs/explanation/quorum.md).
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import { credibleCount, type Quorum } from '../../domain/quorum.ts';
import { gather } from './ask-several.ts';
import { createHeadPoll } from './head-poll.ts';
import { createHeadProblems, type HeadProblem } from './head-problems.ts';
import { corroborate, hear, hearBelow, isNamedBy, reachedBy, VOTE_MS_MAX, type Voice } from './head-votes.ts';
import { isOverdue, isReady, isSound, type Node } from './node.ts';
import { createProgress } from './progress.ts';

export type HeadReader = {
  /**
   * Asks the nodes and returns the highest block with a quorum. It does not wait for late nodes once a quorum
   * names a new head. `announced` is the height of a block that a node has just pushed. Nodes that lack it are
   * asked again.
   * @throws Fault `inconsistent` without a quorum, `unavailable` if no node answers, `conflict` if all are on
   * another chain
   */
  read(signal: AbortSignal, announced?: number): Promise<BlockId>;
  /** Counts a head that the node pushed as its vote. */
  hear(node: Node, head: BlockHeader): void;
  /** A new head for which the votes already suffice. Undefined if the nodes must be asked. */
  news(): BlockId | undefined;
  /** The last head. Undefined before the first one. */
  served(): BlockId | undefined;
  /** The votes that count now. */
  voices(): Voice[];
  /** Whether the last round ended without a quorum. */
  isHeld(): boolean;
  /** Since when each head has been below this height, if that lasts. */
  belowSince(number: number): Date | undefined;
  /** Set if the head stands still because a node that the quorum needs is behind or doesn't answer. */
  stalled(): HeadProblem | undefined;
  /** The nodes that are ahead of a head that has stood still for long. They are too few for a quorum. */
  ahead(): HeadProblem | undefined;
  /** The disagreement about the newest blocks, while it lasts. */
  dispute(): HeadProblem | undefined;
};

type HeadReaderOptions = {
  /** In order of preference. */
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  /** Reads one node's head. */
  ask(node: Node, signal: AbortSignal): Promise<BlockHeader>;
  /** Reads the node's block hash at a height. Undefined if it has none. */
  askAt(node: Node, number: number, signal: AbortSignal): Promise<Hash | undefined>;
};

/** Pauses before lagging nodes are asked again after a push. Propagation takes a fraction of a second. */
const AFTER_PUSH_MS = [25, 50, 100, 200];
/** Honest nodes may be on sibling blocks until the next block. /status shows only longer disputes. */
const DISPUTE_MS_MIN = 2_000;
/** How long to wait for a node's block at the height of a lower head. */
const BELOW_MS_MAX = 1_000;

// oxlint-disable-next-line max-lines-per-function -- one round of votes: every part reads and writes the same votes
export function createHeadReader({ nodes, quorum, clock, ask, askAt }: HeadReaderOptions): HeadReader {
  let served: BlockId | undefined;
  /** The last head whose nodes are known to be on this chain. */
  let identified: BlockId | undefined;
  /** True until the first head. */
  let isHeld = true;
  const progress = createProgress(clock);
  let dispute: HeadProblem | undefined;
  const nowMs = () => clock.now().getTime();

  const isVote = ({ voice }: Node) => voice !== undefined && nowMs() - voice.atMs <= VOTE_MS_MAX;
  const voices = () => nodes.filter(isVote).flatMap(({ voice }) => voice ?? []);
  const find = () => corroborate(voices(), quorum.needed(), served);

  /** Leaves out nodes that rest, are limited or still owe an answer, unless a quorum needs them. */
  function askable(): readonly Node[] {
    const now = nowMs();
    const free = nodes.filter((node) => !isOverdue(node, now));
    const ready = free.filter((node) => isReady(node, now));
    if (ready.length >= quorum.needed() && !isHeld) return ready;
    return free.length > 0 ? free : nodes;
  }

  const problems = createHeadProblems({ nodes, quorum, clock, progress, isVote });
  const askEach = createHeadPoll({
    ...{ clock, ask, note },
    isDecided: () => isNews(find(), served),
  });

  function note(node: Node, head: BlockHeader): void {
    node.head = head;
    node.voice = hear(node.voice, head, nowMs());
    node.blocksBehind = progress.blocksBehind(head.number);
    quorum.heard(node);
  }

  /** If heads differ by two blocks or more, asks the higher nodes for their block at the lower head's height. */
  async function compareBelow(signal: AbortSignal): Promise<void> {
    const height = reachedBy(voices(), quorum.needed());
    if (height === undefined || (find()?.number ?? -1) >= height) return;
    const higher = nodes.filter(
      (node) => isVote(node) && (node.voice?.head.number ?? 0) > height && !node.voice?.hashes.has(height),
    );
    const ask = (node: Node, abort: AbortSignal) => askAt(node, height, abort);
    const answers = await gather({ clock, signal, voters: higher, ask, ms: BELOW_MS_MAX });
    for (const [node, hash] of answers)
      if (typeof hash === 'string' && node.voice !== undefined)
        node.voice = hearBelow(node.voice, { number: height, hash });
  }

  function serve(head: BlockId): BlockId {
    served = head;
    if (!nodes.some((node) => isVote(node) && node.isUnsure)) identified = head;
    progress.noteHead(head.number);
    noteOutvoted(nodes.filter(isVote), voices(), { head, at: clock.now() });
    return head;
  }

  /** Records the height of the chain, and which nodes stay behind it. */
  function noteProgress(): void {
    const sound = nodes.filter((node) => isVote(node) && isSound(node)).flatMap(({ voice }) => voice ?? []);
    const reach = reachedBy(sound, credibleCount(nodes.length));
    if (reach !== undefined) progress.noteReach(reach);
    for (const node of nodes) node.blocksBehind = node.head && progress.blocksBehind(node.head.number);
  }

  /** A dispute: enough nodes have reached a height, but no quorum has the same block there. */
  function noteDispute(head: BlockId | undefined): void {
    const height = reachedBy(voices(), quorum.needed());
    const isDisputed = height !== undefined && (head?.number ?? -1) < height;
    isHeld = head === undefined || isDisputed;
    dispute = isDisputed ? { message: problems.describe(), since: dispute?.since ?? clock.now() } : undefined;
  }

  return {
    served: () => served,
    voices,
    isHeld: () => isHeld,
    belowSince: progress.belowSince,
    stalled: () => problems.behind(served) ?? problems.unanswered(),
    ahead: () => problems.ahead(served),
    dispute: () =>
      dispute !== undefined && nowMs() - dispute.since.getTime() >= DISPUTE_MS_MIN ? dispute : undefined,
    hear: note,
    news() {
      const head = find();
      if (!isNews(head, served)) return undefined;
      noteDispute(head);
      return serve(head);
    },
    async read(signal, announced) {
      const faults = await askEach(askable(), signal);
      for (const pauseMs of AFTER_PUSH_MS) {
        if (announced === undefined || isNews(find(), served) || announced <= (find()?.number ?? -1)) break;
        await clock.wait(pauseMs, signal);
        const now = nowMs();
        const lagging = askable().filter(
          (node) => (node.voice?.head.number ?? -1) < announced && !isOverdue(node, now),
        );
        if (lagging.length === 0) break;
        await askEach(lagging, signal);
      }
      for (const node of nodes) if (!isVote(node)) quorum.missed(node);
      noteProgress();
      await compareBelow(signal);
      const head = find();
      noteDispute(head);
      if (head !== undefined) return serve(head);
      if (voices().length > 0) throw new Fault('inconsistent', problems.describe(faults));
      const foreign = nodes.flatMap(({ fault }) => (fault?.code === 'conflict' ? messageOf(fault) : []));
      if (foreign.length === nodes.length) {
        served = identified;
        throw new Fault('conflict', foreign.join('; '));
      }
      throw new Fault('unavailable', problems.describe(faults));
    },
  };
}

function isNews(head: BlockId | undefined, served: BlockId | undefined): head is BlockId {
  if (head === undefined || served === undefined) return head !== undefined;
  return head.number > served.number || (head.number === served.number && head.hash !== served.hash);
}

/**
 * Records which nodes voted for another block than the quorum. It compares at the height of the head, or of the
 * node's head if that is lower.
 */
function noteOutvoted(
  voters: readonly Node[],
  voices: readonly Voice[],
  { head, at }: { head: BlockId; at: Date },
): void {
  const [witness] = voices.filter((voice) => isNamedBy(voice, head));
  for (const node of voters) {
    const number = Math.min(node.voice?.head.number ?? 0, head.number);
    const hash = node.voice?.hashes.get(number);
    const corroboratedHash = witness?.hashes.get(number);
    const isNew = node.outvoted?.number !== number || node.outvoted.hash !== hash;
    if (hash === undefined || corroboratedHash === undefined || hash === corroboratedHash || !isNew) continue;
    node.outvotedCount += 1;
    node.outvoted = { number, hash, corroboratedHash, at: at };
  }
}
