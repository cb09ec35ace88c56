import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { rulesOf } from '../../src/config/point-rules.ts';
import { ConfigError } from '../../src/config/problem-report.ts';
import { writeConfig } from './write-config.ts';

const HEAD = `chain: { id: 1, rpc: [http://node.example] }
tokens: { USDT: { address: 0x1000000000000000000000000000000000000001, decimals: 6, usd: 1 } }
`;

function rule(points: string, more = ''): string {
  return `${HEAD}points:
  rules:
    - type: event
      id: pay
      version: 1
      category: trading
      source: { event: "Paid(address indexed user, uint256 amount)", contracts: [token:USDT] }
      user: arg:user
      points: ${points}
${more}`;
}

function problemsOf(yaml: string) {
  using written = writeConfig(yaml);
  try {
    loadConfig({ file: written.file, env: {} });
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map(({ line, col, path, message }) => `${line}:${col} ${path}: ${message}`);
  }
}

const forms: [form: string, points: string, position: string][] = [
  ['plain', 'usd(amount, token) + amuont', '11:36'],
  ['in double quotes', '"usd(amount, token) + amuont"', '11:37'],
  ['in single quotes', "'usd(amount, token) + amuont'", '11:37'],
  ['folded', '>-\n        usd(amount, token)\n          + amuont', '13:13'],
  ['literal', '|\n        usd(amount, token)\n        + amuont', '13:11'],
  ['over several plain lines', 'usd(amount,\n        token) + amuont', '12:18'],
];

for (const [form, points, position] of forms) {
  test(`an error in an expression ${form} is shown at its character`, () => {
    const message = '"amuont" is not a readable argument of the event: use one of user, amount';
    assert.deepEqual(problemsOf(rule(points)), [`${position} points.rules[0].points: ${message}`]);
  });
}

test('an error in an expression with escapes is shown at the start of the expression', () => {
  assert.deepEqual(problemsOf(rule('"amuont \\u002b 1"')), [
    '11:15 points.rules[0].points: "amuont" is not a readable argument of the event: use one of user, amount (at character 1)',
  ]);
});

test('a category, season or symbol that the database cannot store is refused', () => {
  for (const unfit of ['\\0', '\\e', '\\ud800']) {
    const [category, name] = [
      'must be a word of up to 64 characters without control characters',
      'it has a control character, or one that is not valid Unicode',
    ];
    const of = (yaml: string) =>
      problemsOf(yaml).map((line) => line.replace(/^\S+ /, '').split(': ').slice(1).join(': '));
    assert.deepEqual(of(rule('"1"').replace('trading', `"a${unfit}b"`)), [category]);
    const seasons = `  seasons: { "s${unfit}": { from: 2026-02-01, to: 2026-03-01 } }\n`;
    assert.deepEqual(of(rule('"1"', seasons)), [`cannot name a season: ${name}`]);
    assert.deepEqual(
      of(
        rule('"1"').replace(
          '{ USDT:',
          `{ "A${unfit}": { address: "0x1000000000000000000000000000000000000002", decimals: 6 }, USDT:`,
        ),
      ),
      [`cannot be a symbol: ${name}`],
    );
    const feed = `prices: { tokens: { "A${unfit}": { sources: [{ type: fixed, price: "1" }] } } }\n`;
    assert.deepEqual(of(HEAD + feed), [`cannot be a symbol: ${name}`]);
    const native = HEAD.replace(
      '{ id: 1,',
      `{ id: 1, native: { symbol: "A${unfit}" }, reward: { symbol: "B${unfit}" },`,
    );
    const symbol = 'must be a symbol: 1 to 32 characters without spaces and control characters';
    assert.deepEqual(of(native), [symbol, symbol]);
  }
});

test('an error in an event signature is shown at its character', () => {
  const yaml = rule('"1"').replace('uint256 amount', 'uint257 amount');
  assert.deepEqual(problemsOf(yaml), ['9:52 points.rules[0].source.event: "uint257" is not an ABI type']);
});

test('a malformed rule does not hide the problems of the next rule', () => {
  const yaml = rule('"1"').replace('version: 1', 'vers: 1') + rule('"x"').split('rules:\n')[1];
  const problems = problemsOf(yaml);
  assert.ok(
    problems.some((problem) => problem.includes('points.rules[0].vers: unknown key')),
    problems.join('\n'),
  );
  assert.ok(
    problems.some((problem) => problem.includes('points.rules[1].points: "x" is not a readable argument')),
    problems.join('\n'),
  );
});

test('invalid seasons, an invalid referral and invalid contracts do not hide errors in expressions', () => {
  const more =
    '      referralShare: 0.1\n      multipliers: [{ season: s1, x: 2 }]\n  seasons: { s1: { from: 2026-02-30, to: 2026-03-01 } }\n';
  assert.deepEqual(problemsOf(rule('"amount + "', more)), [
    '11:24 points.rules[0].points: a value is expected here, not the end',
    '14:26 points.seasons.s1.from: must be a day such as 2026-01-31',
  ]);
  const other = rule('"amount + nobody0"', '      when: "amount > > 1"\n').replace(
    'token:USDT',
    'token:USDC',
  );
  assert.deepEqual(problemsOf(other), [
    '9:82 points.rules[0].source.contracts[0]: no token has the symbol USDC',
    '12:23 points.rules[0].when: a value is expected here, not ">"',
  ]);
});

test('a rule cannot have the id of imported awards', () => {
  assert.deepEqual(problemsOf(rule('"1"').replace('id: pay', 'id: import')), [
    '6:11 points.rules[0].id: cannot be import: imported awards have this id, and awards of both would count as the same',
  ]);
  assert.deepEqual(problemsOf(rule('"1"').replace('id: pay', 'id: imported')), []);
});

test('an invalid day and an unquoted number are reported in plain words', () => {
  const problems = problemsOf(rule('10', '      from: 2026-02-30\n'));
  assert.deepEqual(problems, [
    '11:15 points.rules[0].points: must be an expression in quotes, not a number',
    '12:13 points.rules[0].from: must be a day such as 2026-01-31, or a block number',
  ]);
});

test('a token has the maxAgeSeconds of its feed', () => {
  const feed = 'maxAgeSeconds: 60, sources: [{ type: fixed, price: "1" }]';
  const yaml = rule('"usd(amount, ETH)"').replace('{ id: 1,', '{ id: 1, native: { symbol: ETH },');
  using written = writeConfig(`${yaml}prices: { native: { ${feed} } }\n`);
  const [listener] = rulesOf(loadConfig({ file: written.file, env: {} })).listeners;
  const [tokens] = listener?.tokens.values() ?? [];
  assert.deepEqual(tokens?.get('ETH')?.price, { asset: 'ETH', maxAgeMs: 60_000 });
});

test('addresses in rules become lower case', () => {
  using written = writeConfig(
    rule('"1"').replace('[token:USDT]', '["0xF39FD6E51AAD88F6F4CE6AB8827279CFFFB92266"]'),
  );
  const [first] = loadConfig({ file: written.file, env: {} }).points.rules;
  assert.deepEqual(first?.type === 'event' && first.source.contracts, [
    '0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266',
  ]);
});
