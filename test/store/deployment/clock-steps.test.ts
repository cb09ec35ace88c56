import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { followStep } from '../../../src/store/deployment/clock-steps.ts';
import { repairSchedule } from '../../../src/store/deployment/schedule-repair.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import { attemptDue, leaseDue } from '../../kit/attempts.ts';
import { headerOf, later, listLanes, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { waitUntil } from '../../kit/wait.ts';

const timing = { clock: createTestClock(), leaseMs: 30_000, retryMinutes: [1, 60] };

/** One watched address whose notification has failed once: it is due in a minute. */
async function failOnce(database: Database): Promise<void> {
  await watchAddress(database);
  await mine(database, headerOf(1), [transferOf()]);
  await attemptDue(database, { now: noon, succeeds: false });
}

/** When the only row, its lane and the visit of its watcher are due, in ms from noon. */
async function readDueTimes(database: Database): Promise<(number | null | undefined)[]> {
  const [row] = await database.query<Record<'row' | 'lane' | 'visit', Date | null>>(sql`
    select q.due_at as row, l.next_due as lane, v.next_due as visit from queue q join lane l on l.id = q.lane_id
    join watcher_queue v on v.watcher_id = l.watcher_id`);
  return [row?.row, row?.lane, row?.visit].map((time) => time && time.getTime() - noon.getTime());
}

onEachDatabase(({ database }) => {
  const dueTimes = () => readDueTimes(database());

  test('a repair changes nothing of a schedule in which nothing is too late', async () => {
    await failOnce(database());
    assert.equal(await repairSchedule(database(), timing), 'repaired');
    assert.deepEqual(await dueTimes(), [60_000, 60_000, 60_000]);
  });

  test('a repair brings back what is too late with its queue and the visit of its watcher, and nothing else', async () => {
    await failOnce(database());
    const late = later(86_400_000);
    await database().query(sql`update lane set next_due = ${late}`);
    await repairSchedule(database(), timing);
    assert.deepEqual(await dueTimes(), [60_000, 0, 0], 'a queue that is due after its notification');
    await database().query(sql`update lane set next_due = ${later(60_000)}`);
    await database().query(sql`update watcher_queue set next_due = ${late}`);
    await repairSchedule(database(), timing);
    assert.deepEqual(await dueTimes(), [60_000, 60_000, 60_000], 'a visit after its queue');
    await database().query(sql`update notification_status set next_attempt_at = ${late}`);
    await repairSchedule(database(), timing);
    assert.deepEqual(await dueTimes(), [60_000, 0, 0], 'a notification after its retry interval');
  });

  test('a repair shortens leases that end too late', async () => {
    await failOnce(database());
    await database().query(sql`update lane set owner = 1, lease_until = ${later(86_400_000)}`);
    await repairSchedule(database(), timing);
    const [lane] = await database().query<{ lease_until: Date }>(sql`select lease_until from lane`);
    assert.deepEqual(lane?.lease_until, later(30_000));
  });
});

onEachDatabase(({ database }) => {
  test('a step moves each notification once, a bounded number of them with each statement', async () => {
    await watchAddress(database());
    await mine(
      database(),
      headerOf(1),
      [1, 2, 3, 4, 5, 6, 7].map(() => transferOf()),
    );
    const statements: string[] = [];
    const heard: Database = {
      ...database(),
      transaction: (work) =>
        database().transaction((tx) =>
          work({
            ...tx,
            query(statement) {
              statements.push(statement.text);
              return tx.query(statement);
            },
          }),
        ),
    };
    await followStep(heard, {
      ...{ stepsMs: 0, leaseMs: 30_000, prunePauseMs: 1, pausingStepMs: 60_000, rowsMax: 2 },
      measure: async () => ({ movedMs: 5_000, now: () => later(5_000) }),
    });
    assert.equal(statements.filter((text) => /update queue\b/.test(text)).length, 4);
    const rows = await database().query<{ due_at: Date }>(sql`select due_at from queue order by id`);
    assert.deepEqual(
      rows.map((row) => row.due_at),
      rows.map(() => later(5_000)),
    );
    assert.equal(rows.length, 7);
  });
});

onPostgres(({ database }) => {
  /** Runs a repair in a transaction of this work, after it, until the repair has ended or waits. */
  async function repairDuring(
    work: (tx: Tx) => Promise<unknown>,
    { clock }: { clock: TestClock },
  ): Promise<{ hasWaited: boolean }> {
    let [isRepaired, hasWaited] = [false, false];
    let repairing: Promise<unknown> = Promise.resolve();
    await database().transaction(async (tx) => {
      await tx.query(sql`select id from lane order by id for update`);
      repairing = repairSchedule(database(), { ...timing, clock }).then(() => {
        isRepaired = true;
      });
      await waitUntil(
        async () => {
          hasWaited = (await countWaiting(database())) > 0;
          return isRepaired || hasWaited;
        },
        { describe: 'the repair has ended, or waits for the queue' },
      );
      await work(tx);
    });
    await repairing;
    return { hasWaited };
  }

  test('on Citus, a repair brings back queues that are due after their notifications, and these', async () => {
    await failOnce(database());
    // No workers, so none has to answer.
    if (database().isDistributed !== true)
      await database().script(`
        create or replace view pg_dist_shard as
          select 0 as shardid, 'queue'::regclass as logicalrelid, '0' as shardminvalue, '0' as shardmaxvalue where false`);
    const distributed = await asDistributed(database());
    await repairSchedule(distributed, timing);
    assert.deepEqual(await readDueTimes(database()), [60_000, 60_000, 60_000]);
    await database().query(sql`update lane set next_due = ${later(86_400_000)}`);
    await repairSchedule(distributed, timing);
    assert.deepEqual(await readDueTimes(database()), [60_000, 0, 0]);
    await database().query(sql`update notification_status set next_attempt_at = ${later(86_400_000)}`);
    await database().query(sql`update lane set next_due = ${later(86_400_000)}`);
    await repairSchedule(distributed, timing);
    assert.deepEqual(await readDueTimes(database()), [60_000, 0, 0]);
  });

  test('a repair waits for no queue while nothing is too late', async () => {
    await failOnce(database());
    const { hasWaited } = await repairDuring(async () => {}, { clock: createTestClock() });
    assert.equal(hasWaited, false);
  });

  test('a failure that is recorded while a repair waits for its queue keeps its interval', async () => {
    await failOnce(database());
    await database().query(sql`update notification_status set next_attempt_at = ${later(86_400_000)}`);
    const clock = createTestClock();
    await repairDuring(
      async (tx) => {
        clock.advance(20_000);
        await tx.query(sql`update queue set due_at = ${later(80_000)}, next_retry_at = ${later(80_000)}`);
      },
      { clock },
    );
    assert.deepEqual((await readDueTimes(database()))[0], 80_000);
  });

  test('a queue that is given back while the schedule is repaired is due when its notifications are', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    const lanes = await leaseDue(database(), { owner: 1, now: noon });
    // A process that missed a step of the clock wrote this time.
    await database().query(sql`update notification_status set next_attempt_at = ${later(86_400_000)}`);
    let isRepaired = false;
    let repairing: Promise<unknown> = Promise.resolve();
    const pausing: Database = {
      ...database(),
      transaction: (work) =>
        database().transaction(async (tx) => {
          const result = await work(tx);
          repairing = repairSchedule(database(), timing).then(() => {
            isRepaired = true;
          });
          await waitUntil(async () => isRepaired || (await countWaiting(database())) > 0, {
            describe: 'the repair has ended, or waits for the queue',
          });
          return result;
        }),
    };
    await releaseLanes(pausing, lanes, noon);
    await repairing;
    assert.deepEqual(
      (await listLanes(database())).map(({ owner, next_due }) => [owner, next_due]),
      [[null, noon]],
    );
  });
});
