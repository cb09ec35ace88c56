import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DisputeFault } from '../../src/chain/proof/false-answer.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createFullChecks } from '../../src/ingest/full-checks.ts';
import { headerOf, noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';

const never = () => false;
const checksWith = (isSampled: () => boolean) =>
  createFullChecks({ clock: createTestClock(noon), log: silentLog(), isSampled });
/** Blocks from one node that were not checked in full. */
const givenBy = (believed: string | undefined, ...numbers: number[]) =>
  numbers.map((number) => ({ header: headerOf(number), believed }));

test('the last blocks below the head are checked in full, older ones are not', () => {
  const checks = checksWith(never);
  assert.equal(checks.scrutinyOf({ from: 100, to: 100, head: 100 }), 'full');
  assert.equal(checks.scrutinyOf({ from: 70, to: 91, head: 100 }), 'full');
  assert.equal(checks.scrutinyOf({ from: 70, to: 90, head: 100 }), undefined);
});

test('a sampled request of a backfill is checked in full', () => {
  assert.equal(checksWith(() => true).scrutinyOf({ from: 1, to: 30, head: 10_000 }), 'full');
});

test('after a lie, the block and the next 1,000 are checked in full', () => {
  const checks = checksWith(never);
  checks.lied({ node: 'a', block: 500 });
  assert.deepEqual(
    [499, 500, 1_500, 1_501].map((number) => checks.scrutinyOf({ from: number, to: number, head: 9_999 })),
    [undefined, 'full', 'full', undefined],
  );
});

test('a block about which nodes disagree is checked in full until it is stored, however far the head moves on', () => {
  const checks = checksWith(never);
  for (const block of [501, 500, 502]) checks.unconfirmed(block, new DisputeFault('they differ'));
  const looks = () =>
    [499, 500, 502, 503].map((number) => checks.scrutinyOf({ from: number, to: number, head: 9_999 }));
  assert.deepEqual(looks(), [undefined, 'full', 'full', undefined]);
  assert.equal(checks.scrutinyOf({ from: 490, to: 520, head: 9_999 }), 'full');
  checks.stored(givenBy(undefined, 500, 501));
  assert.deepEqual(looks(), [undefined, 'full', 'full', undefined]);
  checks.stored(givenBy(undefined, 502));
  assert.deepEqual(looks(), [undefined, undefined, undefined, undefined]);
});

test('a block near the head that too few nodes can trace is checked in full until it is stored, an old one is not', () => {
  const checks = checksWith(never);
  checks.scrutinyOf({ from: 90, to: 91, head: 100 });
  for (const block of [90, 91]) checks.unconfirmed(block, new Fault('unavailable', 'no traces'));
  const looks = () => [90, 91].map((number) => checks.scrutinyOf({ from: number, to: number, head: 9_999 }));
  assert.deepEqual(looks(), [undefined, 'full']);
  checks.stored(givenBy(undefined, 90));
  assert.deepEqual(looks(), [undefined, 'full']);
  checks.stored(givenBy(undefined, 91));
  assert.deepEqual(looks(), [undefined, undefined]);
});

test('a process that begins to follow checks in full until a block is stored, for a minute at most', () => {
  const clock = createTestClock(noon);
  const checks = createFullChecks({ clock, log: silentLog(), isSampled: never });
  const look = () => checks.scrutinyOf({ from: 1, to: 1, head: 9_999 });
  checks.begin();
  assert.deepEqual([look(), look()], ['full', 'full']);
  checks.stored(givenBy('a', 1));
  assert.equal(look(), undefined);
  checks.begin();
  clock.advance(59_999);
  assert.equal(look(), 'full');
  clock.advance(1);
  assert.equal(look(), undefined);
});

test("after a lie, the report names the node's earlier blocks that were not checked in full, and the command to run", () => {
  const checks = checksWith(never);
  checks.stored([...givenBy('http://a', 7, 8), ...givenBy('http://b', 9, 10)]);
  checks.stored([...givenBy('http://a', 39), ...givenBy(undefined, 41)]);
  checks.lied({ node: 'http://a', block: 60 });
  assert.match(checks.doubts()[0]?.message ?? '', /run chainbell repair --from 7 --to 39 --dry-run$/);
  // It was on its way when the lie was found.
  checks.stored(givenBy('http://a', 40));
  assert.deepEqual(checks.doubts(), [
    {
      node: 'http://a',
      message:
        'it lied about block 60, so blocks 7 to 40, of which it gave some, may lack transfers that it hid: run chainbell repair --from 7 --to 40 --dry-run',
      at: noon,
    },
  ]);
});

test('a lie is reported to who counts them', () => {
  const lies: unknown[] = [];
  const onLie = (lie: unknown) => lies.push(lie);
  const checks = createFullChecks({ clock: createTestClock(noon), log: silentLog(), onLie });
  checks.lied({ node: 'http://a', block: 60 });
  assert.deepEqual(lies, [{ node: 'http://a', block: 60 }]);
});

test('after a lie of a node whose blocks were all checked in full, no block is reported', () => {
  const checks = checksWith(never);
  checks.stored([...givenBy(undefined, 7, 8), ...givenBy('http://b', 9)]);
  checks.lied({ node: 'http://a', block: 60 });
  assert.deepEqual(checks.doubts(), []);
});
