/**
 * Every public endpoint of the specification by its path, with the cache time of spec 8.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal } from '../../../src/core/decimal.ts';
import { toBytes, zeroAddress } from '../../../src/core/hex.ts';
import type { ValuedPair } from '../../../src/domain/pair.ts';
import type { PricedAsset } from '../../../src/domain/price-book.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { insertReadings } from '../../../src/store/market/pair-readings.ts';
import { insertPairStates } from '../../../src/store/market/pair-states.ts';
import { followPairs } from '../../../src/store/market/pairs.ts';
import { insertAwards } from '../../../src/store/points/awards.ts';
import { awardOf } from '../../kit/awards.ts';
import { addressOf, alice, headerOf, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory } from '../api-story.ts';

const value = { fixed: decimal('2') };
const pair: ValuedPair = {
  ...{ id: 1, name: 'RWD/ETH', address: addressOf(11), token0: addressOf(21), token1: addressOf(20) },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 0 },
  ...{ value0: undefined, value1: value, areIndependent: false },
};
const priced: PricedAsset = { asset: 'ETH', origin: { kind: 'fixed', usd: decimal('2') } };
const prices = { native: priced, reward: priced, tokens: new Map([['eth', priced]]) };
const terms = {
  ...{ nativeSymbol: 'ETH', initialWei: 5n, multicall3: addressOf(1), staking: undefined, vesting: {} },
};
const supply = {
  terms,
  read: async () => ({
    ...{ at: noon, block: headerOf(1), nodeName: 'http://node', method: 'multicall3' as const },
    balances: new Map([[zeroAddress, { wei: 1n, at: noon }]]),
  }),
};

const month = noon.toISOString().slice(0, 7);
const kept = (seconds: number) => `public, max-age=${seconds}`;
const SPECIFIED = {
  [`/api/points/leaderboard?month=${month}`]: kept(300),
  [`/api/points/user?month=${month}&user=${alice}`]: kept(300),
  [`/api/points/user-by-category?month=${month}&user=${alice}`]: kept(30),
  [`/api/points/user-by-current-month?user=${alice}`]: kept(60),
  [`/api/points/vs-last-month?user=${alice}`]: kept(60),
  '/api/price/native': kept(60),
  '/api/price/reward': kept(60),
  '/api/price/eth': kept(60),
  '/api/swap/volume/1': kept(60),
  '/api/swap/lp-value/1': `${kept(60)}, stale-while-revalidate=60`,
  '/api/native/supply-info': kept(120),
};

onSampledDatabase(import.meta.url, ({ database }) => {
  test('each public endpoint is cached as spec 8 says, and supports age, 304 and HEAD', async () => {
    await database().transaction((tx) => insertAwards(tx, [awardOf({ awardedAt: noon })]));
    const place = { pairId: 1, blockNumber: 1, minedAt: noon, reserve0: 4n, reserve1: 4n };
    const state = { ...place, price: decimal('1'), supplyChange: 0n, liquidityK: undefined };
    await database().transaction((tx) => insertPairStates(tx, [state]));
    const reading = { pairId: 1, totalSupply: 4n, kLast: 0n, isFeeOn: false, reserve0: 4n, reserve1: 4n };
    await database().transaction((tx) => insertReadings(tx, [reading], 1));
    await database().transaction(async (tx) => {
      await followPairs(tx, [pair], { header: headerOf(1), now: noon });
      const { hash, parentHash, minedAt } = headerOf(1);
      await tx.query(sql`
        insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
        values (1, ${toBytes(hash)}, ${toBytes(parentHash)}, ${minedAt}, true, ${minedAt})`);
    });
    const { ask, clock } = createApiStory(database(), undefined, undefined, {
      ...{ prices, supply, pairs: [pair] },
    });
    clock.advance(noon.getTime() - clock.now().getTime());
    for (const [path, control] of Object.entries(SPECIFIED)) {
      const { status, headers, text } = await ask('GET', path);
      assert.deepEqual([status, headers['cache-control'], headers.age], [200, control, '0'], path);
      const { etag = '' } = headers;
      const again = await ask('GET', path, { headers: { 'if-none-match': etag } });
      assert.deepEqual([again.status, again.text, again.headers.etag], [304, '', etag], path);
      const head = await ask('HEAD', path);
      assert.equal(head.text, '', path);
      assert.deepEqual({ ...head.headers, ...nothing }, { ...headers, ...nothing }, path);
      assert.equal(head.headers['content-length'], String(Buffer.byteLength(text)), path);
    }
  });
});

/** The part that differs between two requests. */
const nothing = { date: '', 'x-request-id': '' };
