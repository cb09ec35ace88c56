import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { planMarket } from '../../devnet/market.ts';
import { type DemoFacts, renderScreen } from '../../devnet/screen.ts';
import type { Address } from '../../src/core/hex.ts';

const address = (digit: string): Address => `0x${digit.repeat(40)}`;

const facts: DemoFacts = {
  version: '1.2.3',
  chain: { id: 31337, block: 17, rpcUrl: 'http://127.0.0.1:1', wsUrl: 'ws://127.0.0.1:1' },
  apiUrl: 'http://127.0.0.1:2',
  metricsUrl: 'http://127.0.0.1:3/metrics',
  dataFolder: '/data',
  adminToken: 'a'.repeat(43),
  apiKey: 'cb_live_key',
  receiverUrl: 'http://127.0.0.1:4',
  priceFeedUrl: 'http://127.0.0.1:5',
  month: '2026-11',
  watched: [{ id: 'the-id', address: address('1') }],
  scene: {
    traders: [address('1'), address('2'), address('3'), address('4')],
    visitor: address('5'),
    deployer: address('6'),
    members: [address('b')],
    market: planMarket(address('6')),
    contracts: {
      token: address('7'),
      feeToken: address('8'),
      collectible: address('9'),
      splitter: address('a'),
    },
  },
  story: 'continuing at block 17',
  retryMinutes: [1, 3],
};

const screen = renderScreen(facts, (_style, text) => text);
const commands = screen.split('\n').filter((line) => line.startsWith('  curl '));

test('the screen shows everything a user needs: API, key, chain, data, contracts', () => {
  const { apiUrl, apiKey, metricsUrl, dataFolder, story, chain, scene } = facts;
  const values = [apiUrl, apiKey, metricsUrl, dataFolder, story, chain.rpcUrl, scene.visitor];
  for (const value of [...values, ...Object.values(scene.contracts), scene.market.router])
    assert.ok(screen.includes(value), value);
});

test('every endpoint has a line that a shell can run unchanged', () => {
  const user = `user=${address('b')}`;
  const collection = 'http://127.0.0.1:2/api/notifications/watched-addresses';
  const targets = commands.map((command) => {
    // `set -- words` splits the line as a shell does, without running it.
    const words = execFileSync('sh', ['-c', `set -- ${command}; printf '%s\\n' "$@"`], {
      encoding: 'utf8',
    }).split('\n');
    const data = words[words.indexOf('-d') + 1];
    if (words.includes('-d')) JSON.parse(data ?? '');
    const method = words.includes('-X')
      ? words[words.indexOf('-X') + 1]
      : words.includes('-d')
        ? 'POST'
        : 'GET';
    return `${method} ${words.find((word) => word.startsWith('http'))}`;
  });
  assert.deepEqual(targets, [
    `POST ${collection}`,
    'POST http://127.0.0.1:1',
    'GET http://127.0.0.1:2/api/price/native',
    'GET http://127.0.0.1:2/api/price/reward',
    'GET http://127.0.0.1:2/api/swap/volume/2',
    'GET http://127.0.0.1:2/api/swap/lp-value/1',
    'GET http://127.0.0.1:2/api/native/supply-info',
    'GET http://127.0.0.1:2/api/points/leaderboard?month=2026-11',
    `GET http://127.0.0.1:2/api/points/user?month=2026-11&${user}`,
    `GET http://127.0.0.1:2/api/points/user-by-category?month=2026-11&${user}`,
    `GET http://127.0.0.1:2/api/points/user-by-current-month?${user}`,
    `GET http://127.0.0.1:2/api/points/vs-last-month?${user}`,
    `GET ${collection}`,
    `GET ${collection}/the-id`,
    `PATCH ${collection}/the-id`,
    `DELETE ${collection}/the-id`,
    'POST http://127.0.0.1:4/break',
    'POST http://127.0.0.1:4/mend',
    'GET http://127.0.0.1:2/status',
    'GET http://127.0.0.1:2/livez',
    'GET http://127.0.0.1:2/readyz',
    'GET http://127.0.0.1:3/metrics',
  ]);
});
