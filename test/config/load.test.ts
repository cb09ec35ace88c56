import assert from 'node:assert/strict';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import type { EnvironmentVariables } from '../../src/config/environment.ts';
import { listVariables } from '../../src/config/environment-variables.ts';
import { type ConfigOverrides, loadConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problem-report.ts';
import type { Config } from '../../src/config/schema.ts';
import { writeConfig } from './write-config.ts';

const MINIMAL = 'chain:\n  id: 31337\n  rpc: [http://127.0.0.1:8545]\n';
const SECRET = Buffer.alloc(32, 7).toString('base64');
const FORMER = Buffer.alloc(32, 6).toString('base64');

test('only a chain id and one node are required, and every other key has a default', () => {
  assert.deepEqual(load(MINIMAL, {}, { dataDir: '/data' }), {
    chain: {
      id: 31337,
      rpc: ['http://127.0.0.1:8545'],
      native: { symbol: 'ETH' },
      reward: { symbol: 'RWD' },
      startBlock: 'latest',
      confirmations: 0,
      finalityDepth: 64,
      internalTransfers: 'auto',
      quorum: 'auto',
      verify: 'auto',
      unprovedTypes: [],
      addressFilter: { minRecords: 100_000 },
    },
    database: {
      ...{ url: '', sessionUrl: '', replicaUrl: '', replicaLagMaxSeconds: 5 },
      connections: { follower: 2, api: 6, replica: 6, delivery: 6 },
    },
    dataDir: '/data',
    secret: '',
    formerSecrets: [],
    http: { host: '127.0.0.1', port: 8080, adminToken: null, console: true },
    metrics: { host: '127.0.0.1', port: 9464 },
    webhooks: {
      retryMinutes: [1, 3, 10, 15, 60],
      allowHttp: false,
      allowCidrs: [],
      denyCidrs: [],
      ports: [443],
      caFile: null,
    },
    limits: {
      ...{ records: 'off', recordsPerAddressAndUrl: 'off' },
      ...{ receiverOrigins: 'off', pendingNotifications: 'off' },
    },
    tokens: {},
    pairs: [],
    prices: { tokens: {} },
    points: { seasons: {}, rules: [] },
    stopSeconds: 15,
    retention: {
      attemptsMs: 30 * 86_400_000,
      notificationsMs: 90 * 86_400_000,
      observationsMs: 7 * 86_400_000,
      swapsMs: 7 * 86_400_000,
      pairHistoryMs: 400 * 86_400_000,
    },
    log: { level: 'info', format: 'auto' },
  });
});

test('unquoted addresses are read as text, in block and in flow style, and become lower case', () => {
  const config = load(`${MINIMAL}
tokens:
  USDT:
    address: 0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266
    decimals: 6
  USDC: { address: 0x70997970C51812dc3A010C7d01b50e0d17dc79C8, decimals: 6 }
  DAI: { address: 0xABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCD, decimals: 18 }
  ONE: { address: 0x1111111111111111111111111111111111111111, decimals: 18 }
`);
  assert.deepEqual(
    Object.values(config.tokens).map(({ address }) => address),
    [
      '0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266',
      '0x70997970c51812dc3a010c7d01b50e0d17dc79c8',
      '0xabcdefabcdefabcdefabcdefabcdefabcdefabcd',
      '0x1111111111111111111111111111111111111111',
    ],
  );
});

test('the loaded configuration is frozen at every depth', () => {
  const config = load(`${MINIMAL}tokens: { USDT: { address: 0x${'1'.repeat(40)}, decimals: 6 } }\n`);
  const pending: unknown[] = [config];
  for (const value of pending) {
    assert.ok(Object.isFrozen(value), JSON.stringify(value));
    if (typeof value === 'object' && value !== null) pending.push(...Object.values(value));
  }
  assert.ok(pending.length > 40);
});

test('variables are replaced in quoted and in plain values, and are read with the type of their key', () => {
  const config = load(
    `chain: { id: \${ID}, rpc: "\${NODES}", native: { symbol: \${SYMBOL:-POL} } }
http: { host: "\${HOST:-0.0.0.0}", port: "\${PORT:-80}" }
webhooks: { allowHttp: \${OPEN:-true}, retryMinutes: \${RETRY:-0.5,1} }
log:
  level: \${LEVEL:-de}\${REST}
`,
    { ID: '5', NODES: 'http://a.example/v2/KEY, ws://b.example', SYMBOL: '', REST: 'bug' },
  );
  assert.equal(config.chain.id, 5);
  assert.deepEqual(config.chain.rpc, ['http://a.example/v2/KEY', 'ws://b.example']);
  assert.equal(config.chain.native.symbol, 'POL');
  assert.deepEqual(config.http, { adminToken: null, console: true, host: '0.0.0.0', port: 80 });
  assert.equal(config.webhooks.allowHttp, true);
  assert.deepEqual(config.webhooks.retryMinutes, [0.5, 1]);
  assert.equal(config.log.level, 'debug');
});

test('every key can be set in the environment, without a file', () => {
  const config = loadConfig({
    env: {
      CHAINBELL_CHAIN_ID: '10',
      CHAINBELL_CHAIN_RPC: 'http://a.example,ws://b.example',
      CHAINBELL_CHAIN_START_BLOCK: '1000',
      CHAINBELL_CHAIN_NATIVE_SYMBOL: '888',
      CHAINBELL_DATABASE_URL: 'postgres://one.example,two.example/chainbell',
      CHAINBELL_SECRET: SECRET,
      CHAINBELL_FORMER_SECRETS: `${FORMER},${SECRET}`,
      CHAINBELL_HTTP_PORT: '0',
      CHAINBELL_WEBHOOKS_ALLOW_HTTP: 'true',
      CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8, ::1/128',
      CHAINBELL_WEBHOOKS_PORTS: '[443, 8443]',
      CHAINBELL_TOKENS:
        '{ USDT: { address: 0x1111111111111111111111111111111111111111, decimals: 6, usd: 1 } }',
      CHAINBELL_PRICES_NATIVE_SOURCES: '[{ type: fixed, price: "2500" }]',
      CHAINBELL_RETENTION_ATTEMPTS: '90m',
      CHAINBELL_LOG_LEVEL: '',
    },
  });
  assert.equal(config.chain.id, 10);
  assert.deepEqual(config.chain.rpc, ['http://a.example', 'ws://b.example']);
  assert.equal(config.chain.startBlock, 1000);
  assert.equal(config.chain.native.symbol, '888');
  assert.equal(config.database.url, 'postgres://one.example,two.example/chainbell');
  assert.equal(config.secret, SECRET);
  assert.deepEqual(config.formerSecrets, [FORMER, SECRET]);
  assert.equal(config.http.port, 0);
  assert.deepEqual(config.webhooks.allowCidrs, ['127.0.0.0/8', '::1/128']);
  assert.deepEqual(config.webhooks.ports, [443, 8443]);
  assert.equal(config.tokens.USDT?.usd, 1);
  assert.deepEqual(config.prices.native, {
    everySeconds: 30,
    sources: [{ type: 'fixed', price: '2500' }],
  });
  assert.equal(config.retention.attemptsMs, 5_400_000);
  assert.equal(config.log.level, 'info');
  assert.equal(config.dataDir, resolve('.chainbell'));
});

test('an empty variable leaves the list of the file as it is, and [] empties it', () => {
  const text = `${MINIMAL}webhooks: { denyCidrs: [203.0.113.0/24] }\n`;
  const cidrsWith = (variable: string) =>
    load(text, { CHAINBELL_WEBHOOKS_DENY_CIDRS: variable }).webhooks.denyCidrs;
  for (const empty of ['', ' ', '\n']) assert.deepEqual(cidrsWith(empty), ['203.0.113.0/24']);
  assert.deepEqual(cidrsWith('[]'), []);
});

test('values given by the program override the environment, and the environment overrides the file', () => {
  const text = `${MINIMAL}http: { host: 0.0.0.0, port: none }\nlog: { level: warn }\n`;
  const config = load(
    text,
    { CHAINBELL_HTTP_PORT: '1', CHAINBELL_LOG_LEVEL: 'error' },
    { log: { level: 'trace' } },
  );
  assert.deepEqual(config.http, { host: '0.0.0.0', port: 1, adminToken: null, console: true });
  assert.equal(config.log.level, 'trace');
});

test('an unset variable in the file is ignored if the environment sets the key', () => {
  const config = load(`${MINIMAL}http: { port: \${PORT} }\n`, { CHAINBELL_HTTP_PORT: '1' });
  assert.equal(config.http.port, 1);
});

test('an invalid value given by the program is reported without a position in the file', () => {
  assert.throws(() => load(`${MINIMAL}http: { port: 1 }\n`, {}, { http: { port: -1 } }), {
    message: 'http.port: must be at least 0',
  });
});

test('DATABASE_URL sets database.url if nothing else does', () => {
  const env = { DATABASE_URL: 'postgres://db.example/one', CHAINBELL_SECRET: SECRET };
  assert.equal(load(MINIMAL, env).database.url, 'postgres://db.example/one');
  assert.equal(
    load(`${MINIMAL}database:\n  url: # the variable has it\n`, env).database.url,
    env.DATABASE_URL,
  );
  assert.equal(load(`${MINIMAL}database: { url: "" }\n`, env).database.url, '');
  const both = { ...env, CHAINBELL_DATABASE_URL: 'postgres://db.example/two' };
  assert.equal(load(MINIMAL, both).database.url, 'postgres://db.example/two');
  assert.equal(load(MINIMAL, { ...env, DATABASE_URL: ' ' }).database.url, '');
});

test('variables that Kubernetes sets for services named like Chainbell are ignored', () => {
  const linksOf = (name: string, port: number, protocol = 'tcp') => {
    const url = `${protocol}://10.0.0.1:${port}`;
    const transport = `${name}_PORT_${port}_${protocol.toUpperCase()}`;
    return {
      ...{ [`${name}_SERVICE_HOST`]: '10.0.0.1', [`${name}_SERVICE_PORT`]: String(port) },
      ...{ [`${name}_SERVICE_PORT_WEB`]: String(port), [`${name}_PORT`]: url, [transport]: url },
      ...{ [`${transport}_PROTO`]: protocol, [`${transport}_PORT`]: String(port) },
      [`${transport}_ADDR`]: '10.0.0.1',
    };
  };
  const links = {
    ...linksOf('CHAINBELL', 8080),
    ...linksOf('CHAINBELL_HTTP', 8080),
    ...linksOf('CHAINBELL_METRICS', 9465),
    ...linksOf('CHAINBELL_WEBHOOKS', 443, 'udp'),
  };
  const text = `${MINIMAL}http: { port: 1 }\n`;
  const config = load(text, links);
  assert.deepEqual([config.http.port, config.metrics.port], [1, 9464]);
  // A variable of the container goes before that of a service.
  assert.equal(load(text, { ...links, CHAINBELL_HTTP_PORT: '2' }).http.port, 2);
  assert.throws(() => load(text, { CHAINBELL_HTTP_PORT: 'tcp://10.0.0.1:8080' }), ConfigError);
});

test('every key has a distinct variable, even if underscores are left out', () => {
  const names = listVariables().map(({ name }) => name.replaceAll('_', ''));
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length > 30);
});

test('relative paths are resolved from the folder of the file', () => {
  using file = writeConfig(`${MINIMAL}dataDir: data\nwebhooks: { caFile: ca.pem }\n`);
  const config = loadConfig({ file: file.file, env: {} });
  assert.equal(config.dataDir, join(file.folder, 'data'));
  assert.equal(config.webhooks.caFile, join(file.folder, 'ca.pem'));
});

test('a section with only commented lines has its defaults', () => {
  assert.equal(load(`${MINIMAL}http:\n  # port: 1\n`).http.port, 8080);
});

test('a single value can be reused through a YAML alias', () => {
  const config = load(`${MINIMAL}http: { host: &host 0.0.0.0 }\nmetrics: { host: *host }\n`);
  assert.equal(config.metrics.host, '0.0.0.0');
});

function load(text: string, env: EnvironmentVariables = {}, overrides: ConfigOverrides = {}): Config {
  using config = writeConfig(text);
  return loadConfig({ file: config.file, env, overrides });
}
