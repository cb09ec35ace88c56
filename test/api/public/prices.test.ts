import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPriceBook } from '../../../src/app/price-feeds.ts';
import { type ConfigOverrides, loadConfig } from '../../../src/config/load.ts';
import { decimal } from '../../../src/core/decimal.ts';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { insertPairStates } from '../../../src/store/market/pair-states.ts';
import { insertPrice } from '../../../src/store/prices/prices.ts';
import { headerOf, mine } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { addFollowedPair } from '../../kit/pair-story.ts';
import { createApiStory } from '../api-story.ts';

const noon = new Date('2025-11-20T12:00:00.000Z');
const MAX_AGE_MS = 600_000;
const addressOf = (digit: string) => `0x${digit.repeat(40)}`;
const fixed = { type: 'fixed' as const, price: '1' };
const feed = { everySeconds: 30, maxAgeSeconds: MAX_AGE_MS / 1000, sources: [fixed] };

const pairOf = (id: number, name: string, usdValueFrom: 0 | 1) => ({
  ...{ id, name, usdValueFrom, fee: 300, rewardPid: 0, token0Decimals: 18, token1Decimals: 18 },
  address: `0x${String(id).padStart(40, 'a')}`,
  token0: addressOf(String(id)),
  token1: addressOf('e'),
});

/** Native BELL and reward RING, pairs as in spec 2.3, tokens of each kind. */
function createStory(
  database: Database,
  prices: ConfigOverrides['prices'] = { native: feed, tokens: { DOGE: feed } },
  tokens: ConfigOverrides['tokens'] = {},
) {
  const config = loadConfig({
    env: {},
    overrides: {
      chain: { id: 1, rpc: ['http://node.example'], native: { symbol: 'BELL' }, reward: { symbol: 'RING' } },
      pairs: [
        pairOf(1, 'RING/BELL', 1),
        { ...pairOf(2, 'USDT/BELL', 0), token0Decimals: 6 },
        { ...pairOf(3, 'bridged USDC/BELL', 0), token0Decimals: 6 },
        pairOf(4, 'SOL/BELL', 1),
      ],
      tokens: {
        USDT: { address: addressOf('2'), decimals: 6, usd: 1 },
        USDC: { address: addressOf('3'), decimals: 6 },
        ALONE: { address: addressOf('7'), decimals: 6 },
        ...tokens,
      },
      prices,
    },
  });
  return createApiStory(database, undefined, undefined, { prices: createPriceBook(config) });
}

const accept = (database: Database, asset: string, price: string, observedAt = noon) =>
  insertPrice(database, { asset, price: decimal(price), observedAt, source: 'test' });

async function trade(database: Database, pairId: number, price: string, blockNumber = 1): Promise<void> {
  await addFollowedPair(database, pairId);
  await database.transaction((tx) =>
    insertPairStates(tx, [
      {
        ...{ pairId, blockNumber, minedAt: noon, reserve0: 1n, reserve1: 1n, supplyChange: 0n },
        price: decimal(price),
        liquidityK: undefined,
      },
    ]),
  );
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the native price is the newest price of the feed with all digits (spec 4.2)', async () => {
    const { ask } = createStory(database());
    await accept(database(), 'BELL', '1', new Date(noon.getTime() - 1));
    await accept(database(), 'BELL', '2500.123456789012345678901234567890123456');
    await accept(database(), 'DOGE', '0.1');
    const { status, text, headers } = await ask('GET', '/api/price/native');
    assert.equal(status, 200);
    assert.match(headers['content-type'] ?? '', /^application\/json/);
    assert.equal(
      text,
      '{"price":2500.123456789012345678901234567890123456,"asset":"BELL","base_currency":"USD"}',
    );
  });

  test('the reward price is exactly the price of pair 1 times the native price (spec 4.2)', async () => {
    const { ask } = createStory(database());
    await accept(database(), 'BELL', '2500.1');
    await trade(database(), 1, '0.000000000000000000000000000000000003');
    await trade(database(), 2, '2');
    const { text } = await ask('GET', '/api/price/reward');
    assert.equal(
      text,
      '{"price":0.0000000000000000000000000000000075003,"asset":"RING","base_currency":"USD"}',
    );
  });

  test('the reward price is null while one of its two inputs is missing', async () => {
    const missing = { price: null, asset: 'RING', base_currency: 'USD' };
    await trade(database(), 1, '3');
    assert.deepEqual((await createStory(database()).ask('GET', '/api/price/reward')).json, missing);
    await accept(database(), 'BELL', '2500');
    assert.equal((await createStory(database()).ask('GET', '/api/price/reward')).text.includes('7500'), true);
    await database().script('delete from pair_state');
    const { status, json } = await createStory(database()).ask('GET', '/api/price/reward');
    assert.deepEqual([status, json], [200, missing]);
  });

  test('the wrapped native coin has the price of the native coin, unless it has a feed or a fixed price', async () => {
    await accept(database(), 'BELL', '2500', new Date(noon.getTime() - 1_000));
    await accept(database(), 'WBELL', '2499');
    const told = async (prices: ConfigOverrides['prices'], usd?: number) => {
      const WBELL = { address: addressOf('e'), decimals: 18, ...(usd !== undefined && { usd }) };
      const { json, headers } = await createStory(database(), prices, { WBELL }).ask(
        'GET',
        '/api/price/wbell',
      );
      return [json, headers['chainbell-price-age'], headers['chainbell-price-stale']];
    };
    const priced = (price: number | null) => ({ price, asset: 'WBELL', base_currency: 'USD' });
    assert.deepEqual(await told({ native: feed }), [priced(2_500), '1', 'false']);
    assert.deepEqual(await told({ native: feed }, 7), [priced(7), undefined, 'false']);
    assert.deepEqual(await told({ native: feed, tokens: { WBELL: feed } }), [priced(2_499), '0', 'false']);
    assert.deepEqual(await told({}), [priced(null), undefined, 'true']);
  });

  test('a missing or outdated price is null (spec 7)', async () => {
    const missing = { price: null, asset: 'BELL', base_currency: 'USD' };
    const before = await createStory(database()).ask('GET', '/api/price/native');
    assert.deepEqual([before.status, before.json], [200, missing]);
    await accept(database(), 'BELL', '2');
    const story = createStory(database());
    story.clock.advance(MAX_AGE_MS);
    assert.deepEqual((await story.ask('GET', '/api/price/native')).json, { ...missing, price: 2 });
    const later = createStory(database());
    later.clock.advance(MAX_AGE_MS + 1);
    assert.deepEqual((await later.ask('GET', '/api/price/native')).json, missing);
    assert.deepEqual((await createStory(database(), {}).ask('GET', '/api/price/native')).json, missing);
  });

  test('without maxAgeSeconds, the newest price is served at any age, and the headers say its age', async () => {
    const { maxAgeSeconds: _, ...ageless } = feed;
    const told = async (afterMs: number, path = 'native') => {
      const story = createStory(database(), { native: ageless });
      story.clock.advance(afterMs);
      const { json, headers } = await story.ask('GET', `/api/price/${path}`);
      const { 'chainbell-price-age': age, 'chainbell-price-stale': stale } = headers;
      return [(json as { price: unknown }).price, age, stale];
    };
    assert.deepEqual(await told(0), [null, undefined, 'true']);
    await accept(database(), 'BELL', '2');
    await trade(database(), 1, '3');
    assert.deepEqual(await told(600_000), [2, '600', 'false']);
    assert.deepEqual(await told(600_001), [2, '600.001', 'true']);
    assert.deepEqual(await told(40 * 86_400_000), [2, '3456000', 'true']);
    assert.deepEqual(await told(40 * 86_400_000, 'reward'), [6, '3456000', 'true']);
    assert.deepEqual(await told(0, 'usdt'), [1, undefined, 'false']);
  });

  test('a price of a pair is stale while the newest stored block is old and not known to be the head', async () => {
    await accept(database(), 'BELL', '2');
    await trade(database(), 1, '3');
    const staleAt = async (path: string, afterMs: number) => {
      const story = createStory(database());
      story.clock.advance(afterMs);
      const { json, headers } = await story.ask('GET', `/api/price/${path}`);
      return [(json as { price: unknown }).price, headers['chainbell-price-stale']];
    };
    assert.deepEqual(await staleAt('reward', 0), [6, 'true'], 'no block is stored');
    await mine(database(), headerOf(1), []);
    assert.deepEqual(await staleAt('reward', 301_000), [6, 'false']);
    assert.deepEqual(await staleAt('reward', 301_001), [6, 'true']);
    assert.deepEqual(await staleAt('native', 301_001), [2, 'false']);
    const head = (number: number) =>
      database().query(sql`
        insert into process (id, roles, version, host, pid, started_at, seen_at, beat, leads, head)
        values ('one', '{follower}', '1', 'here', 1, now(), now(), 1, true, ${number})
        on conflict (id) do update set head = excluded.head`);
    await head(1);
    assert.deepEqual(await staleAt('reward', 301_001), [6, 'false'], 'the chain has no newer block');
    await head(2);
    assert.deepEqual(await staleAt('reward', 301_001), [6, 'true']);
  });

  test('a price of a pair from before a block that is stored meanwhile is not called fresh', async () => {
    await accept(database(), 'BELL', '2');
    await trade(database(), 1, '3');
    const { query } = database();
    let reading: Promise<unknown> = Promise.resolve();
    let isStored = false;
    const slow: Database = {
      ...database(),
      query<Row>(statement: Sql): Promise<Row[]> {
        const rows = reading.then(() => query<Row>(statement));
        // After the first reading of the rate or of the newest block.
        reading = rows.then(async () => {
          if (isStored || !/pair_state|is_up_to_date/.test(statement.text)) return;
          isStored = true;
          await trade(database(), 1, '4', 2);
          await mine(database(), headerOf(1), []);
        });
        return rows;
      },
    };
    const { json, headers } = await createStory(slow).ask('GET', '/api/price/reward');
    assert.deepEqual([(json as { price: unknown }).price, headers['chainbell-price-stale']], [8, 'true']);
  });

  test('a 304 updates the age of the price', async () => {
    const { ask, clock } = createStory(database());
    await accept(database(), 'BELL', '2');
    const { headers } = await ask('GET', '/api/price/native');
    clock.advance(60_000);
    const again = await ask('GET', '/api/price/native', { headers: { 'if-none-match': headers.etag ?? '' } });
    assert.deepEqual([again.status, again.headers['chainbell-price-age']], [304, '60']);
  });

  test('after the clock was set back, the price accepted last is served', async () => {
    const { maxAgeSeconds: _, ...ageless } = feed;
    await accept(database(), 'BELL', '1', new Date(noon.getTime() - 7_200_000));
    await accept(database(), 'BELL', '2', new Date(noon.getTime() + 3_600_000));
    const priceNow = async () =>
      (await createStory(database(), { native: ageless }).ask('GET', '/api/price/native')).json;
    assert.deepEqual(await priceNow(), { price: 1, asset: 'BELL', base_currency: 'USD' });
    await accept(database(), 'BELL', '3', new Date(noon.getTime() - 1));
    await accept(database(), 'BELL', '4', new Date(noon.getTime() - 2));
    assert.deepEqual(await priceNow(), { price: 4, asset: 'BELL', base_currency: 'USD' });
  });

  test('a price that cannot be read is null (spec 4.2)', async () => {
    const broken: Database = { ...database(), query: () => Promise.reject(new Fault('unavailable', 'away')) };
    for (const [path, asset] of [
      ['native', 'BELL'],
      ['reward', 'RING'],
      ['sol', 'SOL'],
    ]) {
      const { status, json } = await createStory(broken).ask('GET', `/api/price/${path}`);
      assert.deepEqual([status, json], [200, { price: null, asset, base_currency: 'USD' }]);
    }
  });

  test('a null from a failed read is cached for a second, and a null from a missing price as usual', async () => {
    let isAway = true;
    const { query } = database();
    const { ask, clock } = createStory({
      ...database(),
      query: (statement) => (isAway ? Promise.reject(new Fault('unavailable', 'away')) : query(statement)),
    });
    const look = async () => {
      const { json, headers } = await ask('GET', '/api/price/native');
      return [(json as { price: unknown }).price, headers['cache-control'], headers.age];
    };
    assert.deepEqual(await look(), [null, 'public, max-age=1', '0']);
    isAway = false;
    clock.advance(1_000);
    assert.deepEqual(await look(), [null, 'public, max-age=60', '0']);
    await accept(database(), 'BELL', '2');
    clock.advance(59_000);
    assert.deepEqual(await look(), [null, 'public, max-age=60', '59']);
    clock.advance(1_000);
    assert.deepEqual(await look(), [2, 'public, max-age=60', '0']);
  });

  test('the price of a token comes from its feed, its fixed value, or its pair with the native coin', async () => {
    await accept(database(), 'BELL', '2500');
    await accept(database(), 'DOGE', '0.1');
    await trade(database(), 3, '2000');
    await trade(database(), 4, '0.05');
    const { ask } = createStory(database());
    for (const [symbol, asset, price] of [
      ['doge', 'DOGE', 0.1],
      ['usdt', 'USDT', 1],
      ['sol', 'SOL', 125],
      // The rate of pair 3 is the amount of the token for one native coin.
      ['usdc', 'USDC', 1.25],
      ['alone', 'ALONE', null],
      ['bell', 'BELL', 2500],
      ['ring', 'RING', null],
    ]) {
      const { status, json } = await ask('GET', `/api/price/${symbol}`);
      assert.deepEqual([status, json], [200, { price, asset, base_currency: 'USD' }], String(symbol));
    }
  });

  test('an unknown symbol answers 404', async () => {
    const { ask } = createStory(database());
    for (const symbol of ['btc', 'constructor', '%20', 'x'.repeat(100), 'bridged%20usdc']) {
      const { status, json } = await ask('GET', `/api/price/${symbol}`);
      assert.deepEqual([status, json], [404, { statusCode: 404, statusMessage: 'Token not found' }], symbol);
    }
    assert.equal((await ask('POST', '/api/price/native')).status, 405);
  });
});
