/**
 * Counts votes on block hashes: which block a quorum of nodes names as canonical. These functions are pure;
 * `quorum-head.ts` collects the votes.
 */
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';

/**
 * The canonical hashes that one node named: its head, the ancestors that its heads link to, and heights that it
 * was asked for.
 */
export type HeadVote = {
  head: BlockHeader;
  /** When the node named this head, in milliseconds since 1970. */
  atMs: number;
  hashes: ReadonlyMap<number, Hash>;
};

/** Linked hashes kept for each node. A vote for a block is also a vote for that many of its ancestors. */
export const LINKED_MAX = 64;

/** How long a vote counts. Nodes are polled at least every two seconds. */
export const VOTE_MS_MAX = 5_000;

/**
 * Adds a header that the node calls its head. Keeps the hashes that the node named before only if the header
 * links to them.
 */
export function addHead(known: HeadVote | undefined, head: BlockHeader, atMs: number): HeadVote {
  const { number, hash, parentHash } = head;
  const hashes = new Map<number, Hash>();
  for (const [height, one] of known !== undefined && isLinked(known, head) ? known.hashes : [])
    if (height < number && height > number - LINKED_MAX) hashes.set(height, one);
  if (number > 0) hashes.set(number - 1, parentHash);
  hashes.set(number, hash);
  return { head, atMs, hashes };
}

/** Whether this header continues the chain that the node named before. */
export function isLinked(known: HeadVote | undefined, { number, hash, parentHash }: BlockHeader): boolean {
  return known?.hashes.get(number) === hash || known?.hashes.get(number - 1) === parentHash;
}

/** Adds the hash that the node named for a height below its head. */
export function addAncestor(known: HeadVote, { number, hash }: BlockId): HeadVote {
  return { ...known, hashes: new Map([...known.hashes, [number, hash]]) };
}

/**
 * The highest block that at least `quorum` votes name. If half of the nodes are a quorum, two blocks of one
 * height can both have one. Then the block with more votes wins. Among equals it is `served`, or else the block
 * of the preferred node.
 */
export function corroborate(
  votes: readonly HeadVote[],
  quorum: number,
  served?: BlockId,
): BlockId | undefined {
  const heights = new Set(votes.flatMap(({ hashes }) => [...hashes.keys()]));
  for (const number of [...heights].sort((one, other) => other - one)) {
    const named = votes.flatMap(({ hashes }) => hashes.get(number) ?? []);
    const hash = mostNamed(named, quorum, served?.hash);
    if (hash !== undefined) return { number, hash };
  }
  return undefined;
}

/** The hash with the most votes, at least `quorum`. Among equals it is the preferred one, or else the first. */
export function mostNamed(named: readonly Hash[], quorum: number, preferred?: Hash): Hash | undefined {
  const counts = new Map<Hash, number>();
  for (const hash of named) counts.set(hash, (counts.get(hash) ?? 0) + 1);
  let best: Hash | undefined;
  for (const [hash, count] of counts) {
    const bestCount = best === undefined ? quorum - 1 : (counts.get(best) ?? 0);
    if (count > bestCount || (count === bestCount && count >= quorum && hash === preferred)) best = hash;
  }
  return best;
}

/** The greatest height that at least `quorum` nodes have reached. Undefined if there are fewer votes. */
export function reachedBy(votes: readonly HeadVote[], quorum: number): number | undefined {
  return votes.map(({ head }) => head.number).sort((one, other) => other - one)[quorum - 1];
}

export function isNamedBy({ hashes }: HeadVote, { number, hash }: BlockId): boolean {
  return hashes.get(number) === hash;
}

/** How many of the votes name this block. */
export function countVotes(votes: readonly HeadVote[], block: BlockId): number {
  return votes.filter((vote) => isNamedBy(vote, block)).length;
}
