/**
 * /status, /readyz and metrics of several processes on one database. The tests control the time.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatusBody } from '../../../src/api/ops/status-body.ts';
import { createDeploymentStatus } from '../../../src/app/deployment-status.ts';
import { createProcessRegistry } from '../../../src/app/process-registry.ts';
import { createStatus } from '../../../src/app/status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import {
  type FailingWork,
  type FollowerReport,
  listProcesses,
  type ReportedFailure,
} from '../../../src/store/deployment/processes.ts';
import { insertRound } from '../../../src/store/prices/price-rounds.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import type { KnownStatus } from '../../kit/known-status.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory } from '../api-story.ts';

const config = loadConfig({
  env: { CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://node.example' },
});
const feed = (symbol: string) => ({ everySeconds: 30, sources: [{ type: 'binance' as const, symbol }] });
const withFeed = loadConfig({
  env: {},
  overrides: { chain: { id: 31337, rpc: ['http://node.example'] }, prices: { native: feed('ETHUSDT') } },
});
const withTwoFeeds = {
  ...withFeed,
  prices: { ...withFeed.prices, tokens: { DAI: feed('DAIUSDT') } },
} as typeof config;
const { signal } = new AbortController();

/** A process without loops. The test sends its heartbeats. */
function startProcess(database: Database, clock: TestClock, roles: string[], feeds = config) {
  const metrics = createMetrics('1');
  let follower: FollowerReport = {
    leads: roles.includes('follower'),
    state: 'ok',
    head: 9,
    problem: undefined,
  };
  let failures: readonly ReportedFailure[] = [];
  let failing: readonly FailingWork[] = [];
  const deployment = createProcessRegistry({
    ...{ database, clock, roles, version: '1', kekIds: [] },
    failures: async () => failures,
    failingWork: () => failing,
    leads: () => follower.leads,
    report: async () => (roles.includes('follower') ? follower : undefined),
  });
  const status = createStatus({
    onBug: assert.fail,
    ...{ version: '1', config: feeds, database, clock, metrics, nodes: undefined, proof: undefined },
    writes: createWriteHealth(database, clock),
    recentStep: () => undefined,
    deployment: createDeploymentStatus({ config: feeds, database, deployment, clock, metrics }),
  });
  const { ask } = createApiStory(database, status);
  return {
    id: deployment.id,
    metrics,
    status,
    beat: () => deployment.beat(signal),
    end: deployment.end,
    says(report: Partial<FollowerReport>) {
      follower = { ...follower, ...report };
    },
    /** The state that its write health would report. */
    cannotStore(...what: ReportedFailure[]) {
      failures = what;
    },
    hasBug(...work: FailingWork[]) {
      failing = work;
    },
    ask,
    async body() {
      const { status: code, json, text } = await ask('GET', '/status');
      assert.equal(code, 200, text);
      return json as KnownStatus;
    },
    async metric(name: string, labels: Record<string, string> = {}) {
      // As /metrics does: it rejects while the database can't be read.
      await status.refreshMetrics().catch(() => {});
      const text = await metrics.registry.metrics();
      const shown = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
      const line = shown.length === 0 ? name : `${name}{${shown.join(',')}}`;
      return text
        .split('\n')
        .find((one) => one.startsWith(`${line} `))
        ?.slice(line.length + 1);
    },
  };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  function createStory() {
    const clock = createTestClock();
    const startOn =
      (own: Database) =>
      (...roles: string[]) =>
        startProcess(own, clock, roles);
    const start = startOn(database());
    /** Lets time pass while these processes send heartbeats. */
    async function pass(seconds: number, ...living: { beat(): Promise<unknown> }[]) {
      for (let second = 0; second < seconds; second += 2) {
        clock.advance(2_000);
        for (const one of living) await one.beat();
      }
    }
    return { clock, start, startOn, pass };
  }

  test('while one process cannot store outcomes, every process reports it', async () => {
    const { start, pass } = createStory();
    const [api, follower, delivery] = [start('api'), start('follower'), start('delivery')];
    const message = 'No space left on device. Free space on the disk of the database.';
    delivery.cannotStore({ part: 'delivery', message, since: noon });
    await pass(4, follower, delivery, api);
    const { state, problem, write_failures } = await api.body();
    const told = `process ${delivery.id}: ${message}`;
    assert.equal(state, 'degraded');
    assert.equal(problem?.message, `delivery has stored nothing: ${told}`);
    assert.deepEqual(write_failures, [{ part: 'delivery', message: told, since: noon.toISOString() }]);
    assert.equal((await api.status.deployment?.())?.state, 'degraded');
    delivery.cannotStore();
    await pass(4, follower, delivery, api);
    assert.deepEqual([(await api.body()).state, (await api.status.deployment?.())?.state], ['ok', 'ok']);
  });

  test('a bug in other work is named only where outcomes are stored', async () => {
    const { start, pass } = createStory();
    const [api, follower, delivery] = [start('api'), start('follower'), start('delivery')];
    delivery.hasBug({ work: 'statistics', since: noon, isBug: true });
    delivery.cannotStore({ part: 'delivery', message: 'The disk is full.', since: noon });
    await pass(4, follower, delivery, api);
    const body = await api.body();
    assert.match(body.problem?.message ?? '', /^delivery has stored nothing: .*The disk is full\.$/);
    assert.equal(body.failing_work.length, 1);
    assert.match((await api.status.deployment?.())?.message ?? '', /The disk is full/);
    delivery.cannotStore();
    await pass(4, follower, delivery, api);
    assert.match((await api.body()).problem?.message ?? '', /"statistics"/);
    assert.match((await api.status.deployment?.())?.message ?? '', /"statistics"/);
    delivery.hasBug();
    await pass(4, follower, delivery, api);
    assert.deepEqual([(await api.body()).state, (await api.status.deployment?.())?.state], ['ok', 'ok']);
  });

  test('every process shows all processes and the state of the leading follower', async () => {
    const { start, pass } = createStory();
    const [api, follower] = [start('api'), start('follower', 'delivery')];
    await mine(database(), headerOf(7), []);
    await pass(20, follower, api);
    const seen = async (one: typeof api) => {
      const { state, chain, lag_blocks, processes, missing } = await one.body();
      return {
        ...{ state, head: chain.head, lag: lag_blocks, missing },
        processes: processes.map(({ id, roles, state: at, follower: own }) => [
          id,
          roles,
          at,
          own?.leads ?? null,
        ]),
      };
    };
    const common = { state: 'ok', head: 9, lag: 2, missing: [] };
    assert.deepEqual(await seen(api), {
      ...common,
      processes: [
        [api.id, ['api'], 'running', null],
        [follower.id, ['delivery', 'follower'], 'running', true],
      ],
    });
    const problem = { message: 'block 8 of http://node.example is not proved', since: noon };
    follower.says({ state: 'holding', problem });
    await pass(2, api, follower);
    const { state, problem: shown } = await api.body();
    assert.deepEqual([state, shown?.message], ['holding', 'block 8 of chain.rpc[0] is not proved']);
    assert.equal(await api.metric('chainbell_chain_held'), '1');
    assert.equal(await api.metric('chainbell_state', { state: 'holding' }), '1');
    assert.equal(await api.metric('chainbell_state', { state: 'ok' }), '0');
  });

  for (const [how, state, pattern] of [
    ['is killed', 'lost', /^no process follows the chain: process (\w+) is lost/],
    ['is stopped', 'stopped', /^no process follows the chain: process (\w+) was stopped/],
    [
      'is ended by a bug',
      'failed',
      /^no process follows the chain: a bug ended process (\w+)\. .*service\.failed/,
    ],
  ] as const)
    test(`10 s after the only follower ${how}, every process is degraded and names it; with a new one all is well`, async () => {
      const { start, pass, clock } = createStory();
      const [api, delivery, follower] = [start('api'), start('delivery'), start('follower')];
      await mine(database(), headerOf(9), []);
      await pass(4, follower, delivery, api);
      const sinceMs = clock.now().getTime();
      if (state !== 'lost') await follower.end({ isFailed: state === 'failed', error: undefined });
      await pass(8, api, delivery);
      assert.equal((await api.body()).state, 'ok', 'a moment is normal');
      await pass(4, api, delivery);
      for (const one of [api, delivery]) {
        const { state: whole, problem, processes, chain, lag_blocks } = await one.body();
        assert.deepEqual([whole, chain.head, lag_blocks], ['degraded', null, null]);
        const offMs = Date.parse(problem?.since ?? '') - sinceMs;
        assert.ok(Math.abs(offMs) <= 4_000, `off by ${offMs} ms`);
        assert.equal(pattern.exec(problem?.message ?? '')?.[1], follower.id);
        assert.equal(processes.find(({ id }) => id === follower.id)?.state, state);
        assert.equal(await one.metric('chainbell_role_missing', { role: 'follower' }), '1');
        assert.equal(await one.metric('chainbell_chain_held'), undefined);
        assert.equal(await one.metric('chainbell_state', { state: 'degraded' }), '1');
      }
      const { status, json } = await api.ask('GET', '/readyz');
      assert.equal(status, 200, 'it can answer');
      assert.equal((json as { deployment: { state: string } }).deployment.state, 'degraded');
      const next = start('follower');
      await pass(2, api, delivery, next);
      assert.deepEqual([(await api.body()).state, (await api.body()).problem], ['ok', null]);
    });

  test('without a leader, the head is that of a follower on standby', async () => {
    const { start, pass } = createStory();
    const [api, leader, standby] = [start('api'), start('follower'), start('follower')];
    standby.says({ leads: false, head: 12 });
    await mine(database(), headerOf(9), []);
    await pass(4, leader, standby, api);
    assert.equal((await api.body()).chain.head, 9);
    await pass(20, standby, api);
    const { chain, lag_blocks, problem } = await api.body();
    assert.deepEqual([chain.head, lag_blocks], [12, 3]);
    assert.match(problem?.message ?? '', /^no process follows the chain/);
  });

  test('a process without the database reports since when, even to its first request', async () => {
    const { clock, start, startOn, pass } = createStory();
    let isDown = false;
    const refuse = async () => {
      throw new Fault('unavailable', 'database: connection refused');
    };
    const down: Database = {
      ...database(),
      query: (statement) => (isDown ? refuse() : database().query(statement)),
      transaction: (work) => (isDown ? refuse() : database().transaction(work)),
    };
    const api = startOn(down)('api');
    await pass(4, api);
    isDown = true;
    clock.advance(2_000);
    const since = clock.now().toISOString();
    await assert.rejects(api.beat());
    clock.advance(600_000);
    await assert.rejects(api.beat());
    const body: StatusBody = await api.body();
    const { state, problem, lag_blocks, lag_seconds } = body;
    assert.deepEqual([state, problem?.since, lag_blocks, lag_seconds], ['degraded', since, null, null]);
    const { processes, missing, failing_work, write_failures, receivers, queue } = body;
    assert.deepEqual(
      { processes, missing, failing_work, write_failures, receivers, queue },
      {
        ...{ processes: null, missing: null, failing_work: null, write_failures: null },
        ...{ receivers: null, queue: null },
      },
      'an empty list would say that all is well',
    );
    assert.equal(await api.metric('chainbell_role_missing', { role: 'follower' }), undefined);
    assert.equal(await api.metric('chainbell_state', { state: 'degraded' }), '1');
    assert.equal((await api.ask('GET', '/readyz')).status, 503);
    isDown = false;
    await pass(4, api, start('follower'));
    assert.equal((await api.body()).problem?.since === since, false);
  });

  test('what cannot be read is null, and hides neither the processes nor their problems', async () => {
    const { start, startOn, pass } = createStory();
    const locked: Database = {
      ...database(),
      async query(statement) {
        if (/\bqueue\b/.test(statement.text)) throw new Fault('unavailable', 'database: a lock');
        return database().query(statement);
      },
    };
    const [api, follower] = [startOn(locked)('api'), start('follower')];
    await pass(4, follower, api);
    const body: StatusBody = await api.body();
    assert.deepEqual([body.queue, body.late, body.missing, body.processes?.length], [null, null, [], 2]);
    assert.deepEqual([body.state, body.receivers], ['degraded', { failing: 0, watchers: 0, since: null }]);
    assert.match(
      body.problem?.message ?? '',
      /^database: a lock\. \/status has null for what it could not read/,
    );
    assert.equal(await api.metric('chainbell_role_missing', { role: 'follower' }), '0');
    assert.equal(await api.metric('chainbell_webhook_late_watchers'), undefined);
    await pass(20, api);
    assert.match((await api.body()).problem?.message ?? '', /^no process follows the chain: .* is lost/);
  });

  test('a process that can only read calls no other one lost, and says why it doesn’t know', async () => {
    const { start, startOn, pass } = createStory();
    let isReadOnly = false;
    const readable: Database = {
      ...database(),
      async query(statement) {
        if (isReadOnly && /^\s*(insert|update|delete)/.test(statement.text))
          throw new Fault('unavailable', 'database: it is read-only');
        return database().query(statement);
      },
    };
    const [api, follower] = [startOn(readable)('api'), start('follower', 'delivery')];
    await pass(4, follower, api);
    isReadOnly = true;
    const rejected = { beat: () => assert.rejects(api.beat()) };
    await pass(60, rejected);
    const { processes, missing, problem, state } = await api.body();
    assert.deepEqual(new Set(processes.map((one) => one.state)), new Set(['running']));
    assert.deepEqual([missing, state], [[], 'degraded']);
    assert.match(problem?.message ?? '', /can't store its heartbeat.*: database: it is read-only/);
    assert.equal(await api.metric('chainbell_role_missing', { role: 'follower' }), undefined);
    isReadOnly = false;
    await pass(8, api);
    assert.deepEqual((await api.body()).missing, []);
    await pass(4, api);
    assert.deepEqual(
      (await api.body()).missing.map(({ role }) => role),
      ['follower'],
    );
  });

  test('a process whose row was removed while it was suspended runs again with its next heartbeat', async () => {
    const { start, pass } = createStory();
    const [api, follower] = [start('api'), start('follower')];
    await pass(20, follower, api);
    await pass(12, api);
    const stateOf = async () =>
      (await api.body()).processes.find(({ id }) => id === follower.id)?.state ?? 'not listed';
    assert.equal(await stateOf(), 'lost');
    await database().query(sql`delete from process where id = ${follower.id}`);
    await pass(2, follower, api);
    assert.equal(await stateOf(), 'running');
    const [stored] = (await listProcesses(database())).filter(({ id }) => id === follower.id);
    assert.equal(stored?.beat, 11, 'counts on');
  });

  test('a stopped leader stays listed and named while another follower stands by, and the problem begins with its stop', async () => {
    const { clock, start, pass } = createStory();
    const [api, leader, standby] = [start('api'), start('follower'), start('follower')];
    standby.says({ leads: false });
    await pass(4, leader, standby, api);
    const stoppedMs = clock.now().getTime();
    // The database's clock is not the test's.
    await database().query(
      sql`update process set seen_at = seen_at - interval '1 minute' where id = ${leader.id}`,
    );
    const seen = new Set<string | undefined>();
    for (let times = 0; times < 20; times += 1) {
      await pass(10, standby, api);
      clock.advance(7);
      const { problem, processes } = await api.body();
      seen.add(problem?.since);
      assert.ok(processes.some(({ id }) => id === leader.id));
      assert.match(
        problem?.message ?? '',
        new RegExp(`${leader.id} is lost .*${standby.id} can't lead while`),
      );
    }
    const [since] = seen;
    assert.equal(seen.size, 1, 'the same at each question');
    assert.ok(Math.abs(Date.parse(since ?? '') - stoppedMs) <= 2_000);
    standby.says({ leads: true });
    await pass(4, standby, api);
    const { problem, processes } = await api.body();
    assert.deepEqual([problem, processes.some(({ id }) => id === leader.id)], [null, false]);
  });

  test('after the only follower restarts, the problem begins with the end of the previous one', async () => {
    const { clock, start, pass } = createStory();
    const [api, former] = [start('api'), start('follower')];
    await pass(60, former, api);
    await former.end({ isFailed: false, error: undefined });
    const endedMs = clock.now().getTime();
    await pass(20, api);
    const next = start('follower');
    next.says({ leads: false });
    await pass(4, next, api);
    const { problem } = await api.body();
    assert.match(
      problem?.message ?? '',
      new RegExp(`${former.id} was stopped, and process ${next.id} doesn't lead yet`),
    );
    assert.ok(Math.abs(Date.parse(problem?.since ?? '') - endedMs) <= 2_000);
  });

  test('the head is never below the newest block, even if the follower reported it earlier', async () => {
    const { start, pass } = createStory();
    const [api, follower] = [start('api'), start('follower')];
    follower.says({ head: 1 });
    await pass(4, follower, api);
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), []);
    const { chain, cursor, lag_blocks } = await api.body();
    assert.deepEqual([chain.head, cursor?.number, lag_blocks], [2, 2, 0]);
  });

  test('after a hand-over one follower leads, even if the previous one still claims to lead', async () => {
    const { start, pass } = createStory();
    const [api, former, next] = [start('api'), start('follower'), start('follower')];
    next.says({ leads: false });
    await pass(4, api, former, next);
    next.says({ leads: true, head: 11 });
    for (const living of [
      [former, next, api],
      [next, api],
      [next, former, api],
    ]) {
      await pass(2, ...living);
      for (const one of [api, former, next]) {
        const { processes, chain } = await one.body();
        const leading = processes.filter(({ follower }) => follower?.leads === true).map(({ id }) => id);
        assert.deepEqual([leading, chain.head], [[next.id], 11]);
      }
    }
  });

  test('followers that only stand by do not count as following', async () => {
    const { start, pass } = createStory();
    const [api, standby] = [start('api'), start('follower')];
    standby.says({ leads: false });
    await pass(8, api, standby);
    assert.equal((await api.body()).state, 'ok', 'elections take a moment');
    await pass(4, api, standby);
    const { state, problem } = await api.body();
    assert.equal(state, 'degraded');
    assert.match(problem?.message ?? '', new RegExp(`process ${standby.id} runs, but doesn't lead`));
  });

  test('a delivery process is missing only if webhooks wait, and a price reader only if feeds exist', async () => {
    const { start, pass, clock } = createStory();
    const [api, follower] = [start('api'), start('follower')];
    const priced = startProcess(database(), clock, ['api'], withFeed);
    await pass(12, api, follower, priced);
    assert.deepEqual((await api.body()).missing, []);
    const [absent, ...others] = (await priced.body()).missing;
    assert.deepEqual([absent?.role, others], ['prices', []]);
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await pass(2, api, follower, priced);
    const { state, missing } = await api.body();
    assert.deepEqual([state, missing.map(({ role }) => role)], ['degraded', ['delivery']]);
    assert.match(missing[0]?.message ?? '', /^no process delivers webhooks: /);
  });

  test('prices that no process reads any more are reported, although another one with the role runs', async () => {
    const { clock, pass } = createStory();
    const start = (...roles: string[]) => startProcess(database(), clock, roles, withFeed);
    const [reader, standby, api] = [start('prices'), start('follower', 'prices'), start('api')];
    const other = startProcess(database(), clock, ['api'], withTwoFeeds);
    const lastAts = new Map<string, Date>();
    async function readPrice(asset = 'ETH') {
      const [at, lastAt] = [clock.now(), lastAts.get(asset)];
      const answer = { source: 'binance', price: undefined, conf: undefined, observedAt: undefined };
      const reports = [{ ...answer, verdict: 'failed' as const, message: 'no answer' }];
      const decision = { price: undefined, isAgreed: false, isDisputed: false };
      assert.equal(await insertRound(database(), { asset, at, reports, ...decision }, lastAt), 'stored');
      lastAts.set(asset, at);
    }
    await pass(4, reader, standby, api);
    for (let times = 0; times < 3; times += 1) {
      await readPrice();
      await pass(30, reader, standby, api);
      assert.deepEqual((await api.body()).missing, []);
    }
    await readPrice();
    await pass(60, standby, api, other);
    await readPrice('DAI');
    assert.deepEqual((await api.body()).missing, [], 'a round may be late');
    const dueAt = later(clock.now().getTime() - noon.getTime() - 30_000).toISOString();
    await pass(10, standby, api, other);
    assert.deepEqual((await other.body()).missing, [], 'one feed is still read');
    for (const one of [api, standby]) {
      const { state, missing, problem } = await one.body();
      const [{ role, since } = {}, ...more] = missing;
      assert.deepEqual([state, role, since, more], ['degraded', 'prices', dueAt, []]);
      const pattern = `^no process reads prices: process ${reader.id} is lost .*${standby.id} can't lead while`;
      assert.match(problem?.message ?? '', new RegExp(pattern));
      assert.equal(await one.metric('chainbell_role_missing', { role: 'prices' }), '1');
    }
    await readPrice();
    await pass(60, standby, api);
    assert.deepEqual((await api.body()).missing, []);
    assert.equal(await api.metric('chainbell_role_missing', { role: 'prices' }), '0');
    await pass(10, standby, api);
    const { problem } = await api.body();
    const pattern = new RegExp(`process ${standby.id} runs, but the price of ETH is overdue`);
    assert.match(problem?.message ?? '', pattern);
  });

  test('failing receivers do not change the state, but it is degraded when those of three watchers fail and nothing arrives', async () => {
    const { start, pass, clock } = createStory();
    const [api, rest] = [start('api'), start('follower', 'delivery')];
    for (const watcherId of [1, 2, 3])
      await watchAddress(database(), { watcherId, address: addressOf(watcherId) });
    await pass(2, api, rest);
    for (const number of [1, 2]) {
      await mine(database(), headerOf(number), [transferOf({ receiver: addressOf(number) })]);
      await attemptDue(database(), { now: clock.now(), succeeds: false });
    }
    await pass(2, api, rest);
    const few = await api.body();
    assert.deepEqual([few.state, few.receivers?.failing, few.receivers?.watchers], ['ok', 2, 2]);
    assert.equal(await api.metric('chainbell_webhook_failing_receivers'), '2');
    await mine(database(), headerOf(3), [transferOf({ receiver: addressOf(3) })]);
    await attemptDue(database(), { now: clock.now(), succeeds: false });
    await pass(2, api, rest);
    const all = await api.body();
    assert.equal(all.state, 'degraded');
    assert.match(
      all.problem?.message ?? '',
      /^no webhook is accepted, and receivers of 3 watchers began to fail/,
    );
  });

  test('late watchers are counted without their names', async () => {
    const { start, pass, clock } = createStory();
    const [api, rest] = [start('api'), start('follower', 'delivery')];
    await database().query(sql`insert into watcher (name, created_at) values ('acme', ${noon})`);
    await watchAddress(database(), { url: 'https://secret.example/' });
    await mine(database(), headerOf(1), [transferOf()]);
    await pass(80, api, rest);
    const body = await api.body();
    assert.deepEqual([body.state, body.late], ['ok', { watchers: 1, seconds: 80 }]);
    assert.equal(await api.metric('chainbell_webhook_late_watchers'), '1');
    assert.ok(!JSON.stringify(body).includes('secret.example'));
    const { late_watchers } = await api.status.details();
    assert.deepEqual(
      late_watchers?.map(({ watcher, seconds }) => [watcher, seconds]),
      [['acme', 80]],
    );
    assert.deepEqual(clock.now(), later(80_000));
  });

  test('gauges that this process cannot read are absent', async () => {
    const { start, pass } = createStory();
    const [api, follower] = [start('api'), start('follower')];
    await pass(2, api, follower);
    follower.metrics.chainLagSeconds.set(3);
    follower.metrics.chainBlockNumber.set({ stage: 'head' }, 9);
    assert.equal(await follower.metric('chainbell_chain_lag_seconds'), '3');
    assert.equal(await api.metric('chainbell_chain_lag_seconds'), undefined);
    assert.equal(await api.metric('chainbell_chain_held'), '0');
    follower.says({ leads: false });
    assert.equal(await follower.metric('chainbell_chain_lag_seconds'), undefined);
    assert.equal(await follower.metric('chainbell_chain_block_number', { stage: 'head' }), undefined);
  });

  test('only operators see hosts', async () => {
    const { start, pass } = createStory();
    const api = start('api');
    await pass(2, api);
    const [stored] = await listProcesses(database());
    assert.ok(stored !== undefined && stored.host !== '');
    assert.equal((await api.status.details()).processes[0]?.host, stored.host);
    const [shown] = (await api.body()).processes;
    assert.deepEqual(Object.keys(shown ?? {}), [
      'id',
      'roles',
      'version',
      'state',
      'error',
      'started_at',
      'seen_at',
      'follower',
    ]);
  });

  test('a heartbeat is one small write that stays on its page', async () => {
    const { start, pass } = createStory();
    // While another session of this database has an older snapshot (autovacuum's, for example), old versions of the row stay.
    await waitUntil(async () => {
      await database().script('truncate process');
      await pass(200, start('follower'));
      const [table] = await database().query<{ pages: number; beats: number }>(sql`
        select (pg_relation_size('process') / 8192)::integer as pages, (select beat::integer from process) as beats`);
      assert.equal(table?.beats, 100);
      return table.pages === 1;
    });
  });
});
