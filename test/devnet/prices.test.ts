import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { startPriceFeed } from '../../devnet/price-feed.ts';
import { PART_MAX, usdPriceAt } from '../../devnet/prices.ts';

const middles = { ETH: 2_500, RWD: 0.5, SOL: 150, DOGE: 0.16, XRP: 0.6 } as const;
const symbols = ['ETH', 'RWD', 'SOL', 'DOGE', 'XRP'] as const;

test('a price stays near its middle at any time, moves within seconds, and never jumps', () => {
  const times = fc.date({ min: new Date('2020-01-01'), max: new Date('2100-01-01'), noInvalidDate: true });
  fc.assert(
    fc.property(fc.constantFrom(...symbols), times, (symbol, time) => {
      const price = usdPriceAt(symbol, time);
      assert.ok(Math.abs(price / middles[symbol] - 1) <= PART_MAX);
      const later = usdPriceAt(symbol, new Date(time.getTime() + 5_000));
      assert.notEqual(later, price);
      assert.ok(Math.abs(later / price - 1) < 0.01);
    }),
  );
});

test('a dollar coin is worth a dollar at any time', () => {
  for (const symbol of ['USDT', 'USDC'] as const)
    for (const time of ['2026-03-01T12:00:00Z', '2026-03-02T01:02:03Z'])
      assert.equal(usdPriceAt(symbol, new Date(time)), 1);
});

test('the feed answers the price of now, and nothing for what it does not know', async () => {
  const now = new Date('2026-03-01T12:00:00Z');
  const feed = await startPriceFeed({ preferredPort: 0, now: () => now });
  try {
    const answer = await fetch(`${feed.url}/ETH`);
    const { symbol, price, at } = Object(await answer.json());
    assert.deepEqual([answer.status, symbol, at], [200, 'ETH', now.toISOString()]);
    assert.ok(Math.abs(price / usdPriceAt('ETH', now) - 1) < 1e-6);
    for (const path of ['/', '/BTC', '/ETH/USD', '/constructor', '/%45'])
      assert.equal((await fetch(`${feed.url}${path}`)).status, 404, path);
    assert.equal((await fetch(`${feed.url}/ETH`, { method: 'POST' })).status, 404);
  } finally {
    await feed.stop();
    await feed.stop();
  }
});
