/**
 * Computes the root of a list of values, as a header commits to it: a trie that has each value under its index.
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

/** A value of the trie. `path` is its key in hex digits. */
type Entry = { path: string; value: Uint8Array };

/**
 * The trie node that holds these entries. They are sorted by path, and their paths are equal up to `depth`. No
 * path is a prefix of another one.
 */
function nodeOf(entries: readonly Entry[], depth: number): RlpItem {
  const [first] = entries;
  const last = entries.at(-1);
  if (first === undefined || last === undefined) return '0x';
  if (first === last) return [packPath(first.path.slice(depth), LEAF), first.value];
  let end = depth;
  // The entries are sorted, so all of them share a prefix that the first and the last share.
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

/** A parent contains a node of less than 32 bytes directly, and any other node by its hash. */
function referenceTo(node: RlpItem): RlpItem {
  const encoded = encodeRlp(node);
  return encoded.length < 32 ? node : keccak256(encoded);
}

const EXTENSION = 0;
const LEAF = 2;

/** Packs hex digits into bytes, with their kind and parity in front (yellow paper, appendix C). */
function packPath(digits: string, kind: typeof EXTENSION | typeof LEAF): string {
  return digits.length % 2 === 1 ? `0x${kind + 1}${digits}` : `0x${kind}0${digits}`;
}

function pathOf(index: number): string {
  return encodeRlp(quantityItem(`0x${index.toString(16)}`)).toString('hex');
}
