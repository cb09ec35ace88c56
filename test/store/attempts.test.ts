import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHorizon, type Horizon, listAttempts, listAttemptsBetween } from '../../src/store/attempts.ts';
import type { Db } from '../../src/store/db.ts';
import { sql } from '../../src/store/sql.ts';
import { noon } from '../kit/chain-story.ts';
import { onEachDatabase, onPostgres } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

type Parts = { shardId?: number; notificationId?: number };

/** An attempt, made as settling makes it: by a transaction that has its number before it takes the id. */
async function insertAttempt(db: Db, { shardId = 1, notificationId = 1 }: Parts = {}): Promise<number> {
  await db.query(sql`select pg_current_xact_id()`);
  const [row] = await db.query<{ id: number }>(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status, response)
    values (${shardId}, ${notificationId}, ${noon}, 7, 'http_5xx', 503, 'down') returning id`);
  return row?.id ?? 0;
}

/** A horizon waits for the transactions of the whole server, also those of other tests. */
const reaches = (horizon: Horizon, id: number) =>
  waitUntil(async () => (await horizon()) === id, { describe: `the horizon is ${id}` });

onEachDatabase(({ database }) => {
  test('the attempts of a notification come newest first, in pages', async () => {
    const ids = [];
    for (let count = 0; count < 3; count += 1) ids.push(await insertAttempt(database()));
    await insertAttempt(database(), { notificationId: 2 });
    await insertAttempt(database(), { shardId: 2 });
    const [a, b, c] = ids;
    const page = await listAttempts(database(), 1, 1, { before: undefined, limit: 2 });
    assert.deepEqual(
      page.map(({ id }) => id),
      [c, b],
    );
    const rest = await listAttempts(database(), 1, 1, { before: b, limit: 2 });
    assert.deepEqual(rest, [
      {
        id: a,
        notificationId: 1,
        startedAt: noon,
        durationMs: 7,
        outcome: 'http_5xx',
        status: 503,
        response: 'down',
      },
    ]);
  });

  test('a watcher’s attempts come in their order, from one place to another', async () => {
    const ids = [];
    for (let count = 0; count < 5; count += 1) ids.push(await insertAttempt(database()));
    await insertAttempt(database(), { shardId: 2 });
    const [a = 0, b, c, d = 0] = ids;
    const between = { after: a, upTo: d, limit: 2 };
    const found = await listAttemptsBetween(database(), 1, between);
    assert.deepEqual(
      found.map(({ id }) => id),
      [b, c],
    );
  });

  test('the horizon is the last attempt, also when there is none', async () => {
    const horizon = createHorizon(database());
    await reaches(horizon, 0);
    const id = await insertAttempt(database());
    await reaches(horizon, id);
    assert.equal(await horizon(), id);
  });
});

onPostgres(({ database }) => {
  test('the horizon does not pass an attempt that another transaction may still bring', async () => {
    const before = await insertAttempt(database());
    const horizon = createHorizon(database());
    await reaches(horizon, before);
    let slow = 0;
    let fast = 0;
    await database().transaction(async (tx) => {
      slow = await insertAttempt(tx);
      fast = await insertAttempt(database());
      assert.equal(await horizon(), before);
      // A younger transaction that ends does not move it either.
      await insertAttempt(database());
      assert.equal(await horizon(), before);
    });
    assert.ok(slow < fast);
    const upTo = await waitUntil(async () => {
      const reached = await horizon();
      return reached !== undefined && reached > fast && reached;
    });
    const found = await listAttemptsBetween(database(), 1, { after: before, upTo, limit: 10 });
    assert.deepEqual(found.map(({ id }) => id).slice(0, 2), [slow, fast]);
  });

  test('an attempt whose transaction came to nothing does not hold the horizon up', async () => {
    const horizon = createHorizon(database());
    await database()
      .transaction(async (tx) => {
        await insertAttempt(tx);
        throw new Error('rolled back');
      })
      .catch(() => {});
    const last = await insertAttempt(database());
    await reaches(horizon, last);
  });
});
