/**
 * Ends and beginnings: of the service, of the node, of both, in order and by force. Nothing is lost, nothing is told
 * as two things.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Address, Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, databaseKinds, type TestDatabase } from '../kit/database.ts';
import { startNodeProxy } from '../kit/flaky-node.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const parts = new AsyncDisposableStack();
let chain: Chain;
let receiver: Receiver;

before(async () => {
  chain = parts.use(await startChain());
  receiver = parts.use(await startReceiver());
});
after(() => parts.disposeAsync());

async function pay(to: Address, count: number, on = chain): Promise<Hash[]> {
  const hashes: Hash[] = [];
  for (let index = 0; index < count; index++) {
    hashes.push((await on.transferNative({ from: on.accounts[1], to, valueWei: BigInt(index + 1) })).hash);
  }
  return hashes;
}

/** Registers an address before any follower runs, and leaves the database to the test. */
async function watchAhead(database: TestDatabase): Promise<{ address: Address; record: { id: string } }> {
  await using service = await startTestService({
    database,
    rpc: [chain.url],
    receivers: [receiver],
    roles: ['api'],
  });
  const watcher = await createWatcher(service, 'acme');
  const address = freshAddress();
  return { address, record: await watcher.watch({ address, webhookUrl: `${receiver.url}/${address}` }) };
}

const idsHeard = (address: Address) =>
  receiver.requests
    .filter(({ path }) => path.endsWith(address))
    .map(({ body }) => Number(JSON.parse(body).id));

/** One row and one webhook for each of the transactions, in their order, and no other for the record. */
async function assertToldOnce(
  service: TestService,
  { address, record }: { address: Address; record: { id: string } },
  hashes: readonly Hash[],
): Promise<void> {
  await service.drained();
  const rows = await service.notifications({ record });
  assert.deepEqual(
    rows.map(({ tx_hash, state }) => [tx_hash, state]),
    hashes.map((hash) => [hash, 'processed']),
  );
  assert.deepEqual(
    idsHeard(address).sort((one, other) => one - other),
    rows.map(({ id }) => id),
  );
}

for (const kind of databaseKinds) {
  describe(`with the ${kind} database`, () => {
    test('a stopped service goes on where it ended: blocks mined meanwhile are told once, told ones not again', async () => {
      await using database = await createTestDatabase(kind);
      const watched = await watchAhead(database);
      const options = { database, rpc: [chain.url, chain.wsUrl], receivers: [receiver] };
      const hashes: Hash[] = [];
      await using stack = new AsyncDisposableStack();
      let service = stack.use(await startTestService(options));
      await service.inSync(chain);
      for (let round = 0; round < 2; round++) {
        hashes.push(...(await pay(watched.address, 3)));
        await service.inSync(chain);
        await service.stop();
        hashes.push(...(await pay(watched.address, 3)));
        service = stack.use(await startTestService(options));
        await service.inSync(chain);
      }
      await assertToldOnce(service, watched, hashes);
      const gaps = await service.database.query(sql`
        select number from (select number, lead(number) over (order by number) as following from block) as pairs
        where following <> number + 1 order by number limit 10`);
      assert.deepEqual(gaps, []);
    });

    test('a new database begins at startBlock, with every block from there and none before', async () => {
      await using early = await createTestDatabase(kind);
      await using late = await createTestDatabase(kind);
      const watchedEarly = await watchAhead(early);
      const watchedLate = await watchAhead(late);
      const before = await pay(watchedEarly.address, 2);
      await pay(watchedLate.address, 2);
      // More than one batch of the back-fill.
      await chain.mine(150);
      const startBlock = (await chain.head()).number + 1;
      const since = await pay(watchedEarly.address, 2);
      const sinceLate = await pay(watchedLate.address, 2);

      const options = { rpc: [chain.url], receivers: [receiver] };
      await using whole = await startTestService({ ...options, database: early, chain: { startBlock: 0 } });
      await using part = await startTestService({ ...options, database: late, chain: { startBlock } });
      await whole.inSync(chain);
      await part.inSync(chain);
      await assertToldOnce(whole, watchedEarly, [...before, ...since]);
      await assertToldOnce(part, watchedLate, sinceLate);
      const firstOf = async ({ database }: TestService) =>
        (await database.query(sql`select number from block order by number limit 1`))[0]?.number;
      assert.deepEqual([await firstOf(whole), await firstOf(part)], [0, startBlock]);
    });

    test('a node that goes away makes the service unready until it is back, and loses nothing', async () => {
      const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-test-'));
      const stateFile = path.join(folder, 'state.json');
      await using stack = new AsyncDisposableStack();
      stack.defer(() => rm(folder, { recursive: true, force: true }));
      const node = stack.use(await startChain({ stateFile }));
      const database = stack.use(await createTestDatabase(kind));
      const watched = await watchAhead(database);
      const service = stack.use(
        await startTestService({ database, rpc: [node.url, node.wsUrl], receivers: [receiver] }),
      );
      await service.inSync(node);
      const statusOf = async () => (await fetch(`${service.apiUrl}/readyz`)).status;
      assert.equal(await statusOf(), 200);
      const before = await pay(watched.address, 2, node);
      await node.stop();
      await waitUntil(async () => (await statusOf()) === 503, { describe: '/readyz to answer 503' });

      const again = stack.use(await startChain({ stateFile, port: node.port }));
      const since = await pay(watched.address, 2, again);
      await waitUntil(async () => (await statusOf()) === 200, { describe: '/readyz to answer 200' });
      await service.inSync(again);
      await assertToldOnce(service, watched, [...before, ...since]);
      assert.equal(await service.metric('chainbell_chain_reorgs_total'), 0);
    });

    test('a node that now and then tells of an old head undoes nothing', async () => {
      await using database = await createTestDatabase(kind);
      const watched = await watchAhead(database);
      let asked = 0;
      let stale = 0;
      await using proxy = await startNodeProxy(chain.url, (call) => {
        const isHead =
          call.method === 'eth_getBlockByNumber' && JSON.stringify(call.params) === '["latest",false]';
        asked += Number(isHead);
        if (!isHead || asked % 2 === 0 || asked < 5) return call;
        stale += 1;
        return { ...call, params: [`0x${(oldNumber).toString(16)}`, false] };
      });
      const oldNumber = (await chain.head()).number - 1;
      await using service = await startTestService({ database, rpc: [proxy.url], receivers: [receiver] });
      await service.inSync(chain);
      const hashes = await pay(watched.address, 3);
      await waitUntil(() => stale >= 3);
      hashes.push(...(await pay(watched.address, 3)));
      await service.inSync(chain);
      await assertToldOnce(service, watched, hashes);
      assert.equal(await service.metric('chainbell_chain_reorgs_total'), 0);
    });
  });
}

test('two services on one database tell of each transfer once, also when one of them ends', async () => {
  await using database = await createTestDatabase('postgres');
  const watched = await watchAhead(database);
  const options = { database, rpc: [chain.url, chain.wsUrl], receivers: [receiver] };
  await using first = await startTestService(options);
  await using second = await startTestService(options);
  await first.inSync(chain);
  const hashes = await pay(watched.address, 15);
  await second.inSync(chain);
  await assertToldOnce(second, watched, hashes);
  // The first one led; now the other has to.
  await first.stop();
  hashes.push(...(await pay(watched.address, 15)));
  await second.inSync(chain);
  await assertToldOnce(second, watched, hashes);
});
