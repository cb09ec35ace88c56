import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Errors } from 'typebox/schema';
import { parse } from 'yaml';
import { listVariables } from '../../src/config/environment-variables.ts';
import { configJsonSchema } from '../../src/config/json-schema.ts';
import { loadConfig } from '../../src/config/load.ts';
import { displayPath, findAt } from '../../src/config/pointer.ts';
import { printableConfig } from '../../src/config/printable-config.ts';
import { writeConfig } from './write-config.ts';

const file = fileURLToPath(new URL('../../chainbell.example.yaml', import.meta.url));

test('the example configuration is valid, with and without its environment variables', () => {
  assert.equal(loadConfig({ file, env: {} }).database.url, '');
  const env = {
    DATABASE_URL: 'postgres://db.example/chainbell',
    CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
  };
  const config = loadConfig({ file, env });
  assert.equal(config.database.url, env.DATABASE_URL);
  assert.equal(config.secret, env.CHAINBELL_SECRET);
});

test('the first configuration in the README is valid', () => {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const [, text] = /^ *echo '(.+)' > chainbell\.yaml/m.exec(readme) ?? [];
  using first = writeConfig(`${text}\n`);
  assert.deepEqual(loadConfig({ file: first.file, env: {} }).chain.rpc, ['https://node.example']);
});

test('the example contains every configuration key', () => {
  const values = parse(readFileSync(file, 'utf8'));
  const absent = listVariables().filter(({ pointer }) => findAt(values, pointer) === undefined);
  assert.deepEqual(
    absent.map(({ pointer }) => displayPath(pointer)),
    [],
  );
});

test('every value that the example shows as a default is the default', () => {
  using minimal = writeConfig('chain: { id: 31337, rpc: [http://127.0.0.1:8545, ws://127.0.0.1:8545] }\n');
  const { dataDir: _minimalFolder, ...defaults } = loadConfig({ file: minimal.file, env: {} });
  const {
    dataDir: _exampleFolder,
    tokens,
    pairs,
    prices,
    supply: _none,
    points,
    chain: {
      native: { wrapped: _wrapped, ...native },
      ...chain
    },
    ...example
  } = loadConfig({ file, env: {} });
  assert.deepEqual(
    {
      ...example,
      chain: { ...chain, native },
      ...{ tokens: {}, pairs: [], prices: { tokens: {} }, points: { seasons: {}, rules: [] } },
    },
    defaults,
  );
  assert.ok(Object.keys(tokens).length > 0 && pairs.length > 0 && prices.native !== undefined);
  assert.ok(points.referral?.firstWins && points.referral.noSelf && points.rules.length > 0);
});

test('the JSON Schema accepts the example with its variables unreplaced', () => {
  const values = parse(readFileSync(file, 'utf8'), {
    customTags: (tags) => tags.filter((tag) => typeof tag === 'string' || !('format' in tag)),
  });
  assert.deepEqual(Errors(configJsonSchema(), values)[1], []);
  assert.notDeepEqual(Errors(configJsonSchema(), { ...values, htp: {} })[1], []);
  assert.notDeepEqual(Errors(configJsonSchema(), { ...values, http: { port: 'eighty' } })[1], []);
});

test('the printed configuration loads as the same configuration, except for redacted values', () => {
  const config = loadConfig({ file, env: {} });
  using printed = writeConfig(JSON.stringify(printableConfig(config)));
  const again = loadConfig({ file: printed.file, env: {} });
  assert.deepEqual(printableConfig(again), printableConfig(config));
  assert.deepEqual({ ...again, prices: {} }, { ...config, prices: {} });
});
