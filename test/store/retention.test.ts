import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../src/store/db.ts';
import { createPruner } from '../../src/store/retention.ts';
import { sql } from '../../src/store/sql.ts';
import { headerOf, later, listStates, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onEachDatabase } from '../kit/each-database.ts';

const HOUR_MS = 3_600_000;
const { signal } = new AbortController();

function createStory(database: Database) {
  const clock = createTestClock(noon);
  return {
    clock,
    prune: createPruner({ database, clock, attemptsMs: HOUR_MS, notificationsMs: 2 * HOUR_MS }),
  };
}

const insertAttempts = (database: Database, startedAt: Date, count: number) =>
  database.query(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
    select 1, number, ${startedAt}::timestamptz, 1, 'success' from generate_series(1, ${count}::int) as number`);

const countAttempts = async (database: Database) =>
  (await database.query(sql`select from delivery_attempt`)).length;

onEachDatabase(({ database }) => {
  test('only notifications that were delivered go, and only after their retention', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [
      transferOf(),
      transferOf(),
      transferOf(),
      transferOf(),
      transferOf(),
    ]);
    const states = ['held', 'waiting', 'withdrawn', 'cancelled', 'processed'];
    for (const [index, state] of states.entries()) {
      await database().query(sql`
        update notification set state = ${state}, processed_at = ${state === 'processed' ? noon : null} where id = ${index + 1}`);
    }
    const { clock, prune } = createStory(database());
    clock.advance(2 * HOUR_MS);
    assert.equal(await prune(signal), 'idle');
    assert.deepEqual(await listStates(database()), states);
    clock.advance(1);
    await prune(signal);
    assert.deepEqual(await listStates(database()), states.slice(0, 4));
    clock.advance(1_000 * 24 * HOUR_MS);
    await prune(signal);
    assert.deepEqual(await listStates(database()), states.slice(0, 4));
  });

  test('attempts go after their own retention', async () => {
    await insertAttempts(database(), noon, 2);
    await insertAttempts(database(), later(HOUR_MS), 3);
    const { clock, prune } = createStory(database());
    clock.advance(HOUR_MS + 1);
    await prune(signal);
    assert.equal(await countAttempts(database()), 3);
  });

  test('one step deletes a bounded number of rows and says when there are more', async () => {
    await insertAttempts(database(), noon, 1_500);
    const { clock, prune } = createStory(database());
    clock.advance(2 * HOUR_MS);
    assert.equal(await prune(signal), 'worked');
    assert.equal(await countAttempts(database()), 500);
    assert.equal(await prune(signal), 'idle');
    assert.equal(await countAttempts(database()), 0);
  });

  test('answers under an Idempotency-Key go after a day', async () => {
    await database().query(sql`
      insert into idempotent_answer (shard_id, key, part, digest, answer, created_at)
      select 1, 'key', number, '', '[]', ${noon}::timestamptz + number * interval '1 hour'
      from generate_series(0, 149) as number`);
    const { clock, prune } = createStory(database());
    const countAnswers = async () => (await database().query(sql`select from idempotent_answer`)).length;
    clock.advance(24 * HOUR_MS);
    assert.equal(await prune(signal), 'idle');
    assert.equal(await countAnswers(), 150);
    clock.advance(120 * HOUR_MS);
    assert.equal(await prune(signal), 'worked');
    assert.equal(await countAnswers(), 50);
    await prune(signal);
    assert.equal(await countAnswers(), 30);
  });
});
