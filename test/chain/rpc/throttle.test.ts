import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CONCURRENCY_MAX, createThrottle, type Throttle } from '../../../src/chain/rpc/throttle.ts';
import { createTestClock } from '../../kit/clock.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const limitOf = (waitMs?: number) => ({ kind: 'too often', waitMs, isQuota: false }) as const;
const never = Number.POSITIVE_INFINITY;

function createStory(): { clock: ReturnType<typeof createTestClock>; throttle: Throttle } {
  const clock = createTestClock();
  return { clock, throttle: createThrottle(clock, 'http://node.example') };
}

const succeed = (throttle: Throttle, count: number, calls = 1) => {
  for (let one = 0; one < count; one += 1) throttle.noteAnswered(calls);
};

test('a node starts with all its slots; each limit halves them, and they never fall below one', () => {
  const { clock, throttle } = createStory();
  const seen: number[] = [];
  for (let time = 0; time < 6; time += 1) {
    throttle.noteLimit(limitOf(1_000), 1, 'slow down');
    seen.push(throttle.status().concurrency);
    clock.advance(1_000);
  }
  assert.deepEqual([CONCURRENCY_MAX, ...seen], [16, 8, 4, 2, 1, 1, 1]);
});

test('requests that were under way at a limit do not halve the slots again', () => {
  const { throttle } = createStory();
  for (let time = 0; time < 8; time += 1) throttle.noteLimit(limitOf(1_000), 1, 'slow down');
  assert.equal(throttle.status().concurrency, 8);
});

test('slots come back one by one, after ten good exchanges for each current slot', () => {
  const { clock, throttle } = createStory();
  throttle.noteLimit(limitOf(1_000), 1, 'slow down');
  clock.advance(1_000);
  succeed(throttle, 79);
  assert.equal(throttle.status().concurrency, 8);
  succeed(throttle, 1);
  assert.equal(throttle.status().concurrency, 9);
  succeed(throttle, 10_000);
  assert.equal(throttle.status().concurrency, CONCURRENCY_MAX);
});

test('requests without a slot wait in the order of their arrival for the next free one', async () => {
  const { throttle } = createStory();
  for (let slot = 0; slot < CONCURRENCY_MAX; slot += 1) assert.ok(throttle.tryEnter());
  assert.ok(!throttle.tryEnter());
  const entered: string[] = [];
  const waiting = ['first', 'second'].map((name) =>
    throttle.enter(signal, never).then(() => entered.push(name)),
  );
  throttle.leave();
  await waiting[0];
  assert.deepEqual(entered, ['first']);
  throttle.leave();
  await waiting[1];
  assert.deepEqual(entered, ['first', 'second']);
  assert.equal(throttle.status().inFlight, CONCURRENCY_MAX);
});

test('a request that gives up waiting leaves the slot to the next one', async () => {
  const { throttle } = createStory();
  for (let slot = 0; slot < CONCURRENCY_MAX; slot += 1) throttle.tryEnter();
  const abort = new AbortController();
  const first = throttle.enter(abort.signal, never);
  const second = throttle.enter(signal, never);
  abort.abort();
  await assert.rejects(first, { name: 'Fault', code: 'unavailable' });
  throttle.leave();
  await second;
});

test('a pause is kept to its end, and so is a longer one that the node requests meanwhile', async () => {
  const { clock, throttle } = createStory();
  throttle.noteLimit(limitOf(7_000), 1, 'HTTP 429');
  const entering = throttle.enter(signal, never);
  let isIn = false;
  const entered = entering.then(() => {
    isIn = true;
  });
  clock.advance(3_000);
  throttle.noteLimit(limitOf(10_000), 1, 'HTTP 429');
  clock.advance(4_000);
  await waitUntil(() => clock.waits().includes(6_000));
  clock.advance(5_999);
  assert.deepEqual([isIn, throttle.tryEnter()], [false, false]);
  clock.advance(1);
  await entered;
  assert.ok(throttle.tryEnter());
});

test('a pause that ends after the time limit of a request refuses it at once, with its end and its reason', async () => {
  const { clock, throttle } = createStory();
  throttle.noteLimit(limitOf(7_000), 1, 'HTTP 429');
  await assert.rejects(throttle.enter(signal, clock.now().getTime() + 6_999), {
    name: 'Fault',
    code: 'unavailable',
    message: 'http://node.example limits requests until 2025-11-20T12:00:07.000Z: HTTP 429',
  });
  assert.deepEqual(throttle.status().limited, {
    until: new Date('2025-11-20T12:00:07.000Z'),
    reason: 'HTTP 429',
  });
});

test('a pause that ends between two readings of the clock leaves no request waiting for a slot', async () => {
  const story = createTestClock();
  let isTicking = false;
  // Time passes between any two readings.
  const now = () => {
    const time = story.now();
    if (isTicking) story.advance(1);
    return time;
  };
  const throttle = createThrottle({ ...story, now }, 'http://node.example');
  throttle.noteLimit(limitOf(100), 1, 'slow down');
  story.advance(99);
  isTicking = true;
  let hasEntered = false;
  const entering = throttle.enter(signal, never).then(() => {
    hasEntered = true;
  });
  await waitUntil(() => {
    story.advance(1);
    return hasEntered;
  });
  await entering;
  assert.equal(throttle.status().inFlight, 1);
});

test('the pause of a node that names none doubles each time, until the node answers', () => {
  const { clock, throttle } = createStory();
  const waitMs = (limit: Parameters<Throttle['noteLimit']>[0] = limitOf()) => {
    throttle.noteLimit(limit, 1, 'slow down');
    const ms = throttle.limitedUntilMs() - clock.now().getTime();
    clock.advance(ms);
    return ms;
  };
  assert.deepEqual(
    Array.from({ length: 8 }, () => waitMs()),
    [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000],
  );
  throttle.noteAnswered(1);
  assert.equal(waitMs(), 1_000);
  assert.equal(waitMs({ kind: 'too often', waitMs: undefined, isQuota: true }), 600_000);
  assert.deepEqual([waitMs(limitOf(0)), waitMs(limitOf(1e12))], [100, 86_400_000]);
});

test('a batch that is too large halves the next ones, which grow back by one call after twenty full ones', () => {
  const { throttle } = createStory();
  assert.equal(throttle.status().batchCallsMax, undefined);
  throttle.noteLimit({ kind: 'too much' }, 60, 'batch too large');
  throttle.noteLimit({ kind: 'too much' }, 60, 'batch too large');
  assert.deepEqual([throttle.batchCallsMax(), throttle.status().concurrency], [30, CONCURRENCY_MAX]);
  succeed(throttle, 100, 29);
  succeed(throttle, 19, 30);
  assert.equal(throttle.batchCallsMax(), 30);
  succeed(throttle, 1, 30);
  assert.equal(throttle.batchCallsMax(), 31);
  throttle.noteLimit({ kind: 'too much' }, 1, 'response too large');
  assert.equal(throttle.batchCallsMax(), 31, 'one call that is too much alone says nothing about batches');
  throttle.noteLimit({ kind: 'too much' }, 3, 'batch too large');
  assert.equal(throttle.batchCallsMax(), 1);
});
