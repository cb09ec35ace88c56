/**
 * Anchors requested blocks in a quorum of the nodes (docs/explanation/quorum.md): a quorum names the last block of each request,
 * and the others are its ancestors.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import type { Quorum } from '../../domain/quorum.ts';
import type { Bundle } from '../blocks/bundle.ts';
import { areLinked, digestOf } from '../blocks/content.ts';
import { openBallot } from './ballot.ts';
import { type HeadVote, mostNamed } from './head-votes.ts';
import { byReadiness, type Node, overdueMs } from './node.ts';

/** The voting nodes, and how to ask one of them. */
export type Electorate = {
  /** In order of preference. */
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  /** One node's header. Undefined if it doesn't know the block. @throws Fault */
  headerOf(node: Node, reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
};

type AnchorOptions = Electorate & {
  /** The votes that the heads of the nodes have cast. */
  headVotes(): readonly HeadVote[];
  /** The same blocks from one node without traces. @throws Fault */
  fetchPlain(node: Node, references: readonly BlockReference[], signal: AbortSignal): Promise<Bundle[]>;
};

type Anchors = {
  /**
   * The blocks that `fetch` gets from the node. A quorum that includes this node must name the last one, each block must be
   * the parent of the next, and a quorum must have the same contents for blocks that are not proved in full.
   * @throws Fault `inconsistent` otherwise, and those of `fetch`
   */
  anchor(
    node: Node,
    references: readonly BlockReference[],
    signal: AbortSignal,
    fetch: () => Promise<Bundle[]>,
  ): Promise<Bundle[]>;
  /** The header at a height that a quorum names. Undefined without a quorum. */
  corroborated(number: number, signal: AbortSignal): Promise<BlockHeader | undefined>;
};

export function createAnchors(options: AnchorOptions): Anchors {
  const { quorum, clock, headerOf } = options;

  return {
    async anchor(node, references, signal, fetch) {
      const last = references.at(-1);
      // A hash was confirmed by a quorum before it was requested.
      const anchor =
        typeof last === 'number' ? openAnchor(options, { node, number: last }, signal) : undefined;
      try {
        const bundles = await fetch();
        const newest = bundles.at(-1)?.header;
        if (newest === undefined) return bundles;
        if (!areLinked(bundles.map(({ header }) => header))) {
          const what = `blocks up to ${newest.number} that do not follow one another`;
          throw new Fault('inconsistent', `${node.rpc.name} gave ${what}`);
        }
        await anchor?.confirm(newest);
        await compareContents(options, { node, bundles }, signal);
        return bundles;
      } finally {
        anchor?.close();
      }
    },
    async corroborated(number, signal) {
      // Where hashes are not checked, a node can give the right one with a made-up parent. So they are voted on together.
      const ballot = openBallot<Node, { hash: Hash; header: BlockHeader }>({
        ...{ clock, signal, lateMs },
        voters: ordered(options),
        async vote(node, abort) {
          const header = await headerOf(node, number, abort);
          return header && { hash: `${header.hash}${header.parentHash}`, header };
        },
      });
      try {
        const votes = [...(await ballot.settle(quorum.needed())).values()].flatMap((vote) => vote ?? []);
        const winner = mostNamed(
          votes.map(({ hash }) => hash),
          quorum.needed(),
        );
        return votes.find(({ hash }) => hash === winner)?.header;
      } finally {
        ballot.close();
      }
    },
  };
}

const ordered = ({ nodes, clock }: Electorate) => byReadiness(nodes, clock.now().getTime());
const lateMs = ({ headTimes }: Node) => overdueMs(headTimes);

/** Asks other nodes for the block at a height, except those whose heads already include it, and compares their hashes. */
function openAnchor(
  options: AnchorOptions,
  { node, number }: { node: Node; number: number },
  signal: AbortSignal,
) {
  const { nodes, quorum, clock, headerOf, headVotes } = options;
  const counting = new Set(headVotes());
  const others = ordered(options).filter((other) => other !== node);
  const knowing = others.filter(
    ({ vote }) => vote !== undefined && counting.has(vote) && vote.hashes.has(number),
  );
  const ballot = openBallot<Node, { hash: Hash }>({
    ...{ clock, signal, lateMs },
    voters: others.filter((other) => !knowing.includes(other)),
    vote: (other, abort) => headerOf(other, number, abort),
  });
  for (const other of knowing) {
    const hash = other.vote?.hashes.get(number);
    ballot.add(other, hash && { hash });
  }
  ballot.ask(Math.max(0, quorum.needed() - 1 - knowing.length));
  return {
    close: ballot.close,
    async confirm({ hash }: BlockHeader): Promise<void> {
      ballot.add(node, { hash });
      const votes = await ballot.settle(quorum.needed(), hash);
      const named = [...votes.values()].flatMap((vote) => vote?.hash ?? []);
      const winner = mostNamed(named, quorum.needed(), hash);
      if (winner === hash) return;
      if (winner !== undefined) node.suspectNumber ??= number;
      const each = Array.from(votes, ([voter, vote]) => `${voter.rpc.name} ${vote?.hash ?? 'no answer'}`);
      throw new Fault(
        'inconsistent',
        `${node.rpc.name} gave block ${number} as ${hash}, which no ${quorum.needed()} of ${nodes.length} nodes name: ${each.join(', ')}`,
      );
    },
  };
}

/** Compares blocks that are not proved in full with those of other nodes. @throws Fault `inconsistent` */
async function compareContents(
  options: AnchorOptions,
  { node, bundles }: { node: Node; bundles: readonly Bundle[] },
  signal: AbortSignal,
): Promise<void> {
  const { nodes, quorum, clock, fetchPlain } = options;
  if (quorum.needed() === 1 || bundles.every(({ proved }) => proved)) return;
  const references = bundles.map(({ header }) => header.hash);
  let isDisproof = false;
  const ballot = openBallot<Node, { hash: Hash }>({
    ...{ clock, signal },
    voters: ordered(options).filter((other) => other !== node),
    vote: async (other, abort) => ({ hash: digestOf(await fetchPlain(other, references, abort)) }),
    lateMs: ({ bundleTimes }) => overdueMs(bundleTimes),
  });
  try {
    const hash = digestOf(bundles);
    ballot.add(node, { hash });
    const votes = await ballot.settle(quorum.needed(), hash);
    const named = [...votes.values()].flatMap((vote) => vote?.hash ?? []);
    const winner = mostNamed(named, quorum.needed(), hash);
    if (winner === hash) return;
    isDisproof = winner !== undefined;
  } finally {
    ballot.close();
  }
  const [first, last] = [bundles[0]?.header.number, bundles.at(-1)?.header.number];
  throw new Fault(
    'inconsistent',
    `${node.rpc.name} gave blocks ${first} to ${last}, which are not proved in full, with contents that no ${quorum.needed()} of ${nodes.length} nodes have`,
    { isDisproof },
  );
}
