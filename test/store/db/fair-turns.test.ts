import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { actFor } from '../../../src/core/account.ts';
import { createFairTurns } from '../../../src/store/db/fair-turns.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { waitUntil } from '../../kit/wait.ts';

const WAIT_MS = 60_000;

/** Turns for `max` connections, and what each account holds. */
function startStory(max: number, waitMs = WAIT_MS) {
  const turns = createFairTurns<object>(max, waitMs);
  const held = new Map<number, object[]>();
  const heldBy = (account: number) => held.get(account)?.length ?? 0;
  const ask = (account: number) =>
    actFor(account, async () => {
      const connection = await turns.lend(async () => ({}));
      held.set(account, [...(held.get(account) ?? []), connection]);
    });
  const giveBack = async (account: number) => {
    const connection = held.get(account)?.pop();
    if (connection !== undefined) turns.giveBack(connection);
    await settle();
  };
  return { turns, heldBy, ask, giveBack };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test('however much an account asks for, another one has a connection at once, and gets its part of those that come back', async () => {
  const { heldBy, ask, giveBack } = startStory(6);
  const asked = Array.from({ length: 20 }, () => ask(1));
  await settle();
  assert.equal(heldBy(1), 3, 'half of them: no more than remain free');
  for (const account of [2, 3]) {
    asked.push(ask(account), ask(account));
    await settle();
  }
  assert.deepEqual([heldBy(1), heldBy(2), heldBy(3)], [3, 2, 1]);
  await giveBack(1);
  assert.deepEqual([heldBy(1), heldBy(2), heldBy(3)], [2, 2, 1], 'the last one is for one that has none');
  asked.push(ask(4));
  await settle();
  assert.equal(heldBy(4), 1);
  for (const account of [4, 2]) await giveBack(account);
  assert.deepEqual([heldBy(1), heldBy(2), heldBy(3)], [2, 1, 2], 'the one with the fewest is next');
  for (const account of [2, 3, 3]) await giveBack(account);
  assert.equal(heldBy(1), 3);
  while (heldBy(1) > 0) await giveBack(1);
  await Promise.all(asked);
});

test('an account that waits longer than the limit is refused, and those behind it are served', async () => {
  const { turns, ask, giveBack } = startStory(1, 20);
  await ask(1);
  await assert.rejects(ask(2), /no connection was free within 20 ms/);
  await giveBack(1);
  await ask(3);
  await giveBack(3);
  await assert.rejects(
    turns.lend(() => Promise.reject(new Error('no server'))),
    /no server/,
  );
  await ask(4);
});

test('work for no account leaves the last connection of several to the accounts', async () => {
  for (const [max, most] of [
    [6, 5],
    [2, 2],
    [1, 1],
  ] as const) {
    const turns = createFairTurns<object>(max, 20);
    const lent = await Promise.allSettled(
      Array.from({ length: max + 1 }, () => turns.lend(async () => ({}))),
    );
    assert.equal(lent.filter(({ status }) => status === 'fulfilled').length, most);
    if (most < max) await actFor(1, () => turns.lend(async () => ({})));
  }
});

test('no connection is lost or lent twice, and no one waits while one may be lent', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 8 }),
      fc.array(fc.record({ account: fc.integer({ min: 1, max: 4 }), isAsking: fc.boolean() }), {
        maxLength: 60,
      }),
      async (max, steps) => {
        const { heldBy, ask, giveBack } = startStory(max);
        const accounts = [1, 2, 3, 4];
        const asked = new Map(accounts.map((account) => [account, 0]));
        const all: Promise<void>[] = [];
        for (const { account, isAsking } of steps) {
          if (isAsking) {
            all.push(ask(account));
            asked.set(account, (asked.get(account) ?? 0) + 1);
            await settle();
          } else if (heldBy(account) > 0) {
            await giveBack(account);
            asked.set(account, (asked.get(account) ?? 0) - 1);
          }
          const total = accounts.reduce((sum, one) => sum + heldBy(one), 0);
          assert.ok(total <= max, `${total} of ${max}`);
          for (const one of accounts)
            if ((asked.get(one) ?? 0) > heldBy(one))
              assert.ok(
                total === max || (heldBy(one) > 0 && heldBy(one) >= max - total),
                `${one} waits for nothing`,
              );
        }
        while (accounts.some((one) => heldBy(one) > 0))
          for (const one of accounts) if (heldBy(one) > 0) await giveBack(one);
        await Promise.all(all);
      },
    ),
  );
});

test('while transactions of one watcher wait for a lock, those of another one run', async () => {
  await using place = await createTestDatabase('postgres');
  const administrator = await place.open();
  const database = await openDatabase({
    ...{ url: place.url, dataDir: '', connections: { follower: 1, api: 3, delivery: 3 } },
  });
  const api = database.for('api');
  const lock = sql`select pg_advisory_xact_lock(7)`;
  const released = Promise.withResolvers<void>();
  const holding = administrator.transaction(async (tx) => {
    await tx.query(lock);
    await released.promise;
  });
  const waiting = actFor(1, () =>
    Promise.allSettled(Array.from({ length: 20 }, () => api.transaction((tx) => tx.query(lock)))),
  );
  try {
    await waitUntil(async () => {
      const [row] = await administrator.query<{ count: number }>(
        sql`select count(*)::integer as count from pg_locks where locktype = 'advisory' and not granted`,
      );
      return (row?.count ?? 0) >= 2;
    });
    for (const account of [2, 3, 2, 3])
      assert.deepEqual(await actFor(account, () => api.query(sql`select 1 as one`)), [{ one: 1 }]);
  } finally {
    released.resolve();
    await Promise.allSettled([holding, waiting]);
    await database.close();
  }
});
