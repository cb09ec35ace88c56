import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chainbell } from '../cli/chainbell.ts';
import { createDemoStage } from '../kit/demo.ts';
import { waitUntil } from '../kit/wait.ts';

/** Three times the time that the demo promises on an idle machine, for busy machines. */
const DATA_MS_MAX = 90_000;

type Check = (body: unknown) => void;

const fieldOf = (value: unknown, name: string): unknown => Object(value)[name];

function isNear(value: unknown, expected: number, part: number): void {
  assert.ok(
    typeof value === 'number' && Math.abs(value / expected - 1) < part,
    `${String(value)}, not ${expected}`,
  );
}

function isPositive(value: unknown): void {
  assert.ok(typeof value === 'number' && value > 0, String(value));
}

test('within half a minute every public endpoint of the demo answers with plausible, changing data', async (context) => {
  const stage = createDemoStage(context);
  const demo = stage.start();
  const facts = await demo.facts();
  const month = new Date().toISOString().slice(0, 7);
  const user = facts.members[0] ?? '';
  const feed = async (symbol: string) =>
    Number(fieldOf(await (await fetch(`${facts.price_feed_url}/${symbol}`)).json(), 'price'));
  const usd = { ETH: await feed('ETH'), RWD: await feed('RWD'), SOL: await feed('SOL') };

  const price =
    (expected: number): Check =>
    (body) => {
      assert.equal(fieldOf(body, 'base_currency'), 'USD');
      isNear(fieldOf(body, 'price'), expected, 0.1);
    };
  const volume: Check = (body) => isPositive(fieldOf(body, 'vol24h'));
  const lpValue: Check = (body) => {
    isPositive(fieldOf(body, 'latestPrice'));
    isPositive(fieldOf(body, 'lpPriceInUsd'));
  };
  const checks: Record<string, Check> = {
    '/api/price/native': price(usd.ETH),
    '/api/price/reward': price(usd.RWD),
    '/api/price/usdt': price(1),
    '/api/price/sol': price(usd.SOL),
    '/api/swap/volume/1': volume,
    '/api/swap/volume/2': volume,
    '/api/swap/volume/3': volume,
    '/api/swap/volume/4': volume,
    '/api/swap/volume/5': volume,
    '/api/swap/volume/6': volume,
    '/api/swap/lp-value/1': lpValue,
    '/api/swap/lp-value/2'(body) {
      lpValue(body);
      // The price of a coin in dollars, because the pair follows the feed.
      isNear(fieldOf(body, 'latestPrice'), usd.ETH, 0.1);
    },
    '/api/swap/lp-value/3': lpValue,
    '/api/swap/lp-value/4': lpValue,
    '/api/swap/lp-value/5': lpValue,
    '/api/swap/lp-value/6': lpValue,
    '/api/swap/pairs'(body) {
      assert.ok(Array.isArray(body) && body.length === 6);
    },
    '/api/native/supply-info'(body) {
      const raw = fieldOf(body, 'raw');
      const wei = (name: string) => BigInt(String(fieldOf(raw, `${name}_supply_wei`)));
      assert.equal(wei('circulating'), wei('initial') - wei('locked') - wei('burned'));
      assert.ok(wei('locked') > 0n && wei('burned') > 0n);
    },
    [`/api/points/leaderboard?month=${month}`](body) {
      assert.ok(Array.isArray(body) && body.length > 1);
      const points = body.map((entry) => Number(fieldOf(entry, 'points')));
      assert.deepEqual(
        points,
        points.toSorted((one, other) => other - one),
      );
      for (const entry of body) assert.ok(facts.members.includes(String(fieldOf(entry, 'user'))));
    },
    [`/api/points/user?month=${month}&user=${user}`](body) {
      assert.ok(Array.isArray(body) && body.length > 0);
      for (const entry of body) isPositive(fieldOf(entry, 'points'));
    },
    [`/api/points/user-by-category?month=${month}&user=${user}`](body) {
      assert.ok(Array.isArray(body) && body.length > 1);
    },
    [`/api/points/user-by-current-month?user=${user}`]: (body) => isPositive(fieldOf(body, 'points')),
    [`/api/points/vs-last-month?user=${user}`]: (body) =>
      isPositive(fieldOf(fieldOf(body, 'current'), 'points')),
    '/openapi.json': (body) => assert.match(String(fieldOf(body, 'openapi')), /^3\.1/),
  };

  const open = new Map(Object.entries(checks));
  const reasons = new Map<string, string>();
  const lookAgain = async () => {
    for (const [path, check] of open) {
      const response = await fetch(`${facts.api_url}${path}`);
      const text = await response.text();
      reasons.set(path, `${response.status} ${text.slice(0, 300)}`);
      try {
        assert.equal(response.status, 200);
        check(JSON.parse(text));
        open.delete(path);
      } catch {
        // Poll until the data is there.
      }
    }
    return open.size === 0;
  };
  await waitUntil(lookAgain, { timeoutMs: DATA_MS_MAX, describe: 'data at every endpoint' }).catch(() =>
    assert.fail([...open.keys()].map((path) => `${path}: ${reasons.get(path)}`).join('\n')),
  );
  assert.equal((await fetch(`${facts.api_url}/docs`)).status, 200);

  // A different limit bypasses the cached responses.
  const today = new Date().toISOString().slice(0, 10);
  let limit = 48;
  const listVolumes = async () => {
    limit += 1;
    const response = await fetch(`${facts.api_url}/api/swap/volume-history/2?from=${today}&limit=${limit}`);
    return response.text();
  };
  const before = await listVolumes();
  await waitUntil(async () => (await listVolumes()) !== before, {
    timeoutMs: DATA_MS_MAX,
    describe: 'a volume that moves',
  });

  // Commands find the demo by its usual folder, and this folder only resembles it.
  const folder = await mkdtemp(join(tmpdir(), 'chainbell-test-'));
  context.after(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, '.chainbell'));
  await symlink(stage.folder, join(folder, '.chainbell', 'demo'));
  const run = async (...words: string[]) => {
    const { code, out, err } = await chainbell(folder, {}, ...words);
    assert.equal(code, 0, `${words.join(' ')}: ${out}${err}`);
    assert.match(err, /uses that of the running demo/);
    return out;
  };
  assert.match(await run('watchers', 'list'), / active {2}1 {2,}demo$/m);
  assert.match(await run('keys', 'create', '--watcher', 'acme'), /^\S+\n$/);
  assert.match(await run('status'), /^state +ok$/m);
  await run('watchers', 'suspend', 'demo');
  await run('watchers', 'resume', 'demo');
  await run('verify', '--from', '1', '--to', '20');

  demo.process.kill('SIGINT');
  assert.equal(await demo.exitCode, 0, demo.text());
  const without = await chainbell(folder, {}, 'watchers', 'list');
  assert.equal(without.code, 78, without.err);
});
