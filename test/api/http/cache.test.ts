import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CacheEntry, type CacheResult, createCache } from '../../../src/api/http/cache.ts';
import type { PublicAnswer } from '../../../src/api/http/cached-response.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createTestClock } from '../../kit/clock.ts';

const lifetime = { cacheSeconds: 60, staleSeconds: 0 };
const textAnswer = (body: string): PublicAnswer => ({ type: 'text/plain', body });

/** A cache whose computations finish when the test ends them. */
function createStory(limits?: { bytesMax: number; entriesMax: number }) {
  const clock = createTestClock();
  const logged: unknown[] = [];
  const log = { warn: (fields: unknown) => logged.push(fields) };
  const cache = createCache({ clock, log }, limits);
  const made: PromiseWithResolvers<PublicAnswer>[] = [];
  const make = () => {
    const one = Promise.withResolvers<PublicAnswer>();
    made.push(one);
    return one.promise;
  };
  return { cache, clock, logged, made, make };
}

const textOf = ({ outcome }: CacheEntry) => {
  if ('tooLarge' in outcome) return outcome.tooLarge.message;
  return 'notFound' in outcome ? `none: ${outcome.notFound}` : outcome.response.identity.body.toString();
};
const shown = ({ entry, from, ageSeconds }: CacheResult) => `${from} ${textOf(entry)} ${ageSeconds} s`;

test('concurrent requests share one computation, and its response is cached for its lifetime', async () => {
  const { cache, clock, made, make } = createStory();
  const askers = [1, 2, 3].map(async () => cache.find('a', lifetime, make));
  assert.equal(made.length, 1);
  clock.advance(1_500);
  made[0]?.resolve(textAnswer('one'));
  assert.deepEqual((await Promise.all(askers)).map(shown), Array(3).fill('miss one 1 s'));
  clock.advance(58_499);
  const hit = cache.find('a', lifetime, make);
  assert.ok(!(hit instanceof Promise));
  assert.equal(shown(hit), 'hit one 59 s');
  clock.advance(1);
  const next = cache.find('a', lifetime, make);
  assert.equal(made.length, 2);
  made[1]?.resolve(textAnswer('two'));
  assert.equal(shown(await next), 'miss two 0 s');
  await cache.settled();
});

test('a failed computation fails all requests that wait for it, and the next request tries again', async () => {
  const { cache, made, make } = createStory();
  for (const error of [new Fault('unavailable', 'the database is away'), new Error('a bug')]) {
    const askers = [1, 2].map(async () => cache.find('a', lifetime, make));
    made.at(-1)?.reject(error);
    for (const result of await Promise.allSettled(askers))
      assert.equal(result.status === 'rejected' && result.reason, error);
  }
  const next = cache.find('a', lifetime, make);
  made.at(-1)?.resolve(textAnswer('one'));
  assert.equal(shown(await next), 'miss one 0 s');
  assert.equal(made.length, 3);
});

test('a 404 is cached for ten seconds', async () => {
  const { cache, clock, made, make } = createStory();
  const first = cache.find('a', lifetime, make);
  made[0]?.reject(new Fault('not_found', 'Points not found'));
  assert.equal(shown(await first), 'miss none: Points not found 0 s');
  clock.advance(9_999);
  assert.equal(shown(await cache.find('a', lifetime, make)), 'hit none: Points not found 9 s');
  clock.advance(1);
  const next = cache.find('a', lifetime, make);
  made[1]?.resolve(textAnswer('one'));
  assert.equal(shown(await next), 'miss one 0 s');
});

test('requests for made-up names neither fill memory nor evict responses', async () => {
  const { cache, make, made } = createStory({ bytesMax: 100_000, entriesMax: 2 });
  const first = cache.find('kept', lifetime, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  const nothing = () => Promise.reject(new Fault('not_found', 'Points not found'));
  for (let number = 0; number < 11_000; number += 1) await cache.find(`user ${number}`, lifetime, nothing);
  assert.equal(shown(await cache.find('kept', lifetime, make)), 'hit one 0 s');
  assert.ok(cache.find('user 10999', lifetime, make) instanceof Promise === false);
  assert.ok(cache.find('user 0', lifetime, make) instanceof Promise, 'the oldest is evicted');
});

test('the stale response is served while a new one is computed', async () => {
  const { cache, clock, made, make } = createStory();
  const stale = { cacheSeconds: 60, staleSeconds: 30 };
  const first = cache.find('a', stale, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  clock.advance(60_000);
  for (let asked = 0; asked < 3; asked += 1)
    assert.equal(shown(await cache.find('a', stale, make)), 'stale one 60 s');
  assert.equal(made.length, 2, 'one computation for all');
  made[1]?.resolve(textAnswer('two'));
  await cache.settled();
  assert.equal(shown(await cache.find('a', stale, make)), 'hit two 0 s');
});

test('a stale response is served until its time is over if refreshing fails, and the failure is logged', async () => {
  const { cache, clock, logged, made, make } = createStory();
  const stale = { cacheSeconds: 60, staleSeconds: 30 };
  const first = cache.find('a', stale, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  clock.advance(60_000);
  const fail = async (tries: number) => {
    assert.equal(shown(await cache.find('a', stale, make)).slice(0, 9), 'stale one');
    assert.equal(made.length, tries);
    made.at(-1)?.reject(new Fault('unavailable', 'the database is away'));
    await cache.settled();
  };
  await fail(2);
  assert.deepEqual(logged, [{ answer: 'a', error: 'the database is away' }]);
  assert.equal(shown(await cache.find('a', stale, make)), 'stale one 60 s');
  assert.equal(made.length, 2, 'no second attempt within a second');
  clock.advance(1_000);
  await fail(3);
  clock.advance(29_000);
  const late = cache.find('a', stale, make);
  made.at(-1)?.reject(new Fault('unavailable', 'still away'));
  await assert.rejects(async () => late, /still away/);
});

test('a 404 replaces a stale response', async () => {
  const { cache, clock, made, make } = createStory();
  const stale = { cacheSeconds: 60, staleSeconds: 30 };
  const first = cache.find('a', stale, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  clock.advance(60_000);
  await cache.find('a', stale, make);
  made[1]?.reject(new Fault('not_found', 'Price not found'));
  await cache.settled();
  assert.equal(shown(await cache.find('a', stale, make)), 'hit none: Price not found 0 s');
});

test('the least recently used responses are evicted when all together are too large', async () => {
  const { cache, make, made } = createStory({ bytesMax: 25_000, entriesMax: 100 });
  for (const key of ['a', 'b', 'c']) {
    const asked = cache.find(key, lifetime, make);
    made.at(-1)?.resolve(textAnswer(key.repeat(10_000)));
    await asked;
  }
  assert.equal(made.length, 3);
  for (const key of ['b', 'c']) assert.ok(!(cache.find(key, lifetime, make) instanceof Promise), key);
  const { entry } = await cache.find('b', lifetime, make);
  cache.grow('b', entry, 10_000);
  assert.ok(!(cache.find('b', lifetime, make) instanceof Promise));
  assert.ok(cache.find('c', lifetime, make) instanceof Promise, 'a compressed copy counts too');
});

test('a copy of a part counts in the memory of parts', async () => {
  const { cache, make, made } = createStory();
  const part = { ...lifetime, isPart: true };
  const find = async (key: string) => {
    const asked = cache.find(key, part, make);
    made.at(-1)?.resolve(textAnswer(key));
    return asked;
  };
  await find('a');
  const { entry } = await find('b');
  cache.grow('b', entry, 32 * 1024 * 1024 - 400);
  assert.equal((await find('b')).from, 'hit');
  assert.equal((await find('a')).from, 'miss');
});

test('a copy of an entry that was replaced is not counted, and an entry over the limit is not stored', async () => {
  const { cache, clock, make, made } = createStory({ bytesMax: 25_000, entriesMax: 100 });
  const find = async (body: string) => {
    const asked = cache.find('a', lifetime, make);
    made.at(-1)?.resolve(textAnswer(body));
    return asked;
  };
  const { entry } = await find('one');
  clock.advance(60_000);
  await find('two');
  cache.grow('a', entry, 30_000);
  assert.equal(shown(await cache.find('a', lifetime, make)), 'hit two 0 s');
  clock.advance(60_000);
  await find('x'.repeat(30_000));
  assert.ok(cache.find('a', lifetime, make) instanceof Promise);
});

test('computations beyond a thousand at once are refused, not queued', async () => {
  const { cache, make, made } = createStory();
  const asked = Array.from({ length: 1_000 }, async (_, number) => cache.find(`${number}`, lifetime, make));
  await assert.rejects(async () => cache.find('one more', lifetime, make), { code: 'unavailable' });
  const same = cache.find('7', lifetime, make);
  for (const one of made) one.resolve(textAnswer('one'));
  await Promise.all([...asked, same]);
  assert.equal(made.length, 1_000);
});

test('a route with few keys is computed, however many made-up keys are being computed', async () => {
  const { cache, make, made } = createStory();
  const few = { ...lifetime, hasFewKeys: true };
  const fixed = cache.find('fixed', few, make);
  const asked = Array.from({ length: 1_000 }, async (_, number) => cache.find(`${number}`, lifetime, make));
  const other = cache.find('other', few, make);
  await assert.rejects(async () => cache.find('one more', lifetime, make), { code: 'unavailable' });
  for (const one of made) one.resolve(textAnswer('one'));
  assert.deepEqual((await Promise.all([fixed, other])).map(shown), ['miss one 0 s', 'miss one 0 s']);
  await Promise.all(asked);
  const later = cache.find('one more', lifetime, make);
  made.at(-1)?.resolve(textAnswer('two'));
  assert.equal(shown(await later), 'miss two 0 s');
});
