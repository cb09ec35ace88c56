import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHeadBell } from '../../../src/chain/nodes/head-bell.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';

type Stage = { clock: TestClock; ring(): void; rung(): number; follow(number: number): void; stop(): void };

function createStage(): Stage {
  const clock = createTestClock();
  const stopping = new AbortController();
  let head: number | undefined;
  let rung = 0;
  const ring = createHeadBell({
    ...{ clock, signal: stopping.signal, headNumber: () => head },
    onRing: () => {
      rung += 1;
    },
  });
  return {
    ...{ clock, ring, rung: () => rung, stop: () => stopping.abort() },
    follow(number) {
      head = number;
    },
  };
}

/** Lets time pass in steps of 10 ms, with a push before each. */
async function push({ clock, ring }: Stage, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 10) {
    ring();
    clock.advance(10);
    await Promise.resolve();
  }
}

test('each push that becomes a head rings at once, however fast the chain is', () => {
  const { clock, ring, rung, follow } = createStage();
  for (let number = 1; number <= 100; number += 1) {
    ring();
    assert.equal(rung(), number);
    follow(number);
    clock.advance(1);
  }
  assert.deepEqual(clock.waits(), []);
});

test('without new heads, pushes ring five times and then as often as the nodes are polled', async () => {
  const stage = createStage();
  await push(stage, 60_000);
  assert.equal(stage.rung(), 5 + 29);
});

test('a push that has to wait rings later, without a further push', async () => {
  const { clock, ring, rung } = createStage();
  for (let count = 1; count <= 7; count += 1) ring();
  assert.equal(rung(), 5);
  assert.deepEqual(clock.waits(), [2_000]);
  clock.advance(2_000);
  await Promise.resolve();
  assert.equal(rung(), 6);
  assert.deepEqual(clock.waits(), []);
});

test('a new head ends the wait of the next push', async () => {
  const { clock, ring, rung, follow } = createStage();
  for (let count = 1; count <= 6; count += 1) ring();
  follow(1);
  ring();
  assert.equal(rung(), 6);
  clock.advance(2_000);
  await Promise.resolve();
  assert.equal(rung(), 6);
});

test('a head that was reached before gives no further ring', () => {
  const { ring, rung, follow } = createStage();
  for (let count = 0; count < 20; count += 1) {
    follow(9 - (count % 2));
    ring();
  }
  assert.equal(rung(), 5);
});

test('after the end nothing rings', async () => {
  const { clock, ring, rung, stop } = createStage();
  for (let count = 1; count <= 6; count += 1) ring();
  stop();
  await Promise.resolve();
  assert.deepEqual([rung(), clock.waits()], [5, []]);
});
