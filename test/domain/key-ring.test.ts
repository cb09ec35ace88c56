import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../src/core/fault.ts';
import { deriveKeyRing, seal, unseal } from '../../src/domain/key-ring.ts';

const [former, present] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
const formerRing = deriveKeyRing(former);
const presentRing = deriveKeyRing(present);
const both = deriveKeyRing(present, [former]);
const plain = Buffer.from('what must stay secret');

const isFault = (error: unknown) => error instanceof Fault && error.code === 'unavailable';

test('a secret always gives the same key ring, whose keys differ from each other and from the secret', () => {
  assert.deepEqual(deriveKeyRing(Buffer.alloc(32, 1)), formerRing);
  assert.notEqual(formerRing.kekId, presentRing.kekId);
  assert.match(formerRing.kekId, /^[0-9a-f]{12}$/);
  assert.notDeepEqual(formerRing.pepper, formerRing.kek);
  assert.notDeepEqual(formerRing.kek, former);
});

test('sealed bytes open only for their row, and each sealing differs', () => {
  const sealed = seal(plain, 'row 1', presentRing);
  assert.deepEqual(unseal(sealed, 'row 1', presentRing), plain);
  assert.throws(() => unseal(sealed, 'row 2', presentRing), isFault);
  assert.throws(() => unseal({ ...sealed, kekId: formerRing.kekId }, 'row 1', both), isFault);
  assert.notDeepEqual(seal(plain, 'row 1', presentRing), sealed);
});

test('former secrets still open old data, and new data is sealed under the current secret', () => {
  assert.deepEqual(unseal(seal(plain, 'row', formerRing), 'row', both), plain);
  assert.equal(seal(plain, 'row', both).kekId, presentRing.kekId);
  assert.deepEqual(unseal(seal(plain, 'row', both), 'row', presentRing), plain);
});

test('a missing secret and a changed row give different errors', () => {
  assert.throws(() => unseal(seal(plain, 'row', formerRing), 'row', presentRing), /add it to formerSecrets/);
  assert.throws(() => unseal(seal(plain, 'row', presentRing), 'other', presentRing), /changed, or moved/);
});

test('a ciphertext with one changed bit or a missing part does not open', () => {
  const { ciphertext, kekId } = seal(plain, 'row', presentRing);
  fc.assert(
    fc.property(fc.nat(ciphertext.length - 1), fc.nat(7), (index, bit) => {
      const changed = Buffer.from(ciphertext);
      changed.writeUInt8(changed.readUInt8(index) ^ (1 << bit), index);
      assert.throws(() => unseal({ ciphertext: changed, kekId }, 'row', presentRing), isFault);
    }),
  );
  for (const length of [0, 11, 12, 16, 20, 28])
    assert.throws(
      () => unseal({ ciphertext: ciphertext.subarray(0, length), kekId }, 'row', presentRing),
      isFault,
    );
});
