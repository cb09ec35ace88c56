import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OPERATOR } from '../../../src/api/http/auth.ts';
import { hasFreeSlot } from '../../../src/api/http/stream-slots.ts';

const max = { ownMax: 5, watchersMax: 100 };
/** `each` streams of each of these accounts. */
const streamsOf = (accounts: number, each: number) =>
  Array.from({ length: accounts * each }, (_, index) => 1 + (index % accounts));

test('watchers with all their streams open leave a first stream to each other one', () => {
  const full = streamsOf(20, 5);
  assert.equal(hasFreeSlot(full, 1, max), false);
  assert.equal(hasFreeSlot(full, 21, max), true);
  assert.equal(hasFreeSlot([...full, 21], 21, max), false);
  assert.equal(hasFreeSlot(streamsOf(20, 4), 1, max), true);
});

test('even first streams have a limit, and the operator has only its own', () => {
  assert.equal(hasFreeSlot(streamsOf(199, 1), 200, max), true);
  assert.equal(hasFreeSlot(streamsOf(200, 1), 201, max), false);
  assert.equal(hasFreeSlot(streamsOf(200, 1), OPERATOR, max), true);
  assert.equal(
    hasFreeSlot(
      Array.from({ length: 5 }, () => OPERATOR),
      OPERATOR,
      max,
    ),
    false,
  );
});
