/**
 * Describes why the head stands still, for `/status` and for errors.
 */
import type { Clock } from '../../core/clock.ts';
import { type Fault, messageOf } from '../../core/fault.ts';
import type { BlockId } from '../../domain/block.ts';
import type { Quorum } from '../../domain/quorum.ts';
import { VOTE_MS_MAX } from './head-votes.ts';
import { isSound, type Node } from './node.ts';
import type { Progress } from './progress.ts';

export type HeadProblem = { message: string; since: Date };

/** Blocks above the head at which a node counts as ahead. It is normal that a node has one block first. */
const AHEAD_BLOCKS_MIN = 2;

export function createHeadProblems({
  nodes,
  quorum,
  clock,
  progress,
  hasVote,
}: {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  progress: Progress;
  hasVote(node: Node): boolean;
}) {
  /** The head stands still because nodes of the quorum are behind. */
  function behind(served: BlockId | undefined): HeadProblem | undefined {
    const since = progress.unmovedSince();
    if (served === undefined || since === undefined) return undefined;
    if (progress.blocksBehind(served.number) === undefined) return undefined;
    const each = nodes.flatMap(({ rpc, head, blocksBehind }) =>
      blocksBehind === undefined ? [] : `${rpc.name} is at block ${head?.number}, ${blocksBehind} behind`,
    );
    const message = `no ${quorum.needed()} of ${nodes.length} nodes name a block above ${served.number}: ${each.join('; ')}. Repair or replace the nodes that are behind`;
    return { message, since };
  }

  /** The head stands still, although some nodes name higher blocks. */
  function ahead(served: BlockId | undefined): HeadProblem | undefined {
    const since = progress.unmovedSince();
    if (served === undefined || since === undefined) return undefined;
    const from = served.number + AHEAD_BLOCKS_MIN;
    const higher = nodes.filter(
      (node) => hasVote(node) && isSound(node) && (node.vote?.head.number ?? 0) >= from,
    );
    if (higher.length === 0) return undefined;
    const each = higher.map(({ rpc, vote }) => `${rpc.name} names block ${vote?.head.number}`);
    const message = `the head has stayed at block ${served.number}, which ${quorum.needed()} of ${nodes.length} nodes name, while ${each.join('; ')}: if the chain is there, repair or replace the other nodes; if not, this one`;
    return { message, since };
  }

  /** Too few nodes can answer for a quorum. */
  function unanswered(): HeadProblem | undefined {
    const oweSince = ({ headAskedAt }: Node) =>
      headAskedAt !== undefined && clock.now().getTime() - headAskedAt > VOTE_MS_MAX
        ? headAskedAt
        : undefined;
    // If one of two nodes is followed alone, the other one rests and doesn't answer.
    const silent = quorum.silent()?.voter;
    const canAnswer = nodes.filter((node) => node !== silent && oweSince(node) === undefined);
    if (Math.max(canAnswer.length, nodes.filter(hasVote).length) >= quorum.needed()) return undefined;
    const asked = nodes.flatMap((node) => oweSince(node) ?? []);
    return { message: describe(), since: new Date(Math.min(...asked)) };
  }

  /** The vote of each node, or why it has none, and what to do. */
  function describe(faults: ReadonlyMap<Node, Fault> = new Map()): string {
    const each = nodes.map((node) => {
      const { rpc, vote, fault, head } = node;
      if (vote !== undefined && hasVote(node))
        return `${rpc.name} names block ${vote.head.number} (${vote.head.hash})`;
      const reason = faults.get(node) ?? fault;
      const last = head === undefined ? '' : `; its last block was ${head.number}`;
      return `${rpc.name} gives no vote (${reason === undefined ? 'no answer' : messageOf(reason)}${last})`;
    });
    const answers = each.join('; ');
    if (nodes.length === 1)
      return `${answers}. Following resumes as soon as it answers: check that it runs, or add another node to chain.rpc`;
    return (
      `no ${quorum.needed()} of ${nodes.length} nodes name the same block: ${answers}. ` +
      'Following resumes as soon as they do; repair or replace the nodes that are wrong or silent'
    );
  }

  return { behind, ahead, unanswered, describe };
}
