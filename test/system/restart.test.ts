/**
 * Stops, kills and restarts the service, the node, and both. No transfer is lost, and none is sent under two ids.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { quantity } from '../../devnet/wallet.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, databaseKinds, type TestDatabase } from '../kit/database.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { sampledTest, sampleOf } from '../kit/sample.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

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

type Watched = { address: Address; record: { id: string } };

async function watch(service: TestService): Promise<Watched> {
  const watcher = await createWatcher(service, 'acme');
  const address = freshAddress();
  return { address, record: await watcher.watch({ address, webhookUrl: `${receiver.url}/${address}` }) };
}

/** Registers an address before any follower runs, and leaves the database to the test. */
async function watchAhead(database: TestDatabase): Promise<Watched> {
  const options = { database, rpc: [chain.url], receivers: [receiver] };
  await using service = await startTestService({ ...options, roles: ['api'] });
  return await watch(service);
}

/**
 * A node behind a load balancer: a node that is behind answers every second request for the newest block, and `staleCount`
 * counts these. The first few answers are right, so that the service can start.
 */
async function startStaleProxy(oldNumber: number) {
  let asked = 0;
  let staleCount = 0;
  const headers = { 'content-type': 'application/json' };
  const latest = /"eth_getBlockByNumber","params":\["latest"/;
  const proxy = await startReceiver({
    async answer({ body }) {
      asked += Number(latest.test(body));
      const isStale = latest.test(body) && asked > 4 && asked % 2 === 0;
      staleCount += Number(isStale);
      const question = isStale ? body.replace('"latest"', `"${quantity(oldNumber)}"`) : body;
      const answer = await fetch(chain.url, { method: 'POST', headers, body: question });
      return { headers, body: await answer.text() };
    },
  });
  return { ...proxy, staleCount: () => staleCount };
}

const receivedIds = (address: Address) =>
  receiver.requests
    .filter(({ path }) => path.endsWith(address))
    .map(({ body }) => Number(JSON.parse(body).id));

/** One row and one webhook for each of the transactions, in their order, and no other for the record. */
async function assertToldOnce(
  service: TestService,
  { address, record }: Watched,
  hashes: readonly Hash[],
): Promise<void> {
  await service.drained();
  const rows = await service.notifications({ record });
  assert.deepEqual(
    rows.map(({ tx_hash, state }) => [tx_hash, state]),
    hashes.map((hash) => [hash, 'processed']),
  );
  assert.deepEqual(
    receivedIds(address).sort((one, other) => one - other),
    rows.map(({ id }) => id),
  );
}

for (const kind of sampleOf(databaseKinds, { shares: 2 })) {
  describe(`with the ${kind} database`, () => {
    test('a restarted service continues where it stopped: each transfer is sent once', async () => {
      await using database = await createTestDatabase(kind);
      const options = { database, rpc: [chain.url, chain.wsUrl], receivers: [receiver] };
      await using before = await startTestService(options);
      const watched = await watch(before);
      await before.inSync(chain);
      const hashes = await pay(watched.address, 3);
      await before.inSync(chain);
      await before.stop();
      hashes.push(...(await pay(watched.address, 3)));
      await using service = await startTestService(options);
      await service.inSync(chain);
      hashes.push(...(await pay(watched.address, 3)));
      await service.inSync(chain);
      await assertToldOnce(service, watched, hashes);
      const gaps = await service.database.query(sql`
        select number from (select number, lead(number) over (order by number) as following from block) as pairs
        where following <> number + 1 order by number limit 10`);
      assert.deepEqual(gaps, []);
    });

    test('a new database begins at startBlock, with all transfers from there and none from before', async () => {
      await using database = await createTestDatabase(kind);
      const watched = await watchAhead(database);
      await pay(watched.address, 2);
      const startBlock = (await chain.head()).number + 1;
      const hashes = await pay(watched.address, 2);
      // More than one batch of the backfill.
      await chain.mine(150);
      hashes.push(...(await pay(watched.address, 2)));
      await using service = await startTestService({
        ...{ database, rpc: [chain.url], receivers: [receiver] },
        chain: { startBlock },
      });
      await service.inSync(chain);
      await assertToldOnce(service, watched, hashes);
      const [first] = await service.database.query(sql`select number from block order by number limit 1`);
      assert.equal(first?.number, startBlock);
    });

    test('an unavailable node makes the service unready until it is back, and no transfer is lost', async () => {
      const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-test-'));
      const stateFile = path.join(folder, 'state.json');
      await using stack = new AsyncDisposableStack();
      stack.defer(() => rm(folder, { recursive: true, force: true }));
      const node = stack.use(await startChain({ stateFile }));
      const database = stack.use(await createTestDatabase(kind));
      const service = stack.use(
        await startTestService({ database, rpc: [node.url, node.wsUrl], receivers: [receiver] }),
      );
      const watched = await watch(service);
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

    test('a node that sometimes names an old head causes no reorg', async () => {
      await using database = await createTestDatabase(kind);
      await chain.mine(10);
      await using proxy = await startStaleProxy((await chain.head()).number - 5);
      await using service = await startTestService({
        ...{ database, rpc: [proxy.url], receivers: [receiver] },
        chain: { startBlock: 0 },
      });
      await service.inSync(chain);
      const watched = await watch(service);
      const hashes = await pay(watched.address, 3);
      const told = proxy.staleCount();
      await waitUntil(() => proxy.staleCount() >= told + 3);
      hashes.push(...(await pay(watched.address, 3)));
      await service.inSync(chain);
      await assertToldOnce(service, watched, hashes);
      assert.equal(await service.metric('chainbell_chain_reorgs_total'), 0);
    });
  });
}

test('two services on one database send each transfer once, both are ready, and one continues without the other', async () => {
  await using database = await createTestDatabase('postgres');
  const options = { database, rpc: [chain.url, chain.wsUrl], receivers: [receiver] };
  await using first = await startTestService(options);
  await using second = await startTestService(options);
  const watched = await watch(second);
  await first.inSync(chain);
  for (const { apiUrl } of [first, second]) {
    const isReady = async () => (await fetch(`${apiUrl}/readyz`)).status === 200;
    await waitUntil(isReady, { describe: `${apiUrl}/readyz to answer 200` });
  }
  const hashes = await pay(watched.address, 15);
  await second.inSync(chain);
  await assertToldOnce(second, watched, hashes);
  // The first one led; now the other has to.
  await first.stop();
  hashes.push(...(await pay(watched.address, 15)));
  await second.inSync(chain);
  await assertToldOnce(second, watched, hashes);
});

/** The moments at which the process is killed, known from its log and from received webhooks. */
const MOMENTS = sampleOf<[name: string, isNow: (program: Program, receivedCount: number) => boolean]>([
  ['it starts', () => true],
  ['it has started', ({ log }) => log.includes('service.started')],
  ['it has committed', ({ log }) => /blocks.committed|backfill.started/.test(log)],
  ['its first webhook arrives', (_, receivedCount) => receivedCount >= 1],
  ['its second webhook arrives', (_, receivedCount) => receivedCount >= 2],
  ['its fifth webhook arrives', (_, receivedCount) => receivedCount >= 5],
  ['it has settled', ({ log }) => log.includes('delivery.attempted')],
  ['it has settled much', ({ log }) => log.split('delivery.attempted').length > 8],
]);
const TRANSFERS_BEFORE = 5;
const TRANSFERS_DURING = 6;

for (const kind of databaseKinds) {
  test(`killed at ${MOMENTS.length} moments on the ${kind} database, the program loses no data and stores none twice`, async () => {
    await using database = await createTestDatabase(kind);
    const watched = await watchAhead(database);
    const startBlock = (await chain.head()).number + 1;
    const hashes: Hash[] = [];

    for (const [name, isNow] of MOMENTS) {
      let receivedCount = 0;
      hashes.push(...(await pay(watched.address, TRANSFERS_BEFORE)));
      const program = startProgram({ database, rpc: [chain.url, chain.wsUrl], startBlock, receiver });
      const { child } = program;
      const isOver = () => child.killed || (isNow(program, receivedCount) && child.kill('SIGKILL'));
      // Ended inside an attempt, it cannot settle what it sent.
      receiver.setAnswer(({ path }) => {
        receivedCount += Number(path.endsWith(watched.address));
        return isOver() ? 'reset' : {};
      });
      await waitUntil(() => isOver() || program.log.includes('service.started'), {
        describe: `a start; the log: ${program.log}`,
      });
      for (let paid = 0; paid < TRANSFERS_DURING; paid++) {
        hashes.push(...(await pay(watched.address, 1)));
        isOver();
      }
      await waitUntil(isOver, { describe: `the moment when ${name}` });
      await program.ended;
      assert.equal(child.signalCode, 'SIGKILL', program.log);
    }

    receiver.setAnswer({});
    await using service = await startTestService({ database, rpc: [chain.url], receivers: [receiver] });
    await service.inSync(chain);
    await service.drained();
    const rows = await service.notifications({ record: watched.record });
    assert.deepEqual(
      rows.map(({ tx_hash, state }) => [tx_hash, state]),
      hashes.map((hash) => [hash, 'processed']),
    );
    const received = receivedIds(watched.address);
    assert.deepEqual(
      [...new Set(received)].sort((one, other) => one - other),
      rows.map(({ id }) => id),
    );
    // A webhook received twice was under way at a kill, and has the same id.
    assert(received.length > rows.length, 'no end came inside an attempt');
  });
}
