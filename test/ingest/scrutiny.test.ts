import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createScrutiny } from '../../src/ingest/scrutiny.ts';

const never = () => false;

test('the last blocks below the head are looked at in full, older ones are not', () => {
  const scrutiny = createScrutiny(never);
  assert.equal(scrutiny.of({ from: 100, to: 100, head: 100 }), 'full');
  assert.equal(scrutiny.of({ from: 70, to: 91, head: 100 }), 'full');
  assert.equal(scrutiny.of({ from: 70, to: 90, head: 100 }), undefined);
});

test('a sampled request of a backfill is looked at in full', () => {
  assert.equal(createScrutiny(() => true).of({ from: 1, to: 30, head: 10_000 }), 'full');
});

test('after a lie the block and the next 1,000 are looked at in full', () => {
  const scrutiny = createScrutiny(never);
  scrutiny.suspect(500);
  assert.deepEqual(
    [499, 500, 1_500, 1_501].map((number) => scrutiny.of({ from: number, to: number, head: 9_999 })),
    [undefined, 'full', 'full', undefined],
  );
});
