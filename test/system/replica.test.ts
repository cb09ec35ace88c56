/**
 * Services whose API reads from a real streaming replica.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatusBody } from '../../src/api/ops/status-body.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { readStatistics } from '../../src/store/delivery/statistics.ts';
import { attemptDue } from '../kit/attempts.ts';
import { headerOf, later, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { countAll } from '../kit/count.ts';
import { startPostgresPair } from '../kit/postgres-pair.ts';
import { startReplicaStage } from '../kit/replica-stage.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const POINTS = '/api/points/leaderboard?month=2026-11&limit=';

test('reads go to the replica while it is close, to the primary otherwise, and a watcher always sees what it has changed', async () => {
  await using parts = new AsyncDisposableStack();
  const { chain, receiver, pair, options, service, standby } = await startReplicaStage(parts);
  const other = parts.use(await startTestService({ ...options, roles: ['api'] }));

  const status = async ({ apiUrl }: TestService) =>
    ((await (await fetch(`${apiUrl}/status`)).json()) as StatusBody).replica;
  const metric = async (name: string) => {
    const text = await (await fetch(other.metricsUrl)).text();
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(name))
        ?.split(' ')[1] ?? Number.NaN,
    );
  };
  const readsOf = async (server: string) =>
    (await metric(`chainbell_database_reads_total{server="${server}"}`)) || 0;
  const isUsed = async () => {
    const [own, theirs] = [await status(service), await status(other)];
    return own?.in_use === true && theirs?.in_use === true;
  };
  await waitUntil(isUsed, { describe: 'the replica to be used' });

  const watcher = await createWatcher(service, 'acme');
  const address = freshAddress();
  await watcher.watch({ address, webhookUrl: receiver.url });
  const headers = { authorization: `Bearer ${watcher.key}` };
  const pay = async () => {
    const { hash } = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
    await waitUntil(() => receiver.requests.some(({ body }) => body.includes(hash)));
    return hash;
  };
  /** Through the other process, which did not write any of it. */
  const logged = async () => (await fetch(`${other.apiUrl}/api/notifications/log`, { headers })).text();
  /** 404: there are no points. */
  const readPoints = async (limit: number) => (await fetch(`${other.apiUrl}${POINTS}${limit}`)).status;

  assert.ok((await logged()).includes('"data":[]'));
  const first = await pay();
  assert.ok((await logged()).includes(first));
  const before = await readsOf('replica');
  assert.equal(await readPoints(1), 404);
  assert.ok((await readsOf('replica')) > before, JSON.stringify(await status(other)));

  await standby.query('select pg_wal_replay_pause()');
  const second = await pay();
  assert.ok((await logged()).includes(second), 'the log shows what the replica lacks');
  const isLeft = async () => {
    const replica = await status(other);
    return replica?.in_use === false && replica;
  };
  const left = await waitUntil(
    async () => {
      const replica = await isLeft();
      return replica !== false && (replica.lag_seconds ?? 0) > 1 && replica;
    },
    { describe: 'the replica to be left' },
  );
  assert.match(left.message ?? '', /behind/);
  // Gauges are set by the next probe.
  await waitUntil(async () => (await metric('chainbell_database_replica_used')) === 0);
  const lagging = { replica: await readsOf('replica'), primary: await readsOf('primary') };
  assert.equal(await readPoints(2), 404);
  assert.ok((await readsOf('primary')) > lagging.primary);
  assert.equal(await readsOf('replica'), lagging.replica);

  await standby.query('select pg_wal_replay_resume()');
  await waitUntil(isUsed, { describe: 'the replica to be used again' });
  await waitUntil(async () => (await metric('chainbell_database_replica_lag_seconds')) < 1);

  await pair.killStandby();
  assert.equal(await readPoints(3), 404);
  assert.ok((await logged()).includes(second));
  await waitUntil(isLeft);
});

test('statistics from the replica say that everything is counted as soon as it is', async () => {
  await using parts = new AsyncDisposableStack();
  const pair = parts.use(await startPostgresPair());
  const open = async (url: string) => {
    const database = await openDatabase({ url, dataDir: '' });
    parts.defer(() => database.close());
    return database;
  };
  const [primary, replica] = [await open(pair.primary.url), await open(pair.standby.url)];
  await migrate(primary);
  const hasTables = async () => {
    const [row] = await replica.query<{ table: string | null }>(
      sql`select to_regclass('delivery_attempt')::text as table`,
    );
    return row?.table !== null;
  };
  await waitUntil(hasTables, { describe: 'the tables on the replica' });
  await watchAddress(primary);
  const now = later(600_000);
  /** After an attempt, once the replica has it. */
  const countedUntil = async (block: number) => {
    const read = async () => {
      const { totals, countedUntil: until } = await readStatistics(
        replica,
        { watcherId: 1 },
        { period: '24h', now },
      );
      return { attempts: totals.attempts, until };
    };
    await mine(primary, headerOf(block), [transferOf()], { now: later(block) });
    await attemptDue(primary, { now: later(block), succeeds: true });
    const isShown = async () =>
      (await replica.query(sql`select from delivery_attempt`)).length === block || undefined;
    await waitUntil(isShown, { describe: 'the attempt on the replica' });
    const before = await read();
    await countAll(primary);
    await waitUntil(async () => (await read()).attempts === block, { describe: 'the sum on the replica' });
    return { before: before.until, after: (await read()).until };
  };
  assert.deepEqual(await countedUntil(1), { before: undefined, after: now });
  const second = await countedUntil(2);
  assert.notDeepEqual(second.before, now);
  assert.deepEqual(second.after, now);
});
