import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal } from '../../../src/core/decimal.ts';
import { insertChain } from '../../../src/store/blocks/blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { raw, sql } from '../../../src/store/db/sql.ts';
import { moveToEnded } from '../../../src/store/delivery/notification-rows.ts';
import { redeliverOne } from '../../../src/store/delivery/redelivery.ts';
import { findLastRoundAt, insertRound } from '../../../src/store/prices/price-rounds.ts';
import { readPruneMarks } from '../../../src/store/retention/prune-marks.ts';
import { createPruner } from '../../../src/store/retention/retention.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { headerOf, later, listStates, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { citusUrl } from '../../kit/citus.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { countRead, insertNotifications, planTest, withPlans } from '../../kit/many-notifications.ts';
import { waitUntil } from '../../kit/wait.ts';

const HOUR_MS = 3_600_000;
const { signal } = new AbortController();

function createStory(database: Database) {
  const clock = createTestClock(noon);
  return {
    clock,
    prune: createPruner({
      database,
      clock,
      attemptsMs: HOUR_MS,
      notificationsMs: 2 * HOUR_MS,
      observationsMs: HOUR_MS,
    }),
  };
}

const insertAttempts = (database: Database, startedAt: Date, count: number) =>
  database.query(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
    select 1, number, ${startedAt}::timestamptz, 1, 'success' from generate_series(1, ${count}::int) as number`);

/** Rows in `ended` for the oldest notifications. */
const insertEnded = (database: Database, count: number) =>
  database.query(sql`
    insert into ended (shard_id, id, created_at, state, ended_at, retry_count)
    select shard_id, id, created_at, 'processed', created_at, 1 from notification order by id limit ${count}`);

const countAttempts = async (database: Database) =>
  (await database.query(sql`select from delivery_attempt`)).length;

onSampledDatabase(import.meta.url, ({ database }) => {
  test('finished notifications are deleted after their retention, and waiting ones never', async () => {
    await watchAddress(database());
    const states = ['held', 'waiting', 'withdrawn', 'cancelled', 'processed'];
    await mine(
      database(),
      headerOf(1),
      states.map(() => transferOf()),
    );
    for (const [index, state] of states.entries()) {
      await database().query(sql`
        update notification_status set state = ${state}, processed_at = ${state === 'processed' ? noon : null} where id = ${index + 1}`);
    }
    const { clock, prune } = createStory(database());
    clock.advance(2 * HOUR_MS);
    assert.equal(await prune(signal), 'idle');
    assert.deepEqual(await listStates(database()), states);
    assert.deepEqual([...(await readPruneMarks(database()))], [['notification', noon]]);
    clock.advance(1);
    await prune(signal);
    assert.deepEqual(await listStates(database()), ['held', 'waiting']);
    clock.advance(1_000 * 24 * HOUR_MS);
    await prune(signal);
    assert.deepEqual(await listStates(database()), ['held', 'waiting']);
  });

  test('price observations are deleted after their own retention, and prices never', async () => {
    for (const at of [noon, later(HOUR_MS)]) {
      const report = {
        source: 'fixed',
        price: decimal('2'),
        conf: undefined,
        observedAt: at,
        message: undefined,
      };
      const reports = [{ ...report, verdict: 'used' as const }];
      const last = await findLastRoundAt(database(), 'BELL');
      const round = { asset: 'BELL', at, reports, price: decimal('2'), isAgreed: false, isDisputed: false };
      await insertRound(database(), round, last);
    }
    const { clock, prune } = createStory(database());
    clock.advance(HOUR_MS + 1);
    assert.equal(await prune(signal), 'idle');
    const times = await database().query(sql`select round_at from price_observation`);
    assert.deepEqual(times, [{ round_at: later(HOUR_MS) }]);
    assert.equal((await database().query(sql`select from price`)).length, 2);
  });

  test('attempts are deleted after their own retention', async () => {
    await insertAttempts(database(), noon, 2);
    await insertAttempts(database(), later(HOUR_MS), 3);
    const { clock, prune } = createStory(database());
    clock.advance(HOUR_MS + 1);
    await prune(signal);
    assert.equal(await countAttempts(database()), 3);
  });

  test('sums of deliveries are deleted after 62 days, and those of records whole weeks at a time', async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    const add = async (at: Date) => {
      await database().query(sql`
        insert into delivery_sum (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt, answered,
          answer_ms, latencies, answers)
        values (1, 'h', ${at}, '', 0, 0, 0, 0, 0, 0, '{}', '{}')`);
      await database().query(sql`
        insert into record_delivery_sum (shard_id, watched_address_id, started_at, counters)
        values (1, gen_random_uuid(), ${at}, '{}')`);
    };
    const days = async () => {
      const [row] = await database().query<{ sums: number; records: number }>(sql`
        select (select count(*) from delivery_sum) as sums, (select count(*) from record_delivery_sum) as records`);
      return [row?.sums, row?.records];
    };
    const DAY_MS = 24 * HOUR_MS;
    // One day has no partition, so its row is in the default partition.
    for (const day of [-100, 0, 1, 6]) await add(later(day * DAY_MS));
    clock.advance(62 * DAY_MS + 1);
    while ((await prune(signal)) === 'worked');
    assert.deepEqual(await days(), [2, 3]);
    clock.advance(5 * DAY_MS);
    while ((await prune(signal)) === 'worked');
    assert.deepEqual(await days(), [1, 3]);
    clock.advance(2 * DAY_MS);
    while ((await prune(signal)) === 'worked');
    assert.deepEqual(await days(), [0, 0]);
  });

  test('while nothing may be pruned, partitions are created and nothing is deleted', async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    await insertAttempts(database(), noon, 1);
    clock.advance(30 * 24 * HOUR_MS);
    const retention = { attemptsMs: HOUR_MS, notificationsMs: HOUR_MS, observationsMs: HOUR_MS };
    let mayPrune = false;
    const paused = createPruner({ database: database(), clock, ...retention, mayPrune: () => mayPrune });
    await paused(signal);
    assert.equal(await countAttempts(database()), 1);
    await insertAttempts(database(), clock.now(), 1);
    assert.deepEqual(await database().query(sql`select id from delivery_attempt_default`), []);
    mayPrune = true;
    await paused(signal);
    assert.equal(await countAttempts(database()), 1);
  });

  test('rows of a partition are dropped together, and its waiting notifications stay', async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    await watchAddress(database());
    const states = ['held', 'waiting', 'withdrawn', 'cancelled', 'processed'];
    await mine(
      database(),
      headerOf(1),
      states.map(() => transferOf()),
    );
    await insertAttempts(database(), noon, 2);
    for (const [index, state] of states.entries())
      await database().query(sql`update notification_status set state = ${state} where id = ${index + 1}`);
    const listPlaces = async () =>
      (
        await database().query<{ place: string }>(sql`
          select distinct tableoid::regclass::text as place from notification
          union select distinct tableoid::regclass::text from delivery_attempt order by 1`)
      )
        // On Citus, the number of the shard follows.
        .map(({ place }) => place.replace(/(_default|_\d{8})_\d{6,7}$/, '$1'))
        .filter((place, index, all) => all.indexOf(place) === index);
    const day = ['delivery_attempt_20251120_20251121', 'notification_20251120_20251121'];
    assert.deepEqual(await listPlaces(), day);
    // The day ends at midnight, and its notifications are kept for two hours after it.
    clock.advance(14 * HOUR_MS - 1);
    assert.equal(await prune(signal), 'worked', 'the attempts are dropped');
    assert.deepEqual(await listPlaces(), ['notification_20251120_20251121']);
    assert.equal(await prune(signal), 'idle');
    assert.deepEqual(await listStates(database()), states);
    clock.advance(1);
    assert.equal(await prune(signal), 'worked');
    assert.deepEqual(await listStates(database()), ['held', 'waiting']);
    assert.deepEqual(await listPlaces(), ['notification_default']);
    assert.deepEqual(await database().query(sql`select id from ended`), []);
    assert.deepEqual(
      await database().query(sql`
        select relname as name from pg_class where relkind = 'r' and relname like 'notification\_2%' order by 1`),
      [
        { name: 'notification_20251121_20251122' },
        { name: 'notification_20251122_20251123' },
        { name: 'notification_20251123_20251124' },
      ],
    );
  });

  test('rows in ended of a dropped partition are deleted in steps, also after the process that dropped it has ended', async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 2_500, state: 'processed' });
    await insertEnded(database(), 2_500);
    const countEnded = async () => (await database().query(sql`select from ended`)).length;
    clock.advance(14 * HOUR_MS);
    assert.equal(await prune(signal), 'worked');
    assert.equal(await countEnded(), 1_500);
    const { clock: laterClock, prune: pruneAgain } = createStory(database());
    laterClock.advance(14 * HOUR_MS);
    assert.equal(await pruneAgain(signal), 'worked');
    assert.equal(await pruneAgain(signal), 'idle');
    assert.equal(await countEnded(), 0);
    await database().query(sql`
      insert into ended (shard_id, id, created_at, state) values (1, 1, ${noon}, 'cancelled')`);
    assert.equal(await pruneAgain(signal), 'idle');
    assert.equal(await countEnded(), 1, 'they are looked for once an hour');
    laterClock.advance(HOUR_MS);
    await pruneAgain(signal);
    assert.equal(await countEnded(), 0);
  });

  test('a partition with more waiting notifications than one drop may copy stays, and loses its finished ones in steps', {
    skip: citusUrl() === undefined ? false : 'such a partition waits there',
  }, async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 6_000, state: 'processed' });
    await insertEnded(database(), 2_000);
    await insertNotifications(database(), { records: [record], count: 10_001 });
    const countIn = async (table: string) => {
      const [row] = await database().query<{ count: number }>(
        sql`select count(*)::integer as count from ${raw(table)}`,
      );
      return row?.count;
    };
    const [day] = ['notification_20251120_20251121'];
    clock.advance(14 * HOUR_MS);
    assert.equal(await prune(signal), 'worked');
    const left = (await countIn(day)) ?? 0;
    assert.ok(left > 10_001 && left < 16_001, `some pages in a step: ${left}`);
    while ((await prune(signal)) === 'worked');
    assert.deepEqual([await countIn(day), await countIn('notification_default')], [10_001, 0]);
    assert.equal(await countIn('ended'), 0);
    await database().query(sql`delete from queue where id = (select min(id) from queue)`);
    assert.equal(await prune(signal), 'idle', 'it is looked at once an hour');
    clock.advance(HOUR_MS);
    assert.equal(await prune(signal), 'worked', 'now it is dropped');
    assert.deepEqual(
      [await countIn('notification'), await countIn('notification_default')],
      [10_000, 10_000],
    );
  });

  test('a partition has a tenth of the retention, and none of the days that are in the default partition', async () => {
    const { clock } = createStory(database());
    const pruneAfter = (days: number) =>
      createPruner({
        ...{ database: database(), clock, attemptsMs: days * 24 * HOUR_MS },
        ...{ notificationsMs: HOUR_MS, observationsMs: HOUR_MS },
      })(signal);
    const listDays = async () =>
      (
        await database().query<{ name: string }>(sql`
          select relname as name from pg_class where relkind = 'r' and relname like 'delivery\_attempt\_2%' order by 1`)
      ).map(({ name }) => name.replace('delivery_attempt_2025', ''));
    await insertAttempts(database(), noon, 2);
    await insertAttempts(database(), later(4 * 24 * HOUR_MS), 2);
    await pruneAfter(61);
    assert.deepEqual(await listDays(), ['1121_20251124', '1125_20251127']);
    await pruneAfter(61);
    assert.deepEqual((await listDays()).length, 2);
    // With another retention, the days that have a partition keep theirs.
    clock.advance(5 * 24 * HOUR_MS);
    await pruneAfter(20);
    assert.deepEqual(await listDays(), ['1121_20251124', '1125_20251127', '1127_20251129']);
  });

  test('a finished notification is kept until its block is final, so that a reorg does not send its transfer again', async () => {
    const places: Record<string, (prune: () => Promise<unknown>) => Promise<unknown>> = {
      'in the default partition': async () => {},
      'in the partition of its day': (prune) => prune(),
    };
    for (const [name, prepare] of Object.entries(places)) {
      await emptyDatabase(database());
      await insertChain(database(), 1, undefined);
      const { clock, prune } = createStory(database());
      const pruneAll = async () => {
        while ((await prune(signal)) === 'worked');
      };
      await prepare(pruneAll);
      await watchAddress(database());
      const transfer = transferOf();
      await mine(database(), headerOf(1), []);
      await mine(database(), headerOf(2), [transfer]);
      await attemptDue(database(), { now: noon, succeeds: true });
      await mine(database(), headerOf(3), [], { finalizedNumber: 1 });
      clock.advance(3 * 24 * HOUR_MS);
      await pruneAll();
      assert.deepEqual(await listStates(database()), ['processed'], name);
      const now = clock.now();
      const reorg = { ancestorNumber: 1 };
      await mine(database(), headerOf(2, 1, 1), [transfer], { reorg, finalizedNumber: 1, now });
      assert.deepEqual(await listStates(database()), ['processed'], name);
      await mine(database(), headerOf(3, 1, 1), [], { finalizedNumber: 3, now });
      await pruneAll();
      assert.deepEqual(await listStates(database()), [], name);
    }
  });

  test('one step deletes a bounded number of rows and reports whether there are more', async () => {
    const record = await watchAddress(database());
    const left = async () => (await listStates(database())).length + (await countAttempts(database()));
    const fill = {
      attempts: () => insertAttempts(database(), noon, 1_500),
      processed: () =>
        insertNotifications(database(), { records: [record], count: 1_500, state: 'processed' }),
      withdrawn: async () => {
        await insertNotifications(database(), { records: [record], count: 1_500 });
        await database().query(sql`update notification_status set state = 'withdrawn'`);
      },
    };
    const { clock, prune } = createStory(database());
    clock.advance(24 * HOUR_MS);
    for (const [name, insert] of Object.entries(fill)) {
      await insert();
      assert.equal(await prune(signal), 'worked', name);
      // A processed notification has an attempt.
      assert.equal(await left(), name === 'processed' ? 1_000 : 500, name);
      assert.equal(await prune(signal), 'idle', name);
      assert.equal(await left(), 0, name);
    }
  });
});

onPostgres(({ database }) => {
  test('a partition is dropped later while another transaction uses its table', async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    await insertAttempts(database(), noon, 2);
    clock.advance(3 * 24 * HOUR_MS);
    await database().transaction(async (tx) => {
      await tx.query(sql`select from delivery_attempt`);
      await prune(signal);
      assert.equal(await countAttempts(database()), 2);
    });
    assert.equal(await prune(signal), 'worked');
    assert.equal(await countAttempts(database()), 0);
  });

  test('a day whose first row is committed while its partition is created stays in the default partition', async () => {
    const { clock, prune } = createStory(database());
    const isWaiting = async () =>
      (await database().query(sql`select from pg_locks where not granted and relation is not null`)).length >
      0;
    // A round shows nothing if the creation gave up before the commit.
    for (let round = 0; round < 10; round += 1) {
      const insert = Promise.withResolvers<void>();
      const commit = Promise.withResolvers<void>();
      const inserting = database().transaction(async (tx) => {
        const startedAt = clock.now();
        await tx.query(sql`
          insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
          values (1, 1, ${new Date(startedAt)}::timestamptz, 1, 'success')`);
        insert.resolve();
        await commit.promise;
      });
      await insert.promise;
      const pruning = prune(signal);
      await waitUntil(isWaiting, { describe: 'the creation waits for the transaction' });
      commit.resolve();
      await inserting;
      await pruning;
      await database().script('delete from delivery_attempt');
      clock.advance(10 * 24 * HOUR_MS);
    }
  });

  test('a notification that is redelivered while retention would delete it is kept', async () => {
    const places: Record<string, (prune: () => Promise<unknown>) => Promise<unknown>> = {
      'in the default partition': async () => {},
      'in the partition of its day': (prune) => prune(),
    };
    for (const [name, prepare] of Object.entries(places)) {
      await emptyDatabase(database());
      const { clock, prune } = createStory(database());
      await prepare(() => prune(signal));
      await watchAddress(database());
      await mine(database(), headerOf(1), [transferOf()]);
      await attemptDue(database(), { now: noon, succeeds: true });
      clock.advance(3 * 24 * HOUR_MS);
      // The step runs when the redelivery is done but not committed.
      const pausing: Database = {
        ...database(),
        transaction: (work) =>
          database().transaction(async (tx) => {
            const result = await work(tx);
            await prune(signal);
            return result;
          }),
      };
      assert.ok(await redeliverOne(pausing, 1, 1, clock.now()), name);
      while ((await prune(signal)) === 'worked');
      assert.deepEqual(await listStates(database()), ['waiting'], name);
    }
  });

  test('a new partition is analyzed once it has rows', planTest, async () => {
    const { prune } = createStory(database());
    const isAnalyzed = async () =>
      await database().query(sql`
        select reltuples >= 0 as analyzed from pg_class where relname = 'delivery_attempt_20251120_20251121'`);
    await prune(signal);
    await prune(signal);
    assert.deepEqual(await isAnalyzed(), [{ analyzed: false }]);
    await insertAttempts(database(), noon, 2);
    await prune(signal);
    assert.deepEqual(await isAnalyzed(), [{ analyzed: true }]);
  });

  test('a step finds its rows by an index, however large the tables are', planTest, async () => {
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 50_000, state: 'processed' });
    await insertNotifications(database(), { records: [record], count: 50_000 });
    const isEven = sql`n.id % 2 = 0`;
    await database().transaction((tx) => moveToEnded(tx, isEven, { state: 'cancelled', now: noon }));
    await insertAttempts(database(), noon, 100_000);
    await database().query(sql`
      insert into idempotent_answer (shard_id, key, part, digest, answer, created_at)
      select 1, 'key', number, '', '[]', ${noon} from generate_series(1, 20000) as number`);
    await database().query(sql`
      insert into price_observation (asset, round_at, source, price, verdict)
      select 'BELL', ${noon}::timestamptz + make_interval(secs => number), 'fixed', 1, 'used'
      from generate_series(1, 50000) as number`);
    await database().query(sql`
      insert into delivery_sum (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt, answered,
        answer_ms, latencies, answers)
      select 1, 'h', ${noon}::timestamptz + number * interval '1 hour', '', 0, 0, 0, 0, 0, 0, '{}', '{}'
      from generate_series(1, 50000) as number`);
    await database().query(sql`
      insert into record_delivery_sum (shard_id, watched_address_id, started_at, counters)
      select 1, gen_random_uuid(), ${noon}::timestamptz + number * interval '1 minute', '{}' from generate_series(1, 50000) as number`);
    await database().query(sql`analyze`);
    const { clock } = createStory(database());
    clock.advance(10_000 * 24 * HOUR_MS);
    const { db, plans } = withPlans(database());
    const timing = { clock, attemptsMs: HOUR_MS, notificationsMs: 2 * HOUR_MS, observationsMs: HOUR_MS };
    const planned: Database = {
      ...{ ...database(), ...db },
      transaction: (work) =>
        database().transaction((tx) => work({ ...withPlans(tx, plans).db, kind: 'transaction' })),
    };
    await createPruner({ database: planned, ...timing })(signal);
    for (const part of [
      'Delete on delivery_attempt_default',
      'Delete on notification_default',
      'Delete on ended',
    ])
      assert.ok(
        plans.some((plan) => plan.includes(part)),
        part,
      );
    assert.doesNotMatch(plans.join('\n'), /Seq Scan on (?!pg_|(chain|prune_mark) )/);
  });

  test(
    'a step looks at a bounded number of old notifications in the default partition, however many of them wait',
    planTest,
    async () => {
      const record = await watchAddress(database());
      await insertNotifications(database(), { records: [record], count: 5_000 });
      await insertNotifications(database(), { records: [record], count: 1_500, state: 'processed' });
      // Those of a block have the same time.
      await database().query(sql`
      update notification set created_at = ${noon}::timestamptz + block_number / 100 * interval '1 second'`);
      await database().query(sql`analyze`);
      let read = 0;
      const counting: Database = {
        ...database(),
        async query(statement) {
          if (statement.text.includes('from notification_default n'))
            read += await countRead(database(), statement, 'notification');
          return database().query(statement);
        },
        transaction: (work) =>
          database().transaction((tx) =>
            work({
              ...tx,
              async query(statement) {
                if (/^\s*select n\.ctid/.test(statement.text))
                  read += await countRead(tx, statement, 'queue');
                return tx.query(statement);
              },
            }),
          ),
      };
      const { clock } = createStory(database());
      clock.advance(30 * 24 * HOUR_MS);
      const timing = { clock, attemptsMs: HOUR_MS, notificationsMs: 2 * HOUR_MS, observationsMs: HOUR_MS };
      const prune = createPruner({ database: counting, ...timing });
      const step = async () => {
        read = 0;
        const outcome = await prune(signal);
        // The notifications themselves with others of the same time, and the rows of `queue`.
        assert.ok(read <= 4_000, `${read} rows`);
        return outcome;
      };
      while ((await step()) === 'worked');
      const countLeft = async () => (await listStates(database())).length;
      assert.equal(await countLeft(), 5_000);
      await database().query(sql`delete from queue where id <= 1500`);
      assert.equal(await step(), 'idle', 'those that waited are looked at once an hour');
      assert.equal(await countLeft(), 5_000);
      clock.advance(HOUR_MS);
      while ((await step()) === 'worked');
      assert.equal(await countLeft(), 3_500);
    },
  );

  test('a step looks at no notification of a partition that is dropped later', planTest, async () => {
    const { clock, prune } = createStory(database());
    await prune(signal);
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 5_000, state: 'processed' });
    await insertEnded(database(), 5_000);
    await database().query(sql`analyze`);
    clock.advance(4 * HOUR_MS);
    let read = 0;
    const counting: Database = {
      ...database(),
      async query(statement) {
        if (!statement.text.includes('delete from ended')) return database().query(statement);
        read += await countRead(database(), statement, 'notification');
        return [];
      },
    };
    const timing = { clock, attemptsMs: HOUR_MS, notificationsMs: 2 * HOUR_MS, observationsMs: HOUR_MS };
    await createPruner({ database: counting, ...timing })(signal);
    assert.equal(read, 0);
    assert.equal((await database().query(sql`select from ended`)).length, 5_000);
  });

  test('answers to requests with an Idempotency-Key are deleted after a day', async () => {
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
