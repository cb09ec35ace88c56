/**
 * `chainbell repair --apply` as a process beside a busy follower and worker, killed at every statement that it
 * writes. A second run does the rest, and the receivers' books equal the chain.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toBytes } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { timeSum } from '../../src/store/db/time-sum.ts';
import { chainbell, startChainbell } from '../cli/chainbell.ts';
import { type Moment, startDatabaseProxy } from '../faults/database-proxy.ts';
import { startChain } from '../kit/anvil.ts';
import { hashOf } from '../kit/chain-story.ts';
import { citusUrl } from '../kit/citus.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startProgram } from '../kit/program.ts';
import { type ReceivedRequest, startReceiver } from '../kit/receiver.ts';
import { sampleOf } from '../kit/sample.ts';
import { CHAIN_ID, createWatcher, freshAddress, SECRET, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { createHeaderLedger, createPlainLedger, type Ledger } from '../sim/ledger.ts';

const isOnCitus = citusUrl() !== undefined;
/** On Citus, a row moves with one statement for each table. */
const lastWrite = isOnCitus ? 'delete from ended' : 'with gone as (delete from queue';
/** The writing statements in their order. Between two of them there are only reads. */
const statements = [
  'pg_advisory_xact_lock',
  isOnCitus ? 'select from lane where id = any' : 'select from lane where id in',
  'insert into reorg',
  'update queue q set reorg_id',
  'insert into orphaned_block',
  'insert into notification (',
  'update lane l set next_due',
  'pg_notify',
  'n.revision + 1 as revision',
  lastWrite,
  'commit',
];
const writes = new Set([
  ...['insert into reorg', 'insert into orphaned_block', 'insert into notification', 'update notification'],
  ...[
    'insert into queue',
    'update queue',
    'delete from queue',
    'insert into ended',
    'update ended',
    'delete from ended',
  ],
  ...['update lane', 'insert into watcher_queue'],
]);
const moments = sampleOf<Moment>([
  ...statements.map((statement): Moment => ({ statements: ['pg_advisory', statement], when: 'asked' })),
  { statements: ['pg_advisory', lastWrite, 'commit'], when: 'answered' },
]);

const anHourEarlier = timeSum(sql`created_at`, sql`interval '-1 hour'`);

/** Books a webhook as its receiver got it. */
function enter(ledger: Ledger, { headers, body }: ReceivedRequest): void {
  const texts = Object.entries(headers).map(([name, value]) => [name, String(value)]);
  ledger.take({ headers: Object.fromEntries(texts), body });
}

const balanceOf = (ledger: Ledger, recordId: string) =>
  [...ledger.creditsOf(recordId).values()].reduce((sum, amount) => sum + amount, 0n);

/** Notifications of each watched address. `DAMAGED` of them are damaged in each way. */
const PAYMENTS = 20;
const DAMAGED = 4;

test('repair that is killed at any statement beside a busy service and run again loses no transfer, and credits none without permission', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const receiver = parts.use(await startReceiver());
  const database = await place.open();
  const options = { database: place, rpc: [chain.url], receivers: [receiver] };
  const books = { on: createHeaderLedger(), off: createPlainLedger() };
  const addresses = { on: freshAddress(), off: freshAddress() };
  const records = await (async () => {
    await using api = await startTestService({ ...options, roles: ['api'] });
    const watcher = await createWatcher(api, 'acme');
    const watch = async (name: 'on' | 'off') => {
      const { id } = await watcher.watch({ address: addresses[name], webhookUrl: `${receiver.url}/${name}` });
      await watcher.configure({ id }, { removed: name === 'on' });
      return id;
    };
    return { on: await watch('on'), off: await watch('off') };
  })();
  await database.query(
    sql`update watched_address set created_at = ${anHourEarlier}, updated_at = ${anHourEarlier}`,
  );
  const paid = { on: 0n, off: 0n };
  let count = 0;
  const pay = async () => {
    for (const name of ['on', 'off'] as const) {
      count += 1;
      const valueWei = 1_000_000n + BigInt(count);
      await chain.transferNative({ from: chain.accounts[1], to: addresses[name], valueWei });
      paid[name] += valueWei;
    }
  };
  for (let index = 0; index < PAYMENTS; index += 1) await pay();
  const { number: last } = await chain.head();

  // Nothing is delivered yet, so some are lost before any receiver sees them.
  const common = {
    database: place,
    rpc: [chain.url],
    startBlock: 1,
    receiver,
    internalTransfers: 'off',
  } as const;
  const stored = async () =>
    (await database.query(sql`select from notification_status where reorg_id is null`)).length;
  {
    const follower = startProgram({ ...common, roles: ['follower'] });
    await waitUntil(async () => (await stored()) === 2 * PAYMENTS, { describe: 'all payments stored' });
    follower.child.kill('SIGKILL');
    await follower.ended;
  }
  const { on, off } = records;
  await database.query(sql`delete from notification_status where block_number <= ${2 * DAMAGED}`);
  const program = startProgram(common);
  parts.defer(async () => {
    program.child.kill('SIGKILL');
    await program.ended;
  });
  const drained = async () =>
    (await database.query(sql`select from notification_status where state in ('waiting', 'held') limit 1`))
      .length === 0;
  await waitUntil(drained, { describe: 'all webhooks acknowledged', timeoutMs: 120_000 });
  const between = (step: number) =>
    sql`block_number > ${2 * DAMAGED * step} and block_number <= ${2 * DAMAGED * (step + 1)}`;
  await database.query(sql`update notification_status set amount = 17 where ${between(1)}`);
  await database.query(
    sql`update notification_status set tx_hash = substr(${toBytes(hashOf(5))} || tx_hash, 3, 32) where ${between(2)}`,
  );
  await database.query(sql`update notification_status set state = 'cancelled' where ${between(3)}`);

  let isBusy = true;
  const paying = (async () => {
    while (isBusy) {
      const received = receiver.requests.length;
      await pay();
      await receiver.waitFor(received + 1, 60_000);
    }
  })();
  parts.defer(async () => {
    isBusy = false;
    await paying;
  });
  const env = (url: string) => ({
    ...{ CHAINBELL_CHAIN_ID: String(CHAIN_ID), CHAINBELL_CHAIN_RPC: chain.url, CHAINBELL_DATABASE_URL: url },
    ...{ CHAINBELL_SECRET: SECRET, CHAINBELL_CHAIN_INTERNAL_TRANSFERS: 'off' },
  });
  const words = ['repair', '--from', '1', '--to', String(last), '--apply', '--allow-double-credit'];
  for (const moment of moments) {
    await using proxy = await startDatabaseProxy(place.url, moment, () => run.process.kill('SIGKILL'));
    const run = startChainbell(place.dataDir, env(proxy.url), ...words);
    const { code, err } = await run.ended;
    assert.deepEqual([run.process.signalCode, code], ['SIGKILL', 0], `${moment.statements.at(-1)}: ${err}`);
    const unknown = [...proxy.writes()].filter((write) => !writes.has(write));
    assert.deepEqual(unknown, [], 'statements that no moment is known for');
  }
  const applied = await chainbell(place.dataDir, env(place.url), ...words);
  assert.equal(applied.code, 0, applied.out + applied.err);
  const again = await chainbell(place.dataDir, env(place.url), ...words);
  assert.deepEqual([again.code, again.out], [0, ''], again.err);

  isBusy = false;
  await paying;
  await waitUntil(async () => (await stored()) >= count && (await drained()), {
    describe: 'all payments acknowledged',
    timeoutMs: 120_000,
  });
  const rows = await database.query<{ record: string; told: number; amount: string }>(sql`
    select watched_address_id as record, count(*) as told, sum(amount) as amount from notification_status
    where reorg_id is null group by 1 order by watched_address_id = ${off}`);
  const canonical = count / 2;
  assert.deepEqual(
    rows.map(({ record, told, amount }) => [record, told, BigInt(amount)]),
    [
      [on, canonical, paid.on],
      [off, canonical, paid.off],
    ],
  );
  for (const { path, headers, body } of receiver.requests) {
    const headersOf = Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, String(value)]),
    );
    books[path.endsWith('/on') ? 'on' : 'off'].take({ headers: headersOf, body });
  }
  const balance = (name: 'on' | 'off') =>
    [...books[name].creditsOf(records[name]).values()].reduce((sum, amount) => sum + amount, 0n);
  assert.equal(balance('on'), paid.on);
  // Sent correctly before the damage, and permitted to be credited again.
  const credited = await database.query<{ amount: string }>(sql`
    select coalesce(sum(r.amount), 0) as amount from notification_status r
    where r.watched_address_id = ${off} and r.reorg_id is null and (${between(1)} or ${between(2)})`);
  assert.equal(balance('off'), paid.off + BigInt(credited[0]?.amount ?? 0));
  assert.doesNotMatch(program.log, /deadlock|"level":"(?:error|fatal)"/);
});

test('on the embedded database, repair takes back wrong notifications between two runs of the service', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('embedded'));
  const receiver = parts.use(await startReceiver());
  const options = { database: place, rpc: [chain.url], receivers: [receiver] };
  const before = await startTestService({ ...options, chain: { startBlock: 1 } });
  const watcher = await createWatcher(before, 'acme');
  const address = freshAddress();
  const record = await watcher.watch({ address, webhookUrl: receiver.url });
  await watcher.configure(record, { removed: true });
  for (const valueWei of [5n, 6n])
    await chain.transferNative({ from: chain.accounts[1], to: address, valueWei });
  const { number: last } = await chain.head();
  await receiver.waitFor(2, 60_000);
  await before.drained();
  await before.database.query(sql`
    update watched_address set created_at = ${anHourEarlier}, updated_at = ${anHourEarlier}`);
  await before.database.query(sql`update notification_status set amount = 50 where amount = 5`);
  await before.stop();

  const env = {
    CHAINBELL_CHAIN_ID: String(CHAIN_ID),
    CHAINBELL_CHAIN_RPC: chain.url,
    CHAINBELL_SECRET: SECRET,
  };
  const words = ['repair', '--from', '1', '--to', String(last), '--apply'];
  const run = () => chainbell(place.dataDir, { ...env, CHAINBELL_DATA_DIR: place.dataDir }, ...words);
  const applied = await run();
  assert.equal(applied.code, 0, applied.out + applied.err);
  assert.match(applied.out, /^send removal notice, then create and deliver: /);
  const again = await run();
  assert.deepEqual([again.code, again.out], [0, ''], again.err);

  await using service = await startTestService(options);
  const [, , ...told] = await receiver.waitFor(4, 60_000);
  await service.drained();
  assert.deepEqual(
    new Set(told.map(({ headers }) => [headers['webhook-id'], headers['chainbell-replaces']].join(' '))),
    new Set(['1-1 ', '3 1']),
  );
  const ledger = createHeaderLedger();
  for (const request of receiver.requests) enter(ledger, request);
  assert.equal(balanceOf(ledger, record.id), 11n);
});
