/**
 * The whole service over twelve real mainnet blocks: exactly the right webhooks for each of 45 watched addresses.
 */
import assert from 'node:assert/strict';
import { type Service, startService } from '../../src/app/service.ts';
import { runVerification } from '../../src/app/verification.ts';
import { loadConfig } from '../../src/config/load.ts';
import type { Config } from '../../src/config/schema.ts';
import { silentLog } from '../../src/core/log.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { type ReplayNode, readRealchain, startReplay, testWithRealchain } from '../kit/replay.ts';
import { waitUntil } from '../kit/wait.ts';

const FIRST = 17_686_110;
const LAST = 17_686_121;
const NATIVE = 'ETH';
const DELIVERY_MS_MAX = 30_000;

/** One watched address and the webhooks it must get, by the data set's reference extraction. */
type Scenario = {
  label: string;
  address: string;
  expected_tx_level: {
    block: number;
    type: string;
    hash: string;
    sender: string;
    receiver: string;
    amount: string;
    asset: string;
  }[];
  internal: { block: number; hash: string; from: string; to: string; amount: string }[];
};

/** The fields of a payload that come from the chain. */
type Told = { hash: string; type: string; sender: string; receiver: string; amount: string; asset: string };

type Registered = { scenario: Scenario; id: string; watcherId: number; webhookUrl: string };

const cases = [
  { databaseKind: 'embedded', internalTransfers: 'off', what: 'transfer' },
  { databaseKind: 'postgres', internalTransfers: 'auto', what: 'transfer, internal ones too,' },
] as const;

for (const { databaseKind, internalTransfers, what } of cases) {
  testWithRealchain(
    `each watched address gets a webhook for every real ${what} and no other (${databaseKind})`,
    async (folder) => {
      await using database = await createTestDatabase(databaseKind);
      await using receiver = await startReceiver();
      await using node = await startReplay(folder, { run: `${FIRST}-${LAST}`, startHead: FIRST });
      const scenarios = readRealchain<Scenario[]>(folder, 'expected/watch-scenarios.json');
      const stage = { database, receiver, node, internalTransfers };

      const { registered, key } = await register(stage, scenarios);
      const { rowCount, failureCount } = await follow(stage, registered);

      assert.equal(
        receiver.requests.length,
        rowCount + failureCount,
        'one request for each row, and one for each failure',
      );
      const notifications = listNotifications(receiver);
      assert.equal(notifications.length, rowCount, 'each row has a different id');
      for (const record of registered) checkRecord(record, notifications, { key, internalTransfers });
      assert.deepEqual(await provedNumbers(database), numbersOfRun, 'every block is proved');
      await checkVerified(stage, rowCount);
      const traced = Object.keys(await node.calls()).filter((method) => method.startsWith('debug_'));
      assert.equal(
        traced.length > 0,
        internalTransfers === 'auto',
        'traces are asked for only where they are wanted',
      );
    },
  );
}

type Stage = {
  database: TestDatabase;
  receiver: Receiver;
  node: ReplayNode;
  internalTransfers: 'off' | 'auto';
};

/** Registers every scenario's address over HTTP, before the service follows the chain. */
async function register(
  stage: Stage,
  scenarios: readonly Scenario[],
): Promise<{ registered: Registered[]; key: string }> {
  await using service = await start(stage, ['api']);
  const { key, watcherId } = await service.issueKey('real chain');
  const registered: Registered[] = [];
  for (const scenario of scenarios) {
    const webhookUrl = `${stage.receiver.url}/${scenario.address}`;
    const response = await fetch(`${service.apiUrl}/api/notifications/watched-addresses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ address: scenario.address, webhook_url: webhookUrl }),
    });
    assert.equal(response.status, 200, await response.clone().text());
    const { data } = (await response.json()) as { data: { id: string } };
    registered.push({ scenario, id: data.id, watcherId, webhookUrl });
  }
  return { registered, key };
}

/** Follows the chain block by block until everything is delivered, and counts rows and failed attempts. */
async function follow(
  stage: Stage,
  registered: readonly Registered[],
): Promise<{ rowCount: number; failureCount: number }> {
  await using service = await start(stage, ['follower', 'delivery']);
  for (let number = FIRST; number <= LAST; number += 1) {
    const isCommitted = async () => (await findTip(service.database))?.number === number;
    await waitUntil(isCommitted, { describe: `block ${number} to be committed` });
    if (number < LAST) await stage.node.advance();
  }
  const expectedCount = registered.flatMap(({ scenario }) =>
    listExpected(scenario, stage.internalTransfers),
  ).length;
  await stage.receiver.waitFor(expectedCount, DELIVERY_MS_MAX);
  const countRows = async () => {
    const [row] = await service.database.query<{ waiting: number; all: number; failures: number }>(sql`
      select count(*) filter (where processed_at is null) as waiting, count(*) as all,
        coalesce(sum(retry_count), 0)::bigint as failures
      from notification_status`);
    if (row === undefined) throw new Error('count(*) always has a row');
    return row.waiting === 0 && { rowCount: row.all, failureCount: row.failures };
  };
  return await waitUntil(countRows, {
    describe: 'every notification to be processed',
    timeoutMs: DELIVERY_MS_MAX,
  });
}

async function start(
  stage: Stage,
  roles: ('api' | 'follower' | 'delivery')[],
): Promise<Service & AsyncDisposable> {
  const service = await startService(configOf(stage), { log: silentLog(), roles });
  // A part that dies of a bug ends the test with that bug.
  void service.failed.then((bug) => {
    throw bug;
  });
  return { ...service, [Symbol.asyncDispose]: () => service.stop() };
}

function configOf({ database, receiver, node, internalTransfers }: Stage): Config {
  return loadConfig({
    env: {},
    overrides: {
      chain: { id: 1, rpc: [node.url], native: { symbol: NATIVE }, startBlock: FIRST, internalTransfers },
      database: { url: database.url },
      dataDir: database.dataDir,
      secret: SECRET,
      http: { port: 0 },
      metrics: { port: 0 },
      webhooks: {
        allowHttp: true,
        allowCidrs: ['127.0.0.0/8'],
        ports: [receiver.port],
        retryMinutes: [0.02],
      },
    },
  });
}

/** Checks that `chainbell verify` finds the same blocks and the same rows. */
async function checkVerified(stage: Stage, notifications: number): Promise<void> {
  const { undecided, ...report } = await runVerification(configOf(stage), {
    ...{ from: undefined, to: undefined, signal: new AbortController().signal },
    onDifference: ({ message }) => assert.fail(message),
    onDissent: ({ message }) => assert.fail(message),
    onProgress: () => {},
  });
  const equal = {
    outcome: 'equal',
    range: { from: FIRST, to: LAST },
    blocks: 12,
    notifications,
    ...{
      swaps: 0,
      awards: 0,
      notCompared: [],
      quorum: { nodes: 1, needed: 1 },
      unanswered: [],
      uncompared: [],
    },
    differences: 0,
    dissents: 0,
  };
  assert.deepEqual(report, equal);
  assert.deepEqual(new Set(Object.values(undecided)), new Set([0]));
}

const numbersOfRun = Array.from({ length: LAST - FIRST + 1 }, (_, index) => FIRST + index);

/** The numbers of the stored blocks that were proved completely. */
async function provedNumbers({ url, dataDir }: TestDatabase): Promise<number[]> {
  await using parts = new AsyncDisposableStack();
  const database = await openDatabase({ url, dataDir });
  parts.defer(() => database.close());
  const rows = await database.query<{ number: number }>(
    sql`select number from block where proved order by number limit 100`,
  );
  return rows.map(({ number }) => number);
}

const SECRET = Buffer.alloc(32, 7).toString('base64');

/** The received webhooks, once for each id, because an attempt may fail on a busy machine and is then repeated. */
function listNotifications(receiver: Receiver): Record<string, unknown>[] {
  const byId = new Map<unknown, Record<string, unknown>>();
  for (const { json, path } of receiver.requests) {
    assert.ok(typeof json === 'object' && json !== null);
    const fields: Record<string, unknown> = { ...json };
    assert.equal(new URL(String(fields.webhook_url)).pathname, path);
    if (!byId.has(fields.id)) byId.set(fields.id, fields);
  }
  return [...byId.values()];
}

const TIME = /^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6}$/;

/** All webhooks of a record, field by field, with duplicates. */
function checkRecord(
  record: Registered,
  notifications: readonly Record<string, unknown>[],
  { key, internalTransfers }: { key: string; internalTransfers: 'off' | 'auto' },
): void {
  const { scenario, id, watcherId, webhookUrl } = record;
  const own = {
    ...{ watched_addresses_id: id, watcher_id: watcherId },
    ...{ webhook_url: webhookUrl, api_key: key },
  };
  const received = notifications
    .filter((notification) => notification.webhook_url === webhookUrl)
    .map(({ id: number, timestamp, next_retry_at, amount, ...fields }) => {
      assert.equal(typeof number, 'number');
      assert.match(String(timestamp), TIME);
      // If the first attempt fails, the second one carries the time when it was due.
      assert.ok(next_retry_at === null || (typeof next_retry_at === 'string' && TIME.test(next_retry_at)));
      assert.ok(typeof amount === 'number' || typeof amount === 'bigint', 'the amount is a JSON number');
      return { ...fields, amount: String(amount) };
    });
  const expected = listExpected(scenario, internalTransfers).map((fields) => ({ ...own, ...fields }));
  assert.deepEqual(sorted(received), sorted(expected), `${scenario.label} ${scenario.address}`);
}

function listExpected({ expected_tx_level, internal }: Scenario, internalTransfers: 'off' | 'auto'): Told[] {
  const isInRun = ({ block }: { block: number }) => block >= FIRST && block <= LAST;
  const level = expected_tx_level.filter(isInRun).map(({ type, hash, sender, receiver, amount, asset }) => ({
    ...{ type, hash, sender, receiver, amount },
    asset: asset === 'NATIVE' ? NATIVE : asset,
  }));
  if (internalTransfers === 'off') return level;
  const type = 'COIN_TRANSFER';
  const inner = internal
    .filter(isInRun)
    .map(({ hash, from, to, amount }) => ({ type, hash, sender: from, receiver: to, amount, asset: NATIVE }));
  return [...level, ...inner];
}

/** Sorted lines with sorted keys, so that a difference is easy to read. */
function sorted(entries: readonly Record<string, unknown>[]): string[] {
  return entries.map((entry) => JSON.stringify(entry, Object.keys(entry).sort())).sort();
}
