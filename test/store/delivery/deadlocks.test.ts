/**
 * Everything that changes notifications of one watcher, at once and each on a separate connection, without a deadlock.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { type Settlement, settle } from '../../../src/store/delivery/settle.ts';
import {
  alignChanged,
  type Change,
  changeWatchedAddresses,
} from '../../../src/store/watchers/watched-bulk.ts';
import { leaseDue, readDue } from '../../kit/attempts.ts';
import { addWatchers, atOnce, bob, headerOf, mine, noon, transferOf } from '../../kit/chain-story.ts';
import { onPostgres } from '../../kit/each-database.ts';

const RECORDS = 1_500;
const ORIGINS = ['https://one.example', 'https://two.example', 'https://three.example'];
const ROUNDS = 4;

async function change(database: Database, changes: readonly Change[]): Promise<void> {
  await database.transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon }));
  await alignChanged(database, 1, changes, noon);
}

async function watch(database: Database): Promise<string[]> {
  const changes = Array.from({ length: RECORDS }, (_, index): Change => {
    const webhookUrl = `${ORIGINS[index % ORIGINS.length]}/hook`;
    const flags = { watchCoin: true, watchToken: true };
    return { operation: 'create', record: { id: randomUUID(), address: bob, webhookUrl, ...flags } };
  });
  await change(database, changes);
  return changes.flatMap((one) => (one.operation === 'create' ? [one.record.id] : []));
}

/** Deadlocks that the server has counted in this database. It counts those of sessions that have ended or are idle. */
async function countDeadlocks(database: Database): Promise<number> {
  const [row] = await database.query<{ deadlocks: number }>(sql`
    select deadlocks from pg_stat_database where datname = current_database()`);
  return row?.deadlocks ?? 0;
}

onPostgres(({ database, place }) => {
  test('deleting and moving watched addresses does not deadlock with settlements and block commits', async () => {
    const others = await Promise.all([place(), place(), place()].map((one) => one.open()));
    const [settling, following, moving] = others;
    assert.ok(settling !== undefined && following !== undefined && moving !== undefined);
    await addWatchers(database(), 1);
    const before = await countDeadlocks(database());
    for (let round = 0; round < ROUNDS; round += 1) {
      const ids = await watch(database());
      const height = 3 * round;
      await mine(database(), headerOf(height + 1), [transferOf()], atOnce);
      // Held until the next block.
      await mine(database(), headerOf(height + 2), [transferOf()], { ...atOnce, confirmations: 1 });
      const lanes = await leaseDue(settling, { owner: 1, now: noon });
      const outcomes: Settlement[] = [];
      for (const lane of lanes)
        for (const one of await readDue(settling, lane, noon, RECORDS))
          outcomes.push({
            ...{ lane, notificationId: one.id, revision: one.revision, mayHaveArrived: true },
            ...{ retryCount: one.retryCount, redeliveryCount: one.redeliveryCount, startedAt: noon },
            ...{ durationMs: 5, outcome: 'http_5xx', status: 500, response: undefined, settledAt: noon },
            nextRetryAt: new Date(noon.getTime() + 60_000),
          });
      assert.equal(outcomes.length, RECORDS);
      const half = ids.length / 2;
      const origin = `https://moved-${round}.example`;
      await Promise.all([
        settle(settling, outcomes.toReversed()),
        change(
          database(),
          ids.slice(0, half).map((id) => ({ operation: 'delete', id })),
        ),
        change(
          moving,
          ids.slice(half).map((id) => ({ operation: 'update', id, patch: { webhookUrl: `${origin}/hook` } })),
        ),
        mine(following, headerOf(height + 3), [transferOf()], { ...atOnce, confirmations: 0 }),
      ]);
      await database().query(sql`truncate watched_address, notification, queue, ended, lane`);
    }
    for (const other of others) await other.close();
    assert.equal((await countDeadlocks(database())) - before, 0);
  });

  test('a transaction that was aborted by a deadlock is retried, and its caller gets the result', async () => {
    const [one, two] = await Promise.all([place().open(), place().open()]);
    await addWatchers(database(), 1, 2);
    const before = await countDeadlocks(database());
    const both = Promise.withResolvers<void>();
    let arrived = 0;
    let runs = 0;
    const rename = (own: Database, [first, second]: readonly [number, number]) =>
      own.transaction(async (tx) => {
        runs += 1;
        await tx.query(sql`update watcher set name = name || 'a' where id = ${first}`);
        arrived += 1;
        if (arrived === 2) both.resolve();
        await both.promise;
        await tx.query(sql`update watcher set name = name || 'b' where id = ${second}`);
      });
    await Promise.all([rename(one, [1, 2]), rename(two, [2, 1])]);
    await one.close();
    await two.close();
    const names = await database().query<{ name: string }>(sql`select name from watcher order by id`);
    assert.deepEqual(
      names.map(({ name }) =>
        name
          .replace(/^watcher \d/, '')
          .split('')
          .sort()
          .join(''),
      ),
      ['ab', 'ab'],
    );
    assert.ok(runs >= 3);
    assert.ok((await countDeadlocks(database())) > before);
  });
});
