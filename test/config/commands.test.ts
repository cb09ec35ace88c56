import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterEach, test } from 'node:test';
import { Command } from 'commander';
import { parse } from 'yaml';
import { addConfigCommands } from '../../src/cli/config.ts';
import { createAuthority } from '../kit/certificates.ts';
import { writeConfig } from './write-config.ts';

const GOOD = `chain: { id: 1, rpc: ["https://user:pw@node.example/v2/NODE-KEY"] }
database: { url: "postgres://chainbell:DATABASE-PASSWORD@db.example/chainbell" }
secret: ${Buffer.alloc(32, 7).toString('base64')}
formerSecrets: ["${Buffer.alloc(32, 7).toString('base64')}"]
prices: { native: { sources: [{ type: http, url: "https://prices.example/PRICE-KEY", path: $.price }] } }
retention: { attempts: 90m }
http: { adminToken: ADMIN-TOKEN-OF-32-CHARACTERS-OR-MORE }
`;
const BAD = 'chain:\n  id: 1\n  rpc: [http://node.example]\n  confirmatons: 12\n';

afterEach(() => {
  process.exitCode = 0;
});

test('config check reports a valid file on standard error and exits with 0', async () => {
  using config = writeConfig(GOOD);
  const run = await chainbell('config', 'check', '--config', config.file);
  assert.deepEqual(run, { out: '', err: `${config.file}: no problems\n`, exitCode: 0 });
});

test('config check warns about nodes of one operator and about a quorum that is too low, and shows no API key', async () => {
  using config = writeConfig(`chain:
  id: 1
  rpc: [https://eth.one.example/v2/KEY, https://two.example, wss://eth.one.example, https://one.example/v2/KEY]
  quorum: 1
`);
  const run = await chainbell('config', 'check', '--config', config.file);
  assert.deepEqual(run, {
    out: '',
    err: `${config.file}: warning: chain.rpc[3]: chain.rpc[0], chain.rpc[3] are all at one.example. Nodes of one operator or machine tend to fail together, but each has a vote. Use nodes from different operators.
${config.file}: warning: chain.quorum: is 1, and 3 nodes need 2. One wrong node can make Chainbell follow a false chain. Use "auto" or 2.
${config.file}: no problems, 2 warnings
`,
    exitCode: 0,
  });
});

test('config check warns about everything that the start warns about', async () => {
  using config = writeConfig(`${GOOD}webhooks: { allowHttp: true, allowCidrs: [10.0.0.0/8] }\n`);
  const { err, exitCode } = await chainbell('config', 'check', '--config', config.file);
  assert.equal(exitCode, 0);
  assert.match(
    err,
    /: warning: webhooks\.allowHttp: is true, so webhooks and their API keys may travel without TLS/,
  );
  assert.match(err, /: warning: webhooks\.allowCidrs: allows 10\.0\.0\.0\/8/);
  assert.match(err, /: no problems, 2 warnings\n$/);
});

test('config check warns about networks that are larger than they look, and about denying every address', async () => {
  const lists =
    'allowCidrs: [10.1.2.3/8, 10.0.0.0/8], denyCidrs: [203.0.113.7/24, "fd00:0:0::1/64", 0.0.0.0/0, "::/0", 203.0.113.7/32]';
  using config = writeConfig(`${GOOD}webhooks: { ${lists} }\n`);
  const { err, exitCode } = await chainbell('config', 'check', '--config', config.file);
  assert.equal(exitCode, 0);
  const warnings = Array.from(err.matchAll(/warning: webhooks\.(\w+\[\d\]: .*)/g), ([, text]) => text);
  assert.deepEqual(warnings, [
    'allowCidrs[0]: 10.1.2.3/8 is the whole network 10.0.0.0/8. Write 10.0.0.0/8, or 10.1.2.3/32 for only this address.',
    'denyCidrs[0]: 203.0.113.7/24 is the whole network 203.0.113.0/24. Write 203.0.113.0/24, or 203.0.113.7/32 for only this address.',
    'denyCidrs[1]: fd00:0:0::1/64 is the whole network fd00::/64. Write fd00::/64, or fd00::1/128 for only this address.',
    'denyCidrs[2]: 0.0.0.0/0 denies every IPv4 address, so no webhook is sent to one. Name only your own networks.',
    'denyCidrs[3]: ::/0 denies every IPv6 address, so no webhook is sent to one. Name only your own networks.',
  ]);
});

test('config check warns about a token with a fixed value and a feed, which has two prices at once', async () => {
  const usdt = `USDT: { address: "0x${'a'.repeat(40)}", decimals: 6, usd: 1 }`;
  const usdc = `USDC: { address: "0x${'b'.repeat(40)}", decimals: 6, usd: 1 }`;
  const feed = '{ sources: [{ type: fixed, price: "0.99" }] }';
  using config = writeConfig(
    `${GOOD.replace(/^prices.*\n/m, '')}tokens: { ${usdt}, ${usdc} }\nprices: { tokens: { USDT: ${feed}, SOL: ${feed} } }\n`,
  );
  const { err, exitCode } = await chainbell('config', 'check', '--config', config.file);
  assert.equal(exitCode, 0);
  assert.equal(
    err,
    `${config.file}: warning: tokens.USDT.usd: is 1, and USDT also has a feed (prices.tokens.USDT). /api/price shows the feed's price, but swaps, LP tokens and points use the fixed one. Keep only one, unless you want both.
${config.file}: no problems, 1 warning
`,
  );
});

test('config check reports a file of certificate authorities that is missing or holds none, as the start does', async () => {
  const certificate = createAuthority().certificate;
  using config = writeConfig(`${GOOD}webhooks: { caFile: ca.pem }\n`);
  const caFile = join(config.folder, 'ca.pem');
  for (const [content, reason] of [
    [undefined, 'there is no such file'],
    ['no certificate', 'it holds no PEM certificate'],
    [certificate + certificate.replace(/\n.{8}/, '\nAAAAAAAA'), 'its certificate 2 is damaged'],
  ] as const) {
    if (content !== undefined) writeFileSync(caFile, content);
    const message = `cannot use ${caFile}: ${reason}. Name a PEM file with certificate authorities, or remove this key`;
    assert.deepEqual(await chainbell('config', 'check', '--config', config.file), {
      ...{ out: '', err: `${config.file}  webhooks.caFile: ${message}\n`, exitCode: 78 },
    });
    const { out } = await chainbell('config', 'check', '--json', '--config', config.file);
    assert.deepEqual(JSON.parse(out).problems, [{ path: 'webhooks.caFile', message, file: config.file }]);
  }
  process.exitCode = 0;
  writeFileSync(caFile, `${certificate}${certificate}`);
  assert.equal((await chainbell('config', 'check', '--config', config.file)).exitCode, 0);
});

test('two ports may be equal on different addresses, and 0 is a free port for each', async () => {
  for (const [http, metrics] of [
    ['{ host: 10.0.0.1, port: 9464 }', '{ host: 127.0.0.1 }'],
    ['{ port: 0 }', '{ port: 0 }'],
  ]) {
    using config = writeConfig(
      `chain: { id: 1, rpc: [http://node.example] }\nhttp: ${http}\nmetrics: ${metrics}\n`,
    );
    assert.equal((await chainbell('config', 'check', '--config', config.file)).exitCode, 0);
  }
});

test('a folder instead of a file is named in words, and a missing file too', async () => {
  using config = writeConfig(GOOD);
  for (const [file, reason] of [
    [config.folder, 'cannot be read: it is a folder'],
    [`${config.folder}/none.yaml`, 'there is no such file'],
    [`${config.file}/inside.yaml`, 'there is no such file'],
  ] as const) {
    const run = await chainbell('config', 'check', '--config', file);
    assert.equal(run.exitCode, 78);
    assert.ok(run.err.includes(reason), run.err);
    assert.doesNotMatch(run.err, /E[A-Z]{4,}/);
  }
});

test('a retention beyond its range is a problem, and the schema says the range', async () => {
  const ranges = { attempts: '1h', notifications: '1d', observations: '1h', swaps: '2d', pairHistory: '2d' };
  const schema = JSON.parse((await chainbell('config', 'schema')).out);
  for (const [key, least] of Object.entries(ranges)) {
    for (const value of ['1m', '3651d', '99999999999999999999d']) {
      using config = writeConfig(GOOD.replace('{ attempts: 90m }', `{ ${key}: ${value} }`));
      const { err, exitCode } = await chainbell('config', 'check', '--config', config.file);
      assert.equal(exitCode, 78, `${key}: ${value}`);
      assert.ok(err.includes(`retention.${key}: must be between ${least} and 3650d`), err);
    }
    assert.match(
      schema.properties.retention.properties[key].description,
      new RegExp(`From ${least} to 3650d\\.$`),
    );
  }
});

test('config check reports the problems of an invalid file on standard error and exits with 78', async () => {
  using config = writeConfig(BAD);
  const run = await chainbell('config', 'check', '--config', config.file);
  assert.deepEqual(run, {
    out: '',
    err: `${config.file}:4:3  chain.confirmatons: unknown key
    4 |   confirmatons: 12
      |   ^^^^^^^^^^^^
      did you mean "confirmations"?
`,
    exitCode: 78,
  });
});

test('config check --json prints the problems and warnings as JSON on standard output', async () => {
  using good = writeConfig(GOOD);
  const check = (file: string) => chainbell('config', 'check', '--json', '--config', file);
  assert.deepEqual(JSON.parse((await check(good.file)).out), { problems: [], warnings: [] });
  using risky = writeConfig(`${GOOD}webhooks: { allowHttp: true }\n`);
  const { out, err, exitCode } = await check(risky.file);
  assert.deepEqual([err, exitCode], ['', 0]);
  const { problems, warnings } = JSON.parse(out);
  assert.deepEqual(problems, []);
  assert.deepEqual(
    warnings.map(({ path, file }: Record<string, unknown>) => [path, file]),
    [['webhooks.allowHttp', risky.file]],
  );
  assert.match(warnings[0].message, /^is true, so webhooks/);
  using bad = writeConfig(BAD);
  const run = await check(bad.file);
  assert.equal(run.exitCode, 78);
  assert.equal(run.err, '');
  assert.deepEqual(JSON.parse(run.out).problems, [
    {
      path: 'chain.confirmatons',
      message: 'unknown key',
      suggestion: 'did you mean "confirmations"?',
      file: bad.file,
      line: 4,
      col: 3,
    },
  ]);
});

test('without --config, the commands read chainbell.yaml in the working folder, or only the environment if it is missing', async () => {
  using config = writeConfig(BAD);
  const workingFolder = process.cwd();
  try {
    process.chdir(config.folder);
    assert.match((await chainbell('config', 'check')).err, /^chainbell\.yaml:4:3 /);
    rmSync('chainbell.yaml');
    const run = await chainbell('config', 'check');
    assert.equal(run.exitCode, 78);
    assert.equal(
      run.err,
      'CHAINBELL_CHAIN_ID  chain.id: is required\nCHAINBELL_CHAIN_RPC  chain.rpc: is required\n' +
        `There is no file ${process.cwd()}/chainbell.yaml. Create one (chainbell.example.yaml explains every key), or name a file with --config.\n`,
    );
    const named = await chainbell('config', 'check', '--config', '../none.yaml');
    const file = resolve('../none.yaml');
    assert.ok(named.err.startsWith(`${file}  there is no such file\n`), named.err);
  } finally {
    process.chdir(workingFolder);
  }
});

test('config print shows the effective configuration under the keys of the file, without secrets', async () => {
  using config = writeConfig(GOOD);
  const run = await chainbell('config', 'print', '--config', config.file);
  assert.equal(run.exitCode, 0);
  const printed = parse(run.out);
  assert.deepEqual(printed.chain.rpc, ['https://node.example/…']);
  assert.equal(printed.database.url, 'postgres://chainbell:…@db.example/chainbell');
  assert.equal(printed.secret, '[redacted]');
  assert.deepEqual(printed.formerSecrets, ['[redacted]']);
  assert.equal(printed.prices.native.sources[0].url, 'https://prices.example/…');
  assert.deepEqual(printed.retention, {
    ...{ attempts: '90m', notifications: '90d', observations: '7d' },
    ...{ swaps: '7d', pairHistory: '400d' },
  });
  assert.deepEqual(printed.http, { host: '127.0.0.1', port: 8080, adminToken: '[redacted]', console: true });
  // The name of the folder is random.
  assert.doesNotMatch(run.out.replaceAll(config.folder, ''), /KEY|ADMIN-TOKEN|PASSWORD|pw|BwcHBw/);
  const json = await chainbell('config', 'print', '--json', '--config', config.file);
  assert.deepEqual(JSON.parse(json.out), printed);
});

test('config print reports the problems of an invalid file and prints no configuration', async () => {
  using config = writeConfig(BAD);
  const run = await chainbell('config', 'print', '--config', config.file);
  assert.equal(run.exitCode, 78);
  assert.equal(run.out, '');
  assert.match(run.err, /4:3 {2}chain.confirmatons: unknown key/);
});

test('config schema prints a JSON Schema that requires only keys without a default', async () => {
  const schema = JSON.parse((await chainbell('config', 'schema')).out);
  assert.equal(schema.$schema, 'https://json-schema.org/draft/2020-12/schema');
  assert.deepEqual(schema.required, ['chain']);
  assert.deepEqual(schema.properties.chain.required, ['id', 'rpc']);
  assert.equal(schema.properties.http.required, undefined);
  assert.equal(schema.properties.http.properties.port.default, 8080);
  assert.match(schema.properties.http.properties.port.description, /port/);
});

async function chainbell(...words: string[]): Promise<{ out: string; err: string; exitCode: unknown }> {
  let [out, err] = ['', ''];
  const program = new Command().configureOutput({
    writeOut: (text) => {
      out += text;
    },
    writeErr: (text) => {
      err += text;
    },
  });
  process.exitCode = 0;
  addConfigCommands(program);
  await program.parseAsync(words, { from: 'user' });
  return { out, err, exitCode: process.exitCode };
}
