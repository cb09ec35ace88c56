import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { dayOf, startOf } from '../../../src/domain/points/window.ts';
import {
  type ClosedDay,
  closeUntil,
  openPosition,
  touchPosition,
} from '../../../src/ingest/points/accrual.ts';
import type { Position } from '../../../src/store/points/accruals.ts';
import { alice, hashOf, noon } from '../../kit/chain-story.ts';

const today = dayOf(noon);
const at = (seconds: number): Date => new Date(startOf(today).getTime() + seconds * 1000);
const touchAt = (seconds: number, change: bigint, touch = 0) => ({
  at: at(seconds),
  change,
  txHash: hashOf(7),
  touch,
});

test('a balance earns from its touch to the end of the day, to the second', () => {
  const opened = openPosition('hold', alice, touchAt(86_390, 3n));
  const { position, closed } = touchPosition(opened, touchAt(86_402, -3n));
  assert.deepEqual(
    closed.map(({ day, balanceSeconds }) => [day, balanceSeconds]),
    [[today, 30n]],
  );
  assert.deepEqual([position.day, position.balance, position.balanceSeconds], [today + 1, 0n, 6n]);
});

test('a balance that never moves again earns every day, whenever its days are closed', () => {
  let position: Position = openPosition('hold', alice, touchAt(0, 2n));
  const days: ClosedDay[] = [];
  for (let count = 0; count < 3; count += 1) {
    const result = closeUntil(position, position.day + 1);
    days.push(...result.closed);
    position = result.position;
  }
  const late = touchPosition(openPosition('hold', alice, touchAt(0, 2n)), touchAt(3 * 86_400, 1n));
  assert.deepEqual(days, late.closed);
  assert.deepEqual(
    days.map(({ day, balanceSeconds }) => [day - today, balanceSeconds]),
    [0, 1, 2].map((day) => [day, 172_800n]),
  );
});

test('years with a balance of zero take no step per day', () => {
  const { closed, position } = touchPosition(
    openPosition('hold', alice, touchAt(0, 0n)),
    touchAt(86_400 * 1e6, 5n),
  );
  assert.deepEqual([closed, position.day], [[], today + 1e6]);
});

test('a negative balance earns nothing, and later additions pay it off first', () => {
  const owing = openPosition('hold', alice, touchAt(0, -5n));
  const { position, closed } = touchPosition(owing, touchAt(86_400, 7n));
  assert.deepEqual([closed, position.balance], [[], 2n]);
});

test('time that runs backwards subtracts nothing', () => {
  const { position, closed } = touchPosition(openPosition('hold', alice, touchAt(100, 5n)), touchAt(90, 1n));
  assert.deepEqual([closed, position.balance, position.balanceSeconds], [[], 6n, 0n]);
  assert.equal(position.touchedAt.getTime(), at(100).getTime());
});

test('for any touches, the days add up to the sum of balance × seconds', () => {
  const moves = fc.array(fc.tuple(fc.nat(200_000), fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n })), {
    minLength: 1,
  });
  fc.assert(
    fc.property(moves, (story) => {
      let seconds = 0;
      let balance = 0n;
      let expected = 0n;
      let position: Position | undefined;
      let total = 0n;
      for (const [pause, change] of story) {
        if (position === undefined) {
          seconds = pause;
          position = openPosition('hold', alice, touchAt(seconds, change));
        } else {
          seconds += pause;
          if (balance > 0n) expected += balance * BigInt(pause);
          const moved = touchPosition(position, touchAt(seconds, change));
          position = moved.position;
          total += moved.closed.reduce((sum, { balanceSeconds }) => sum + balanceSeconds, 0n);
        }
        balance += change;
      }
      assert.equal(total + (position?.balanceSeconds ?? 0n), expected);
    }),
  );
});
