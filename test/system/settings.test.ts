/**
 * Settings of watched addresses, as their receivers see them: a real chain with reorgs, the whole program, real receivers.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Address, Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { type ReceivedRequest, type Receiver, startReceiver } from '../kit/receiver.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  type Watcher,
} from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

/** Always 0.12 s. */
const RETRY_MINUTES = [0.002];

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    const own = new AsyncDisposableStack();
    let chain: Chain;
    let receiver: Receiver;
    let service: TestService;
    let watcher: Watcher;

    before(async () => {
      chain = own.use(await startChain());
      receiver = own.use(await startReceiver());
      service = own.use(
        await startTestService({
          database: own.use(await createTestDatabase(kind)),
          rpc: [chain.url, chain.wsUrl],
          receivers: [receiver],
          retryMinutes: RETRY_MINUTES,
        }),
      );
      watcher = await createWatcher(service, 'acme');
      await service.inSync(chain);
    });
    after(() => own.disposeAsync());

    /** A watched address with these settings, and the requests that its receiver got. */
    async function watchWith(settings: Record<string, unknown>, address = freshAddress()) {
      const name = freshAddress();
      const record = await watcher.watch({ address, webhookUrl: `${receiver.url}/${name}` });
      await watcher.configure(record, settings);
      const received = () => receiver.requests.filter(({ path }) => path.endsWith(name));
      return {
        address,
        record,
        received,
        amounts: () => received().map((request) => Number(bodyOf(request).amount)),
      };
    }
    const pay = (to: Address, valueWei: bigint) =>
      chain.transferNative({ from: chain.accounts[1], to, valueWei });
    const settled = async () => {
      await service.inSync(chain);
      await service.drained();
    };
    /** Replaces the newest blocks. The same transactions, with the same hashes, are mined again in the last new block. */
    async function reorgWith(depth: number, hashes: readonly Hash[]): Promise<void> {
      const raw = hashes.map((hash) => chain.rpc('eth_getRawTransactionByHash', [hash]));
      const placed = (await Promise.all(raw)).map((bytes) => [bytes, depth - 1]);
      await chain.alone(() => chain.rpc('anvil_reorg', [depth, placed]));
    }
    /** The received revisions of the message: `removed` or the transfer, with its webhook-id. */
    const messagesOf = (requests: readonly ReceivedRequest[]) =>
      requests.map(({ headers }) => [headers['webhook-id'], headers['chainbell-removed']]);

    test('a record gets only transfers that match its direction, minimum amount and tokens', async () => {
      receiver.setAnswer({});
      const [payer] = chain.accounts;
      const [wanted, other] = [
        await chain.deploy('DemoToken', 'Wanted', 'WNT', 18),
        await chain.deploy('DemoToken', 'Other', 'OTH', 18),
      ];
      const tokens = [{ address: wanted, min_amount: '5' }];
      const incoming = await watchWith({ direction: 'in', min_amount: '3', tokens });
      const outgoing = await watchWith({ direction: 'out' }, payer);
      const everything = await watchWith({}, incoming.address);
      for (const token of [wanted, other]) await chain.mintToken(token, { to: payer, amount: 9n });
      for (const token of [wanted, other])
        for (const amount of [4n, 5n])
          await chain.transferToken(token, { from: payer, to: incoming.address, amount });
      for (const valueWei of [2n, 3n])
        await chain.transferNative({ from: payer, to: incoming.address, valueWei });
      await settled();
      assert.deepEqual(
        incoming.amounts().sort((a, b) => a - b),
        [3, 5],
      );
      assert.deepEqual(
        outgoing.amounts().sort((a, b) => a - b),
        [2, 3, 4, 4, 5, 5],
      );
      assert.deepEqual(
        everything.amounts().sort((a, b) => a - b),
        [2, 3, 4, 4, 5, 5],
      );
    });

    test('a record with its own confirmations setting is notified when they are stored, and never of a block that was orphaned before', async () => {
      receiver.setAnswer({});
      const patient = await watchWith({ confirmations: 2 });
      const prompt = await watchWith({}, patient.address);
      await chain.pauseMining();
      const hash = await chain.send({ from: chain.accounts[1], to: patient.address, valueWei: 1n });
      await chain.mine(2);
      await chain.resumeMining();
      await settled();
      assert.deepEqual([patient.received().length, prompt.received().length], [0, 1]);
      await chain.reorg(2);
      await chain.mine(3);
      await settled();
      assert.deepEqual(
        (await service.notifications({ record: patient.record })).map(({ tx_hash, state }) => [
          tx_hash,
          state,
        ]),
        [[hash, 'withdrawn']],
      );
      await pay(patient.address, 2n);
      await chain.mine();
      await settled();
      assert.equal(patient.received().length, 0);
      await chain.mine();
      await settled();
      assert.deepEqual(patient.amounts(), [2]);
    });

    test('the removal of a sent transfer by a reorg is sent under the same id until a 2xx, and so is its return', async () => {
      receiver.setAnswer({});
      const told = await watchWith({ removed: true });
      const silent = await watchWith({}, told.address);
      const { hash } = await pay(told.address, 7n);
      await chain.mine();
      await settled();
      const raw = await chain.rpc('eth_getRawTransactionByHash', [hash]);
      const id = String(bodyOf(told.received()[0]).id);
      // The notice of removal fails twice.
      receiver.setAnswer(() => ({ status: told.received().length <= 3 ? 500 : 200 }));
      await chain.reorg(2);
      await settled();
      const [first, ...notices] = told.received();
      assert.deepEqual(messagesOf(told.received()), [[id, undefined], ...Array(3).fill([`${id}-1`, 'true'])]);
      for (const notice of notices)
        assert.deepEqual({ ...bodyOf(notice), next_retry_at: null }, bodyOf(first));
      assert.deepEqual(
        notices.map((notice) => bodyOf(notice).next_retry_at === null),
        [true, false, false],
      );

      await chain.rpc('eth_sendRawTransaction', [raw]);
      await chain.receiptOf(hash);
      await settled();
      assert.deepEqual(messagesOf(told.received().slice(4)), [[`${id}-2`, undefined]]);
      assert.equal(silent.received().length, 1);
      const rows = await service.notifications({ record: told.record });
      assert.deepEqual(
        rows.map(({ state, block_number }) => [state, block_number]),
        [['processed', (await chain.receiptOf(hash)).blockNumber]],
      );
    });

    test('a transfer mined again in the reorg that orphaned it is sent once, and one that was never sent gets no removal notice', async () => {
      receiver.setAnswer({});
      const kept = await watchWith({ removed: true });
      const late = await watchWith({ removed: true, confirmations: 5 });
      const { hash } = await pay(kept.address, 1n);
      await pay(late.address, 1n);
      await settled();
      await reorgWith(2, [hash]);
      await settled();
      const [row] = await service.notifications({ record: kept.record });
      assert.equal(row?.state, 'processed');
      assert.deepEqual(messagesOf(kept.received()), [[String(row.id), undefined]]);
      assert.deepEqual(
        [late.received().length, (await service.notifications({ record: late.record }))[0]?.state],
        [0, 'withdrawn'],
      );
    });

    test('with strict_order, notifications wait in order behind one that fails, and other records do not wait', async () => {
      let isBroken = true;
      const strict = await watchWith({ strict_order: true });
      receiver.setAnswer((request) => ({
        status: isBroken && strict.received().includes(request) && bodyOf(request).amount === 1 ? 500 : 200,
      }));
      const loose = await watchWith({}, strict.address);
      const count = 12;
      await chain.pauseMining();
      for (let valueWei = 1n; valueWei <= count; valueWei += 1n) {
        await chain.send({ from: chain.accounts[1], to: strict.address, valueWei });
        if (valueWei % 4n === 0n) await chain.mine();
      }
      await chain.resumeMining();
      await service.inSync(chain);
      // The first one has failed three times; everything of the other record has arrived meanwhile.
      await waitUntil(() => strict.received().length >= 3 && loose.received().length === count);
      assert.deepEqual(new Set(strict.amounts()), new Set([1]));
      isBroken = false;
      await settled();
      assert.deepEqual(
        [...new Set(strict.amounts())],
        Array.from({ length: count }, (_, index) => index + 1),
      );
      const failures = strict.amounts().filter((amount) => amount === 1).length - 1;
      assert.equal(strict.amounts().length, failures + count);
      const attempts = await service.database.query<{ started_at: Date; duration_ms: number }>(sql`
        select a.started_at, a.duration_ms
        from delivery_attempt a join notification_status n on n.shard_id = a.shard_id and n.id = a.notification_id
        where n.watched_address_id = ${strict.record.id} order by a.started_at, a.id limit 1000`);
      for (const [index, { started_at, duration_ms }] of attempts.entries()) {
        const next = attempts[index + 1];
        // Durations are rounded.
        assert.ok(next === undefined || next.started_at.getTime() >= started_at.getTime() + duration_ms - 1);
      }
    });
  });
}

function bodyOf(request: ReceivedRequest | undefined): Record<string, unknown> {
  return JSON.parse(request?.body ?? '{}');
}
