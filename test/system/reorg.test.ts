/**
 * Reorgs: transfers that were sent are not sent twice, and transfers that were not sent follow the new branch.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { findBlock } from '../../devnet/wallet.ts';
import { runVerification } from '../../src/app/verification.ts';
import { nothingUndecided } from '../../src/audit/compare.ts';
import { type Address, fromBytes, type Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startNodeProxy } from '../faults/node-proxy.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  testConfig,
  type Watcher,
} from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

/** More than the deepest reorg here, so that a waiting notification has no attempt when its block is orphaned. */
const CONFIRMATIONS = 40;
const DEPTHS = [1, 3, 30];

/** Mines the transactions together, and `depth - 1` blocks on top of them. */
async function mineBelow(chain: Chain, depth: number, pay: readonly { from: Address; to: Address }[]) {
  await chain.pauseMining();
  const hashes: Hash[] = [];
  for (const { from, to } of pay) hashes.push(await chain.send({ from, to, valueWei: 1n }));
  await chain.mine(depth);
  await chain.resumeMining();
  return hashes;
}

/** Replaces the newest blocks. The same transactions, with the same hashes, are mined again in the last new block. */
async function reorgWith(chain: Chain, depth: number, hashes: readonly Hash[]): Promise<void> {
  const places: [unknown, number][] = [];
  for (const hash of hashes) places.push([await chain.rpc('eth_getRawTransactionByHash', [hash]), depth - 1]);
  await chain.alone(() => chain.rpc('anvil_reorg', [depth, places]));
}

async function assertStoredAsChain(service: TestService, chain: Chain): Promise<void> {
  await service.inSync(chain);
  const rows = await service.database.query<{ number: number; hash: Uint8Array }>(
    sql`select number, hash from block order by number limit 10000`,
  );
  const first = rows[0]?.number ?? 0;
  const stored = rows.map(({ number, hash }) => ({ number, hash: fromBytes(hash) }));
  const mined = await Promise.all(rows.map((_, index) => findBlock(chain, first + index)));
  assert.deepEqual(stored, mined);
  assert.equal((await chain.head()).number, stored.at(-1)?.number);
}

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    const own = new AsyncDisposableStack();
    let chain: Chain;
    let receiver: Receiver;
    let places: { prompt: TestDatabase; patient: TestDatabase };
    /** Sends webhooks at once. */
    let prompt: TestService;
    /** Sends webhooks after the confirmations. */
    let patient: TestService;
    let promptWatcher: Watcher;
    let patientWatcher: Watcher;

    before(async () => {
      chain = own.use(await startChain());
      receiver = own.use(await startReceiver());
      // In front of anvil, so that it isn't traced while it mines.
      const node = own.use(await startNodeProxy(chain));
      await chain.mine(2);
      places = {
        prompt: own.use(await createTestDatabase(kind)),
        patient: own.use(await createTestDatabase(kind)),
      };
      const start = async (database: TestDatabase, confirmations: number) =>
        own.use(
          await startTestService({
            database,
            // One gets new heads by subscription, the other polls.
            rpc: confirmations === 0 ? [node.url, node.wsUrl] : [node.url],
            receivers: [receiver],
            chain: { confirmations, startBlock: 0 },
          }),
        );
      prompt = await start(places.prompt, 0);
      patient = await start(places.patient, CONFIRMATIONS);
      promptWatcher = await createWatcher(prompt, 'prompt');
      patientWatcher = await createWatcher(patient, 'patient');
      await Promise.all([prompt.inSync(chain), patient.inSync(chain)]);
    });
    after(() => own.disposeAsync());

    const watch = (watcher: Watcher, address: Address) =>
      watcher.watch({ address, webhookUrl: `${receiver.url}/${watcher.id}/${address}/${watcher.key}` });
    const requestsFor = ({ webhook_url }: { webhook_url: string }) =>
      receiver.requests.filter(({ path }) => webhook_url.endsWith(path));

    for (const depth of DEPTHS) {
      test(`a reorg ${depth} deep sends no transfer twice, and withdraws unsent ones that are not mined again`, async () => {
        const [, first, second] = chain.accounts;
        const [kept, dropped] = [freshAddress(), freshAddress()];
        const told = { kept: await watch(promptWatcher, kept), dropped: await watch(promptWatcher, dropped) };
        const held = {
          kept: await watch(patientWatcher, kept),
          dropped: await watch(patientWatcher, dropped),
        };
        const reorgsBefore = await prompt.metric('chainbell_chain_reorgs_total');
        const [keptHash, droppedHash] = await mineBelow(chain, depth, [
          { from: first, to: kept },
          { from: second, to: dropped },
        ]);
        assert(keptHash !== undefined && droppedHash !== undefined);
        await Promise.all([prompt.inSync(chain), patient.inSync(chain)]);
        await prompt.drained();
        assert.equal(requestsFor(told.kept).length, 1);
        assert.equal(requestsFor(told.dropped).length, 1);
        const bornIn = (await chain.receiptOf(keptHash)).blockHash;

        await reorgWith(chain, depth, [keptHash]);
        await assertStoredAsChain(prompt, chain);
        await assertStoredAsChain(patient, chain);
        const again = await chain.receiptOf(keptHash);
        assert.notEqual(again.blockHash, bornIn);
        assert.equal(await prompt.metric('chainbell_chain_reorgs_total'), reorgsBefore + 1);
        const statesOf = async (service: TestService, record: { id: string }) =>
          (await service.notifications({ record })).map(({ tx_hash, state }) => [tx_hash, state]);
        assert.deepEqual(await statesOf(prompt, told.kept), [[keptHash, 'processed']]);
        assert.deepEqual(await statesOf(prompt, told.dropped), [[droppedHash, 'processed']]);
        assert.deepEqual(await statesOf(patient, held.kept), [[keptHash, 'held']]);
        assert.deepEqual(await statesOf(patient, held.dropped), [[droppedHash, 'withdrawn']]);
        const [revived] = await patient.notifications({ record: held.kept });
        assert.equal(revived?.block_number, again.blockNumber);

        await chain.mine(CONFIRMATIONS);
        await Promise.all([prompt.inSync(chain), patient.inSync(chain)]);
        await Promise.all([prompt.drained(), patient.drained()]);
        assert.deepEqual(await statesOf(patient, held.kept), [[keptHash, 'processed']]);
        assert.deepEqual(await statesOf(patient, held.dropped), [[droppedHash, 'withdrawn']]);
        assert.deepEqual(
          [told.kept, told.dropped, held.kept, held.dropped].map((record) => requestsFor(record).length),
          [1, 1, 1, 0],
        );
      });
    }

    test('a withdrawn transaction that is mined again later is sent then', async () => {
      const [, first] = chain.accounts;
      const to = freshAddress();
      const record = await watch(patientWatcher, to);
      const [hash] = await mineBelow(chain, 2, [{ from: first, to }]);
      assert(hash !== undefined);
      const raw = await chain.rpc('eth_getRawTransactionByHash', [hash]);
      await patient.inSync(chain);
      await chain.reorg(2);
      await assertStoredAsChain(patient, chain);
      assert.equal((await patient.notifications({ record }))[0]?.state, 'withdrawn');

      await chain.rpc('eth_sendRawTransaction', [raw]);
      await chain.receiptOf(hash);
      await chain.mine(CONFIRMATIONS);
      await patient.inSync(chain);
      await patient.drained();
      const rows = await patient.notifications({ record });
      assert.deepEqual(
        rows.map(({ tx_hash, state }) => [tx_hash, state]),
        [[hash, 'processed']],
      );
      assert.equal(requestsFor(record).length, 1);
    });

    test('a failed attempt is not repeated once a reorg has orphaned its transfer', async () => {
      const [, first] = chain.accounts;
      const to = freshAddress();
      const record = await watch(promptWatcher, to);
      receiver.setAnswer({ status: 500 });
      const [hash] = await mineBelow(chain, 2, [{ from: first, to }]);
      await prompt.inSync(chain);
      const count = async () => (await prompt.notifications({ record }))[0]?.retry_count;
      await waitUntil(async () => (await count()) === 1);
      receiver.setAnswer({});
      await chain.reorg(2);
      await assertStoredAsChain(prompt, chain);
      const [row] = await prompt.notifications({ record });
      assert.deepEqual([row?.tx_hash, row?.state, row?.retry_count], [hash, 'withdrawn', 1]);
    });

    // The embedded database has its service's process only.
    if (kind === 'embedded') return;
    test('verify finds no difference after these reorgs, except orphaned transfers that were already sent', async () => {
      const cases = [
        // Orphaned notifications are marked and not compared. Those mined again name their new block.
        { service: prompt, place: places.prompt, notifications: 3, orphaned: 0 },
        { service: patient, place: places.patient, notifications: 3 + 1, orphaned: 0 },
      ];
      for (const { service, place, notifications, orphaned } of cases) {
        await service.inSync(chain);
        const config = testConfig({ database: place, rpc: [chain.url] });
        const { undecided, ...report } = await runVerification(config, {
          ...{ from: undefined, to: undefined, signal: new AbortController().signal },
          onDifference: ({ message }) => assert.fail(message),
          onDissent: ({ message }) => assert.fail(message),
          onProgress: () => {},
        });
        const { number } = await chain.head();
        const counts = {
          blocks: number + 1,
          notifications,
          swaps: 0,
          awards: 0,
          differences: 0,
          dissents: 0,
          notCompared: [],
          quorum: { nodes: 1, needed: 1 },
          unanswered: [],
          uncompared: [],
        };
        assert.deepEqual(report, { outcome: 'equal', range: { from: 0, to: number }, ...counts });
        assert.deepEqual(undecided, { ...nothingUndecided, orphaned });
      }
    });
  });
}
