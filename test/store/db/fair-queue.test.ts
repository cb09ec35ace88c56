import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { actFor, PROBE } from '../../../src/core/account.ts';
import { Fault } from '../../../src/core/fault.ts';
import { type Share, shares } from '../../../src/store/db/db.ts';
import { createFairQueue } from '../../../src/store/db/fair-queue.ts';

/** A queue whose clock only its work advances, and the names of the finished work in order. */
function startStory() {
  let nowMs = 0;
  const queue = createFairQueue(() => nowMs);
  const served: string[] = [];
  const ask = (share: Share, name: string, ms: number) =>
    queue.run(share, async () => {
      await Promise.resolve();
      nowMs += ms;
      served.push(name);
      return name;
    });
  return { queue, served, ask };
}

test('work of one share runs first in, first out, and each caller gets its own result or error', async () => {
  const { queue, served, ask } = startStory();
  const failing = queue.run('api', async () => {
    throw new Error('this one');
  });
  const names = await Promise.all([ask('api', 'one', 5), ask('api', 'two', 1), ask('api', 'three', 9)]);
  await assert.rejects(failing, /this one/);
  assert.deepEqual(names, ['one', 'two', 'three']);
  assert.deepEqual(served, names);
});

test('work of another share runs right after the work under way, however long the first share’s queue is', async () => {
  const { served, ask } = startStory();
  const first = ask('api', 'api', 10);
  const others = Array.from({ length: 500 }, () => ask('api', 'api', 10));
  await first;
  await ask('follower', 'follower', 10);
  assert.ok(served.indexOf('follower') <= 2, served.slice(0, 10).join());
  await Promise.all(others);
});

test('an idle share accumulates no credit, and one with long work does not hold back the others', async () => {
  const { served, ask } = startStory();
  await Promise.all(Array.from({ length: 100 }, () => ask('api', 'api', 10)));
  served.length = 0;
  await Promise.all([
    ...Array.from({ length: 10 }, () => ask('follower', 'follower', 100)),
    ...Array.from({ length: 100 }, () => ask('api', 'api', 10)),
  ]);
  // Each gets half of the time: about ten short pieces of work between two long ones.
  const between = served
    .join('')
    .split('follower')
    .slice(1, -1)
    .map((turns) => turns.length / 'api'.length);
  assert.ok(
    between.every((turns) => turns >= 9 && turns <= 11),
    between.join(),
  );
});

test('the used time of two busy shares differs by at most twice the longest piece of work', async () => {
  const equals = shares.filter((share) => share !== 'operator');
  const turnMs = fc.integer({ min: 0, max: 50 });
  const line = fc.array(turnMs, { minLength: 30, maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...equals), line, line, async (share, ones, others) => {
      const { queue } = startStory();
      const used = { one: 0, other: 0 };
      let nowMs = 0;
      const fair = createFairQueue(() => nowMs);
      const open = { one: ones.length, other: others.length };
      const ask = (of: Share, key: 'one' | 'other', ms: number) =>
        fair.run(of, async () => {
          nowMs += ms;
          used[key] += ms;
          open[key] -= 1;
          if (open.one > 0 && open.other > 0) assert.ok(Math.abs(used.one - used.other) <= 2 * 50 + 2);
        });
      const second = equals.find((one) => one !== share) ?? 'api';
      await Promise.all([
        ...ones.map((ms) => ask(share, 'one', ms)),
        ...others.map((ms) => ask(second, 'other', ms)),
      ]);
      await queue.idle();
      await fair.idle();
    }),
  );
});

test('a statement of one watcher waits for at most two of another one, however many that one has', async () => {
  const { served, ask } = startStory();
  const flood = actFor(1, () => Array.from({ length: 200 }, () => ask('api', 'flood', 10)));
  await flood[0];
  const before = served.length;
  await actFor(2, () => ask('api', 'other', 10));
  assert.ok(served.indexOf('other') - before <= 2, served.slice(before).join());
  await ask('api', 'public', 10);
  assert.ok(served.indexOf('public') - served.indexOf('other') <= 2, served.slice(before).join());
  await Promise.all(flood);
});

test('two busy watchers get the same time, and one with cheap statements gets more of them', async () => {
  const { served, ask } = startStory();
  const all = [
    ...actFor(1, () => Array.from({ length: 20 }, () => ask('api', 'long', 100))),
    ...actFor(2, () => Array.from({ length: 200 }, () => ask('api', 'short', 10))),
  ];
  await Promise.all(all);
  const between = served
    .join(' ')
    .split('long')
    .slice(1, -1)
    .map((turns) => turns.trim().split(' ').filter(Boolean).length);
  assert.ok(
    between.every((turns) => turns >= 9 && turns <= 11),
    between.join(),
  );
});

test('one watcher may not take all waiting places of the API', async () => {
  const { queue, ask } = startStory();
  const gate = Promise.withResolvers<void>();
  const blocked = queue.run('follower', () => gate.promise);
  const own = actFor(1, () => Array.from({ length: 250 }, () => ask('api', 'own', 1)));
  const extra = actFor(1, () => ask('api', 'one too many', 1)).then(
    () => 'accepted',
    (error) => (error instanceof Fault ? `${error.code}: ${error.message}` : String(error)),
  );
  const other = actFor(2, () => ask('api', 'other', 1));
  gate.resolve();
  await Promise.all([blocked, other, ...own]);
  assert.match(await extra, /^unavailable: .* 250 .* watcher/);
});

test('accounts get a few places however many others have filled, until ten times the limit wait', async () => {
  const { queue, ask } = startStory();
  const gate = Promise.withResolvers<void>();
  const blocked = queue.run('follower', () => gate.promise);
  const askFor = (account: number, count: number) =>
    actFor(account, () => Array.from({ length: count }, () => ask('api', `${account}`, 1)));
  const full = [1, 2, 3, 4].flatMap((account) => askFor(account, 250));
  const few = Promise.all(askFor(PROBE, 50));
  few.catch(() => gate.resolve());
  await assert.rejects(Promise.all(askFor(PROBE, 1)), /1000 statements of api/);
  const many = Array.from({ length: 179 }, (_, number) => askFor(5 + number, 50)).flat();
  await assert.rejects(Promise.all(askFor(1_000, 1)), /1000 statements of api/);
  gate.resolve();
  await Promise.all([blocked, ...full, few, ...many]);
  assert.deepEqual(await Promise.all(askFor(1_000, 1)), ['1000']);
});

test('each share has a limit of waiting work, and a full share does not affect others', async () => {
  const { queue, ask } = startStory();
  const gate = Promise.withResolvers<void>();
  const blocked = queue.run('follower', () => gate.promise);
  const asked = Array.from({ length: 1_000 }, () => ask('api', 'api', 1));
  await assert.rejects(
    ask('api', 'one too many', 1),
    (error) => error instanceof Fault && error.code === 'unavailable' && /1000 .* api/.test(error.message),
  );
  const other = ask('settle', 'settle', 1);
  gate.resolve();
  await Promise.all([blocked, other, ...asked]);
  assert.equal(await ask('api', 'again', 1), 'again');
  await queue.idle();
});

test('timers and requests run while a long queue is processed', async () => {
  const { served, ask } = startStory();
  const flood = Promise.all(Array.from({ length: 100 }, () => ask('api', 'api', 5)));
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(served.length < 10, `${served.length} turns came first`);
  await flood;
});

test("an operator's work costs four times as much, so the service's own work goes first", async () => {
  const { served, ask } = startStory();
  await Promise.all([
    ...Array.from({ length: 50 }, () => ask('operator', 'operator', 10)),
    ...Array.from({ length: 100 }, () => ask('api', 'api', 10)),
  ]);
  const firsts = served.slice(0, 100).filter((name) => name === 'operator').length;
  assert.ok(firsts >= 19 && firsts <= 21, String(firsts));
});
