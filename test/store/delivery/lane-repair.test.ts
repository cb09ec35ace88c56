import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { SHARD_STEP } from '../../../src/domain/shard.ts';
import { sql } from '../../../src/store/db/sql.ts';
import {
  createLaneRepair,
  findForgottenLanes,
  type LanePage,
} from '../../../src/store/delivery/lane-repair.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import { leaseDue } from '../../kit/attempts.ts';
import { headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  const find = async (at = noon) => {
    const page = { after: 0, limit: 100 };
    return (await findForgottenLanes(database(), { now: at, stepsMs: 0, page })).laneIds;
  };
  /** A lane with a first attempt that is due. */
  async function makeDue(): Promise<void> {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await database().query(sql`update notification_status set next_attempt_at = ${noon}`);
  }
  const forget = (nextDue: Date | undefined) =>
    database().query(sql`update lane set next_due = ${nextDue ?? null}`);
  const repair = (metrics = createMetrics('test'), at = noon) => {
    const step = createLaneRepair({
      ...{ database: database(), clock: createTestClock(at), log: silentLog(), metrics },
    });
    return step(new AbortController().signal);
  };

  test('a due notification in a lane that is not due is found, and its lane can be leased again', async () => {
    await makeDue();
    for (const retries of [0, 3])
      for (const nextDue of [undefined, later(60)]) {
        await database().query(sql`update notification_status set retry_count = ${retries}`);
        await forget(nextDue);
        assert.equal((await find()).length, 1);
        const metrics = createMetrics('test');
        await repair(metrics);
        assert.deepEqual(await find(), []);
        assert.equal((await metrics.deliveryQueuesHealed.get()).values[0]?.value, 1);
        const leased = await leaseDue(database(), { now: noon });
        assert.equal(leased.length, 1);
        await database().query(sql`update lane set owner = null, lease_until = null`);
      }
  });

  test('a due lane whose watcher has no visit due is found, and its lane can be leased again', async () => {
    await makeDue();
    for (const nextDue of [null, later(60_000)]) {
      await database().query(sql`update lane set owner = null, lease_until = null, next_due = ${noon}`);
      await database().query(sql`update watcher_queue set next_due = ${nextDue}`);
      assert.equal((await find(later(1_000))).length, 1);
      await repair(createMetrics('test'), later(1_000));
      assert.deepEqual(await find(later(1_000)), []);
      assert.equal((await leaseDue(database(), { now: later(1_000) })).length, 1);
    }
  });

  test('a lane that looks forgotten only at an outdated time is left alone', async () => {
    await makeDue();
    await forget(later(30_000));
    const clock = createTestClock(later(31_000));
    // As if the process had been stopped before its query reached the database.
    const times = [noon];
    const stopped = { ...clock, now: () => times.shift() ?? clock.now() };
    const metrics = createMetrics('test');
    const step = createLaneRepair({ database: database(), clock: stopped, log: silentLog(), metrics });
    await step(new AbortController().signal);
    assert.equal((await metrics.deliveryQueuesHealed.get()).values[0]?.value, 0);
  });

  test('a lane is not forgotten if a worker has it, if it is due, or if nothing in it is due', async () => {
    await makeDue();
    assert.deepEqual(await find(), []);
    await forget(undefined);
    await database().query(sql`update lane set owner = 1, lease_until = ${later(30)}`);
    assert.deepEqual(await find(), []);
    await database().query(sql`update lane set owner = null, lease_until = null`);
    for (const change of [
      sql`update notification_status set next_attempt_at = ${later(1)}`,
      sql`update notification_status set next_attempt_at = ${noon}, state = 'processed', processed_at = ${noon}`,
    ]) {
      await database().query(change);
      assert.deepEqual(await find(), []);
    }
  });

  test('a process that has not followed all steps of the clock finds nothing', async () => {
    await makeDue();
    await forget(undefined);
    await database().query(sql`update clock_state set steps_ms = 1000`);
    assert.deepEqual(await find(), []);
  });

  test('each step checks one page, and every lane is reached', async () => {
    await database().query(sql`
      insert into lane (shard_id, watcher_id, origin) select 1, 1, 'https://host' || n from generate_series(1, 5) as n`);
    const lanes = await database().query<{ id: number }>(sql`select id from lane order by id`);
    const ids = lanes.map(({ id }) => id);
    const pages: (number | undefined)[] = [];
    for (let after: number | undefined = 0; after !== undefined; ) {
      const page: LanePage = { after, limit: 2 };
      after = (await findForgottenLanes(database(), { now: noon, stepsMs: 0, page })).last;
      pages.push(after);
    }
    assert.deepEqual(pages, [ids[1], ids[3], undefined]);
  });

  test('on Citus, each statement about notifications asks one shard, for the first row of each lane', async () => {
    for (const watcherId of [1, 2, 3]) await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    await database().query(sql`update notification_status set next_attempt_at = ${noon}`);
    await forget(undefined);
    const asked: string[] = [];
    const distributed = await asDistributed(database(), async ({ text }) => {
      if (!text.includes('from queue')) return;
      asked.push(text);
    });
    const page = { after: 0, limit: 100 };
    const { laneIds } = await findForgottenLanes(distributed, { now: noon, stepsMs: 0, page });
    assert.equal(laneIds.length, 3);
    assert.equal(asked.length, 3);
    for (const text of asked)
      assert.equal(text.match(/shard_id = \$\d+ and lane_id = t\.id .*? limit 1\)/gs)?.length, 2);
  });

  test('on Citus, a shard that does not answer holds up no other lane, and no further page', async () => {
    await watchAddress(database());
    // More than one page between the lanes of the two watchers.
    await database().query(sql`
      insert into lane (shard_id, watcher_id, origin) select 1, 1, 'https://host' || n from generate_series(1, 1000) as n`);
    await watchAddress(database(), { watcherId: 2 });
    await mine(database(), headerOf(1), [transferOf()]);
    await database().query(sql`update notification_status set next_attempt_at = ${noon}`);
    await forget(undefined);
    const distributed = await asDistributed(database(), async ({ text, values }) => {
      const isOfFirst = values.some((value) => typeof value === 'number' && value % SHARD_STEP === 1);
      if (text.includes('from queue') && isOfFirst) throw new Fault('unavailable', 'database: timeout');
    });
    const metrics = createMetrics('test');
    const step = createLaneRepair({
      ...{ database: distributed, clock: createTestClock(noon), log: silentLog(), metrics },
    });
    for (let times = 0; times < 6; times += 1) await step(new AbortController().signal).catch(() => {});
    assert.equal((await metrics.deliveryQueuesHealed.get()).values[0]?.value, 1);
    assert.equal((await leaseDue(database(), { now: noon })).length, 1);
  });
});
