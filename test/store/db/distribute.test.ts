/**
 * `chainbell migrate --citus` on a database that is in use. Runs where TEST_CITUS_URL names a coordinator with two workers
 * (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { areTablesDistributed, distributeTables } from '../../../src/store/db/citus.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createDeliveryCount } from '../../../src/store/delivery/count-deliveries.ts';
import { redeliverOne } from '../../../src/store/delivery/redelivery.ts';
import { DAY_MS, preparePartitions } from '../../../src/store/retention/partitions.ts';
import { deleteWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { startChainbell } from '../../cli/chainbell.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { citusUrl, onServer } from '../../kit/citus.ts';
import { type CitusCluster, createCluster } from '../../kit/citus-cluster.ts';
import { createTestClock } from '../../kit/clock.ts';
import { contentOf } from '../../kit/database-content.ts';
import { SECRET } from '../../kit/service.ts';
import { waitUntil } from '../../kit/wait.ts';

const coordinator = citusUrl() ?? '';
const onCitus = {
  skip: coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- store/db/distribute`',
};
const DISTRIBUTED = ['delivery_attempt', 'ended', 'notification', 'queue', 'watched_address'];
const SLICES = 4;

/** The content of the tables, with the distributed ones among them not empty. */
async function filledContentOf(database: Database): Promise<Map<string, string[]>> {
  const content = await contentOf(database);
  for (const table of [...DISTRIBUTED, 'delivery_sum'])
    assert.ok((content.get(table)?.length ?? 0) > 0, `${table} is empty`);
  return content;
}

/** Watchers, one of them with several slices, and notifications in every state, with attempts and statistics of two days. */
async function fill(database: Database): Promise<void> {
  const before = new Date(noon.getTime() - 10 * DAY_MS);
  const limits = { notification: before, delivery_attempt: before, record_delivery_sum: before };
  await preparePartitions(database, { now: noon, before: limits });
  await database.query(sql`update record_counting set is_counted = true`);
  await database.query(
    sql`insert into watcher (id, name, created_at, slices) overriding system value values (1, 'sliced', ${noon}, ${SLICES})`,
  );
  const addresses = Array.from({ length: 3 * SLICES }, (_, index) => addressOf(1_000 + index));
  for (const address of addresses) await watchAddress(database, { address });
  const pay = (amount: bigint) => addresses.map((receiver) => transferOf({ receiver, amount }));
  const settings = {
    strict: { strictOrder: true },
    confirmed: { confirmations: 5 },
    noticed: { removed: true },
  };
  for (const [index, own] of Object.values(settings).entries())
    await watchAddress(database, { watcherId: 2 + index, address: addressOf(2_000 + index), settings: own });
  const gone = await watchAddress(database, { watcherId: 6, address: addressOf(2_000) });
  const special = (amount: bigint) =>
    Object.values(settings).map((_, index) => transferOf({ receiver: addressOf(2_000 + index), amount }));

  await mine(database, headerOf(1), pay(10n ** 77n));
  const [first] = await attemptDue(database, { now: noon, succeeds: true });
  await mine(database, headerOf(2), pay(2n));
  await attemptDue(database, { now: later(1), succeeds: false });
  await attemptDue(database, { now: later(DAY_MS), succeeds: true });
  assert.ok(first !== undefined);
  assert.equal(await redeliverOne(database, 1, first.id, later(DAY_MS + 1)), true);
  await mine(database, headerOf(3), special(3n), { confirmations: 0 });
  await attemptDue(database, { now: later(DAY_MS + 2), succeeds: false });
  await mine(database, headerOf(4), [...special(4n), ...pay(4n)], { confirmations: 0 });
  await mine(database, headerOf(4, 1, 3), [...special(5n), ...pay(5n)], {
    confirmations: 0,
    expectedTip: headerOf(4),
    reorg: { ancestorNumber: 3 },
  });
  await deleteWatchedAddress(database, 6, gone.id, { now: later(DAY_MS + 3) });
  const counting = createDeliveryCount({ database, clock: createTestClock(), attemptsMs: 1e9 });
  for (let round = 0; round < 3; round += 1) await counting.step();

  const states = await database.query<{ state: string }>(
    sql`select distinct state from notification_status order by state`,
  );
  assert.deepEqual(
    states.map(({ state }) => state),
    ['cancelled', 'held', 'processed', 'waiting', 'withdrawn'],
  );
  const shards = await database.query(sql`select distinct shard_id from notification`);
  assert.ok(shards.length > SLICES, `${shards.length} shards`);
  const partitions = await database.query(sql`select distinct tableoid from delivery_attempt`);
  assert.ok(partitions.length > 1, 'the attempts are in one partition');
}

async function setStage(t: TestContext) {
  const cluster = await createCluster(coordinator, { count: 2, isDistributed: false });
  t.after(() => cluster[Symbol.asyncDispose]());
  const open = async () => {
    const database = await openDatabase({ url: cluster.url, dataDir: '' });
    t.after(() => database.close());
    return database;
  };
  const database = await open();
  await fill(database);
  return { cluster, open, database, content: await filledContentOf(database) };
}

/** Starts `chainbell migrate --citus` on the cluster. */
const startMigrate = ({ url, dataDir }: CitusCluster) =>
  startChainbell(
    dataDir,
    {
      ...{ CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1' },
      ...{ CHAINBELL_DATABASE_URL: url, CHAINBELL_SECRET: SECRET },
    },
    ...['migrate', '--citus', '--json'],
  );

/** Bytes of the rows that the distributed tables have on the coordinator itself. */
const hiddenBytes = async (database: Database): Promise<number> => {
  const [row] = await database.query<{ bytes: number }>(sql`
    select sum(pg_relation_size(p.relid))::bigint as bytes
    from unnest(${DISTRIBUTED}::text[]) as t (name) cross join lateral pg_partition_tree(t.name::regclass) p`);
  return row?.bytes ?? 0;
};

test(
  'distributing a database that is in use changes no row, and everything goes on there',
  onCitus,
  async (t) => {
    const { cluster, open, database, content } = await setStage(t);
    for (const isFirst of [true, false]) {
      const { code, out, err } = await startMigrate(cluster).ended;
      assert.equal(code, 0, err);
      assert.equal(JSON.parse(out).distributed_now, isFirst);
      const distributed = await open();
      assert.equal(distributed.isDistributed, true);
      assert.deepEqual(await filledContentOf(distributed), content);
      assert.equal(await hiddenBytes(database), 0);
    }
    const distributed = await open();
    const hasRows = new Map<number, number>();
    for (const { shard_id: shardId } of await database.query<{ shard_id: number }>(
      sql`select distinct shard_id from queue`,
    )) {
      const worker = await cluster.workerOf(shardId);
      hasRows.set(worker, (hasRows.get(worker) ?? 0) + 1);
    }
    assert.equal(hasRows.size, 2, 'all rows are on one worker');
    await mine(distributed, headerOf(5), [transferOf({ receiver: addressOf(1_000) })]);
    const attempted = await attemptDue(distributed, { now: later(2 * DAY_MS), succeeds: true });
    const [newest] = await distributed.query<{ id: number }>(sql`select max(id) as id from notification`);
    assert.ok(attempted.some(({ id }) => id === newest?.id));
  },
);

test(
  'killed in the middle, migrate --citus leaves the database as it was, and a second run completes',
  onCitus,
  async (t) => {
    const { cluster, open, database, content } = await setStage(t);
    const isWaiting = async () => {
      const rows = await database.query(sql`
      select from pg_stat_activity where datname = current_database() and application_name = 'chainbell'
        and wait_event_type = 'Lock' and query like '%create_distributed_table%'`);
      return rows.length > 0;
    };
    const running = startMigrate(cluster);
    await onServer(cluster.url, async (gate) => {
      await gate.query('begin');
      // The last of the tables.
      await gate.query('lock table delivery_attempt in row exclusive mode');
      await waitUntil(isWaiting, { describe: 'the command to wait for the last table' });
      running.process.kill('SIGKILL');
      await running.ended;
      await gate.query('commit');
    });
    const isOver = async () => !(await isWaiting()) && (await hasOneConnection(database));
    await waitUntil(isOver, { describe: 'the server to give up the command' });
    assert.equal(await areTablesDistributed(database), false);
    assert.deepEqual(await filledContentOf(database), content);

    const { code, err } = await startMigrate(cluster).ended;
    assert.equal(code, 0, err);
    assert.deepEqual(await filledContentOf(await open()), content);
  },
);

/** Whether the server has no other connections of the program than those of this database handle. */
async function hasOneConnection(database: Database): Promise<boolean> {
  const rows = await database.query(sql`
    select from pg_stat_activity where datname = current_database() and application_name = 'chainbell' and state <> 'idle'
      and pid <> pg_backend_pid()`);
  return rows.length === 0;
}

test(
  'interrupted before the coordinator has deleted its copies, the next run deletes them',
  onCitus,
  async (t) => {
    const { open, database, content } = await setStage(t);
    const interrupted: Database = {
      ...database,
      query(statement) {
        if (statement.text.includes('truncate_local_data')) throw new Error('interrupted');
        return database.query(statement);
      },
    };
    await assert.rejects(distributeTables(interrupted), /interrupted/);
    assert.ok((await hiddenBytes(database)) > 0);
    assert.equal(await distributeTables(database), false);
    assert.equal(await hiddenBytes(database), 0);
    assert.deepEqual(await filledContentOf(await open()), content);
  },
);
