import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  decryptKey,
  encryptKey,
  generateApiKey,
  isWellFormedKey,
  lookupOf,
  lookupsOf,
} from '../../src/domain/api-key.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';

const ring = deriveKeyRing(Buffer.alloc(32, 1));
const otherRing = deriveKeyRing(Buffer.alloc(32, 2));
const owner = { keyId: 'abcdefghijkl', watcherId: 7 };

test('a key is cb_live_, its id, 32 random bytes in base 62 and a checksum', () => {
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

test('an encrypted key can be decrypted only in its row', () => {
  const { text } = generateApiKey();
  const sealed = encryptKey(text, owner, ring);
  assert.equal(decryptKey(sealed, owner, ring), text);
  assert.ok(!Buffer.from(sealed.ciphertext).includes(text.slice(20, 40)));
  // The ciphertext in the row of another key, another watcher and another installation.
  assert.throws(() => decryptKey(sealed, { ...owner, keyId: 'abcdefghijkm' }, ring));
  assert.throws(() => decryptKey(sealed, { ...owner, watcherId: 8 }, ring));
  assert.throws(() => decryptKey(sealed, owner, otherRing));
});

test('a key that was encrypted before former secrets existed can still be decrypted', () => {
  const ciphertext = Buffer.from('/hfTFb9sQaXKFFbxbui14d4CGcb34K1hI3AwpUZTw1deUD5X6QX8Yw==', 'base64');
  assert.equal(decryptKey({ ciphertext, kekId: '13a01438fd16' }, owner, ring), 'a key of old');
});

test('a key always has the same lookup HMAC, and one for each secret', () => {
  const { text } = generateApiKey();
  assert.deepEqual(lookupOf(text, ring), lookupOf(text, ring));
  assert.equal(lookupOf(text, ring).length, 32);
  assert.notDeepEqual(lookupOf(text, ring), lookupOf(text, otherRing));
  const both = deriveKeyRing(Buffer.alloc(32, 2), [Buffer.alloc(32, 1)]);
  assert.deepEqual(lookupsOf(text, both), [lookupOf(text, otherRing), lookupOf(text, ring)]);
});
