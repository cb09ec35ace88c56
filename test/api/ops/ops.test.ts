import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { createMetricsServer } from '../../../src/api/ops/ops.ts';
import type { StatusBody } from '../../../src/api/ops/status-body.ts';
import type { CommonClock } from '../../../src/app/common-clock.ts';
import { createStatus } from '../../../src/app/status.ts';
import type { NodeStatus } from '../../../src/chain/nodes/node.ts';
import type { ChainNodes } from '../../../src/chain/nodes/nodes.ts';
import type { Verifier } from '../../../src/chain/proof/verifier.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { insertChain } from '../../../src/store/blocks/blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { hashOf, headerOf, later, mine, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { startTcpProxy } from '../../kit/tcp-proxy.ts';
import { createApiStory } from '../api-story.ts';

const REFERENCE = new URL('../../../docs/reference/metrics.md', import.meta.url);

/** Every metric of Chainbell itself. These names are public: dashboards and alerts are built on them. */
const METRIC_NAMES = [
  'chainbell_address_filter_bytes',
  'chainbell_address_filter_entries',
  'chainbell_address_filter_passed_total',
  'chainbell_address_filter_probes_total',
  'chainbell_background_bugs_total',
  'chainbell_build_info',
  'chainbell_cache_responses_total',
  'chainbell_chain_block_number',
  'chainbell_chain_held',
  'chainbell_chain_lag_seconds',
  'chainbell_chain_reorg_depth_blocks',
  'chainbell_chain_reorgs_total',
  'chainbell_database_reads_total',
  'chainbell_database_replica_lag_seconds',
  'chainbell_database_replica_used',
  'chainbell_database_wait_seconds',
  'chainbell_http_request_duration_seconds',
  'chainbell_ingest_blocks_total',
  'chainbell_ingest_notifications_total',
  'chainbell_ingest_transfers_total',
  'chainbell_lost_workers',
  'chainbell_missed_blocks',
  'chainbell_pair_deviates',
  'chainbell_pair_lp_deviation_ratio',
  'chainbell_pair_price_deviation_ratio',
  'chainbell_price_age_seconds',
  'chainbell_price_disputed',
  'chainbell_price_observations_total',
  'chainbell_price_stale',
  'chainbell_processes',
  'chainbell_role_missing',
  'chainbell_rpc_concurrency_max',
  'chainbell_rpc_disproved_total',
  'chainbell_rpc_hedges_total',
  'chainbell_rpc_request_duration_seconds',
  'chainbell_rpc_requests_total',
  'chainbell_state',
  'chainbell_watchers_over_pending_limit',
  'chainbell_webhook_attempt_duration_seconds',
  'chainbell_webhook_attempts_total',
  'chainbell_webhook_delivery_latency_seconds',
  'chainbell_webhook_delivery_queues',
  'chainbell_webhook_delivery_queues_healed_total',
  'chainbell_webhook_due',
  'chainbell_webhook_failing_receivers',
  'chainbell_webhook_failing_watchers',
  'chainbell_webhook_late_seconds',
  'chainbell_webhook_late_watchers',
  'chainbell_webhook_oldest_due_age_seconds',
  'chainbell_webhook_orphaned',
  'chainbell_webhook_requests_repeated_total',
  'chainbell_webhook_waiting',
];

const config = loadConfig({
  env: {
    CHAINBELL_CHAIN_ID: '31337',
    CHAINBELL_CHAIN_RPC: 'http://node.example,ws://node.example,ws://other.example,http://other.example',
  },
});

/** In PostgreSQL any SQLSTATE can be raised by a function. */
async function createRaise(database: Database): Promise<void> {
  await database.script(`
    create or replace function raise_error(code text, words text default 'nothing can be stored') returns text
    language plpgsql as $$ begin raise exception '%', words using errcode = code; end $$`);
}
const noon = new Date('2025-11-20T12:00:00.000Z');

/** Nodes that are only asked for their status. */
function nodesWith(statuses: NodeStatus[]): ChainNodes {
  const unused = () => Promise.reject(new Error('not asked here'));
  return {
    identify: unused,
    pin: () => {},
    head: unused,
    bundles: unused,
    anchored: unused,
    corroborated: unused,
    parentOf: unused,
    compareWith: unused,
    quorum: () => ({
      ...{ nodes: 2, needed: 2, votes: 2, isHeld: false },
      ...{
        dispute: undefined,
        ...{ stalled: undefined, ahead: undefined },
        silent: undefined,
      },
    }),
    ...{ belowSince: () => undefined, untraced: () => undefined },
    findHeader: unused,
    ask: unused,
    finalized: unused,
    doubt: () => {},
    noteLie: () => {},
    isPushed: () => true,
    headNumber: () => statuses[0]?.head,
    status: () => statuses,
    sockets: () => [
      { name: 'ws://node.example', connectedSince: noon, heads: 4, lastReason: undefined },
      { name: 'ws://other.example', connectedSince: undefined, heads: 0, lastReason: 'silent for 5 s' },
    ],
    close: async () => {},
  };
}

const healthy: NodeStatus = {
  name: 'http://node.example',
  state: 'ok',
  head: 9,
  blocksBehind: undefined,
  vote: { number: 9, hash: hashOf(9) },
  ...{ disagreement: undefined, outvotedCount: 0, outvoted: undefined },
  disproved: { count: 0, last: undefined },
  error: undefined,
  capabilities: { batch: true, blockReceipts: true, finalizedTag: true, traces: 'none' },
  throttle: { concurrency: 16, inFlight: 1, batchCallsMax: undefined, limited: undefined },
  ...{ retryAt: undefined, slowUntil: noon, hedges: 2, overtaken: 1 },
  methods: [
    {
      ...{ method: 'eth_chainId', calls: 3, errors: 1, limited: 0, p50Ms: 4, p95Ms: 9 },
      lastError: { message: 'reset', at: noon },
    },
  ],
};
const failing: NodeStatus = {
  name: 'http://other.example',
  state: 'failing',
  ...{ head: undefined, blocksBehind: undefined },
  vote: undefined,
  disagreement: { number: 5, hash: hashOf(6), storedHash: hashOf(5), since: noon },
  outvotedCount: 3,
  outvoted: { number: 7, hash: hashOf(8), corroboratedHash: hashOf(7), at: noon },
  disproved: { count: 2, last: { message: 'block 7 is not proved', at: noon } },
  error: 'refused',
  capabilities: undefined,
  throttle: {
    ...{ concurrency: 8, inFlight: 0, batchCallsMax: 10 },
    limited: { until: noon, reason: 'HTTP 429' },
  },
  ...{ retryAt: noon, slowUntil: undefined, hedges: 0, overtaken: 0 },
  methods: [
    {
      ...{ method: 'eth_chainId', calls: 1, errors: 0, limited: 1 },
      ...{ p50Ms: undefined, p95Ms: undefined, lastError: undefined },
    },
  ],
};

const proof: Pick<Verifier, 'status'> = {
  status: () => ({
    mode: 'auto',
    checks: {
      headerHash: 'enforced',
      transactionsRoot: 'off',
      transactionHashes: 'calibrating',
      withdrawalsRoot: 'off',
      receiptsRoot: 'calibrating',
    },
    unprovedTypes: ['0x7e'],
  }),
};

const agreement = () => ({
  ...{ quorum: 2, tracingNodes: 1, silentTracer: undefined },
  outvoted: [{ node: 'http://node.example', message: 'eth_call: others agree', at: noon }],
});

function createStory(
  database: Database,
  nodes: ChainNodes | undefined = nodesWith([healthy]),
  recentStep: CommonClock['recentStep'] = () => undefined,
) {
  const clock = createTestClock();
  const metrics = createMetrics('1.2.3');
  const writes = createWriteHealth(database, clock);
  const options = { version: '1.2.3', config, database, nodes, proof, agreement, writes, clock, metrics };
  const status = createStatus({ onBug: assert.fail, ...options, recentStep });
  return { clock, metrics, status, writes, ask: createApiStory(database, status).ask };
}

onSampledDatabase(import.meta.url, ({ kind, database }) => {
  test('/livez answers while the event loop runs, whatever else is wrong', async () => {
    const { ask } = createStory(database(), nodesWith([failing]));
    assert.deepEqual((await ask('GET', '/livez')).json, { status: 'ok' });
  });

  test('/readyz is 200 when the database answers, a node works and a block is stored', async () => {
    const { ask } = createStory(database(), nodesWith([healthy, failing]));
    const before = await ask('GET', '/readyz');
    assert.equal(before.status, 503);
    assert.deepEqual(before.json, {
      status: 'unavailable',
      checks: {
        database: { ok: true, message: kind },
        nodes: { ok: true, message: '1 of 2 work: refused' },
        blocks: { ok: false, message: 'no block stored yet' },
        writes: { ok: true, message: 'ok' },
      },
    });
    await mine(database(), headerOf(7), []);
    const { status, json } = await ask('GET', '/readyz');
    assert.equal(status, 200);
    assert.deepEqual(json, {
      status: 'ok',
      checks: {
        database: { ok: true, message: kind },
        nodes: { ok: true, message: '1 of 2 work: refused' },
        blocks: { ok: true, message: 'block 7' },
        writes: { ok: true, message: 'ok' },
      },
    });
  });

  test('/readyz is 503 while no node works', async () => {
    await mine(database(), headerOf(7), []);
    const { ask } = createStory(database(), nodesWith([failing]));
    const { status, json } = await ask('GET', '/readyz');
    assert.equal(status, 503);
    assert.deepEqual((json as { checks: { nodes: unknown } }).checks.nodes, {
      ok: false,
      message: '0 of 1 work: refused',
    });
  });

  test('/readyz is 200 while the only node rate-limits', async () => {
    await mine(database(), headerOf(7), []);
    const { ask } = createStory(database(), nodesWith([{ ...healthy, state: 'limited' }]));
    assert.equal((await ask('GET', '/readyz')).status, 200);
  });

  test('/status shows how far the chain is followed, what waits, and the capabilities of each node', async () => {
    await insertChain(database(), 31337, hashOf(1));
    await watchAddress(database());
    await mine(database(), headerOf(7), [transferOf()], { finalizedNumber: 3 });
    await mine(database(), headerOf(8), [transferOf()], { confirmations: 1 });
    const { ask, clock } = createStory(database(), nodesWith([healthy, failing]));
    clock.advance(20_000);
    assert.deepEqual((await ask('GET', '/status')).json, {
      version: '1.2.3',
      time: '2025-11-20T12:00:20.000Z',
      state: 'ok',
      chain: { id: 31337, genesis_hash: hashOf(1), head: 9, finalized: 3, corroborated: null },
      cursor: { number: 8, mined_at: '2025-11-20T12:00:08.000Z', stored_at: '2025-11-20T12:00:00.000Z' },
      lag_blocks: 1,
      lag_seconds: 12,
      problem: null,
      write_failures: [],
      failing_work: null,
      clock_step: null,
      replica: null,
      lost_shards: [],
      queue: { deferred: 0, held: 1, waiting: 1, due: 1, oldest_due_age_seconds: 20, is_complete: true },
      ...{ processes: null, missing: null, receivers: null, late: null },
      orphaned: { count: 0, since: null },
      watchers_over_pending_limit: null,
      prices: [],
      pairs: [],
      quorum: { nodes: 2, needed: 2, votes: 2, compares: 'contents' },
      nodes: [
        {
          name: 'chain.rpc[0]',
          state: 'ok',
          ...{ head: 9, blocks_behind: null },
          vote: { number: 9, hash: hashOf(9) },
          ...{ disagreement: null, outvoted_count: 0, outvoted: null },
          ...{ disproved_count: 0, disproved: null },
          error: null,
          capabilities: { batch: true, block_receipts: true, finalized_tag: true, traces: 'none' },
          ...{ retry_at: null, slow_until: noon.toISOString(), hedges: 2, overtaken: 1 },
          ...{ limited_until: null, limit_reason: null },
          ...{ in_flight: 1, concurrency_max: 16, batch_calls_max: null },
          methods: [
            {
              ...{ method: 'eth_chainId', calls: 3, errors: 1, limited: 0, p50_ms: 4, p95_ms: 9 },
              last_error: { message: 'reset', at: noon.toISOString() },
            },
          ],
        },
        {
          ...{ name: 'chain.rpc[3]', state: 'failing', head: null, vote: null, error: 'refused' },
          blocks_behind: null,
          disagreement: {
            ...{ number: 5, hash: hashOf(6), stored_hash: hashOf(5), since: noon.toISOString() },
          },
          outvoted_count: 3,
          outvoted: { number: 7, hash: hashOf(8), corroborated_hash: hashOf(7), at: noon.toISOString() },
          disproved_count: 2,
          disproved: { message: 'block 7 is not proved', at: noon.toISOString() },
          capabilities: null,
          ...{ retry_at: noon.toISOString(), slow_until: null, hedges: 0, overtaken: 0 },
          ...{ limited_until: noon.toISOString(), limit_reason: 'HTTP 429' },
          ...{ in_flight: 0, concurrency_max: 8, batch_calls_max: 10 },
          methods: [
            {
              ...{ method: 'eth_chainId', calls: 1, errors: 0, limited: 1 },
              ...{ p50_ms: null, p95_ms: null, last_error: null },
            },
          ],
        },
      ],
      web_sockets: [
        {
          ...{ name: 'chain.rpc[1]', connected_since: noon.toISOString() },
          ...{ heads: 4, last_reason: null },
        },
        {
          ...{ name: 'chain.rpc[2]', connected_since: null },
          ...{ heads: 0, last_reason: 'silent for 5 s' },
        },
      ],
      proof: {
        mode: 'auto',
        checks: {
          header_hash: 'enforced',
          transactions_root: 'off',
          transaction_hashes: 'calibrating',
          withdrawals_root: 'off',
          receipts_root: 'calibrating',
        },
        unproved_types: ['0x7e'],
      },
      agreement: {
        quorum: 2,
        internal_transfers: { nodes: 1, compared: false },
        outvoted: [{ node: 'chain.rpc[0]', message: 'eth_call: others agree', at: noon.toISOString() }],
      },
      pushed_heads: true,
      database: kind,
    });
  });

  test('after a failed write, /readyz is 503 and /status degraded until a write succeeds', async () => {
    await mine(database(), headerOf(7), []);
    const { ask, writes, clock, status: source } = createStory(database());
    const full = writes.watch('follower');
    const raise = (code: string) =>
      sql`update clock_state set probed_at = null where raise_error(${code}) is null`;
    await createRaise(database());
    await assert.rejects(full.query(raise('53100')));
    const since = clock.now().toISOString();
    const { status, json } = await ask('GET', '/readyz');
    assert.equal(status, 503);
    const message =
      'database: nothing can be stored. The disk is full. Free space on the volume of the database.';
    assert.deepEqual((json as { checks: { writes: unknown } }).checks.writes, {
      ok: false,
      message: `follower has stored nothing since ${since}: ${message}`,
    });
    const shown = (await ask('GET', '/status')).json as Record<string, unknown>;
    const problem = { message: `follower has stored nothing: ${message}`, since };
    assert.deepEqual([shown.state, shown.problem], ['degraded', problem]);
    assert.deepEqual(shown.write_failures, [{ part: 'follower', message, since }]);
    // The follower fails with the same error, which has no advice.
    const step = source.watch(async () => {
      await full.query(raise('53100'));
      return 'idle';
    });
    await assert.rejects(step(new AbortController().signal));
    assert.deepEqual(((await ask('GET', '/status')).json as Record<string, unknown>).problem, problem);
    await full.query(sql`update clock_state set probed_at = null`);
    assert.equal((await ask('GET', '/readyz')).status, 200);
  });

  test('a problem keeps its beginning and its advice, whichever statement a read-only server refuses', async () => {
    const { ask, writes, clock, status: source } = createStory(database());
    const follower = writes.watch('follower');
    await createRaise(database());
    const refuse = (text: string) => async () => {
      await follower.query(
        sql`update clock_state set probed_at = null where raise_error('25006', ${text}) is null`,
      );
      return 'idle' as const;
    };
    const { signal } = new AbortController();
    const since = clock.now().toISOString();
    for (const text of ['cannot execute INSERT', 'cannot execute UPDATE', 'cannot execute DELETE']) {
      await assert.rejects(source.watch(refuse(text))(signal));
      clock.advance(2_000);
      // The last failure of the step may come from something else than the write.
      const other = new Fault('unavailable', 'database: cannot lock');
      await assert.rejects(source.watch(() => Promise.reject(other))(signal));
      const { problem } = (await ask('GET', '/status')).json as StatusBody;
      assert.deepEqual(problem, {
        message: `follower has stored nothing: database: ${text}. The server may be a standby. Point database.url, and database.sessionUrl if you use it, to the primary server.`,
        since,
      });
    }
    await follower.query(sql`update clock_state set probed_at = null`);
  });

  test('/status shows a step of the clock while pruning waits for it', async () => {
    const pruneFrom = later(86_400_000);
    const { ask } = createStory(database(), undefined, () => ({ ms: -3_600_500, at: noon, pruneFrom }));
    assert.deepEqual(((await ask('GET', '/status')).json as { clock_step: unknown }).clock_step, {
      seconds: -3600.5,
      at: noon.toISOString(),
      pruning_resumes_at: pruneFrom.toISOString(),
    });
  });

  test('/status of a new installation has null for unknown numbers', async () => {
    const { ask } = createStory(database(), nodesWith([failing]));
    const { chain, cursor, lag_blocks, lag_seconds, queue } = (await ask('GET', '/status')).json as {
      [key: string]: unknown;
    };
    assert.deepEqual(
      { chain, cursor, lag_blocks, lag_seconds, queue },
      {
        chain: { id: 31337, genesis_hash: null, head: null, finalized: null, corroborated: null },
        cursor: null,
        lag_blocks: null,
        lag_seconds: null,
        queue: { deferred: 0, held: 0, waiting: 0, due: 0, oldest_due_age_seconds: 0, is_complete: true },
      },
    );
  });

  test('/status shows the problem of the follower and since when, until it works again', async () => {
    const { ask, status, clock, metrics } = createStory(database());
    const { signal } = new AbortController();
    const problemOf = async () => {
      await status.refreshMetrics();
      const { state, problem } = (await ask('GET', '/status')).json as { state: string; problem: unknown };
      return { state, problem, held: (await metrics.chainHeld.get()).values[0]?.value };
    };
    const fail = (fault: Fault) => assert.rejects(status.watch(() => Promise.reject(fault))(signal));
    await fail(new Fault('unavailable', 'no node answers'));
    const since = clock.now().toISOString();
    assert.deepEqual(await problemOf(), {
      state: 'degraded',
      problem: { message: 'no node answers', since },
      held: 0,
    });
    clock.advance(5_000);
    await fail(new Fault('inconsistent', 'block 9 has another receipts root'));
    assert.deepEqual(await problemOf(), {
      state: 'holding',
      problem: { message: 'block 9 has another receipts root', since },
      held: 1,
    });
    await status.watch(async () => 'idle')(signal);
    assert.deepEqual(await problemOf(), { state: 'ok', problem: null, held: 0 });
  });

  test('/metrics shows the queue at that moment', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf(), transferOf()], { now: later(-5_000) });
    await mine(database(), headerOf(2), [transferOf()], { confirmations: 1 });
    const { metrics, status } = createStory(database());
    const text = await readMetrics(metrics, status.refreshMetrics);
    assert.match(text, /^chainbell_webhook_waiting 3$/m);
    assert.match(text, /^chainbell_webhook_due 2$/m);
    assert.match(text, /^chainbell_webhook_oldest_due_age_seconds 5$/m);
    assert.match(text, /^chainbell_build_info\{version="1\.2\.3"\} 1$/m);
    assert.match(text, /^chainbell_rpc_concurrency_max\{node="http:\/\/node\.example"\} 16$/m);
  });

  test('requests are measured by route and not by path, so the number of labels is bounded', async () => {
    const story = createApiStory(database());
    for (const url of [
      '/livez',
      '/api/notifications/watched-addresses/1',
      '/api/notifications/watched-addresses/2',
      '/nothing/1',
      '/nothing/2',
    ]) {
      await story.ask('GET', url);
    }
    const text = await story.metrics.registry.metrics();
    const counts = text.matchAll(
      /^chainbell_http_request_duration_seconds_count\{.*route="([^"]+)",code="(\d+)"\}/gm,
    );
    const routes = Array.from(counts, ([, route, code]) => `${route} ${code}`);
    assert.deepEqual(routes.sort(), [
      '/api/notifications/watched-addresses/:id 401',
      '/livez 200',
      'unknown 404',
    ]);
  });
});

onPostgres(({ place }) => {
  test('/readyz is 503 while the database is down, and 200 after it is back', async () => {
    const url = new URL(place().url);
    await using proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
    url.port = String(proxy.port);
    const database = await openDatabase({ url: url.href, dataDir: '' });
    await mine(database, headerOf(1), []);
    const { ask, metrics, status } = createStory(database);
    assert.equal((await ask('GET', '/readyz')).status, 200);
    await proxy.cut();
    const away = await ask('GET', '/readyz');
    assert.equal(away.status, 503);
    assert.deepEqual((away.json as { checks: { database: unknown } }).checks.database, {
      ok: false,
      message: 'cannot be reached',
    });
    assert.equal((await ask('GET', '/livez')).status, 200);
    const shown = await ask('GET', '/status');
    assert.equal(shown.status, 200);
    const { state, queue, problem } = shown.json as StatusBody;
    assert.deepEqual([state, queue], ['degraded', null]);
    assert.match(
      problem?.message ?? '',
      /^database: .*check that the database runs, and check database.url$/,
    );
    assert.match(await readMetrics(metrics, status.refreshMetrics), /^chainbell_build_info/m);
    await proxy.mend();
    assert.equal((await ask('GET', '/readyz')).status, 200);
    await database.close();
  });
});

describe('metrics', () => {
  test('the names are the public ones', async () => {
    const names = (await createMetrics('1.2.3').registry.getMetricsAsJSON()).map(({ name }) => name);
    assert.deepEqual(names.filter((name) => name.startsWith('chainbell_')).sort(), METRIC_NAMES);
  });

  test('docs/reference/metrics.md names every metric and none that is not there', {
    skip: !existsSync(REFERENCE),
  }, () => {
    const documented = readFileSync(REFERENCE, 'utf8').matchAll(/`(chainbell_[a-z_]+)/g);
    assert.deepEqual(new Set(Array.from(documented, ([, name]) => name)), new Set(METRIC_NAMES));
  });

  test('the metrics server answers GET /metrics and nothing else', async () => {
    const metrics = createMetrics('1.2.3');
    await readMetrics(
      metrics,
      async () => {},
      async (origin) => {
        for (const [method, path] of [
          ['GET', '/'],
          ['POST', '/metrics'],
          ['GET', '/metrics/x'],
        ] as const) {
          const response = await fetch(origin + path, { method });
          assert.equal(response.status, 404);
          await response.body?.cancel();
        }
        const { status, headers } = await fetch(`${origin}/metrics?a=b`);
        assert.equal(status, 200);
        assert.match(headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
      },
    );
  });
});

/** The text of /metrics, over a real connection. `alsoAsk` may send further requests meanwhile. */
async function readMetrics(
  metrics: ReturnType<typeof createMetrics>,
  refresh: () => Promise<void>,
  alsoAsk: (origin: string) => Promise<void> = async () => {},
): Promise<string> {
  const server = createMetricsServer(metrics, refresh).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const origin = `http://127.0.0.1:${address.port}`;
  try {
    await alsoAsk(origin);
    return await (await fetch(`${origin}/metrics`)).text();
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
