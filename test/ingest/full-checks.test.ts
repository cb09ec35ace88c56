import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../src/core/log.ts';
import { createScrutiny } from '../../src/ingest/full-checks.ts';
import { headerOf, noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';

const never = () => false;
const scrutinyWith = (isSampled: () => boolean) =>
  createScrutiny({ clock: createTestClock(noon), log: silentLog(), isSampled });
/** Blocks that a node gave, and that were not looked at in full. */
const givenBy = (believed: string | undefined, ...numbers: number[]) =>
  numbers.map((number) => ({ header: headerOf(number), believed }));

test('the last blocks below the head are looked at in full, older ones are not', () => {
  const scrutiny = scrutinyWith(never);
  assert.equal(scrutiny.of({ from: 100, to: 100, head: 100 }), 'full');
  assert.equal(scrutiny.of({ from: 70, to: 91, head: 100 }), 'full');
  assert.equal(scrutiny.of({ from: 70, to: 90, head: 100 }), undefined);
});

test('a sampled request of a backfill is looked at in full', () => {
  assert.equal(scrutinyWith(() => true).of({ from: 1, to: 30, head: 10_000 }), 'full');
});

test('after a lie the block and the next 1,000 are looked at in full', () => {
  const scrutiny = scrutinyWith(never);
  scrutiny.lied({ node: 'a', block: 500 });
  assert.deepEqual(
    [499, 500, 1_500, 1_501].map((number) => scrutiny.of({ from: number, to: number, head: 9_999 })),
    [undefined, 'full', 'full', undefined],
  );
});

test('a block about which nodes disagree is looked at in full until it is stored, however far the head moves on', () => {
  const scrutiny = scrutinyWith(never);
  for (const block of [501, 500, 502]) scrutiny.disputed(block);
  const looks = () =>
    [499, 500, 502, 503].map((number) => scrutiny.of({ from: number, to: number, head: 9_999 }));
  assert.deepEqual(looks(), [undefined, 'full', 'full', undefined]);
  assert.equal(scrutiny.of({ from: 490, to: 520, head: 9_999 }), 'full');
  scrutiny.stored(givenBy(undefined, 500, 501));
  assert.deepEqual(looks(), [undefined, 'full', 'full', undefined]);
  scrutiny.stored(givenBy(undefined, 502));
  assert.deepEqual(looks(), [undefined, undefined, undefined, undefined]);
});

test('who begins to follow looks in full until a block is stored, for a minute at most', () => {
  const clock = createTestClock(noon);
  const scrutiny = createScrutiny({ clock, log: silentLog(), isSampled: never });
  const look = () => scrutiny.of({ from: 1, to: 1, head: 9_999 });
  scrutiny.begin();
  assert.deepEqual([look(), look()], ['full', 'full']);
  scrutiny.stored(givenBy('a', 1));
  assert.equal(look(), undefined);
  scrutiny.begin();
  clock.advance(59_999);
  assert.equal(look(), 'full');
  clock.advance(1);
  assert.equal(look(), undefined);
});

test('a lie puts in doubt what the same node gave before without a full look, and the report says what to run', () => {
  const scrutiny = scrutinyWith(never);
  scrutiny.stored([...givenBy('http://a', 7, 8), ...givenBy('http://b', 9, 10)]);
  scrutiny.stored([...givenBy('http://a', 39), ...givenBy(undefined, 41)]);
  scrutiny.lied({ node: 'http://a', block: 60 });
  assert.match(scrutiny.doubts()[0]?.message ?? '', /run chainbell repair --from 7 --to 39 --dry-run$/);
  // It was on its way when the lie was found.
  scrutiny.stored(givenBy('http://a', 40));
  assert.deepEqual(scrutiny.doubts(), [
    {
      node: 'http://a',
      message:
        'it lied about block 60, so blocks 7 to 40, of which it gave some, may lack transfers that it hid: run chainbell repair --from 7 --to 40 --dry-run',
      at: noon,
    },
  ]);
});

test('a lie of a node whose blocks were all looked at in full puts none in doubt', () => {
  const scrutiny = scrutinyWith(never);
  scrutiny.stored([...givenBy(undefined, 7, 8), ...givenBy('http://b', 9)]);
  scrutiny.lied({ node: 'http://a', block: 60 });
  assert.deepEqual(scrutiny.doubts(), []);
});
