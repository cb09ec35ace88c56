/**
 * The root of the tries that a header commits to: lists, each value under its index.
 */
import { keccak256 } from './keccak.ts';
import { encodeRlp, quantityItem, type RlpItem } from './rlp.ts';

/**
 * The 32-byte root of the trie that has each value under the RLP of its index.
 * Source: yellow paper, section 4.3.2 and appendix D.
 */
export function listRoot(values: readonly Uint8Array[]): Uint8Array {
  const entries = values.map((value, index) => ({ path: pathOf(index), value }));
  entries.sort((one, other) => (one.path < other.path ? -1 : 1));
  return keccak256(encodeRlp(nodeOf(entries, 0)));
}

/** A value and the hex digits of its key. */
type Entry = { path: string; value: Uint8Array };

/**
 * The node below which these entries lie, by path, all of the same up to the depth. No path begins with
 * another one.
 */
function nodeOf(entries: readonly Entry[], depth: number): RlpItem {
  const [first] = entries;
  const last = entries.at(-1);
  if (first === undefined || last === undefined) return '0x';
  if (first === last) return [packPath(first.path.slice(depth), LEAF), first.value];
  let end = depth;
  // What the first and the last have in common all have between them.
  while (first.path[end] === last.path[end]) end += 1;
  if (end > depth)
    return [packPath(first.path.slice(depth, end), EXTENSION), referenceTo(nodeOf(entries, end))];
  const branch: RlpItem[] = [];
  let from = 0;
  for (const digit of '0123456789abcdef') {
    let to = from;
    while (entries[to]?.path[depth] === digit) to += 1;
    branch.push(from === to ? '0x' : referenceTo(nodeOf(entries.slice(from, to), depth + 1)));
    from = to;
  }
  return [...branch, '0x'];
}

/** Nodes of less than 32 bytes stand in their parent, others are known by their hash. */
function referenceTo(node: RlpItem): RlpItem {
  const encoded = encodeRlp(node);
  return encoded.length < 32 ? node : keccak256(encoded);
}

const EXTENSION = 0;
const LEAF = 2;

/** Hex digits as bytes, with their kind and parity in front (appendix C). */
function packPath(digits: string, kind: typeof EXTENSION | typeof LEAF): string {
  return digits.length % 2 === 1 ? `0x${kind + 1}${digits}` : `0x${kind}0${digits}`;
}

function pathOf(index: number): string {
  return encodeRlp(quantityItem(`0x${index.toString(16)}`)).toString('hex');
}
