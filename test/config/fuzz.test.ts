import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import fc from 'fast-check';
import { stringify } from 'yaml';
import { listVariables } from '../../src/config/environment-variables.ts';
import { loadConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problem-report.ts';
import { sampleSize } from '../kit/sample.ts';
import { writeConfig } from './write-config.ts';

const key = fc.oneof(
  fc.constantFrom(
    'chain',
    'id',
    'rpc',
    'native',
    'http',
    'port',
    'tokens',
    'pairs',
    'address',
    'prices',
    'sources',
  ),
  fc.constantFrom(
    'type',
    'supply',
    'locked',
    'vesting',
    'points',
    'rules',
    'retention',
    'attempts',
    'secret',
  ),
  fc.constantFrom('__proto__', 'constructor', 'toString', '', '0', 'a/b', 'a~b', '#1'),
  fc.string(),
);
const leaf = fc.oneof(
  fc.constantFrom(null, true, '0x', 'latest', 'http', 'pair', `\${A}`, '${', `\${B:-}`, '30d', '1e400'),
  fc.constantFrom('99999999999999999999d', 'http://', 'https://[', '10.0.0.0/8', '*x', '&x', '!!binary x'),
  fc.double(),
  fc.string(),
);
const tree = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, depthSize: 'large' },
    leaf,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('value')), { maxLength: 6 }).map((entries) => Object.fromEntries(entries)),
  ),
})).value;
const yamlText = fc.oneof(
  tree.map((value) => stringify(value)),
  tree.map((value) => JSON.stringify(value)),
  fc
    .array(fc.constantFrom(...Array.from('{}[]:,-?!&*#|>%@`\'"\\ \n\t$ax0~.<\r\u0000\uFEFF\uE000')), {
      maxLength: 60,
    })
    .map((parts) => parts.join('')),
  fc.string({ unit: 'binary' }),
);
const environment = fc.dictionary(
  fc.oneof(
    fc.constantFrom('A', 'B', 'DATABASE_URL', ...listVariables().map(({ name }) => name)),
    fc.string(),
  ),
  fc.oneof(fc.string(), yamlText),
  { maxKeys: 4 },
);

test('for any file and any environment, loading throws only ConfigError', () => {
  using config = writeConfig('');
  fc.assert(
    fc.property(yamlText, environment, (text, env) => {
      writeFileSync(config.file, text);
      onlyConfigError(() => loadConfig({ file: config.file, env }));
      onlyConfigError(() => loadConfig({ env }));
    }),
    { numRuns: sampleSize(1_000) },
  );
});

test('a file that is nested too deeply for the parser throws a ConfigError', () => {
  for (const text of ['['.repeat(200_000), '{a: '.repeat(100_000), '- '.repeat(100_000), `a: &a [*a]`]) {
    using config = writeConfig(text);
    onlyConfigError(() => loadConfig({ file: config.file, env: {} }));
    onlyConfigError(() => loadConfig({ env: { CHAINBELL_PAIRS: text } }));
  }
});

function onlyConfigError(work: () => unknown): void {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof ConfigError, error instanceof Error ? error.stack : String(error));
    assert.notEqual(error.problems.length, 0);
    assert.notEqual(error.message, '');
  }
}
