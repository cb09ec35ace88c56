/**
 * The words in which contracts take and return values.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  addressOfTopic,
  decodeAddress,
  digitsAt,
  encodeWord,
  WORD_BYTES,
  wordAt,
  wordsOf,
} from '../../src/core/abi.ts';

const ADDRESS = '0x00000000000000000000000000000000000000ab';
const ONE = '0000000000000000000000000000000000000000000000000000000000000001';
const AB = '00000000000000000000000000000000000000000000000000000000000000ab';
const MAX = 'f'.repeat(64);

test('numbers and addresses fill a word from its right end', () => {
  assert.equal(encodeWord(1), ONE);
  assert.equal(encodeWord(2n ** 256n - 1n), MAX);
  assert.equal(encodeWord(ADDRESS), AB);
});

test('a word is read at its byte, and only if the data has all of it', () => {
  const data = `0x${ONE}${MAX}` as const;
  assert.equal(wordAt(data, 0), 1n);
  assert.equal(wordAt(data, WORD_BYTES), 2n ** 256n - 1n);
  assert.equal(wordAt(data, 1), 0x1ffn);
  assert.equal(digitsAt(data, WORD_BYTES), MAX);
  for (const byte of [WORD_BYTES + 1, 2 * WORD_BYTES]) {
    assert.equal(wordAt(data, byte), undefined);
    assert.equal(digitsAt(data, byte), undefined);
  }
});

test('too few words are none, and further data is ignored', () => {
  assert.deepEqual(wordsOf(`0x${ONE}${AB}ff`, 2), [1n, 0xabn]);
  assert.deepEqual(wordsOf(`0x${ONE}${AB}`, 1), [1n]);
  assert.deepEqual(wordsOf(`0x${ONE}${AB.slice(1)}`, 2), []);
  assert.deepEqual(wordsOf('0x', 1), []);
  assert.deepEqual(wordsOf(undefined, 1), []);
});

test('an address is refused in a word with other bytes, but not in a topic', () => {
  assert.equal(decodeAddress(AB), ADDRESS);
  assert.equal(decodeAddress(`1${AB.slice(1)}`), undefined);
  assert.equal(decodeAddress(`${AB.slice(0, 23)}1${AB.slice(24)}`), undefined);
  assert.equal(addressOfTopic(`0x${AB}`), ADDRESS);
  assert.equal(addressOfTopic(`0x${'f'.repeat(24)}${AB.slice(24)}`), ADDRESS);
});
