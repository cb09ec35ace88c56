import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { systemClock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { createSettler } from '../../src/delivery/settler.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import type { Lane } from '../../src/store/delivery/lanes.ts';
import type { Settlement } from '../../src/store/delivery/settle.ts';
import { leaseDue, readDue } from '../kit/attempts.ts';
import { headerOf, listStates, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onPostgres, onSampledDatabase } from '../kit/each-database.ts';

/** A success for each due notification of the lane. */
async function outcomesOf(database: Database, lane: Lane): Promise<Settlement[]> {
  const due = await readDue(database, lane, noon);
  return due.map(({ id, revision, retryCount, redeliveryCount }) => ({
    ...{ lane, notificationId: id, revision, retryCount, redeliveryCount },
    ...{ startedAt: noon, mayHaveArrived: true, durationMs: 1, settledAt: noon },
    ...{ outcome: 'success', status: 200, response: undefined, nextRetryAt: undefined },
  }));
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('outcomes from consecutive turns of the event loop are recorded with one statement, or on Citus in one transaction', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    const [lane] = await leaseDue(database(), { now: noon });
    assert.ok(lane !== undefined);
    const outcomes = await outcomesOf(database(), lane);
    let statements = 0;
    const settler = createSettler({
      database: {
        ...database(),
        query(statement) {
          statements += 1;
          return database().query(statement);
        },
        transaction(work) {
          statements += 1;
          return database().transaction(work);
        },
      },
      clock: createTestClock(),
      log: silentLog(),
      signal: new AbortController().signal,
    });
    const [first, second] = outcomes;
    assert.ok(first !== undefined && second !== undefined);
    const next = setImmediate().then(() => settler.submit(second));
    assert.deepEqual(await Promise.all([settler.submit(first), next]), ['settled', 'settled']);
    assert.equal(statements, 1);
    assert.deepEqual(await listStates(database()), ['processed', 'processed']);
  });
});

onPostgres(({ database, place }) => {
  test('an outcome whose lane is locked is retried until it is recorded, without delay for other watchers', async () => {
    await watchAddress(database());
    await watchAddress(database(), { watcherId: 2, url: 'https://two.example/' });
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    const lanes = await leaseDue(database(), { now: noon });
    const outcomes = await Promise.all(lanes.map((lane) => outcomesOf(database(), lane)));
    const [busy, other] = [1, 2].map((id) => outcomes.flat().filter(({ lane }) => lane.watcherId === id));
    assert.ok(busy !== undefined && other !== undefined);
    const settler = createSettler({
      ...{
        database: database(),
        clock: systemClock(),
        log: silentLog(),
        signal: new AbortController().signal,
      },
    });
    const holder = await place().open();
    let waiting: Promise<unknown> = Promise.resolve();
    await holder.transaction(async (tx) => {
      await tx.query(sql`select from lane where watcher_id = 1 for update`);
      waiting = Promise.all(busy.map(settler.submit));
      assert.deepEqual(await Promise.all(other.map(settler.submit)), ['settled', 'settled']);
      const rows = sql`select from notification_status where watcher_id = 2 and state = 'processed'`;
      assert.equal((await database().query(rows)).length, 2);
      assert.equal((await listStates(database())).filter((state) => state === 'waiting').length, 2);
    });
    assert.deepEqual(await waiting, ['settled', 'settled']);
    assert.deepEqual(new Set(await listStates(database())), new Set(['processed']));
    await holder.close();
  });

  test("an outcome whose lane stays locked doesn't delay a shutdown", async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    const [lane] = await leaseDue(database(), { now: noon });
    assert.ok(lane !== undefined);
    const [outcome] = await outcomesOf(database(), lane);
    assert.ok(outcome !== undefined);
    const killed = new AbortController();
    const { signal } = killed;
    const settler = createSettler({ database: database(), clock: systemClock(), log: silentLog(), signal });
    const holder = await place().open();
    await holder.transaction(async (tx) => {
      await tx.query(sql`select from lane for update`);
      const submitted = settler.submit(outcome);
      killed.abort();
      await assert.rejects(submitted, { code: 'unavailable' });
    });
    await holder.close();
  });
});
