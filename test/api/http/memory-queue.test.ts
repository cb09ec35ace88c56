import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createRoom } from '../../../src/api/http/memory-queue.ts';
import { never } from '../../../src/core/abort.ts';
import { createTestClock } from '../../kit/clock.ts';

const [ACME, OTHER, THIRD] = [1, 2, 3];
const WAIT_MS = 30_000;

/** 16 units of memory, and the requests that were admitted. */
function createStory() {
  const clock = createTestClock();
  const room = createRoom({ clock, unitsMax: 16, what: 'requests' });
  const admitted: string[] = [];
  const take = async (name: string, watcherId: number, units: number, signal = never) => {
    const release = await room.take(watcherId, units, signal);
    admitted.push(name);
    return release;
  };
  return { clock, room, admitted, take };
}

test('one watcher may take half of the units, and others half of the rest', async () => {
  const { admitted, take } = createStory();
  for (let count = 0; count < 3; count += 1) void take('acme', ACME, 4);
  for (let count = 0; count < 3; count += 1) void take('other', OTHER, 4);
  await nextTurn();
  assert.deepEqual(admitted, ['acme', 'acme', 'other']);
});

test('the watcher that holds least comes first, and small requests do not overtake a large one', async () => {
  const { admitted, take } = createStory();
  const first = await take('acme 1', ACME, 8);
  const second = await take('other 1', OTHER, 4);
  void take('acme 2', ACME, 1);
  void take('third', THIRD, 8);
  void take('other 2', OTHER, 1);
  await nextTurn();
  assert.deepEqual(admitted, ['acme 1', 'other 1']);
  second();
  await nextTurn();
  assert.deepEqual(admitted.slice(2), ['third']);
  first();
  first();
  await nextTurn();
  assert.deepEqual(admitted.slice(3), ['acme 2', 'other 2']);
});

test('a request that waits too long, or whose client leaves, is refused and makes way for others', async () => {
  const { clock, room, admitted, take } = createStory();
  await take('acme', ACME, 12);
  const leaving = new AbortController();
  const late = assert.rejects(take('late', OTHER, 8), { code: 'limited', message: /waited for 30 s/ });
  await nextTurn();
  clock.advance(1);
  const left = assert.rejects(take('left', THIRD, 4, leaving.signal), { code: 'limited' });
  await nextTurn();
  leaving.abort();
  await left;
  void take('small', THIRD, 2);
  clock.advance(WAIT_MS - 1);
  await late;
  await nextTurn();
  assert.deepEqual(admitted, ['acme', 'small']);
  assert.deepEqual(clock.waits(), []);
  assert.equal(typeof room.take(OTHER, 1, never), 'function');
});

test('slow clients are cut off for the request that comes next, as many as it needs, and not for the own requests of a watcher', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] });
  const { room, admitted, take } = createStory();
  const asked: string[] = [];
  const hold = (name: string, watcherId: number, units: number, isSlow: boolean) => {
    const release = room.take(watcherId, units, never, () => {
      asked.push(name);
      if (isSlow && typeof release === 'function') setImmediate(release);
      return isSlow;
    });
  };
  hold('fast', ACME, 4, false);
  hold('slow', ACME, 4, true);
  hold('other', OTHER, 4, true);
  void take('own', ACME, 8);
  await nextTurn();
  context.mock.timers.tick(1_000);
  assert.deepEqual(asked, []);
  void take('third', THIRD, 8);
  await nextTurn();
  context.mock.timers.tick(1_000);
  assert.deepEqual(asked, ['fast', 'slow']);
  await nextTurn();
  await nextTurn();
  assert.deepEqual(admitted, ['third']);
});

test('100 requests of a watcher may wait, and those of others wait beside them', async () => {
  const { room, take } = createStory();
  await take('acme', ACME, 16);
  const waiting = Array.from({ length: 100 }, () => take('acme', ACME, 1));
  assert.throws(() => room.take(ACME, 1, never), {
    code: 'limited',
    message: /100 requests of this watcher/,
  });
  const other = room.take(OTHER, 1, never);
  assert.ok(other instanceof Promise);
  assert.equal(waiting.length, 100);
});
