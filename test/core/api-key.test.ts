import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  decryptKey,
  deriveKeyRing,
  encryptKey,
  generateApiKey,
  isWellFormedKey,
  lookupOf,
} from '../../src/core/api-key.ts';

const ring = deriveKeyRing(Buffer.alloc(32, 1));
const otherRing = deriveKeyRing(Buffer.alloc(32, 2));
const owner = { keyId: 'abcdefghijkl', watcherId: 7 };

test('a key is cb_live_, its id, 32 random bytes in base 62 and a checksum (DESIGN 8)', () => {
  const keys = Array.from({ length: 200 }, generateApiKey);
  for (const { id, text } of keys) {
    assert.match(text, /^cb_live_[0-9A-Za-z]{11}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
    assert.ok(text.startsWith(`cb_live_${id}_`));
    assert.ok(isWellFormedKey(text));
  }
  assert.equal(new Set(keys.map(({ text }) => text)).size, keys.length);
  assert.equal(new Set(keys.map(({ id }) => id)).size, keys.length);
});

test('one changed character anywhere makes a key malformed', () => {
  const { text } = generateApiKey();
  const replaceAt = (index: number, character: string) =>
    text.slice(0, index) + character + text.slice(index + 1);
  fc.assert(
    fc.property(
      fc.nat(text.length - 1),
      fc.constantFrom('0', 'a', 'Z', '_', '-', ' ', 'é'),
      (index, character) => {
        assert.equal(isWellFormedKey(replaceAt(index, character)), text[index] === character);
      },
    ),
  );
  for (const wrong of [
    '',
    'cb_live_',
    text.slice(0, -1),
    `${text}0`,
    ` ${text}`,
    `${text}\n`,
    text.toLowerCase() === text ? '' : text.toLowerCase(),
  ])
    assert.ok(!isWellFormedKey(wrong), JSON.stringify(wrong));
});

test('an encrypted key comes back for its own row only', () => {
  const { text } = generateApiKey();
  const sealed = encryptKey(text, owner, ring);
  assert.equal(decryptKey(sealed, owner, ring), text);
  assert.ok(!sealed.includes(text.slice(20, 40)));
  // The same row moved: another key's, another watcher's, another installation's.
  assert.throws(() => decryptKey(sealed, { ...owner, keyId: 'abcdefghijkm' }, ring));
  assert.throws(() => decryptKey(sealed, { ...owner, watcherId: 8 }, ring));
  assert.throws(() => decryptKey(sealed, owner, otherRing));
  assert.throws(() => decryptKey(sealed, owner, { ...ring, kekId: otherRing.kekId }));
});

test('a ciphertext with any one bit changed does not decrypt, and a short one does not either', () => {
  const sealed = encryptKey(generateApiKey().text, owner, ring);
  fc.assert(
    fc.property(fc.nat(sealed.length - 1), fc.nat(7), (index, bit) => {
      const changed = Buffer.from(sealed);
      changed.writeUInt8(changed.readUInt8(index) ^ (1 << bit), index);
      assert.throws(() => decryptKey(changed, owner, ring));
    }),
  );
  for (const length of [0, 16, 20, 28])
    assert.throws(() => decryptKey(sealed.subarray(0, length), owner, ring), String(length));
});

test('the same key encrypts differently each time, and is looked up by the same HMAC each time', () => {
  const { text } = generateApiKey();
  assert.notDeepEqual(encryptKey(text, owner, ring), encryptKey(text, owner, ring));
  assert.deepEqual(lookupOf(text, ring), lookupOf(text, ring));
  assert.equal(lookupOf(text, ring).length, 32);
  assert.notDeepEqual(lookupOf(text, ring), lookupOf(text, otherRing));
});

test('one secret always gives one key ring, whose parts differ from each other and from the secret', () => {
  assert.deepEqual(deriveKeyRing(Buffer.alloc(32, 1)), ring);
  assert.notEqual(ring.kekId, otherRing.kekId);
  assert.match(ring.kekId, /^[0-9a-f]{12}$/);
  assert.notDeepEqual(ring.pepper, ring.kek);
  assert.notDeepEqual(ring.kek, Buffer.alloc(32, 1));
});
