import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ATTEMPT_MS, type Attempt, HAND_OVER_MS, startLine, TICK_MS } from '../kit/fair-line.ts';

const MOMENT_MS = 100;
const countOf = (started: readonly Attempt[], watcherId: number) =>
  started.filter((attempt) => attempt.watcherId === watcherId).length;

/** A watcher with many receivers that have never answered. */
function startMany() {
  const line = startLine();
  for (let lane = 0; lane < 500; lane += 1) line.join({ watcherId: 1 }).seat.want();
  return line;
}

test('attempts at unproven receivers start 32 at a time, and a response makes room at once', async () => {
  const line = startMany();
  await line.settle();
  assert.equal(line.started.length, 32);
  line.join({ watcherId: 2 }).seat.want();
  await line.settle();
  assert.equal(countOf(line.started, 2), 1, 'who has nothing under way need not wait');
  await line.end(({ watcherId }) => watcherId === 2);
  await line.pass(MOMENT_MS);
  assert.equal(line.started.length, 64);
  const [one] = line.started.slice(32);
  await line.end((other) => other === one);
  assert.equal(line.started.length, 64, 'one has ended, and another has begun');
});

test('a watcher with some hanging receivers is served at the usual pace at those that responded last', async () => {
  const line = startLine();
  const lanes = Array.from({ length: 60 }, () => line.join({ watcherId: 1, rows: 0 }));
  const want = async (from: number, to: number) => {
    for (const lane of lanes.slice(from, to)) lane.add(1);
    await line.settle();
  };
  for (let from = 0; from < 60; from += 20) {
    await want(from, from + 20);
    await line.end(() => true);
  }
  await want(0, 8);
  await line.pass(HAND_OVER_MS);
  assert.equal(line.started.length, 8, 'eight of 60 hang, which is more than a tenth');
  await want(8, 60);
  assert.equal(line.started.length, 8 + 32);
});

test('attempts of a watcher with hanging receivers start 6 at a time, but a watcher with none under way need not wait', async () => {
  const line = startMany();
  await line.settle();
  await line.pass(HAND_OVER_MS);
  await line.pass(MOMENT_MS);
  const before = line.started.length;
  await line.pass(MOMENT_MS);
  assert.equal(line.started.length - before, 6);
  for (let lane = 0; lane < 2; lane += 1) line.join({ watcherId: 2 }).seat.want();
  await line.settle();
  assert.equal(countOf(line.started, 2), 2, 'its receivers do not hang');
});

test("hanging attempts of 100 watchers also start 6 at a time, so they don't end in waves", async () => {
  const line = startLine();
  for (let watcherId = 1; watcherId <= 100; watcherId += 1)
    for (let lane = 0; lane < 10; lane += 1) line.join({ watcherId, rows: 100 }).seat.want();
  const begun: number[] = [];
  for (let ms = 0; ms < 3 * ATTEMPT_MS; ms += MOMENT_MS) {
    const before = line.startedCount;
    for (let passed = 0; passed < MOMENT_MS; passed += TICK_MS) {
      await line.pass(TICK_MS);
      const nowMs = line.clock.steadyMs();
      await line.end((one) => nowMs - one.atMs >= ATTEMPT_MS, {
        ...{ isAnswered: false, isOverloaded: true, durationMs: ATTEMPT_MS },
      });
    }
    begun.push(line.startedCount - before);
  }
  const later = begun.slice((2 * HAND_OVER_MS) / MOMENT_MS);
  assert.ok(Math.max(...later) <= 12, later.join(' '));
  assert.ok(later.reduce((sum, count) => sum + count, 0) > 1_000, 'and goes on');
});
