/**
 * The service over a real chain with a Uniswap V2 pair, which is refused if its configuration is wrong.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Service, startService } from '../../src/app/service.ts';
import { loadConfig } from '../../src/config/load.ts';
import { decimal } from '../../src/core/decimal.ts';
import { Fault } from '../../src/core/fault.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import type { Pair } from '../../src/domain/pair.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { CHAIN_ID, SECRET } from '../kit/service.ts';
import { deployPair, type UniswapPair } from '../kit/uniswap.ts';
import { waitUntil } from '../kit/wait.ts';

const ONE = 10n ** 18n;

test('a service whose pair differs from the contract does not start, and names the difference', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const pair = await deployPair(chain, [6, 18]);
  const right = pairOf(pair);
  const [first, second] = pair.tokens;
  const cases: [Partial<Pair>, string][] = [
    [
      { token0: second, token1: first },
      `token0 is ${first} on the chain, but ${second} in the configuration`,
    ],
    [
      { token1: first, token0: second },
      `token1 is ${second} on the chain, but ${first} in the configuration`,
    ],
    [
      { token0Decimals: 7 },
      `token0Decimals is ${right.token0Decimals} on the chain, but 7 in the configuration`,
    ],
    [
      { token1Decimals: 7 },
      `token1Decimals is ${right.token1Decimals} on the chain, but 7 in the configuration`,
    ],
    [{ address: first }, `address ${first} is not the contract of a pair on this chain`],
    [
      { address: chain.accounts[0] },
      `address ${chain.accounts[0]} is not the contract of a pair on this chain`,
    ],
  ];
  const database = parts.use(await createTestDatabase('postgres'));
  for (const [wrong, message] of cases) {
    const refused = start(database, chain, { ...right, ...wrong });
    await assert.rejects(refused, (fault) => {
      assert.ok(fault instanceof Fault);
      assert.equal(fault.code, 'conflict');
      assert.ok(fault.message.includes(`pair 1 (ONE/TWO): ${message}`), fault.message);
      return true;
    });
  }
});

test("a pair that its factory does not know is refused, and the error names the factory's pair", async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const [real, other] = [await deployPair(chain), await deployPair(chain)];
  // A copy of the pair at another address: the same code and storage, and the same factory.
  const copy = `0x${'c0'.repeat(20)}` as const;
  await chain.rpc('anvil_setCode', [copy, await chain.rpc('eth_getCode', [real.address, 'latest'])]);
  for (let slot = 5; slot <= 7; slot += 1) {
    const place = `0x${slot.toString(16).padStart(64, '0')}`;
    const word = await chain.rpc('eth_getStorageAt', [real.address, `0x${slot.toString(16)}`, 'latest']);
    await chain.rpc('anvil_setStorageAt', [copy, place, word]);
  }
  const database = parts.use(await createTestDatabase('postgres'));
  const refused = start(database, chain, { ...pairOf(real), address: copy });
  const message = `is ${real.address} on the chain, but ${copy} in the configuration`;
  await assert.rejects(refused, (fault) => fault instanceof Fault && fault.message.includes(message));
  assert.notEqual(other.address, real.address);
});

test('data of one pair is not continued with another pair of the same id', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const [one, other] = [await deployPair(chain), await deployPair(chain)];
  const database = parts.use(await createTestDatabase('postgres'));
  {
    await using _service = await startWithPair(database, chain, pairOf(one));
    await waitForState(_service);
  }
  await assert.rejects(
    start(database, chain, pairOf(other)),
    /pair 1 \(ONE\/TWO\): its swaps are stored with/,
  );
  await assert.rejects(start(database, chain, { ...pairOf(one), usdValueFrom: 0 }), /usdValueFrom 1/);
});

test('a token that answers differently since its pair is stored only causes a warning at the start', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const pair = pairOf(await deployPair(chain));
  const database = parts.use(await createTestDatabase('postgres'));
  {
    await using service = await startWithPair(database, chain, pair);
    await waitForState(service);
  }
  // decimals() now returns 7: PUSH1 7 PUSH1 0 MSTORE PUSH1 32 PUSH1 0 RETURN.
  await chain.rpc('anvil_setCode', [pair.token0, '0x600760005260206000f3']);
  const warnings: unknown[] = [];
  const warn = (fields: unknown, event?: string) => {
    if (event?.startsWith('pair') === true) warnings.push(fields);
  };
  await using service = await startWithPair(database, chain, pair, { ...silentLog(), warn });
  await waitUntil(() => warnings.length > 0, { describe: 'the warning' });
  const error = `token0Decimals is 7 on the chain, but ${pair.token0Decimals} in the configuration`;
  assert.deepEqual(warnings, [{ pair: 1, error }]);
  await chain.mine();
  const { number } = await chain.head();
  await waitUntil(async () => (await findTip(service.database))?.number === number);
});

test('a service that starts on an old chain soon has price, LP value and the volume of the last 24 hours', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const pair = await deployPair(chain);
  const [, , holder] = chain.accounts;
  await pair.give(0, 4000n * ONE);
  await pair.give(1, 1000n * ONE);
  await pair.mint(holder);
  await pair.give(0, 100n * ONE);
  await pair.swap({ side: 1, amount: 20n * ONE }, holder);
  await chain.mine(3);

  const database = parts.use(await createTestDatabase('postgres'));
  await using service = await startWithPair(database, chain, pairOf(pair));
  // No price was known when the swap happened, so the first price values it.
  const price = { asset: 'ETH', price: decimal('2000'), observedAt: new Date(), source: 'test' };
  await insertPrice(service.database, price);
  await waitForWorth(service, 40_000);
  assert.deepEqual(await ask(service, '/api/swap/volume/1'), { vol24h: 40_000, pair: 'ONE/TWO' });
  const { latestPrice, lpPriceInUsd, pair: name } = await waitForState(service);
  assert.equal(name, 'ONE/TWO');
  assert.equal(latestPrice, 980 / 4100);
  // Both sides of 980 coins at 2000 USD, for √(4000 · 1000) LP tokens.
  assert.equal(lpPriceInUsd, (2 * 980 * 2000) / 2000);

  await pair.give(0, 100n * ONE);
  await pair.swap({ side: 1, amount: 10n * ONE }, holder);
  await waitForWorth(service, 60_000);
});

type LpValue = { latestPrice: number; lpPriceInUsd: number; pair: string };

/** Reads the database, because the API would cache a response that comes too early for a minute. */
async function waitForState(service: Service): Promise<LpValue> {
  const isRead = async () => (await service.database.query(sql`select from pair_reading limit 1`)).length > 0;
  await waitUntil(isRead, { describe: 'the contract of the pair to be read' });
  return (await ask(service, '/api/swap/lp-value/1')) as LpValue;
}

async function waitForWorth({ database }: Service, usd: number): Promise<void> {
  const isWorth = async () => {
    const [row] = await database.query<{ usd: number }>(sql`select sum(usd_value)::float8 as usd from swap`);
    return row?.usd === usd;
  };
  await waitUntil(isWorth, { describe: `swaps of ${usd} USD` });
}

const ask = async ({ apiUrl }: Pick<Service, 'apiUrl'>, path: string): Promise<unknown> =>
  (await fetch(`${apiUrl}${path}`)).json();

function pairOf({ configured }: UniswapPair): Pair {
  const { value0: _value0, value1: _value1, areIndependent: _areIndependent, ...pair } = configured;
  return pair;
}

function start(database: TestDatabase, chain: Chain, pair: Pair, log: Log = silentLog()): Promise<Service> {
  const config = loadConfig({
    env: {},
    overrides: {
      chain: { id: CHAIN_ID, rpc: [chain.url], native: { symbol: 'ETH', wrapped: pair.token1 } },
      database: { url: database.url },
      dataDir: database.dataDir,
      secret: SECRET,
      http: { port: 0 },
      metrics: { port: 0 },
      pairs: [pair],
      prices: { native: { sources: [{ type: 'fixed', price: '2000' }] } },
    },
  });
  return startService(config, { log, roles: ['api', 'follower'] });
}

async function startWithPair(
  database: TestDatabase,
  chain: Chain,
  pair: Pair,
  log?: Log,
): Promise<Service & AsyncDisposable> {
  const service = await start(database, chain, pair, log);
  void service.failed.then((bug) => {
    throw bug;
  });
  return { ...service, [Symbol.asyncDispose]: () => service.stop() };
}
