import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCache, type Found, type Kept } from '../../../src/api/http/cache.ts';
import type { PublicAnswer } from '../../../src/api/http/cached-response.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createTestClock } from '../../kit/clock.ts';

const lifetime = { cacheSeconds: 60, staleSeconds: 0 };
const textAnswer = (body: string): PublicAnswer => ({ type: 'text/plain', body });

/** A cache whose answers are made when the test says so. */
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

const textOf = ({ outcome }: Kept) =>
  'notFound' in outcome ? `none: ${outcome.notFound}` : outcome.answer.identity.body.toString();
const shown = ({ kept, from, ageSeconds }: Found) => `${from} ${textOf(kept)} ${ageSeconds} s`;

test('an answer is made once for all who ask at the same time, and once for its lifetime', async () => {
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

test('what cannot be made is told to all who wait, and tried again by the next', async () => {
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

test('that nothing was found is kept for ten seconds', async () => {
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

test('made-up names fill neither the memory nor the place of answers', async () => {
  const { cache, make, made } = createStory({ bytesMax: 100_000, entriesMax: 2 });
  const first = cache.find('kept', lifetime, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  const nothing = () => Promise.reject(new Fault('not_found', 'Points not found'));
  for (let number = 0; number < 11_000; number += 1) await cache.find(`user ${number}`, lifetime, nothing);
  assert.equal(shown(await cache.find('kept', lifetime, make)), 'hit one 0 s');
  assert.ok(cache.find('user 10999', lifetime, make) instanceof Promise === false);
  assert.ok(cache.find('user 0', lifetime, make) instanceof Promise, 'the oldest is forgotten');
});

test('while an answer is made anew, the old one is given for the time that its route allows', async () => {
  const { cache, clock, made, make } = createStory();
  const stale = { cacheSeconds: 60, staleSeconds: 30 };
  const first = cache.find('a', stale, make);
  made[0]?.resolve(textAnswer('one'));
  await first;
  clock.advance(60_000);
  for (let asked = 0; asked < 3; asked += 1)
    assert.equal(shown(await cache.find('a', stale, make)), 'stale one 60 s');
  assert.equal(made.length, 2, 'one for all');
  made[1]?.resolve(textAnswer('two'));
  await cache.settled();
  assert.equal(shown(await cache.find('a', stale, make)), 'hit two 0 s');
});

test('an answer that cannot be made anew stays for its time, and no longer; the log tells', async () => {
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
  assert.equal(made.length, 2, 'not again at once');
  clock.advance(1_000);
  await fail(3);
  clock.advance(29_000);
  const late = cache.find('a', stale, make);
  made.at(-1)?.reject(new Fault('unavailable', 'still away'));
  await assert.rejects(async () => late, /still away/);
});

test('an answer that is found no more is not given on', async () => {
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

test('answers that are too large together push out those that nobody asks for', async () => {
  const { cache, make, made } = createStory({ bytesMax: 25_000, entriesMax: 100 });
  for (const key of ['a', 'b', 'c']) {
    const asked = cache.find(key, lifetime, make);
    made.at(-1)?.resolve(textAnswer(key.repeat(10_000)));
    await asked;
  }
  assert.equal(made.length, 3);
  for (const key of ['b', 'c']) assert.ok(!(cache.find(key, lifetime, make) instanceof Promise), key);
  const { kept } = await cache.find('b', lifetime, make);
  cache.grow('b', kept, 10_000);
  assert.ok(!(cache.find('b', lifetime, make) instanceof Promise));
  assert.ok(cache.find('c', lifetime, make) instanceof Promise, 'a compressed copy takes room too');
});

test('more than a thousand answers at the same time are refused, not queued', async () => {
  const { cache, make, made } = createStory();
  const asked = Array.from({ length: 1_000 }, async (_, number) => cache.find(`${number}`, lifetime, make));
  await assert.rejects(async () => cache.find('one more', lifetime, make), { code: 'unavailable' });
  const same = cache.find('7', lifetime, make);
  for (const one of made) one.resolve(textAnswer('one'));
  await Promise.all([...asked, same]);
  assert.equal(made.length, 1_000);
});
