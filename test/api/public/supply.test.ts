import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSupplyReader } from '../../../src/api/public/supply-reader.ts';
import type { ChainNodes } from '../../../src/chain/nodes/nodes.ts';
import { Fault } from '../../../src/core/fault.ts';
import { zeroAddress } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { findSupply, saveSupply } from '../../../src/store/supply/supply.ts';
import { headerOf, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { complete, type NodesStage, withNodes } from '../../kit/nodes.ts';
import { type Methods, makeAddress, RpcError } from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory } from '../api-story.ts';

const COIN = 10n ** 18n;
const MAX_AGE_MS = 3_600_000;
const [staking, team] = [makeAddress(1), makeAddress(2)];
const terms = {
  nativeSymbol: 'BELL',
  initialWei: 1_000n * COIN,
  multicall3: makeAddress(99),
  staking,
  vesting: { team },
};
const { signal } = new AbortController();

/** Staking has 1 coin, team 2, the burn address none. */
const balances = (): Methods => ({
  ...complete(),
  eth_getBalance: ([address]) => `0x${(BigInt(String(address)) * COIN).toString(16)}`,
});
const refuse = () => {
  throw new RpcError(-32_000, 'out of order');
};

const nowhere = { findKept: async () => undefined, keep: async () => {} };
const shared = { log: silentLog(), signal, terms, maxAgeMs: MAX_AGE_MS };

const createReader = ({ nodes, clock }: Pick<NodesStage, 'nodes' | 'clock'>) =>
  createSupplyReader({ nodes, clock, ...shared, ...nowhere });

/** A reader that keeps its good readings. */
const createKeeper = ({ nodes, clock }: Pick<NodesStage, 'nodes' | 'clock'>, database: Database) =>
  createSupplyReader({
    ...{ nodes, clock, ...shared },
    findKept: (addresses) => findSupply(database, addresses),
    keep: (reading) => saveSupply(database, reading),
  });

/** Reads while the clock advances, so that waits of up to `waitMsMax` end. */
async function readOn(stage: NodesStage, reader: ReturnType<typeof createReader>, waitMsMax = 999) {
  let isDone = false;
  const reading = reader.read().finally(() => {
    isDone = true;
  });
  reading.catch(() => {});
  await waitUntil(() => {
    if (!isDone && stage.clock.waits().some((ms) => ms <= waitMsMax)) stage.clock.advance(1_000);
    return isDone;
  });
  return reading;
}

test('failed calls are retried (spec 4.4)', () =>
  withNodes([balances()], async (stage) => {
    const [node] = stage.scripted;
    let failures = 2;
    if (node !== undefined) {
      const { eth_getBlockByNumber: find = refuse } = node.methods;
      node.methods.eth_getBlockByNumber = (params) => {
        if (params[0] !== 'latest' || failures === 0) return find(params);
        failures -= 1;
        return refuse();
      };
    }
    const reading = await readOn(stage, createReader(stage));
    assert.equal(reading.balances.get(team)?.wei, 2n * COIN);
    assert.equal(failures, 0);
  }));

test('while no node answers, the last good reading is served with its time, up to a maximum age', () =>
  withNodes([balances()], async (stage) => {
    const reader = createReader(stage);
    const first = await reader.read();
    const [node] = stage.scripted;
    node?.setHttp({ status: 500 });
    stage.clock.advance(MAX_AGE_MS - 60_000);
    assert.deepEqual(await readOn(stage, reader), first);
    stage.clock.advance(60_000);
    await assert.rejects(readOn(stage, reader), (error: Fault) => error.code === 'unavailable');
    stage.clock.step(-3 * MAX_AGE_MS);
    await assert.rejects(
      readOn(stage, reader),
      { code: 'unavailable' },
      'from a future that is too far away',
    );
    node?.setHttp(undefined);
    stage.clock.advance(60_000);
    assert.equal((await readOn(stage, reader)).at.getTime(), stage.clock.now().getTime());
  }));

test('a missing balance is replaced by its last good one, and without one there is no supply', () =>
  withNodes([balances()], async (stage) => {
    const [node] = stage.scripted;
    const { eth_getBalance: good = refuse } = node?.methods ?? {};
    const spoil = () => {
      if (node !== undefined)
        node.methods.eth_getBalance = (params) => (params[0] === team ? null : good(params));
    };
    spoil();
    await assert.rejects(readOn(stage, createReader(stage)), /no node gives the balance of 0x0+2$/);
    if (node !== undefined) node.methods.eth_getBalance = good;
    stage.clock.advance(60_000);
    const reader = createReader(stage);
    const first = await readOn(stage, reader);
    spoil();
    stage.clock.advance(60_000);
    const second = await readOn(stage, reader);
    assert.deepEqual(second.balances.get(team), { wei: 2n * COIN, at: first.at });
    assert.deepEqual(second.balances.get(staking), { wei: COIN, at: second.at });
    // The substitute is as old as its oldest balance.
    stage.clock.advance(MAX_AGE_MS - 60_000);
    assert.deepEqual((await readOn(stage, reader)).balances.get(team)?.at, first.at);
    stage.clock.advance(1);
    await assert.rejects(readOn(stage, reader), Fault);
  }));

test('concurrent requests share one reading', () =>
  withNodes([balances()], async (stage) => {
    const reader = createReader(stage);
    const readings = await Promise.all([reader.read(), reader.read(), reader.read()]);
    assert.equal(new Set(readings).size, 1);
    assert.equal(stage.scripted[0]?.calls.filter(({ method }) => method === 'eth_call').length, 1);
  }));

test('a hanging node delays callers only briefly', () =>
  withNodes([], async ({ clock }) => {
    const nodes: Pick<ChainNodes, 'ask'> = {
      ask: (_calls, _read, abort) =>
        new Promise((_resolve, reject) => {
          abort.addEventListener('abort', () => reject(new Fault('unavailable', 'ended')));
        }),
    };
    const closing = new AbortController();
    const reader = createSupplyReader({
      ...{ nodes, clock, ...shared, signal: closing.signal, ...nowhere },
    });
    const reading = reader.read();
    clock.advance(10_000);
    await assert.rejects(reading, /no balances after 10000 ms/);
    closing.abort();
  }));

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the supply is served as one record and as plain numbers', () =>
    withNodes([balances()], async (stage) => {
      const { ask } = createApiStory(database(), undefined, undefined, {
        supply: createReader(stage),
      });
      const { status, headers, json } = await ask('GET', '/api/native/supply-info');
      assert.equal(status, 200);
      assert.match(headers['content-type'] ?? '', /^application\/json/);
      const { summary } = json as { summary: Record<string, string> };
      assert.deepEqual(summary, {
        initial_supply_native: '1000',
        locked_supply_native: '3',
        burned_supply_native: '0',
        circulating_supply_native: '997',
      });
      for (const [figure, text] of Object.entries({
        ...{ initial: '1000', locked: '3', burned: '0', circulating: '997', total: '1000' },
      })) {
        const answer = await ask('GET', `/api/native/supply/${figure}`);
        assert.deepEqual([answer.status, answer.text], [200, text]);
        assert.match(answer.headers['content-type'] ?? '', /^text\/plain/);
      }
    }));

  test('after a restart without a node, the stored reading is served exactly and with its block', () =>
    withNodes([balances()], async (stage) => {
      const first = await readOn(stage, createKeeper(stage, database()));
      stage.scripted[0]?.setHttp({ status: 500 });
      stage.clock.advance(MAX_AGE_MS - 60_000);
      const next = createKeeper(stage, database());
      const second = await readOn(stage, next);
      assert.deepEqual([second.at, second.nodeName, second.method], [first.at, first.nodeName, first.method]);
      assert.deepEqual(second.balances, first.balances);
      assert.equal(second.block.hash, first.block.hash);
      stage.clock.advance(60_000);
      await assert.rejects(readOn(stage, next), (error: Fault) => error.code === 'unavailable');
    }));

  test('a process without nodes serves a newer reading of another process', () =>
    withNodes([balances()], async (stage) => {
      const reader = createKeeper(stage, database());
      await readOn(stage, reader);
      stage.clock.advance(60_000);
      const newer = await readOn(stage, createKeeper(stage, database()));
      stage.scripted[0]?.setHttp({ status: 500 });
      assert.deepEqual((await readOn(stage, reader)).at, newer.at);
    }));

  test('a stored reading that lacks a configured address is not served', () =>
    withNodes([balances()], async (stage) => {
      await readOn(stage, createKeeper(stage, database()));
      await database().query(sql`delete from supply_balance where wei = ${String(2n * COIN)}::numeric`);
      stage.scripted[0]?.setHttp({ status: 500 });
      await assert.rejects(readOn(stage, createKeeper(stage, database())), Fault);
    }));

  test('after a restart, a missing balance is replaced by its last good one', () =>
    withNodes([balances()], async (stage) => {
      const first = await readOn(stage, createKeeper(stage, database()));
      const [node] = stage.scripted;
      const { eth_getBalance: good = refuse } = node?.methods ?? {};
      if (node !== undefined)
        node.methods.eth_getBalance = (params) => (params[0] === team ? null : good(params));
      stage.clock.advance(60_000);
      const second = await readOn(stage, createKeeper(stage, database()));
      assert.ok(second.at > first.at, 'the others are read live');
      assert.deepEqual(second.balances.get(team), { wei: 2n * COIN, at: first.at });
      assert.deepEqual(second.balances.get(staking), { wei: COIN, at: second.at });
    }));

  test('a newer stored reading is not overwritten by an older one', () =>
    withNodes([balances()], async (stage) => {
      const old = await readOn(stage, createReader(stage));
      stage.clock.advance(60_000);
      const young = await readOn(stage, createKeeper(stage, database()));
      await saveSupply(database(), {
        ...old,
        balances: new Map([[staking, { wei: 9n, at: old.at }]]),
      });
      assert.deepEqual((await findSupply(database(), [staking]))?.at, young.at);
      assert.equal((await findSupply(database(), [staking]))?.balances.get(staking)?.wei, COIN);
    }));

  test('after the clock was set back, a new reading replaces the stored one from before', () =>
    withNodes([balances()], async (stage) => {
      const before = await readOn(stage, createKeeper(stage, database()));
      stage.clock.step(-3_600_000);
      const after = await readOn(stage, createKeeper(stage, database()));
      assert.ok(after.at < before.at);
      const stored = await findSupply(database(), [staking]);
      assert.deepEqual([stored?.at, stored?.balances.get(staking)?.at], [after.at, after.at]);
    }));

  test('a live reading is served even if the database does not answer', () =>
    withNodes([balances()], async (stage) => {
      const away = () => Promise.reject(new Fault('unavailable', 'the database is away'));
      const { nodes, clock } = stage;
      const reader = createSupplyReader({ nodes, clock, ...shared, findKept: away, keep: away });
      const first = await readOn(stage, reader);
      stage.scripted[0]?.setHttp({ status: 500 });
      assert.deepEqual(await readOn(stage, reader), first);
    }));

  test('a database that hangs delays an answer only briefly', () =>
    withNodes([balances()], async (stage) => {
      const hang = () => new Promise<never>(() => {});
      const { nodes, clock } = stage;
      const reader = createSupplyReader({ nodes, clock, ...shared, findKept: hang, keep: hang });
      const first = await readOn(stage, reader, 2_000);
      assert.equal(first.balances.get(team)?.wei, 2n * COIN);
      stage.scripted[0]?.setHttp({ status: 500 });
      assert.deepEqual(await readOn(stage, reader, 2_000), first);
    }));

  test('the age of an old answer counts from its reading', async () => {
    const { number, hash } = headerOf(1);
    const balances = new Map(
      [staking, team, zeroAddress].map((address) => [address, { wei: COIN, at: noon }]),
    );
    const reading = { ...{ at: noon, block: { number, hash }, nodeName: 'http://node', balances } };
    let at = noon;
    const supply = { terms, read: async () => ({ ...reading, at, method: 'multicall3' as const }) };
    const { ask, clock } = createApiStory(database(), undefined, undefined, { supply });
    clock.advance(noon.getTime() + 1_800_000 - clock.now().getTime());
    for (const path of ['supply-info', 'supply/total']) {
      const { headers } = await ask('GET', `/api/native/${path}`);
      assert.deepEqual([headers.age, headers['cache-control']], ['1800', 'public, max-age=120']);
      clock.advance(119_000);
      assert.equal((await ask('HEAD', `/api/native/${path}`)).headers.age, '1919');
      clock.advance(9_000);
      at = clock.now();
      assert.equal(
        (await ask('HEAD', `/api/native/${path}`)).headers.age,
        '1928',
        'it is cached all the same',
      );
      clock.advance(1_000);
      at = clock.now();
      assert.equal((await ask('HEAD', `/api/native/${path}`)).headers.age, '0', 'a node is asked again soon');
      clock.advance(119_000);
      assert.equal(
        (await ask('HEAD', `/api/native/${path}`)).headers.age,
        '119',
        'a live one is cached longer',
      );
      at = noon;
      clock.advance(noon.getTime() + 1_800_000 - clock.now().getTime());
    }
  });

  test('without a node the answer is 503, and if no supply is configured 404 (spec 7)', async () => {
    const nodes: Pick<ChainNodes, 'ask'> = {
      ask: () => Promise.reject(new Fault('unavailable', 'http://node')),
    };
    const broken = createApiStory(database());
    const reader = createSupplyReader({
      ...{ nodes, ...shared, ...nowhere },
      clock: {
        ...broken.clock,
        wait: (ms, abort) => (ms < 1_000 ? Promise.resolve() : broken.clock.wait(ms, abort)),
      },
    });
    const { ask } = createApiStory(database(), undefined, undefined, { supply: reader });
    const none = createApiStory(database());
    for (const path of ['/api/native/supply-info', '/api/native/supply/circulating']) {
      const { status, json } = await ask('GET', path);
      assert.deepEqual([status, json], [503, { statusCode: 503, statusMessage: 'Service Unavailable' }]);
      const absent = await none.ask('GET', path);
      assert.deepEqual(
        [absent.status, absent.json],
        [404, { statusCode: 404, statusMessage: 'Supply is not published here' }],
      );
    }
  });
});
