/**
 * Points from real events to stored rows: every award follows from the chain, before and after a reorg.
 */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodeEventLog, parseAbi } from 'viem';
import { encodeCall } from '../../devnet/contracts.ts';
import type { Address, Hash, Hex } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { chainbell } from '../cli/chainbell.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import {
  expectAwards,
  GENESIS,
  givePrices,
  listAwardLines,
  type StoryBlock,
  type StoryLog,
  storyRules,
} from '../kit/points-story.ts';
import { freshAddress, SECRET, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

type Explained = {
  awards: { rule: string; hash: string }[];
  logs: { verdicts: { rule: string; version: number | null; what: string }[] }[] | null;
  missing: { what: string } | null;
};

const ADMIN_TOKEN = 'f00d'.repeat(8);
const HOUR = 3_600;
/** Seconds after the chain's start, which is two hours before midnight. */
const midnight = (day: number): number => 2 * HOUR + (day - 1) * 24 * HOUR;

const abi = parseAbi([
  'event Paid(address indexed user, uint256 amount, string note)',
  'event Bought(uint256 amount)',
  'event Referred(address indexed user, address indexed referrer)',
  'event Transfer(address indexed from, address indexed to, uint256 value)',
]);

type LogJson = { address: Hex; topics: [Hash, ...Hash[]]; data: Hex };
type BlockJson = { hash: Hash; timestamp: Hex; transactions: { hash: Hash; from: Hex }[] };

function storyLog({ topics, data }: LogJson): StoryLog {
  const { eventName, args } = decodeEventLog({ abi, topics, data });
  const low = (address: Hex) => address.toLowerCase() as Address;
  switch (eventName) {
    case 'Paid':
      return { kind: 'paid', user: low(args.user), amount: args.amount };
    case 'Bought':
      return { kind: 'bought', amount: args.amount };
    case 'Referred':
      return { kind: 'referred', user: low(args.user), referrer: low(args.referrer) };
    case 'Transfer':
      return { kind: 'transfer', from: low(args.from), to: low(args.to), amount: args.value };
  }
}

/** The whole chain as its node has it now. */
async function readStory(chain: Chain): Promise<StoryBlock[]> {
  const blocks: StoryBlock[] = [];
  const { number: last } = await chain.head();
  for (let number = 0; number <= last; number += 1) {
    const block = (await chain.rpc('eth_getBlockByNumber', [`0x${number.toString(16)}`, true])) as BlockJson;
    const transactions = [];
    for (const { hash, from } of block.transactions) {
      const { logs } = (await chain.rpc('eth_getTransactionReceipt', [hash])) as { logs: LogJson[] };
      transactions.push({ hash, sender: from.toLowerCase() as Address, logs: logs.map(storyLog) });
    }
    blocks.push({
      number,
      hash: block.hash,
      minedAt: new Date(Number(block.timestamp) * 1000),
      transactions,
    });
  }
  return blocks;
}

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    const own = new AsyncDisposableStack();
    let chain: Chain;
    let place: TestDatabase;
    let service: TestService;
    let till: Address;
    let gem: Address;
    let sections: Parameters<typeof startTestService>[0]['sections'];

    before(async () => {
      const timestamp = GENESIS.getTime() / 1000;
      chain = own.use(await startChain({ extraArguments: ['--timestamp', String(timestamp)] }));
      till = (await chain.deploy('Till')).toLowerCase() as Address;
      gem = (await chain.deploy('DemoToken', 'Gem', 'GEM', 18)).toLowerCase() as Address;
      place = own.use(await createTestDatabase(kind));
      sections = {
        ...storyRules({ shop: till, gem, deny: freshAddress() }),
        prices: { tokens: { GEM: { sources: [{ type: 'fixed', price: '1' }] } } },
      };
      service = own.use(
        await startTestService({
          database: place,
          rpc: [chain.url],
          chain: { startBlock: 0, internalTransfers: 'off' },
          sections,
          adminToken: ADMIN_TOKEN,
          roles: ['follower', 'api'],
        }),
      );
      await givePrices(service.database);
    });
    after(() => own.disposeAsync());

    /** Calls the till in a block of this time. */
    async function at(seconds: number, from: Address, method: string, ...values: unknown[]): Promise<Hash> {
      await chain.rpc('evm_setNextBlockTimestamp', [GENESIS.getTime() / 1000 + seconds]);
      const input = encodeCall({ contract: 'Till', method, values });
      const { hash } = await chain.execute({ from, to: till, input });
      return hash;
    }

    /** Each commit closes one day of a balance. */
    async function settle(): Promise<void> {
      await waitUntil(
        async () => {
          await chain.mine();
          await service.inSync(chain);
          const open = await service.database.query(sql`
            select from accrual, (select max(mined_at) as now from block) b
            where (balance > 0 or balance_seconds > 0) and day < extract(epoch from b.now)::bigint / 86400 limit 1`);
          return open.length === 0;
        },
        { describe: 'all days to be closed' },
      );
    }

    test('each event earns the points of its rule at each boundary of days, prices, multipliers, caps and versions', async () => {
      const [alice, bob, carol] = chain.accounts;
      await chain.mintToken(gem, { to: alice, amount: 7n * 10n ** 18n + 1n });
      await at(HOUR, bob, 'refer', bob);
      await at(HOUR + 1, bob, 'refer', alice);
      await at(HOUR + 2, bob, 'refer', carol);
      // More than a transaction may earn, and then more than a day may.
      await at(HOUR + 3, alice, 'pay', bob, [200n, 400n, 100n]);
      for (const second of [4, 5, 6]) await at(HOUR + second, alice, 'pay', bob, [450n]);
      // The last second before a day of twice as much, its first one, and the same where that ends.
      await at(midnight(1) - 1, carol, 'pay', carol, [101n]);
      await at(midnight(1), carol, 'pay', carol, [101n]);
      await at(midnight(1) + 12 * HOUR - 1, alice, 'buy', 10n ** 20n);
      await at(midnight(1) + 12 * HOUR, alice, 'buy', 10n ** 20n);
      await chain.transferToken(gem, { from: alice, to: bob, amount: 3n * 10n ** 18n });
      await at(midnight(3) - 1, carol, 'pay', carol, [150n]);
      await at(midnight(3), carol, 'pay', carol, [150n]);
      await at(midnight(4) - 1, bob, 'pay', bob, [900n]);
      await at(midnight(4), bob, 'pay', bob, [900n, 900n]);
      await chain.transferToken(gem, { from: bob, to: carol, amount: 1n });
      await settle();
      const awards = await listAwardLines(service.database);
      assert.deepEqual(awards, expectAwards(await readStory(chain)));
      for (const expected of [
        /^pay 1 user/,
        /^pay 2 user/,
        /^buy 1 user/,
        /^hold 1 user/,
        /^pay 1 referrer/,
        /^hold 1 referrer/,
      ])
        assert.ok(
          awards.some((line) => expected.test(line)),
          `an award like ${expected}`,
        );
    });

    test('a reorg takes back awards of orphaned blocks, and a transaction that is mined again earns once', async () => {
      const [alice, bob] = chain.accounts;
      const kept = await at(midnight(6), alice, 'pay', bob, [700n]);
      const dropped = await at(midnight(6) + 1, bob, 'pay', bob, [100n]);
      await chain.transferToken(gem, { from: alice, to: bob, amount: 10n ** 18n });
      await settle();
      const before = await listAwardLines(service.database);
      assert.equal(before.filter((line) => line.includes(dropped)).length, 2);
      const raw = await chain.rpc('eth_getRawTransactionByHash', [kept]);
      const depth = (await chain.head()).number - (await chain.receiptOf(kept)).blockNumber + 1;
      await chain.alone(() => chain.rpc('anvil_reorg', [depth, [[raw, 1]]]));
      await settle();
      const awards = await listAwardLines(service.database);
      assert.deepEqual(awards, expectAwards(await readStory(chain)));
      assert.equal(awards.filter((line) => line.includes(dropped)).length, 0);
      assert.equal(awards.filter((line) => line.includes(`pay 2 user`) && line.includes(kept)).length, 1);
    });

    // The embedded database has its service's process only.
    if (kind === 'embedded') return;
    test('points explain shows rule, version, price, multiplier, caps and result of each award of a transaction', async () => {
      const [row] = await service.database.query<{ hash: Hash }>(sql`
        select '0x' || encode(tx_hash, 'hex') as hash from point where rule = 'pay' and inputs ? 'used.perTx'
        order by ordinal desc, id limit 1`);
      assert.ok(row !== undefined);
      const env = {
        CHAINBELL_CHAIN_ID: '31337',
        CHAINBELL_CHAIN_RPC: chain.url,
        CHAINBELL_DATABASE_URL: place.url,
        CHAINBELL_SECRET: SECRET,
      };
      // JSON is YAML.
      await writeFile(path.join(place.dataDir, 'chainbell.yaml'), JSON.stringify(sections));
      const told = await chainbell(place.dataDir, env, 'points', 'explain', row.hash);
      assert.equal(told.code, 0, told.err);
      for (const part of [
        /^pay version 1$/m,
        /cap, perTx +5$/m,
        /already awarded, perTx +\d/m,
        /argument amount +\d+$/m,
      ])
        assert.match(told.out, part);
      const json = await chainbell(place.dataDir, env, 'points', 'explain', row.hash, '--json');
      const { awards, logs, missing } = JSON.parse(json.out) as Explained;
      assert.deepEqual([awards[0]?.rule, awards[0]?.hash, missing], ['pay', row.hash, null]);
      // The operator API explains it in the same words.
      const answer = await fetch(`${service.apiUrl}/api/admin/points/explain/${row.hash}`, {
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
      assert.deepEqual(await answer.json(), { success: true, data: JSON.parse(json.out) });
      // The first log earned, and another version is not in force yet; the last one met the cap.
      const [first, last] = [logs?.[0], logs?.at(-1)];
      assert.deepEqual(
        first?.verdicts.filter(({ rule }) => rule === 'pay').map(({ version, what }) => [version, what]),
        [
          [1, 'awarded'],
          [2, 'not_yet'],
        ],
      );
      assert.equal(last?.verdicts.find(({ version }) => version === 1)?.what, 'cap_reached');
      assert.match(told.out, /^log \d of 0x/m);
      assert.match(told.out, /pay version 1: cap reached: the cap perTx of 5 points/);

      const unknown = await chainbell(place.dataDir, env, 'points', 'explain', `0x${'1'.repeat(64)}`);
      assert.equal(unknown.code, 64);
      assert.match(unknown.err, /no award is stored .* the nodes know no such transaction\. Check the hash/);
      const away = { ...env, CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1' };
      const alone = await chainbell(place.dataDir, away, 'points', 'explain', row.hash, '--json');
      assert.equal(alone.code, 0, alone.err);
      assert.match(alone.err, /only awards are shown: its logs are not stored, and no node/);
      const kept = JSON.parse(alone.out) as Explained;
      assert.deepEqual([kept.logs, kept.missing?.what, kept.awards], [null, 'no_node', awards]);
      const nothing = await chainbell(place.dataDir, away, 'points', 'explain', `0x${'1'.repeat(64)}`);
      assert.deepEqual([nothing.code, nothing.out], [69, '']);
    });
  });
}
