import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import { readBalanceWei } from '../../devnet/wallet.ts';
import { zeroAddress } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const COIN = 10n ** 18n;

test('the native price is the median of a page, a feed on the chain and a fixed price, and follows their changes', async () => {
  await using chain = await startChain();
  await using place = await createTestDatabase('postgres');
  const aggregator = await chain.deploy('Aggregator', 8);
  const tell = (dollars: bigint) =>
    chain.execute({
      from: chain.accounts[0],
      to: aggregator,
      input: encodeCall({
        contract: 'Aggregator',
        method: 'tell',
        values: [dollars * 10n ** 8n, BigInt(Math.floor(Date.now() / 1000))],
      }),
    });
  await tell(2_501n);
  let price = '2500.000000000000000000001';
  await using page = await startReceiver({ answer: () => ({ body: `{"data":[{"usd":${price}}]}` }) });
  const url = `http://127.0.0.1:${page.port}/price`;
  await using service = await startTestService({
    database: place,
    rpc: [chain.url],
    roles: ['prices', 'api'],
    sections: {
      prices: {
        native: {
          ...{ everySeconds: 1, maxAgeSeconds: 600 },
          sources: [
            { type: 'http', url, path: '$.data[0].usd' },
            { type: 'chainlink', address: aggregator, heartbeatSeconds: 3_600 },
            { type: 'fixed', price: '2499' },
          ],
        },
      },
    },
  });
  const ask = async (path: string) => (await fetch(`${service.apiUrl}${path}`)).text();
  const accepted = async () =>
    (
      await service.database.query<{ price: string }>(sql`select price from price order by id desc limit 1`)
    )[0]?.price;
  await waitUntil(async () => (await accepted()) === price);
  assert.match(await ask('/api/price/native'), /"price":2500\.000000000000000000001,"asset":"ETH"/);
  const status = JSON.parse(await ask('/status')) as {
    prices: { asset: string; stale: boolean; sources: { source: string; verdict: string }[] }[];
  };
  assert.deepEqual(
    status.prices.map(({ asset, stale, sources }) => [asset, stale, sources.map(({ verdict }) => verdict)]),
    [['ETH', false, ['used', 'used', 'used']]],
  );
  price = '9999';
  await waitUntil(async () => (await accepted()) === '2500');
  await tell(2_510n);
  await waitUntil(async () => (await accepted()) === '2504.5');
  const metrics = await (await fetch(service.metricsUrl)).text();
  assert.match(metrics, /chainbell_price_stale\{asset="ETH"\} 0/);
  assert.match(
    metrics,
    /chainbell_price_observations_total\{asset="ETH",source="http:127[^"]*",verdict="outlier"\} [1-9]/,
  );
});

test('of two services on one database, one asks for prices, and the other continues when it ends', async () => {
  await using place = await createTestDatabase('postgres');
  await using page = await startReceiver({ answer: { body: '{"price":7}' } });
  const start = () =>
    startTestService({
      database: place,
      rpc: ['http://127.0.0.1:1'],
      roles: ['prices'],
      sections: {
        prices: {
          native: {
            ...{ everySeconds: 1, maxAgeSeconds: 600 },
            sources: [{ type: 'http', url: `http://127.0.0.1:${page.port}/`, path: '$.price' }],
          },
        },
      },
    });
  const first = await start();
  await page.waitFor(1);
  await using second = await start();
  await page.waitFor(3);
  await first.stop();
  const asked = page.requests.length;
  await page.waitFor(asked + 1);
  const rounds = await second.database.query<{ gap: number }>(sql`
    select extract(epoch from round_at - lag(round_at) over (order by round_at))::float8 as gap
    from price_observation order by round_at offset 1 limit 100`);
  assert.ok(
    rounds.every(({ gap }) => gap >= 1),
    JSON.stringify(rounds),
  );
});

for (const multicall of ['with', 'without'] as const) {
  test(`${multicall} Multicall3 the supply is the chain's own balances at one block`, async () => {
    await using chain = await startChain();
    await using place = await createTestDatabase('postgres');
    const [staking, team, payer] = chain.accounts;
    const advisors = freshAddress();
    await chain.transferNative({ from: payer, to: advisors, valueWei: 123n });
    await chain.transferNative({ from: payer, to: zeroAddress, valueWei: 5n * COIN + 1n });
    const multicall3 = multicall === 'with' ? await chain.deploy('Multicall3') : freshAddress();
    await using service = await startTestService({
      database: place,
      rpc: [chain.url],
      roles: ['api'],
      sections: {
        supply: {
          ...{ initial: '10000000000.5', multicall3 },
          locked: { validatorsStaking: staking, vesting: { team, advisors } },
        },
      },
    });
    const answer = await fetch(`${service.apiUrl}/api/native/supply-info`);
    assert.equal(answer.status, 200);
    const { raw, summary, methodology } = (await answer.json()) as {
      raw: Record<string, string> & { locked_supply_breakdown: { balance_wei: string }[] };
      summary: Record<string, string>;
      methodology: { data_sources: { multicall3_contract: string } };
    };
    const locked = await Promise.all(
      [staking, team, advisors].map((address) => readBalanceWei(chain, address)),
    );
    const burned = await readBalanceWei(chain, zeroAddress);
    assert.ok(burned > 5n * COIN);
    const sum = locked.reduce((total, wei) => total + wei, 0n);
    const circulating = 10_000_000_000n * COIN + COIN / 2n - sum - burned;
    assert.deepEqual(
      raw.locked_supply_breakdown.map(({ balance_wei }) => BigInt(balance_wei)),
      locked,
    );
    assert.equal(raw.burned_supply_wei, String(burned));
    assert.equal(raw.circulating_supply_wei, String(circulating));
    const plain = await (await fetch(`${service.apiUrl}/api/native/supply/circulating`)).text();
    assert.equal(plain, summary.circulating_supply_native);
    assert.equal(
      plain,
      `${circulating / COIN}.${String(circulating % COIN)
        .padStart(18, '0')
        .replace(/0+$/, '')}`,
    );
    assert.match(
      methodology.data_sources.multicall3_contract,
      multicall === 'with' ? /: aggregate3 of getEthBalance/ : /^not used/,
    );
  });
}
