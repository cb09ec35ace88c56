import assert from 'node:assert/strict';
import { test } from 'node:test';
import { STATUS_EXAMPLE } from '../../src/api/ops/status-body.ts';
import { createPublicView } from '../../src/app/public-view.ts';
import { loadConfig } from '../../src/config/load.ts';

const KEY = 'f00dfeed0123456789';
const page = (url: string) => ({ type: 'http' as const, url, path: '$.price' });
const config = loadConfig({
  env: {},
  overrides: {
    chain: {
      id: 1,
      rpc: [
        `https://node.example/v2/${KEY}`,
        `https://geth:8545`,
        `wss://node.example/v2/${KEY}`,
        'http://10.1.2.3:8545',
        'http://[fd00::7]:8545',
        'https://dotted.example.:8545',
      ],
    },
    database: {
      url: 'postgres://user:pw@db,replica.example:5433/chainbell',
      replicaUrl: 'postgres://user:pw@standby.example:5432/chainbell',
    },
    secret: Buffer.alloc(32, 7).toString('base64'),
    prices: { native: { sources: [page(`https://prices.example/?key=${KEY}`)] } },
  },
});
const view = createPublicView(config);
const shown = (message: string) => view.checks({ one: { ok: true, message } }).one?.message;

test('the public status names nodes by their position in the configuration and shows no host', () => {
  const texts = {
    [`https://node.example: 404 at /v2/${KEY}`]: 'chain.rpc[0]: 404 at …',
    'https://node.example names 7, https://geth:8545 names 8.': 'chain.rpc[0] names 7, chain.rpc[1] names 8.',
    'wss://node.example: closed': 'chain.rpc[2]: closed',
    'getaddrinfo ENOTFOUND node.example': 'getaddrinfo ENOTFOUND chain.rpc[0]',
    'getaddrinfo ENOTFOUND geth': 'getaddrinfo ENOTFOUND chain.rpc[1]',
    'Node geth/v1.14: no block': 'Node geth/v1.14: no block',
    'connect ECONNREFUSED 10.1.2.3:8545': 'connect ECONNREFUSED chain.rpc[3]',
    'connect ECONNREFUSED fd00::7:8545': 'connect ECONNREFUSED …',
    'cannot listen on 10.1.2.3:9466: address already in use 10.1.2.3:9466. Change metrics.port':
      'cannot listen on …:9466: address already in use …:9466. Change metrics.port',
    'connect ECONNREFUSED standby.example:5432': 'connect ECONNREFUSED the replica',
    'http://[fd00::7]:8545: reset': 'chain.rpc[4]: reset',
    'connect ECONNREFUSED 192.168.0.9:5432; connect ECONNREFUSED ::1:5432':
      'connect ECONNREFUSED …; connect ECONNREFUSED …',
    'database: getaddrinfo ENOTFOUND db': 'database: getaddrinfo ENOTFOUND the database server',
    'database: replica.example:5433 is read-only': 'database: the database server is read-only',
    'a redirect to https://elsewhere.example/path?x=1: it is not followed':
      'a redirect to …: it is not followed',
    'https://node.example.org is another': '… is another',
    'connect ETIMEDOUT 192.168.0.9:8545.Trying 192.168.0.9.Next': 'connect ETIMEDOUT ….Trying ….Next',
    'ENOTFOUND dotted.example, DOTTED.EXAMPLE.:8545': 'ENOTFOUND chain.rpc[5], chain.rpc[5]',
    'worker worker-1.example:5432 did not answer, and the same for worker 10.1.2.3:5432':
      'worker … did not answer, and the same for worker …',
    'connection to the remote node postgres@worker-1.example:5432 failed':
      'connection to the remote node … failed',
    'password authentication failed for user "chainbell"; role "chainbell" is not permitted to log in':
      'password authentication failed for user "…"; role "…" is not permitted to log in',
    'database "prod" does not exist': 'database "…" does not exist',
    'getaddrinfo ENOTFOUND hooks.acme.example': 'getaddrinfo ENOTFOUND …',
    'getaddrinfo EAI_AGAIN receiver, connect to hooks.acme.example:8443':
      'getaddrinfo EAI_AGAIN …, connect to …',
    "Host: hooks.acme.example. is not in the cert's altnames: DNS:*.acme.example, DNS:acme.example":
      "Host: … is not in the cert's altnames: DNS:…, DNS:…",
    "Host: node.example. is not in the cert's altnames: DNS:elsewhere.example":
      "Host: chain.rpc[0] is not in the cert's altnames: DNS:…",
    'via [::ffff:192.168.0.9]:8545 and fe80:0:0:0:0:0:0:1': 'via … and …',
    'since 2026-01-31T12:00:00.000Z, at 12:00:00, version 1.2.3':
      'since 2026-01-31T12:00:00.000Z, at 12:00:00, version 1.2.3',
  };
  assert.deepEqual(Object.fromEntries(Object.keys(texts).map((text) => [text, shown(text)])), texts);
});

test('price sources keep distinct names without a host', () => {
  const price = STATUS_EXAMPLE.prices?.[0];
  assert.ok(price !== undefined);
  const [first] = price.sources;
  assert.ok(first !== undefined);
  const sources = ['http:prices.example', 'http:prices.example#2', 'binance:ETHUSDT'].map((source) => ({
    ...first,
    source,
  }));
  const { prices } = view.status({ ...STATUS_EXAMPLE, prices: [{ ...price, sources }] });
  assert.deepEqual(
    prices?.[0]?.sources.map(({ source }) => source),
    ['http:page1', 'http:page1#2', 'binance:ETHUSDT'],
  );
});

test('the workers of a Citus cluster are not named', () => {
  const worker = 'worker-1.example:5432';
  const lost = { worker, since: '2026-01-31T12:00:00.000Z', block: 7, blocks: 2, transfers: 3 };
  const body = { ...STATUS_EXAMPLE, lost_shards: [lost] };
  assert.doesNotMatch(JSON.stringify(view.status(body)), /worker-1/);
});
