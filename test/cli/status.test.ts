import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { STATUS_EXAMPLE, type StatusBody } from '../../src/api/ops/status-body.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { sampledTest } from '../kit/sample.ts';
import {
  chainMethods,
  makeHash,
  makeNodeBlock,
  type ScriptedNode,
  startScriptedNode,
} from '../kit/scripted-node.ts';
import { CHAIN_ID, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell } from './chainbell.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

const NODE: StatusBody['nodes'][number] = {
  ...{ name: 'http://node.example', state: 'ok', head: 7, vote: null, error: null, capabilities: null },
  ...{
    blocks_behind: null,
    disagreement: null,
    outvoted_count: 3,
    outvoted: null,
    disproved_count: 5,
    disproved: null,
  },
  ...{ retry_at: null, slow_until: null, hedges: 0, overtaken: 0, limited_until: null, limit_reason: null },
  ...{ in_flight: 0, concurrency_max: 16, batch_calls_max: null, methods: [] },
};

describe('status of a running service', () => {
  let place: TestDatabase;
  let node: ScriptedNode;
  let service: TestService;
  before(async () => {
    place = await createTestDatabase('embedded');
    const blocks = [makeNodeBlock(0), makeNodeBlock(1), makeNodeBlock(2)];
    node = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
    service = await startTestService({ database: place, rpc: [node.url] });
    await service.inSync({
      head: async () => ({ number: 2, hash: makeNodeBlock(2).block.hash as `0x${string}` }),
    });
  });
  after(async () => {
    await service.stop();
    await node.close();
    await place[Symbol.asyncDispose]();
  });
  const status = (...words: string[]) =>
    chainbell(place.dataDir, {}, 'status', '--url', service.apiUrl, ...words);

  test('status prints a table, and exits with 0 while the service is healthy', async () => {
    const { code, out, err } = await status();
    assert.deepEqual([code, err], [0, '']);
    assert.match(out, /^state +ok$/m);
    assert.match(out, new RegExp(`^chain +${CHAIN_ID}, head 2, final 0$`, 'm'));
    assert.match(out, new RegExp(`^genesis +${makeHash(0, 0, 0)}$`, 'm'));
    assert.match(out, /^cursor +block 2 of 2023-11-14T/m);
    assert.match(out, /^queue +0 waiting, 0 due/m);
    assert.match(out, /^quorum +1 of 1 nodes, by contents; 1 names the head$/m);
    assert.match(out, /^proof +auto: header_hash \w+/m);
    assert.match(out, /^agreement +one node decides; no node traces internal transfers$/m);
    const name = 'chain\\.rpc\\[0\\]';
    assert.match(
      out,
      new RegExp(
        `^${name} +ok +2 +2 \\(0x\\w{8}\\) +0 +0 +\\d+ of 16 +- +0 +0 +batch yes, block_receipts yes`,
        'm',
      ),
    );
    assert.match(out, new RegExp(`^${name} +eth_getBlockByHash +1 +0 +0 +\\d+ +\\d+$`, 'm'));
  });

  test('status --json prints the body of /status', async () => {
    const { code, out } = await status('--json');
    assert.equal(code, 0);
    const { cursor, nodes } = JSON.parse(out);
    assert.equal(cursor.number, 2);
    assert.equal(nodes[0].capabilities.batch, true);
  });

  test('status of a service that cannot follow its chain exits with 75 and shows the reason', async () => {
    node.setHttp({ status: 500 });
    const stateOf = async () =>
      ((await (await fetch(`${service.apiUrl}/status`)).json()) as { state: string }).state;
    await waitUntil(async () => (await stateOf()) === 'holding');
    const { code, out } = await status();
    assert.equal(code, 75);
    assert.match(out, /^state +holding$/m);
    assert.match(
      out,
      /^problem +.* answered HTTP 500; its last block was 2\)\. .*: check that it runs, .* \(since .*\)$/m,
    );
    assert.match(out, / paused until \S+Z: .* answered HTTP 500$/m);
    assert.equal((await status('--json')).code, 75);
  });
});

describe('status without a service', () => {
  let other: Receiver;
  before(async () => {
    other = await startReceiver({ answer: { body: '{"status":"ok"}' } });
  });
  after(() => other.close());
  const run = (env: Record<string, string>, ...words: string[]) =>
    chainbell('.', { ...chain, ...env }, 'status', ...words);

  test('facts that only a follower knows name the roles of a process that shows them', async () => {
    const unknown = { quorum: null, proof: null, agreement: null };
    await using service = await startReceiver({
      answer: { body: JSON.stringify({ ...STATUS_EXAMPLE, ...unknown }) },
    });
    const { out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    for (const name of ['quorum', 'proof', 'agreement'])
      assert.match(out, new RegExp(`^${name} +unknown .* that has the roles api and follower$`, 'm'));
  });

  test('prices, their sources and pairs have separate tables', async () => {
    const price = STATUS_EXAMPLE.prices?.[0];
    const pair = STATUS_EXAMPLE.pairs?.[0];
    assert.ok(price !== undefined && pair !== undefined);
    const none = { asset: 'SOL', price: null, age_seconds: null, stale: true, sources: [] };
    const old = { ...price, asset: 'XRP', age_seconds: 700.4, stale: true, sources: [] };
    const pushed = { ...pair, id: 5, price_deviation: -0.5, lp_deviation: 0.06066, deviates: true };
    const silent = {
      ...pair,
      id: 6,
      price: null,
      updated_at: null,
      price_deviation: null,
      lp_deviation: null,
      volume_complete: false,
    };
    const body = JSON.stringify({
      ...{ ...STATUS_EXAMPLE, prices: [price, none, old], pairs: [pair, pushed, silent] },
    });
    await using service = await startReceiver({ answer: { body } });
    const { code, out, err } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    assert.deepEqual([code, err], [0, '']);
    for (const line of [
      /^ETH +2500\.25 +13 s$/m,
      /^SOL +- +- +none yet$/m,
      /^XRP +2500\.25 +700 s +stale$/m,
      /^ETH +binance:ETHUSDT +used +2500\.25 +2026-01-31T12:00:00\.000Z$/m,
      /^2 +USDT\/ETH +2510 +2026-\S+ +0\.39 % +0\.00 %$/m,
      /^5 +USDT\/ETH +2510 +2026-\S+ +-50\.00 % +6\.07 % +deviates: the pool may be manipulated$/m,
      /^6 +USDT\/ETH +- +- +- +- +the last 24 hours are not complete$/m,
    ])
      assert.match(out, line);
  });

  test('a newest block that cannot be read is unknown, not missing', async () => {
    const show = async (chain: Partial<typeof STATUS_EXAMPLE.chain>) => {
      const body = JSON.stringify({
        ...{ ...STATUS_EXAMPLE, cursor: null, chain: { ...STATUS_EXAMPLE.chain, ...chain } },
      });
      await using service = await startReceiver({ answer: { body } });
      return (await run({}, '--url', `http://127.0.0.1:${service.port}`)).out;
    };
    assert.match(await show({}), /^cursor +unknown$/m);
    assert.match(await show({ corroborated: null, finalized: null }), /^cursor +no block stored yet$/m);
    // As before the first block.
    assert.match(await show({ corroborated: null, finalized: 0 }), /^cursor +no block stored yet$/m);
  });

  test('late webhooks have a cause only while delivery works', async () => {
    const show = async (change: Partial<typeof STATUS_EXAMPLE>) => {
      const body = JSON.stringify({ ...STATUS_EXAMPLE, late: { watchers: 2, seconds: 90 }, ...change });
      await using service = await startReceiver({ answer: { body } });
      return (await run({}, '--url', `http://127.0.0.1:${service.port}`)).out;
    };
    const share =
      /^late +2 watchers have late webhooks, the oldest by 90 s, because more are due than their share/m;
    assert.match(await show({}), share);
    const message = 'no process delivers webhooks';
    const missing = [{ role: 'delivery' as const, message, since: '2026-01-31T12:00:00.000Z' }];
    assert.match(
      await show({ missing }),
      /^late +2 watchers have late webhooks, the oldest by 90 s\. To list them/m,
    );
    assert.match(await show({ failing_work: null }), /, the oldest by 90 s\. To list them/m);
  });

  test('counts of the queue that stopped at their maximum say so', async () => {
    const queue = {
      ...{ deferred: 0, held: 0, waiting: 100_000, due: 7, oldest_due_age_seconds: 60, is_complete: false },
    };
    const body = JSON.stringify({ ...STATUS_EXAMPLE, queue });
    await using service = await startReceiver({ answer: { body } });
    const { out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    assert.match(out, /^queue +100,000\+ waiting, 7 due \(the oldest for 60 s\), 0 held$/m);
    const deferring = { ...queue, waiting: 9, deferred: 100_000 };
    await using other = await startReceiver({
      answer: { body: JSON.stringify({ ...STATUS_EXAMPLE, queue: deferring }) },
    });
    const { out: unwritten } = await run({}, '--url', `http://127.0.0.1:${other.port}`);
    assert.match(
      unwritten,
      /^queue +9 waiting, 7 due \(the oldest for 60 s\), 0 held, 100,000\+ yet to be written$/m,
    );
  });

  test('a queue in which nothing is due has no oldest notification', async () => {
    const queue = { deferred: 0, held: 0, waiting: 3, due: 0, oldest_due_age_seconds: 0, is_complete: true };
    const body = JSON.stringify({ ...STATUS_EXAMPLE, queue });
    await using service = await startReceiver({ answer: { body } });
    const { out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    assert.match(out, /^queue +3 waiting, 0 due, 0 held$/m);
  });

  test('a replica, lost shards, a step of the clock and deferred notifications are shown if there are any', async () => {
    const at = '2026-01-31T12:00:00.000Z';
    const shown = async (parts: Partial<StatusBody>) => {
      const body = JSON.stringify({ ...STATUS_EXAMPLE, ...parts });
      await using service = await startReceiver({ answer: { body } });
      const { out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
      return out.split('\n').filter((line) => /^(queue|replica|lost|clock)/.test(line));
    };
    const { queue } = STATUS_EXAMPLE;
    assert.ok(queue !== null);
    const none = { replica: null, lost_shards: [], clock_step: null };
    assert.equal((await shown(none)).length, 1);
    const some = {
      queue: { ...queue, deferred: 5_000 },
      replica: { in_use: false, lag_seconds: 12.34, message: 'it is too far behind' },
      lost_shards: [{ worker: 'worker:5432', since: at, block: 7, blocks: 1, transfers: 2 }],
      clock_step: { seconds: -120.4, at, pruning_resumes_at: '2026-02-01T12:00:00.000Z' },
    };
    const lines = await shown(some);
    assert.match(lines[0] ?? '', /^queue .* 0 held, 5,000 yet to be written$/);
    assert.deepEqual(
      lines.slice(1).map((line) => line.replaceAll(/ +/g, ' ')),
      [
        'replica not used, 12.3 s behind: it is too far behind',
        `lost worker worker:5432, since ${at}: its shards have blocks up to 7 and miss 1 block, with up to 2 transfers`,
        `clock was set back by 120 s at ${at}. Pruning resumes at 2026-02-01T12:00:00.000Z`,
      ],
    );
    const [, used] = await shown({ ...none, replica: { in_use: true, lag_seconds: 0.04, message: null } });
    assert.match(used ?? '', /^replica +serves reads, 0\.0 s behind$/);
  });

  test('lists that the service cannot read are named', async () => {
    const body = JSON.stringify({
      ...STATUS_EXAMPLE,
      processes: null,
      missing: null,
      prices: null,
      pairs: null,
    });
    await using service = await startReceiver({ answer: { body } });
    const { out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    assert.match(out, /^unknown +processes, missing, prices, pairs$/m);
    assert.doesNotMatch(out, /^PROCESS /m);
  });

  test('failing writes are shown with the next step, and nodes with how often they were outvoted and disproved', async () => {
    const at = '2026-01-31T12:00:00.000Z';
    const body = JSON.stringify({
      ...{ ...STATUS_EXAMPLE, state: 'degraded', nodes: [NODE] },
      write_failures: [{ part: 'follower', message: 'database: full. Free space.', since: at }],
    });
    await using service = await startReceiver({ answer: { body } });
    const { code, out } = await run({}, '--url', `http://127.0.0.1:${service.port}`);
    assert.equal(code, 75);
    assert.match(out, /^writes +follower has stored nothing since 2026-\S+: database: full. Free space.$/m);
    const [head = '', row = ''] = out.split('\n').filter((line) => /^(NODE|http)/.test(line));
    const cellOf = (column: string) => row.slice(head.indexOf(column)).split(' ')[0];
    assert.deepEqual([cellOf('OUTVOTED'), cellOf('DISPROVED')], ['3', '5']);
  });

  test('watchers over their pending limit and orphaned transfers are shown only if there are any', async () => {
    const since = '2026-01-31T12:00:00.000Z';
    const body = JSON.stringify({
      ...STATUS_EXAMPLE,
      ...{ watchers_over_pending_limit: 1, orphaned: { count: 2, since } },
    });
    await using service = await startReceiver({ answer: { body } });
    const url = `http://127.0.0.1:${service.port}`;
    const { out } = await run({}, '--url', url);
    assert.match(
      out,
      /^pending +1 watcher has more pending notifications than limits\.pendingNotifications\. /m,
    );
    assert.match(
      out,
      /^orphaned +2 acknowledged transfers were orphaned without a removal notice, the first at 2026/m,
    );
    assert.match(out, /^receivers +2 receivers of 1 watcher are failing, the longest since /m);
    service.setAnswer({ body: JSON.stringify(STATUS_EXAMPLE) });
    assert.doesNotMatch((await run({}, '--url', url)).out, /^(pending|orphaned) /m);
  });

  test('exits with 69 and advice if no service answers at the configured or the given URL', async () => {
    for (const [env, words] of [
      [{ CHAINBELL_HTTP_HOST: '0.0.0.0', CHAINBELL_HTTP_PORT: '2' }, []],
      [{}, ['--url', 'http://127.0.0.1:2']],
    ] as const) {
      const { code, out, err } = await run(env, ...words);
      assert.deepEqual([code, out], [69, '']);
      assert.match(
        err,
        /no service answers at http:\/\/127\.0\.0\.1:2 \(.*ECONNREFUSED.*\)\. Start it with chainbell start, or give its URL with --url/,
      );
    }
  });

  test('a URL of HTTPS where the service serves HTTP gets one line of advice', async () => {
    const { code, out, err } = await run({}, '--url', `https://127.0.0.1:${other.port}`);
    assert.deepEqual([code, out], [69, '']);
    assert.equal(
      err,
      `chainbell: no service answers at https://127.0.0.1:${other.port} (fetch failed: TLS: wrong version number). Chainbell itself serves HTTP without TLS: give its URL as http://127.0.0.1:${other.port}\n`,
    );
  });

  test('exits with 69 if another server answers, or one that answers 503 or 500', async () => {
    const url = `http://127.0.0.1:${other.port}`;
    assert.match((await run({}, '--url', url)).err, /is not a Chainbell of this version/);
    other.setAnswer({ status: 503, body: '{}' });
    const { code, err } = await run({}, '--url', url);
    assert.equal(code, 69);
    assert.match(
      err,
      /\/status answered HTTP 503: the service is stopping, or a proxy .* ready\. See http.*\/readyz$/m,
    );
    other.setAnswer({ status: 500, body: '{}' });
    const failed = await run({}, '--url', url);
    assert.equal(failed.code, 69);
    assert.match(failed.err, /\/status answered HTTP 500\. The log of that service says why/);
  });

  test('exits with 64 for an invalid URL, and for port 0', async () => {
    for (const url of ['nonsense', 'ftp://127.0.0.1', 'localhost:8080']) {
      const { code, out, err } = await run({}, '--url', url);
      assert.deepEqual([code, out], [64, ''], err);
      assert.match(err, new RegExp(`^chainbell: ${url} is not an HTTP URL\\. Write it like http://127`));
    }
    const named = await run({}, '--url', 'http://operator:hunter2@127.0.0.1:1');
    assert.deepEqual([named.code, named.out], [64, '']);
    assert.doesNotMatch(named.err, /hunter2/);
    for (const end of ['/chainbell', '/?watcher=1']) {
      const { code, err } = await run({}, '--url', `http://127.0.0.1:1${end}`);
      assert.equal(code, 64);
      assert.match(
        err,
        /^chainbell: the URL must not contain a path or a query, .* Use http:\/\/127\.0\.0\.1:1$/m,
      );
    }
    const free = await run({ CHAINBELL_HTTP_PORT: '0' });
    assert.equal(free.code, 64);
    assert.match(free.err, /http\.port is 0/);
  });
});
