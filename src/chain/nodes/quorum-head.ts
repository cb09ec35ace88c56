/**
 * Finds the head of the chain from the votes of the nodes: the highest block whose hash a quorum names
 * (docs/explanation/quorum.md).
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import { credibleCount, type Quorum } from '../../domain/quorum.ts';
import { createHeadProblems, type HeadProblem } from './head-problems.ts';
import { createHeadRound } from './head-round.ts';
import { addHead, corroborate, type HeadVote, isNamedBy, reachedBy, VOTE_MS_MAX } from './head-votes.ts';
import { isSound, type Node } from './node.ts';
import { createProgress, type Progress } from './progress.ts';

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
  notePushed(node: Node, head: BlockHeader): void;
  /** A new head for which the votes already suffice. Undefined if the nodes must be asked. */
  newHead(): BlockId | undefined;
  /** The last head. Undefined before the first one. */
  served(): BlockId | undefined;
  /** The votes that count now. */
  votes(): HeadVote[];
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

/** Honest nodes may be on sibling blocks until the next block. /status shows only longer disputes. */
const DISPUTE_MS_MIN = 2_000;

export function createHeadReader({ nodes, quorum, clock, ask, askAt }: HeadReaderOptions): HeadReader {
  let served: BlockId | undefined;
  /** The last head whose nodes are known to be on this chain. */
  let identified: BlockId | undefined;
  /** True until the first head. */
  let isHeld = true;
  let dispute: HeadProblem | undefined;
  const progress = createProgress(clock);
  const nowMs = () => clock.now().getTime();

  const hasVote = ({ vote }: Node) => vote !== undefined && nowMs() - vote.atMs <= VOTE_MS_MAX;
  const votes = () => nodes.filter(hasVote).flatMap(({ vote }) => vote ?? []);
  const find = () => corroborate(votes(), quorum.needed(), served);
  const findNew = () => {
    const head = find();
    return isNews(head, served) ? head : undefined;
  };
  const problems = createHeadProblems({ nodes, quorum, clock, progress, hasVote });
  const count = { hasVote, votes, find, findNew, isHeld: () => isHeld };
  const runRound = createHeadRound({ nodes, quorum, clock, ask, askAt, note, count });

  function note(node: Node, head: BlockHeader): void {
    node.head = head;
    node.vote = addHead(node.vote, head, nowMs());
    node.blocksBehind = progress.blocksBehind(head.number);
    quorum.noteAnswer(node);
  }

  function serve(head: BlockId): BlockId {
    served = head;
    if (!nodes.some((node) => hasVote(node) && node.isUnsure)) identified = head;
    progress.noteHead(head.number);
    noteOutvoted(nodes.filter(hasVote), votes(), { head, at: clock.now() });
    return head;
  }

  /** A dispute: enough nodes have reached a height, but no quorum has the same block there. */
  function noteDispute(head: BlockId | undefined): void {
    const height = reachedBy(votes(), quorum.needed());
    const isDisputed = height !== undefined && (head?.number ?? -1) < height;
    isHeld = head === undefined || isDisputed;
    dispute = isDisputed ? { message: problems.describe(), since: dispute?.since ?? clock.now() } : undefined;
  }

  return {
    served: () => served,
    votes,
    isHeld: () => isHeld,
    belowSince: progress.belowSince,
    stalled: () => problems.behind(served) ?? problems.unanswered(),
    ahead: () => problems.ahead(served),
    dispute: () =>
      dispute !== undefined && nowMs() - dispute.since.getTime() >= DISPUTE_MS_MIN ? dispute : undefined,
    notePushed: note,
    newHead() {
      const head = findNew();
      if (head === undefined) return undefined;
      noteDispute(head);
      return serve(head);
    },
    async read(signal, announced) {
      const faults = await runRound(signal, announced);
      noteProgress(nodes, nodes.filter(hasVote), progress);
      const head = find();
      noteDispute(head);
      if (head !== undefined) return serve(head);
      if (votes().length > 0) throw new Fault('inconsistent', problems.describe(faults));
      const foreign = nodes.flatMap(({ fault }) => (fault?.code === 'conflict' ? messageOf(fault) : []));
      if (foreign.length < nodes.length) throw new Fault('unavailable', problems.describe(faults));
      served = identified;
      throw new Fault('conflict', foreign.join('; '));
    },
  };
}

/** Records the height of the chain, and which nodes stay behind it. */
function noteProgress(nodes: readonly Node[], voters: readonly Node[], progress: Progress): void {
  const sound = voters.filter(isSound).flatMap(({ vote }) => vote ?? []);
  const reach = reachedBy(sound, credibleCount(nodes.length));
  if (reach !== undefined) progress.noteReach(reach);
  for (const node of nodes) node.blocksBehind = node.head && progress.blocksBehind(node.head.number);
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
  votes: readonly HeadVote[],
  { head, at }: { head: BlockId; at: Date },
): void {
  const [witness] = votes.filter((vote) => isNamedBy(vote, head));
  for (const node of voters) {
    const number = Math.min(node.vote?.head.number ?? 0, head.number);
    const hash = node.vote?.hashes.get(number);
    const corroboratedHash = witness?.hashes.get(number);
    const isNew = node.outvoted?.number !== number || node.outvoted.hash !== hash;
    if (hash === undefined || corroboratedHash === undefined || hash === corroboratedHash || !isNew) continue;
    node.outvotedCount += 1;
    node.outvoted = { number, hash, corroboratedHash, at: at };
  }
}
