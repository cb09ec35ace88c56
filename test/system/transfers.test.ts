/**
 * Transfers on a real chain: each kind becomes exactly one webhook for each matching record, with the fields of spec 2.7.
 * Other transactions send no webhook.
 */
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { getContractAddress } from 'viem';
import { encodeCall, encodeCreation } from '../../devnet/contracts.ts';
import { type Address, parseAddress, zeroAddress } from '../../src/core/hex.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { sampledTest } from '../kit/sample.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  type WatchedAddressJson,
  type Watcher,
} from '../kit/service.ts';

const test = sampledTest(import.meta.url);

const FIELDS = [
  'id',
  'watched_addresses_id',
  'watcher_id',
  'hash',
  'type',
  'sender',
  'receiver',
  'amount',
  'asset',
  'timestamp',
  'webhook_url',
  'api_key',
  'next_retry_at',
];
const COIN = 'COIN_TRANSFER';
const TOKEN = 'TOKEN_TRANSFER';
const MAX_UINT256 = 2n ** 256n - 1n;

/** The part of a webhook's body that concerns the chain. */
type Told = { hash: string; type: string; sender: string; receiver: string; amount: bigint; asset: string };

const parts = new AsyncDisposableStack();
let chain: Chain;
let receiver: Receiver;
let accounts: Iterator<Address>;

before(async () => {
  chain = parts.use(await startChain({ extraArguments: ['--accounts', '60'] }));
  receiver = parts.use(await startReceiver());
  // The first one deploys and mints.
  accounts = chain.accounts.slice(1).values();
});
after(() => parts.disposeAsync());

/** An account of the node's that no other test uses. */
function nextAccount(): Address {
  const { value, done } = accounts.next();
  if (done === true) throw new Error('more accounts are needed');
  return value;
}

/** The address of the first contract that a contract creates: its nonce begins at 1 (EIP-161). */
function firstCreatedBy(creator: Address): Address {
  return parseAddress(getContractAddress({ from: creator, nonce: 1n }));
}

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    const own = new AsyncDisposableStack();
    let service: TestService;
    let watcher: Watcher;
    before(async () => {
      const database = own.use(await createTestDatabase(kind));
      service = own.use(
        await startTestService({ database, rpc: [chain.url, chain.wsUrl], receivers: [receiver] }),
      );
      watcher = await createWatcher(service, 'acme');
      await service.inSync(chain);
    });
    after(() => own.disposeAsync());

    const watch = (address: Address, flags: { watchCoin?: boolean; watchToken?: boolean } = {}) =>
      watcher.watch({
        address,
        webhookUrl: `${receiver.url}/${address}/${Math.random().toString(36).slice(2)}`,
        ...flags,
      });

    /** Waits until everything is stored and delivered. Then the watched address got exactly these webhooks, in this order. */
    async function assertRung(record: WatchedAddressJson, expected: readonly Told[]): Promise<void> {
      await service.inSync(chain);
      await service.drained();
      const rows = await service.notifications({ record });
      const requests = receiver.requests.filter(({ path }) => record.webhook_url.endsWith(path));
      const bodies = requests.map(({ headers, body }) => {
        assert.equal(headers['content-type'], 'application/json');
        assert.equal(headers.authorization, `Bearer ${watcher.key}`);
        const fields: Record<string, unknown> = JSON.parse(body);
        assert.deepEqual(Object.keys(fields), FIELDS);
        // Compares the text, because a double would be rounded.
        return { ...fields, amount: BigInt(/"amount":(\d+),/.exec(body)?.[1] ?? -1) };
      });
      const byId = bodies.sort(
        (one, other) => Number(Reflect.get(one, 'id')) - Number(Reflect.get(other, 'id')),
      );
      assert.deepEqual(
        byId,
        expected.map((told, index) => ({
          id: rows[index]?.id,
          watched_addresses_id: record.id,
          watcher_id: watcher.id,
          ...told,
          timestamp: rows[index]?.created_text,
          webhook_url: record.webhook_url,
          api_key: watcher.key,
          next_retry_at: null,
        })),
      );
      assert.deepEqual(
        rows.map(({ state, is_processed, retry_count }) => ({ state, is_processed, retry_count })),
        expected.map(() => ({ state: 'processed', is_processed: true, retry_count: 0 })),
      );
    }

    test('a native transfer is sent once for its receiver and once for its sender, with exact wei beyond 2^53', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const [payer, payee] = [await watch(from), await watch(to)];
      const amount = 1_234_567_890_123_456_789_123n;
      const { hash } = await chain.transferNative({ from, to, valueWei: amount });
      const told = { hash, type: COIN, sender: from, receiver: to, amount, asset: 'ETH' };
      await assertRung(payer, [told]);
      await assertRung(payee, [told]);
    });

    test('a transfer to oneself is sent once', async () => {
      const from = nextAccount();
      const record = await watch(from);
      const { hash } = await chain.transferNative({ from, to: from, valueWei: 7n });
      await assertRung(record, [
        { hash, type: COIN, sender: from, receiver: from, amount: 7n, asset: 'ETH' },
      ]);
    });

    test('two records of one address get one webhook each, with their own ids and URLs', async () => {
      const to = freshAddress();
      const records = [await watch(to), await watch(to)];
      const from = nextAccount();
      const { hash } = await chain.transferNative({ from, to, valueWei: 5n });
      for (const record of records) {
        await assertRung(record, [
          { hash, type: COIN, sender: from, receiver: to, amount: 5n, asset: 'ETH' },
        ]);
      }
    });

    test('value in a contract creation is sent with an empty receiver', async () => {
      const from = nextAccount();
      const record = await watch(from);
      const { hash } = await chain.execute({ from, valueWei: 12n, input: encodeCreation('Purse') });
      await assertRung(record, [{ hash, type: COIN, sender: from, receiver: '', amount: 12n, asset: 'ETH' }]);
    });

    test('a transaction without value and a failed transaction send no webhook', async () => {
      const from = nextAccount();
      const record = await watch(from);
      const token = await chain.deploy('DemoToken', 'Gold', 'GLD', 6);
      await chain.execute({ from, to: freshAddress(), valueWei: 0n });
      const failed = await chain.execute({ from, to: token, valueWei: 3n });
      const overdrawn = await chain.transferToken(token, { from, to: freshAddress(), amount: 1n });
      assert.deepEqual([failed.succeeded, overdrawn.succeeded], [false, false]);
      await assertRung(record, []);
    });

    test('coin that a contract passes on is sent with the contract as sender, once for each part', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const splitter = await chain.deploy('Splitter');
      const [payer, payee] = [await watch(from), await watch(to)];
      const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[to, to]] });
      const { hash } = await chain.execute({ from, to: splitter, valueWei: 11n, input });
      const part = { hash, type: COIN, sender: splitter, receiver: to, asset: 'ETH' };
      await assertRung(payer, [
        { hash, type: COIN, sender: from, receiver: splitter, amount: 11n, asset: 'ETH' },
      ]);
      await assertRung(payee, [
        { ...part, amount: 5n },
        { ...part, amount: 6n },
      ]);
    });

    test('coin that moved only inside a reverted call sends no webhook', async () => {
      const [from, kept, reverted] = [nextAccount(), freshAddress(), freshAddress()];
      const splitter = await chain.deploy('Splitter');
      const [paid, unpaid] = [await watch(kept), await watch(reverted)];
      const input = encodeCall({
        contract: 'Splitter',
        method: 'splitWithRevertedHalf',
        values: [kept, reverted],
      });
      const { hash } = await chain.execute({ from, to: splitter, valueWei: 10n, input });
      await assertRung(paid, [
        { hash, type: COIN, sender: splitter, receiver: kept, amount: 10n, asset: 'ETH' },
      ]);
      await assertRung(unpaid, []);
    });

    test('coin with which a contract creates another is sent with the new contract as receiver', async () => {
      const from = nextAccount();
      const splitter = await chain.deploy('Splitter');
      const record = await watch(splitter);
      const input = encodeCall({ contract: 'Splitter', method: 'createPurse' });
      const { hash } = await chain.execute({ from, to: splitter, valueWei: 8n, input });
      const told = { hash, type: COIN, amount: 8n, asset: 'ETH' };
      await assertRung(record, [
        { ...told, sender: from, receiver: splitter },
        { ...told, sender: splitter, receiver: firstCreatedBy(splitter) },
      ]);
    });

    test('coin of a contract that destroys itself is sent', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const { contractAddress: purse } = await chain.execute({
        from,
        valueWei: 9n,
        input: encodeCreation('Purse'),
      });
      assert(purse !== undefined);
      const splitter = await chain.deploy('Splitter');
      const record = await watch(to);
      const close = encodeCall({ contract: 'Purse', method: 'close', values: [to] });
      const later = await chain.execute({ from, to: purse, input: close });
      const input = encodeCall({ contract: 'Splitter', method: 'createAndClosePurse', values: [to] });
      const atOnce = await chain.execute({ from, to: splitter, valueWei: 4n, input });
      const told = { type: COIN, receiver: to, asset: 'ETH' };
      await assertRung(record, [
        { ...told, hash: later.hash, sender: purse, amount: 9n },
        { ...told, hash: atOnce.hash, sender: firstCreatedBy(splitter), amount: 4n },
      ]);
    });

    test('an ERC-20 transfer is sent with the token as its asset, for every amount from 0 to 2^256 - 1', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const token = await chain.deploy('DemoToken', 'Gold', 'GLD', 18);
      const [payer, payee] = [await watch(from), await watch(to)];
      const minted = await chain.mintToken(token, { to: from, amount: MAX_UINT256 });
      const nothing = await chain.transferToken(token, { from, to, amount: 0n });
      const odd = await chain.transferToken(token, { from, to, amount: 2n ** 53n + 1n });
      const rest = MAX_UINT256 - 2n ** 53n - 1n;
      const all = await chain.transferToken(token, { from, to, amount: rest });
      const sent = [
        { receipt: nothing, amount: 0n },
        { receipt: odd, amount: 2n ** 53n + 1n },
        { receipt: all, amount: rest },
      ].map(({ receipt: { hash }, amount }) => ({
        ...{ hash, type: TOKEN, sender: from, receiver: to, amount, asset: token },
      }));
      const mint = { hash: minted.hash, type: TOKEN, sender: zeroAddress, receiver: from };
      await assertRung(payer, [{ ...mint, amount: MAX_UINT256, asset: token }, ...sent]);
      await assertRung(payee, sent);
    });

    test('a transfer of a token that takes a fee is sent for each of its two events', async () => {
      const [from, to, collector] = [nextAccount(), freshAddress(), freshAddress()];
      const token = await chain.deploy('FeeToken', 'Toll', 'TLL', collector);
      await chain.mintToken(token, { to: from, amount: 1_000n });
      await service.inSync(chain);
      const [payer, payee] = [await watch(from), await watch(to)];
      const { hash } = await chain.transferToken(token, { from, to, amount: 1_000n });
      const told = { hash, type: TOKEN, sender: from, asset: token };
      await assertRung(payer, [
        { ...told, receiver: collector, amount: 10n },
        { ...told, receiver: to, amount: 990n },
      ]);
      await assertRung(payee, [{ ...told, receiver: to, amount: 990n }]);
    });

    test('an ERC-721 transfer sends no webhook', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const collectible = await chain.deploy('DemoCollectible', 'Card', 'CRD');
      const record = await watch(to);
      const input = encodeCall({ contract: 'DemoCollectible', method: 'mint', values: [to] });
      const { succeeded } = await chain.execute({ from, to: collectible, input });
      assert.equal(succeeded, true);
      await assertRung(record, []);
    });

    test('watch_coin and watch_token each turn off one kind, from the block after a change', async () => {
      const [from, to] = [nextAccount(), freshAddress()];
      const token = await chain.deploy('DemoToken', 'Gold', 'GLD', 6);
      const coins = await watch(to, { watchToken: false });
      const tokens = await watch(to, { watchCoin: false });
      const nothing = await watch(to, { watchCoin: false, watchToken: false });
      const paid = await chain.transferNative({ from, to, valueWei: 1n });
      const minted = await chain.mintToken(token, { to, amount: 2n });
      const coin = { hash: paid.hash, type: COIN, sender: from, receiver: to, amount: 1n, asset: 'ETH' };
      const mint = {
        hash: minted.hash,
        type: TOKEN,
        sender: zeroAddress,
        receiver: to,
        amount: 2n,
        asset: token,
      };
      await assertRung(coins, [coin]);
      await assertRung(tokens, [mint]);
      await assertRung(nothing, []);

      await watcher.patch(coins, { watch_coin: false, watch_token: true });
      const later = await chain.mintToken(token, { to, amount: 3n });
      await chain.transferNative({ from, to, valueWei: 4n });
      await assertRung(coins, [coin, { ...mint, hash: later.hash, amount: 3n }]);
    });

    test('an address is live from the first block after its registration was answered', async () => {
      const from = nextAccount();
      for (let round = 0; round < 5; round++) {
        const to = freshAddress();
        const record = await watch(to);
        const { hash } = await chain.transferNative({ from, to, valueWei: 1n });
        await assertRung(record, [
          { hash, type: COIN, sender: from, receiver: to, amount: 1n, asset: 'ETH' },
        ]);
      }
    });

    test('with internal transfers off, only the value of the transaction itself is sent', async () => {
      await using database = await createTestDatabase(kind);
      await using plain = await startTestService({
        database,
        rpc: [chain.url],
        receivers: [receiver],
        chain: { internalTransfers: 'off' },
      });
      const [from, to] = [nextAccount(), freshAddress()];
      const splitter = await chain.deploy('Splitter');
      const plainWatcher = await createWatcher(plain, 'acme');
      const webhookUrl = `${receiver.url}/${to}`;
      const [outer, inner] = [
        await plainWatcher.watch({ address: from, webhookUrl }),
        await plainWatcher.watch({ address: to, webhookUrl }),
      ];
      await plain.inSync(chain);
      const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[to]] });
      await chain.execute({ from, to: splitter, valueWei: 11n, input });
      await plain.inSync(chain);
      await plain.drained();
      assert.deepEqual(
        (await plain.notifications({ record: outer })).map((row) => row.kind),
        ['transaction'],
      );
      assert.deepEqual(await plain.notifications({ record: inner }), []);
    });
  });
}
