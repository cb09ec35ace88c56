/**
 * The root of the tries that a header commits to: lists, each value under its index.
 */
import { keccak_256 } from '@noble/hashes/sha3';
import { encodeRlp, quantityItem, type RlpItem } from './rlp.ts';

/**
 * The 32-byte root of the trie that has each value under the RLP of its index.
 * Source: yellow paper, section 4.3.2 and appendix D.
 */
export function listRoot(values: readonly Uint8Array[]): Uint8Array {
  if (values.length === 0) return keccak_256(encodeRlp('0x'));
  const entries = values.map((value, index) => ({ path: nibblesOf(index), value }));
  return keccak_256(encodeRlp(nodeOf(entries, 0)));
}

/** A value and the hex digits of its key. */
type Entry = { path: readonly number[]; value: Uint8Array };

/** The node below which these entries lie, all of the same path up to the depth. No key begins with another one. */
function nodeOf(entries: readonly Entry[], depth: number): RlpItem {
  const [first] = entries;
  if (first === undefined) return '0x';
  if (entries.length === 1) return [packPath(first.path.slice(depth), LEAF), first.value];
  let end = depth;
  while (entries.every(({ path }) => path[end] === first.path[end])) end += 1;
  if (end > depth)
    return [packPath(first.path.slice(depth, end), EXTENSION), referenceTo(nodeOf(entries, end))];
  const children: Entry[][] = Array.from({ length: 16 }, () => []);
  for (const entry of entries) children[entry.path[depth] ?? 0]?.push(entry);
  const references = children.map((child) =>
    child.length === 0 ? '0x' : referenceTo(nodeOf(child, depth + 1)),
  );
  return [...references, '0x'];
}

/** Nodes of less than 32 bytes stand in their parent, others are known by their hash. */
function referenceTo(node: RlpItem): RlpItem {
  const encoded = encodeRlp(node);
  return encoded.length < 32 ? node : keccak_256(encoded);
}

const EXTENSION = 0;
const LEAF = 2;

/** Hex digits as bytes, with their kind and parity in front (appendix C). */
function packPath(nibbles: readonly number[], kind: typeof EXTENSION | typeof LEAF): Uint8Array {
  const isOdd = nibbles.length % 2 === 1;
  const all = isOdd ? [kind + 1, ...nibbles] : [kind, 0, ...nibbles];
  return Uint8Array.from(
    { length: all.length / 2 },
    (_, at) => ((all[2 * at] ?? 0) << 4) | (all[2 * at + 1] ?? 0),
  );
}

function nibblesOf(index: number): number[] {
  const key = encodeRlp(quantityItem(`0x${index.toString(16)}`));
  return Array.from(key).flatMap((byte) => [byte >> 4, byte & 15]);
}
