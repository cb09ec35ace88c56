import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createFeeds, readsContracts } from '../../src/app/price-feeds.ts';
import { type ConfigOverrides, loadConfig } from '../../src/config/load.ts';
import { decimal } from '../../src/core/decimal.ts';
import { createPageReader } from '../../src/prices/sources.ts';
import { insertPairStates } from '../../src/store/market/pair-states.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { raisePruneMark } from '../../src/store/retention/prune-marks.ts';
import { headerOf, mine, noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { addFollowedPair } from '../kit/pair-story.ts';

const { signal } = new AbortController();
const MINUTE_MS = 60_000;
const pages = createPageReader();
after(() => pages.close());

const addressOf = (digit: string) => `0x${digit.repeat(40)}`;
const coin = addressOf('e');
const pairOf = (id: number, name: string, token0: string, token1: string, usdValueFrom: 0 | 1) => ({
  ...{ id, name, token0, token1, usdValueFrom, fee: 300, rewardPid: 0 },
  ...{ token0Decimals: 18, token1Decimals: 18, address: `0x${String(id).padStart(40, 'a')}` },
});

/** USDT against the coin, SOL against it, and DOGE the other way round. */
const loaded = (prices: NonNullable<ConfigOverrides['prices']>) =>
  loadConfig({
    env: {},
    overrides: {
      chain: { id: 1, rpc: ['http://node.example'], native: { symbol: 'BELL', wrapped: coin } },
      pairs: [
        pairOf(2, 'USDT/BELL', addressOf('2'), coin, 0),
        pairOf(4, 'SOL/BELL', addressOf('4'), coin, 1),
        pairOf(5, 'BELL/DOGE', coin, addressOf('5'), 1),
      ],
      tokens: {
        USDT: { address: addressOf('2'), decimals: 18, usd: 1.01 },
        SOL: { address: addressOf('4'), decimals: 18 },
        DOGE: { address: addressOf('5'), decimals: 18 },
      },
      prices,
    },
  });

const pairFeed = (pair: number, minutes = 30) => ({
  ...{ everySeconds: 30, maxAgeSeconds: 600 },
  sources: [{ type: 'pair' as const, pair, minutes }],
});

onSampledDatabase(import.meta.url, ({ database }) => {
  /** A pair whose price is this many minutes older than the tip, which was mined at noon. */
  const trade = async (pairId: number, blockNumber: number, minutesBefore: number, price: string) => {
    await addFollowedPair(database(), pairId);
    await database().transaction((tx) =>
      insertPairStates(tx, [
        {
          ...{ pairId, blockNumber, reserve0: 1n, reserve1: 1n, supplyChange: 0n, liquidityK: undefined },
          minedAt: new Date(noon.getTime() - minutesBefore * MINUTE_MS),
          price: decimal(price),
        },
      ]),
    );
  };

  const read = async (prices: NonNullable<ConfigOverrides['prices']>, asset: string) => {
    const nodes = { ask: () => Promise.reject(new Error('no node is asked here')) };
    const clock = createTestClock(noon);
    const feeds = createFeeds(loaded(prices), { database: database(), nodes, pages, clock });
    const source = feeds.find((feed) => feed.asset === asset)?.sources[0];
    const quote = await source?.read(signal);
    return { price: quote?.price.toFixed(), at: quote?.at };
  };

  test("a pair gives a time-weighted native price, multiplied by the stablecoin's price", async () => {
    await mine(database(), headerOf(0), []);
    await trade(2, 1, 50, '1000');
    await trade(2, 2, 20, '2000');
    await trade(2, 3, 5, '8000');
    // 10 minutes at 1000, 15 at 2000, 5 at 8000.
    const price = decimal('80000').div('30').times('1.01').toFixed();
    assert.deepEqual(await read({ native: pairFeed(2) }, 'BELL'), { price, at: noon });
  });

  test('a token gets its price from its pair and the native price, whether it is token0 or token1', async () => {
    await mine(database(), headerOf(0), []);
    await insertPrice(database(), {
      asset: 'BELL',
      price: decimal('2500'),
      observedAt: noon,
      source: 'test',
    });
    await trade(4, 1, 60, '0.05');
    // The price of BELL/DOGE is in DOGE: how many DOGE one BELL costs.
    await trade(5, 1, 60, '25000');
    const native = {
      everySeconds: 30,
      maxAgeSeconds: 600,
      sources: [{ type: 'fixed' as const, price: '1' }],
    };
    const tokens = { SOL: pairFeed(4), DOGE: pairFeed(5) };
    assert.equal((await read({ native, tokens }, 'SOL')).price, '125');
    assert.equal((await read({ native, tokens }, 'DOGE')).price, '0.1');
  });

  test('a pair with too short a history gives no price, and neither does a chain without blocks', async () => {
    await trade(2, 1, 29, '1000');
    await assert.rejects(read({ native: pairFeed(2) }, 'BELL'), /no block is stored yet/);
    await mine(database(), headerOf(0), []);
    await assert.rejects(
      read({ native: pairFeed(2) }, 'BELL'),
      /has stored reserves for less than 30 minutes/,
    );
  });

  test('a pair gives no price of a time from which retention has deleted states', async () => {
    await mine(database(), headerOf(0), []);
    await trade(2, 1, 60, '1000');
    await raisePruneMark(database(), 'pair_state', new Date(noon.getTime() - 30 * MINUTE_MS));
    assert.equal((await read({ native: pairFeed(2) }, 'BELL')).price, '1010');
    await assert.rejects(
      read({ native: pairFeed(2, 31) }, 'BELL'),
      /no longer has all reserves of 31 minutes/,
    );
  });

  test('a token priced by a pair with the native coin has no price without a native price', async () => {
    await mine(database(), headerOf(0), []);
    await trade(4, 1, 60, '0.05');
    const native = {
      everySeconds: 30,
      maxAgeSeconds: 600,
      sources: [{ type: 'fixed' as const, price: '1' }],
    };
    await assert.rejects(
      read({ native, tokens: { SOL: pairFeed(4) } }, 'SOL'),
      /the native coin has no price/,
    );
  });
});

test('the names of sources are unique and hold no secrets, and each source has a maximum age', () => {
  const page = { type: 'http' as const, url: 'https://user:pw@prices.example/KEY', path: '$' };
  const config = loaded({
    native: {
      ...{ everySeconds: 30, maxAgeSeconds: 600 },
      sources: [
        page,
        { ...page, maxAgeSeconds: 60 },
        { type: 'coingecko', id: 'ethereum', apiKey: 'KEY', plan: 'demo' },
        { type: 'binance', symbol: 'ETHUSDT' },
        { type: 'chainlink', address: addressOf('9'), heartbeatSeconds: 3_600 },
        { type: 'pair', pair: 2, minutes: 30 },
        { type: 'fixed', price: '1' },
      ],
    },
  });
  const nodes = { ask: () => Promise.reject(new Error('no node is asked here')) };
  const never = () => Promise.reject(new Error('no database is asked here'));
  const nowhere = {
    ...{
      kind: 'embedded' as const,
      query: never,
      each: never,
      transaction: never,
      script: never,
      session: never,
      close: never,
    },
  };
  const [feed] = createFeeds(config, { database: nowhere, nodes, pages, clock: createTestClock() });
  assert.deepEqual(
    feed?.sources.map(({ name, maxAgeMs }) => [name, maxAgeMs]),
    [
      ['http:prices.example', 600_000],
      ['http:prices.example#2', 60_000],
      ['coingecko:ethereum', 600_000],
      ['binance:ETHUSDT', 600_000],
      // A round may arrive five minutes after its heartbeat.
      [`chainlink:${addressOf('9')}`, 3_900_000],
      ['pair:2', 600_000],
      ['fixed', 600_000],
    ],
  );
  assert.equal(readsContracts(config), true);
  assert.equal(readsContracts(loaded({ native: pairFeed(2) })), false);
});
