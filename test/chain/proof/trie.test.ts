import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { concatHex, type Hex, hexToBytes, keccak256, toHex, toRlp } from 'viem';
import { listRoot } from '../../../src/chain/proof/trie.ts';
import { fromBytes } from '../../../src/core/hex.ts';

test('the root of nothing is the hash of an empty string', () => {
  // Yellow paper: the root of an empty trie, as every block without transactions has it.
  assert.equal(fromBytes(listRoot([])), '0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421');
});

test('any list has the same root as inserting its values one by one', () => {
  const value = fc.uint8Array({ minLength: 1, maxLength: 80 });
  const lists = fc.oneof(
    fc.array(value, { minLength: 1, maxLength: 20 }),
    fc.tuple(fc.integer({ min: 120, max: 300 }), value).map(([count, one]) => Array(count).fill(one)),
  );
  fc.assert(
    fc.property(lists, (values) => {
      assert.equal(fromBytes(listRoot(values)), insertedRoot(values));
    }),
    { numRuns: 60 },
  );
});

test('nodes just below and above 32 bytes are encoded correctly', () => {
  for (let bytes = 20; bytes <= 36; bytes += 1) {
    const values = [1, 2, 3].map((number) => new Uint8Array(bytes).fill(number));
    assert.equal(fromBytes(listRoot(values)), insertedRoot(values), `${bytes} bytes`);
  }
});

test('a change of any value, of its position or of the count changes the root', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.integer({ min: 0, max: 255 }), { minLength: 2, maxLength: 150 }),
      fc.nat(),
      (numbers, pick) => {
        const values = numbers.map((number) => Uint8Array.of(1, number));
        const at = pick % values.length;
        const root = fromBytes(listRoot(values));
        const changed = values.with(at, Uint8Array.of(2, 0));
        assert.notEqual(fromBytes(listRoot(changed)), root);
        assert.notEqual(fromBytes(listRoot(values.slice(0, -1))), root);
        assert.notEqual(fromBytes(listRoot([...values.slice(1), ...values.slice(0, 1)])), root);
      },
    ),
  );
});

/** A trie in the textbook's way: a tree that grows by one value at a time. */
type Tree = { children: Map<string, Tree>; value?: Hex };

function insertedRoot(values: readonly Uint8Array[]): Hex {
  const root: Tree = { children: new Map() };
  for (const [index, value] of values.entries()) {
    let tree = root;
    for (const nibble of toRlp(index === 0 ? '0x' : toHex(index)).slice(2)) {
      const next = tree.children.get(nibble) ?? { children: new Map() };
      tree.children.set(nibble, next);
      tree = next;
    }
    tree.value = toHex(value);
  }
  return keccak256(encodeTree(root, ''));
}

/** The tree's RLP; `path` holds the digits that lead to it without a branch. */
function encodeTree(tree: Tree, path: string): Hex {
  if (tree.value !== undefined) return listOf([toRlp(pack(path, 2)), toRlp(tree.value)]);
  const [only] = tree.children;
  if (tree.children.size === 1 && only !== undefined) return encodeTree(only[1], path + only[0]);
  const slots = Array.from('0123456789abcdef', (nibble) => {
    const child = tree.children.get(nibble);
    return child === undefined ? '0x80' : reference(encodeTree(child, ''));
  });
  const branch = listOf([...slots, '0x80']);
  return path === '' ? branch : listOf([toRlp(pack(path, 0)), reference(branch)]);
}

const reference = (encoded: Hex): Hex =>
  hexToBytes(encoded).length < 32 ? encoded : toRlp(keccak256(encoded));

const pack = (path: string, kind: number): Hex =>
  path.length % 2 === 1 ? `0x${kind + 1}${path}` : `0x${kind}0${path}`;

function listOf(encodedItems: readonly Hex[]): Hex {
  const content = concatHex(encodedItems);
  const bytes = hexToBytes(content).length;
  if (bytes <= 55) return concatHex([toHex(0xc0 + bytes), content]);
  const length = toHex(bytes, { size: bytes < 256 ? 1 : 2 });
  return concatHex([toHex(0xf7 + hexToBytes(length).length), length, content]);
}
