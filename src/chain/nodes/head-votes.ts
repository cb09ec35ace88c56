/**
 * Votes on block hashes: which block a quorum of nodes names as canonical. Pure; quorum-head.ts collects the votes.
 */
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';

/**
 * The canonical hashes that one node named: its head, what links below it, and heights that it was asked for.
 */
export type Voice = {
  head: BlockHeader;
  /** When the node named this head, in milliseconds since 1970. */
  atMs: number;
  hashes: ReadonlyMap<number, Hash>;
};

/** Linked headers kept for each node: a vote for a block is a vote for this many of its ancestors. */
export const LINKED_MAX = 64;

/** A vote counts for so long. Nodes are polled at least every two seconds. */
export const VOTE_MS_MAX = 5_000;

/**
 * Adds a header that the node calls its head. Hashes that it named before stay only where the header links to
 * them.
 */
export function hear(known: Voice | undefined, head: BlockHeader, atMs: number): Voice {
  const { number, hash, parentHash } = head;
  const hashes = new Map<number, Hash>();
  for (const [height, one] of known !== undefined && isLinked(known, head) ? known.hashes : [])
    if (height < number && height > number - LINKED_MAX) hashes.set(height, one);
  if (number > 0) hashes.set(number - 1, parentHash);
  hashes.set(number, hash);
  return { head, atMs, hashes };
}

/** Whether the hashes that the node named show that this header continues them. */
export function isLinked(known: Voice | undefined, { number, hash, parentHash }: BlockHeader): boolean {
  return known?.hashes.get(number) === hash || known?.hashes.get(number - 1) === parentHash;
}

/** Adds the hash that the node named for a height below its head. */
export function hearBelow(known: Voice, { number, hash }: BlockId): Voice {
  return { ...known, hashes: new Map([...known.hashes, [number, hash]]) };
}

/**
 * The highest block that at least `quorum` voices name. If half of the nodes are a quorum, two blocks of one
 * height can both have one: then the one with more votes wins, among equals `served`, and otherwise the
 * preferred node's.
 */
export function corroborate(voices: readonly Voice[], quorum: number, served?: BlockId): BlockId | undefined {
  const heights = new Set(voices.flatMap(({ hashes }) => [...hashes.keys()]));
  for (const number of [...heights].sort((one, other) => other - one)) {
    const named = voices.flatMap(({ hashes }) => hashes.get(number) ?? []);
    const hash = mostNamed(named, quorum, served?.hash);
    if (hash !== undefined) return { number, hash };
  }
  return undefined;
}

/** The hash with the most votes, at least `quorum`; among equals the preferred one, else the first. */
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

/** The greatest height that at least `quorum` nodes have reached; undefined when fewer have spoken. */
export function reachedBy(voices: readonly Voice[], quorum: number): number | undefined {
  return voices.map(({ head }) => head.number).sort((one, other) => other - one)[quorum - 1];
}

export function isNamedBy({ hashes }: Voice, { number, hash }: BlockId): boolean {
  return hashes.get(number) === hash;
}

/** How many of the voices name this block. */
export function countVotes(voices: readonly Voice[], block: BlockId): number {
  return voices.filter((voice) => isNamedBy(voice, block)).length;
}
