/**
 * Statistics of swap pairs as a client gets them (spec 4.3, 7).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal } from '../../../src/core/decimal.ts';
import { toBytes } from '../../../src/core/hex.ts';
import type { BlockHeader } from '../../../src/domain/block.ts';
import type { ValuedPair } from '../../../src/domain/pair.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { insertReadings } from '../../../src/store/market/pair-readings.ts';
import { insertPairStates } from '../../../src/store/market/pair-states.ts';
import { advanceBackfill, findBackfill, followPairs } from '../../../src/store/market/pairs.ts';
import { insertSwaps, type PricedSwap } from '../../../src/store/market/swaps.ts';
import { insertPrice } from '../../../src/store/prices/prices.ts';
import { addressOf, hashOf, headerOf, later, mine, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { addFollowedPair } from '../../kit/pair-story.ts';
import { createApiStory } from '../api-story.ts';

const coins = (count: number) => BigInt(count) * 10n ** 18n;
const HOUR_MS = 3_600_000;

const reward: ValuedPair = {
  ...{ id: 1, name: 'RWD/ETH', address: addressOf(11), token0: addressOf(21), token1: addressOf(20) },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 0 },
  ...{ value0: undefined, value1: { asset: 'ETH' }, areIndependent: false },
};
const stable: ValuedPair = {
  ...{ id: 2, name: 'USDT/ETH', address: addressOf(12), token0: addressOf(22), token1: addressOf(20) },
  ...{ token0Decimals: 6, token1Decimals: 18, fee: 300, usdValueFrom: 0, rewardPid: 1 },
  ...{ value0: { fixed: decimal('1') }, value1: { asset: 'ETH' }, areIndependent: true },
};
const worthless: ValuedPair = { ...reward, id: 3, name: 'A/B', value1: undefined };

onSampledDatabase(import.meta.url, ({ database }) => {
  const tell = () => createApiStory(database(), undefined, undefined, { pairs: [reward, stable, worthless] });
  const price = (usd: string, ms = 0) =>
    insertPrice(database(), { asset: 'ETH', price: decimal(usd), observedAt: later(ms), source: 'test' });

  test('vol24h is the exact sum of the swaps after 24 hours ago and up to now', async () => {
    const { ask } = tell();
    const before = (ms: number) => later(-ms);
    await swapAt(before(24 * HOUR_MS), '1000000');
    await swapAt(before(24 * HOUR_MS - 1), '0.1');
    await swapAt(before(12 * HOUR_MS), '0.000000000000000000000000000000000001');
    await swapAt(noon, '0.2');
    await swapAt(later(1), '2000000');
    const { status, text } = await ask('GET', '/api/swap/volume/1');
    assert.equal(status, 200);
    assert.equal(text, '{"vol24h":0.300000000000000000000000000000000001,"pair":"RWD/ETH"}');
  });

  test('the newest swaps of a pair are listed exactly, newest first', async () => {
    const { ask } = tell();
    await swapAt(later(-3_000), '0.1');
    await swapAt(later(-1_000), '0.3');
    await swapAt(later(-2_000), '0.2');
    await swapAt(noon, '9', 2);
    const { text } = await ask('GET', '/api/swap/swaps/1?limit=2');
    const swaps = JSON.parse(text) as { usd_value: number; mined_at: string; amount0_in: string }[];
    assert.deepEqual(
      swaps.map(({ usd_value }) => usd_value),
      [0.3, 0.2],
    );
    assert.equal(swaps[0]?.mined_at, later(-1_000).toISOString());
    assert.match(swaps[0]?.amount0_in ?? '', /^\d+$/);
    assert.equal((await ask('GET', '/api/swap/swaps/77')).status, 404);
    assert.equal((await ask('GET', '/api/swap/swaps/1?limit=0')).status, 400);
  });

  test('swaps of one block are listed from its last log to its first, whatever their places in the receipts', async () => {
    const { ask } = tell();
    for (const [usd, ordinal, logIndex] of [
      ['2', 5, 5],
      ['3', 0, 9],
      ['1', 3, 3],
    ] as const)
      await swapAt(noon, usd, 1, { blockNumber: 7, ordinal, logIndex });
    const swaps = (await ask('GET', '/api/swap/swaps/1')).json as { usd_value: number }[];
    assert.deepEqual(
      swaps.map(({ usd_value }) => usd_value),
      [3, 2, 1],
    );
  });

  test('until its 24 hours are read, a volume is cached for 5 seconds and the headers say so', async () => {
    const { ask, clock } = tell();
    const see = async (path: string) => {
      const { headers, json } = await ask('GET', path);
      const body = Array.isArray(json) ? json[1] : json;
      return [body.vol24h, headers['chainbell-volume-complete'], headers['cache-control']];
    };
    const both = async () => [await see('/api/swap/volume/2'), await see('/api/swap/pairs')];
    const growing = (usd: number) => [usd, 'false', 'public, max-age=5'];
    assert.deepEqual(await both(), [growing(0), growing(0)], 'nothing is followed');
    const tip = headerOf(2);
    await follow(tip);
    await price('1800');
    await stateOf(2, { reserve0: 2_000_000_000n, reserve1: coins(1), price: '2000' });
    await supplyOf(2, coins(2));
    await swapAt(noon, '12.5', 2);
    assert.deepEqual(await both(), [growing(0), growing(0)], 'kept');
    clock.advance(5_000);
    assert.deepEqual(await both(), [growing(12.5), growing(12.5)], 'the past is being read');
    await database().transaction((tx) =>
      advanceBackfill(tx, { pairIds: [1, 2, 3], number: 1, hash: tip.parentHash }, undefined),
    );
    clock.advance(5_000);
    assert.deepEqual(await both(), [
      [12.5, 'true', 'public, max-age=60'],
      [12.5, 'true', 'public, max-age=60, stale-while-revalidate=60'],
    ]);
    clock.advance(tip.minedAt.getTime() + 300_000 - clock.now().getTime());
    assert.equal((await see('/api/swap/volume/2'))[1], 'true');
    clock.advance(120_000);
    assert.deepEqual(await both(), [growing(12.5), growing(12.5)], 'no further block is stored');
    const lead = (head: number, problem: string | null) =>
      database().query(sql`
        insert into process (id, roles, version, host, pid, started_at, seen_at, beat, leads, head, problem)
        values ('one', '{follower}', '1', 'here', 1, now(), now(), 1, true, ${head}, ${problem})
        on conflict (id) do update set head = excluded.head, problem = excluded.problem`);
    for (const { head, problem, isComplete } of [
      { head: tip.number, problem: null, isComplete: true },
      { head: tip.number, problem: 'no node answers', isComplete: false },
      { head: tip.number + 1, problem: null, isComplete: false },
    ]) {
      await lead(head, problem);
      clock.advance(120_000);
      assert.equal((await see('/api/swap/volume/2'))[1], String(isComplete));
      const { headers } = await ask('GET', '/api/swap/lp-value/2');
      assert.equal(headers['chainbell-price-stale'], String(!isComplete));
    }
  });

  test('with maxAgeSeconds, an older price is not used for LP tokens', async () => {
    const aging: ValuedPair = { ...reward, value1: { asset: 'ETH', maxAgeMs: 600_000 } };
    const story = () => createApiStory(database(), undefined, undefined, { pairs: [aging] });
    await price('2000');
    await stateOf(1, { reserve0: coins(400), reserve1: coins(3), price: '0.0075' });
    await supplyOf(1, coins(6));
    const askAfter = async (ms: number) => {
      const { ask, clock } = story();
      clock.advance(ms);
      return (await ask('GET', '/api/swap/lp-value/1')).status;
    };
    assert.deepEqual([await askAfter(600_000), await askAfter(600_001)], [200, 404]);
  });

  test('without swaps in the window vol24h is 0', async () => {
    const { ask } = tell();
    assert.equal((await ask('GET', '/api/swap/volume/2')).text, '{"vol24h":0,"pair":"USDT/ETH"}');
  });

  test('an LP value has the latest price and the fair value of one LP token', async () => {
    const { ask } = tell();
    await price('1800');
    // The pool says 2000, the feed 1800: 2 · √(2000·1 · 1·1800) / 2.
    await stateOf(2, { reserve0: 2_000_000_000n, reserve1: coins(1), price: '2000' });
    await supplyOf(2, coins(2));
    const { text, headers } = await ask('GET', '/api/swap/lp-value/2');
    assert.equal(headers['chainbell-price-stale'], 'true', 'no block is stored');
    const root = '1897.366596101027599199336126659631120232';
    assert.equal(text, `{"latestPrice":2000,"lpPriceInUsd":${root},"pair":"USDT/ETH"}`);
  });

  test('if the other price comes from the pool, both reserves count', async () => {
    const { ask } = tell();
    await price('2000');
    await stateOf(1, { reserve0: coins(400), reserve1: coins(3), price: '0.0075' });
    await supplyOf(1, coins(6));
    const { text } = await ask('GET', '/api/swap/lp-value/1');
    assert.equal(text, '{"latestPrice":0.0075,"lpPriceInUsd":2000,"pair":"RWD/ETH"}');
  });

  test('an LP token of tokens without prices is worth 0', async () => {
    const { ask } = tell();
    await stateOf(3, { reserve0: coins(4), reserve1: coins(2), price: '0.5' });
    await supplyOf(3, coins(6));
    assert.equal(
      (await ask('GET', '/api/swap/lp-value/3')).text,
      '{"latestPrice":0.5,"lpPriceInUsd":0,"pair":"A/B"}',
    );
  });

  test('while the state, the supply or an expected price is missing, there is no LP value', async () => {
    const { ask } = tell();
    const notFound = { statusCode: 404, statusMessage: 'Price not found' };
    assert.deepEqual((await ask('GET', '/api/swap/lp-value/1')).json, notFound);
    await stateOf(1, { reserve0: coins(4), reserve1: coins(2), price: '0.5' });
    await price('2000');
    assert.deepEqual((await ask('GET', '/api/swap/lp-value/1')).json, notFound);
  });

  test('errors have the wording of the specification', async () => {
    const { ask } = tell();
    const cases: Record<string, [number, string]> = {
      '/api/swap/volume': [400, 'Missing id parameter'],
      '/api/swap/volume/': [400, 'Missing id parameter'],
      '/api/swap/lp-value/': [400, 'Missing id parameter'],
      '/api/swap/volume/1.5': [400, 'Invalid id parameter'],
      '/api/swap/lp-value/one': [400, 'Invalid id parameter'],
      '/api/swap/volume/0x1': [400, 'Invalid id parameter'],
      '/api/swap/volume/7': [404, 'Pair not found'],
      '/api/swap/volume/-1': [404, 'Pair not found'],
      '/api/swap/volume/99999999999999999999': [404, 'Pair not found'],
      '/api/swap/lp-value/7': [404, 'Price not found'],
      '/api/swap/volume-history/7': [404, 'Pair not found'],
      '/api/swap/price-history/1?limit=0': [400, 'Invalid limit parameter'],
      '/api/swap/volume-history/1?limit=8785': [400, 'Invalid limit parameter'],
      '/api/swap/volume-history/1?limit=1e2': [400, 'Invalid limit parameter'],
      '/api/swap/volume-history/1?limit=1&limit=2': [400, 'Invalid limit parameter'],
      '/api/swap/price-history/1?from=yesterday': [400, 'Invalid from parameter'],
      '/api/swap/price-history/1?from=2026-02-30': [400, 'Invalid from parameter'],
      '/api/swap/price-history/1?from=2026-02-01T12:00': [400, 'Invalid from parameter'],
      '/api/swap/volume-history/1?from=0000-01-01': [400, 'Invalid from parameter'],
      '/api/swap/volume-history/1?from=2026-02-02&until=2026-02-01': [
        400,
        'Invalid from parameter: it is after the end',
      ],
      '/api/swap/volume-history/1?to=9999-12-31T23:59:59Z': [400, 'Invalid to parameter'],
    };
    for (const [path, [statusCode, statusMessage]] of Object.entries(cases)) {
      const { status, json } = await ask('GET', path);
      assert.equal(status, statusCode, path);
      assert.deepEqual(json, { statusCode, statusMessage }, path);
    }
    for (const what of ['volume', 'price']) {
      const both = `/api/swap/${what}-history/1?to=2026-01-01&until=2026-01-01`;
      assert.equal((await ask('GET', both)).status, 400);
      const [to, until] = await Promise.all(
        ['to', 'until'].map((name) => ask('GET', `/api/swap/${what}-history/1?limit=2&${name}=2026-01-01`)),
      );
      assert.deepEqual(to?.json, until?.json);
    }
    for (const edge of [
      'from=&to=&limit=',
      'from=&until=&limit=',
      'to=1970-01-01&limit=8784',
      'from=2999-12-31T23:59:59.999Z',
    ])
      for (const what of ['volume', 'price'])
        assert.deepEqual((await ask('GET', `/api/swap/${what}-history/1?${edge}`)).json, [], edge);
    assert.equal((await ask('GET', '/api/swap/volume/001')).status, 200, 'leading zeros are the same number');
  });

  test('the list contains every pair with its configuration and statistics', async () => {
    const { ask } = tell();
    await price('2000');
    await stateOf(1, { reserve0: coins(400), reserve1: coins(3), price: '0.0075' });
    await supplyOf(1, coins(6));
    await swapAt(noon, '12.5');
    const { json } = await ask('GET', '/api/swap/pairs');
    assert.ok(Array.isArray(json));
    assert.deepEqual(json[0], {
      ...{ id: 1, name: 'RWD/ETH', address: addressOf(11), token0: addressOf(21), token1: addressOf(20) },
      ...{ token0_decimals: 18, token1_decimals: 18, fee: 300, usd_value_from: 1, reward_pid: 0 },
      ...{ reserve0: '400000000000000000000', reserve1: '3000000000000000000' },
      ...{ lp_supply: '6000000000000000000', latestPrice: 0.0075, lpPriceInUsd: 2000, vol24h: 12.5 },
      updated_at: later(1000).toISOString(),
    });
    assert.deepEqual(
      json.map(({ id, latestPrice, vol24h }: Record<string, unknown>) => [id, latestPrice, vol24h]),
      [
        [1, 0.0075, 12.5],
        [2, null, 0],
        [3, null, 0],
      ],
    );
  });

  test('the list shows all pairs in one state of the chain, whichever statement a reorg is committed after', async () => {
    for (let statements = Infinity, last = 1; last < statements; last += 1) {
      for (const id of [1, 2, 3]) await stateOf(id, { reserve0: 1n, reserve1: 1n, price: '1', ms: last });
      for (const id of [1, 2, 3]) await swapAt(noon, '1', id);
      let count = 0;
      const query = async <Row>(statement: Sql) => {
        const rows = await database().query<Row>(statement);
        count += 1;
        if (count === last)
          await database().query(sql`
            with states as (update pair_state set reserve0 = reserve0 + 1)
            update swap set usd_value = usd_value + 1`);
        return rows;
      };
      const story = createApiStory({ ...database(), query }, undefined, undefined, {
        pairs: [reward, stable, worthless],
      });
      const { json } = await story.ask('GET', '/api/swap/pairs');
      statements = count;
      const shown = (json as { reserve0: string; vol24h: number }[]).map((one) =>
        JSON.stringify([one.reserve0, one.vol24h]),
      );
      assert.deepEqual(shown, Array(3).fill(shown[0]), String(last));
    }
  });

  test('histories have one entry for each hour in UTC', async () => {
    const { ask } = tell();
    for (const [ms, usd] of [
      [-2 * HOUR_MS, '1'],
      [-HOUR_MS - 1, '2'],
      [-HOUR_MS, '4'],
      [-1, '8'],
    ] as const) {
      await swapAt(later(ms), usd);
      await stateOf(1, { reserve0: 1n, reserve1: 1n, price: usd, ms });
    }
    const hours = (...rows: [string, string, unknown][]) =>
      rows.map(([hour, key, value]) => ({ hour, [key]: value }));
    const volumes = (await ask('GET', '/api/swap/volume-history/1')).json;
    assert.deepEqual(volumes, [
      { hour: '2025-11-20T10:00:00.000Z', volume: 3, swaps: 2 },
      { hour: '2025-11-20T11:00:00.000Z', volume: 12, swaps: 2 },
    ]);
    const prices = (await ask('GET', '/api/swap/price-history/1')).json;
    assert.deepEqual(
      prices,
      hours(['2025-11-20T10:00:00.000Z', 'price', 2], ['2025-11-20T11:00:00.000Z', 'price', 8]),
    );
    const last = (await ask('GET', '/api/swap/price-history/1?limit=1')).json;
    assert.deepEqual(last, hours(['2025-11-20T11:00:00.000Z', 'price', 8]), 'the newest hours unless told');
    const from = '2025-11-20T10:00:00Z';
    const first = (await ask('GET', `/api/swap/price-history/1?limit=1&from=${from}`)).json;
    assert.deepEqual(first, hours(['2025-11-20T10:00:00.000Z', 'price', 2]));
  });

  test('histories of a kind are computed one after the other, and beyond the 100 that wait there is 503', async () => {
    await stateOf(1, { reserve0: coins(7), reserve1: coins(1), price: '1', ms: -9 * HOUR_MS });
    const [gate, second] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
    let underWay = 0;
    const query = async <Row>(statement: Sql) => {
      underWay += 1;
      if (underWay > 1) second.resolve('two at once');
      await gate.promise;
      const rows = await database().query<Row>(statement);
      underWay -= 1;
      return rows;
    };
    const { ask } = createApiStory({ ...database(), query }, undefined, undefined, { pairs: [reward] });
    const answers = Array.from({ length: 102 }, (_, index) =>
      ask('GET', `/api/swap/value-history/1?limit=${index + 1}`),
    );
    await Promise.race([...answers, second.promise]);
    gate.resolve();
    const refused = (await Promise.all(answers)).filter(({ status }) => status !== 200);
    assert.deepEqual(
      refused.map(({ status, headers, json }) => [status, headers['retry-after'], json]),
      [[503, '5', { statusCode: 503, statusMessage: 'Service Unavailable' }]],
    );
    assert.equal(await Promise.race([second.promise, Promise.resolve('one at a time')]), 'one at a time');
  });

  test('the value of a pair is that of its reserves at the end of each hour, at the prices in force then', async () => {
    const { ask } = tell();
    await follow({ ...headerOf(2), minedAt: noon });
    for (const [usd, ms] of [
      ['2000', -3 * HOUR_MS],
      ['3000', -HOUR_MS - 1],
    ] as const)
      await insertPrice(database(), {
        asset: 'ETH',
        price: decimal(usd),
        observedAt: later(ms),
        source: 'test',
      });
    await stateOf(1, { reserve0: coins(7), reserve1: coins(1), price: '1', ms: -4 * HOUR_MS });
    await stateOf(1, { reserve0: coins(7), reserve1: coins(9), price: '1', ms: -3 * HOUR_MS + 1 });
    await stateOf(1, { reserve0: coins(7), reserve1: coins(2), price: '1', ms: -2 * HOUR_MS - 1 });
    const values = (await ask('GET', '/api/swap/value-history/1')).json;
    assert.deepEqual(values, [
      { hour: '2025-11-20T08:00:00.000Z', value: null, reserves_known: true },
      { hour: '2025-11-20T09:00:00.000Z', value: 8_000, reserves_known: true },
      { hour: '2025-11-20T10:00:00.000Z', value: 12_000, reserves_known: true },
      { hour: '2025-11-20T11:00:00.000Z', value: 12_000, reserves_known: true },
    ]);
    const from = '2025-11-20T10:00:00Z';
    const one = (await ask('GET', `/api/swap/value-history/1?limit=1&from=${from}`)).json;
    assert.deepEqual(
      one,
      [{ hour: '2025-11-20T10:00:00.000Z', value: 12_000, reserves_known: true }],
      'the state before the range counts',
    );
    const none = (await ask('GET', '/api/swap/value-history/2')).json;
    assert.deepEqual(none, []);
    const worthlessValues = (await ask('GET', '/api/swap/value-history/3')).json;
    assert.deepEqual(worthlessValues, []);
  });

  test('while following is behind, histories end with the newest stored block, and say so', async () => {
    const { ask, clock } = tell();
    await price('2000', -9 * HOUR_MS);
    await follow({ ...headerOf(2), minedAt: later(-2 * HOUR_MS) });
    await stateOf(1, { reserve0: coins(7), reserve1: coins(1), price: '1', ms: -4 * HOUR_MS });
    const see = async (kind: string) => {
      const { json, headers } = await ask('GET', `/api/swap/${kind}-history/1`);
      const names = ['chainbell-volume-complete', 'chainbell-price-stale', 'cache-control'];
      return { json, headers: names.map((name) => headers[name]) };
    };
    const [none, brief, usual] = [undefined, 'public, max-age=5', 'public, max-age=60'];
    const values = async () => {
      const { json, headers } = await see('value');
      return { headers, known: (json as { reserves_known: boolean }[]).map((one) => one.reserves_known) };
    };
    assert.deepEqual(await values(), { headers: [none, 'true', brief], known: [true, true, false, false] });
    assert.deepEqual((await see('price')).headers, [none, 'true', brief]);
    assert.deepEqual((await see('volume')).headers, ['false', none, brief]);
    await database().query(sql`update block set mined_at = ${noon}`);
    await database().query(sql`update pair set backfill_number = null`);
    clock.advance(5_000);
    assert.deepEqual(await values(), { headers: [none, 'false', usual], known: Array(5).fill(true) });
    assert.deepEqual((await see('price')).headers, [none, 'false', usual]);
    assert.deepEqual((await see('volume')).headers, ['true', none, usual]);
  });

  /** The hourly values of pair 1, which is left out for 10 hours and then for 34. The newest 24 hours of each are read if backfills end. */
  async function valuesWithGaps({ isRead }: { isRead: boolean }): Promise<(number | null)[]> {
    const { ask } = tell();
    await mine(database(), { ...headerOf(7), minedAt: noon }, []);
    await price('2000', -100 * HOUR_MS);
    const followAt = (pairs: readonly ValuedPair[], number: number, ms: number) =>
      database().transaction(async (tx) => {
        const header = { ...headerOf(number), minedAt: later(ms) };
        await followPairs(tx, pairs, { header, now: later(ms) });
        const backfill = await findBackfill(
          tx,
          pairs.map(({ id }) => id),
        );
        if (isRead && backfill !== undefined) assert.ok(await advanceBackfill(tx, backfill, undefined));
      });
    await followAt([reward], 2, -60 * HOUR_MS);
    await stateOf(1, { reserve0: coins(7), reserve1: coins(1), price: '1', ms: -50 * HOUR_MS });
    await followAt([], 3, -49 * HOUR_MS);
    await followAt([reward], 4, -39 * HOUR_MS);
    await followAt([], 5, -36 * HOUR_MS);
    await followAt([reward], 6, -2 * HOUR_MS);
    await stateOf(1, { reserve0: coins(7), reserve1: coins(2), price: '1', ms: -3 * HOUR_MS });
    const values = (await ask('GET', '/api/swap/value-history/1')).json as {
      value: number | null;
      reserves_known: boolean;
    }[];
    for (const { value, reserves_known } of values) assert.equal(reserves_known, value !== null);
    return values.map(({ value }) => value);
  }

  test('the values of a pair end where it was no longer followed, unless the backfill has read the gap', async () => {
    assert.deepEqual(await valuesWithGaps({ isRead: true }), [
      ...Array(14).fill(4_000),
      ...Array(33).fill(null),
      ...Array(3).fill(8_000),
    ]);
  });

  test('a gap stays if the pair is taken out before the backfill has read it', async () => {
    assert.deepEqual(await valuesWithGaps({ isRead: false }), [
      4_000,
      ...Array(46).fill(null),
      ...Array(3).fill(8_000),
    ]);
  });

  /** A follower of all pairs has stored this block. */
  async function follow(header: BlockHeader): Promise<void> {
    await database().transaction(async (tx) => {
      await followPairs(tx, [reward, stable, { ...worthless, address: addressOf(13) }], {
        header,
        now: noon,
      });
      await tx.query(sql`
        insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
        values (${header.number}, ${toBytes(header.hash)}, ${toBytes(header.parentHash)}, ${header.minedAt}, true,
          ${header.minedAt})`);
    });
  }

  let swapCount = 0;
  async function swapAt(
    minedAt: Date,
    usd: string,
    pairId = 1,
    parts: Partial<PricedSwap> = {},
  ): Promise<void> {
    swapCount += 1;
    const log = { txHash: hashOf(swapCount), ordinal: 0, logIndex: 0, ...parts };
    const place = { blockNumber: swapCount, ...log, pairId, minedAt };
    const moved = { amount0In: 1n, amount1In: 0n, amount0Out: 0n, amount1Out: 1n };
    const price = { usdValue: decimal(usd), priceId: undefined };
    await database().transaction((tx) => insertSwaps(tx, [{ ...place, ...moved, price }]));
  }

  let stateCount = 0;
  async function stateOf(
    pairId: number,
    state: { reserve0: bigint; reserve1: bigint; price: string; ms?: number },
  ): Promise<void> {
    stateCount += 1;
    const { ms = 1000, price, ...reserves } = state;
    const place = { pairId, blockNumber: stateCount, minedAt: later(ms) };
    const none = { supplyChange: 0n, liquidityK: undefined };
    await addFollowedPair(database(), pairId);
    await database().transaction((tx) =>
      insertPairStates(tx, [{ ...place, ...reserves, price: decimal(price), ...none }]),
    );
  }

  async function supplyOf(pairId: number, totalSupply: bigint): Promise<void> {
    const reading = { pairId, totalSupply, kLast: 0n, isFeeOn: false, reserve0: 0n, reserve1: 0n };
    await database().transaction((tx) => insertReadings(tx, [reading], stateCount));
  }
});
