import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, decimalText } from '../../src/core/decimal.ts';
import { Fault } from '../../src/core/fault.ts';
import { type AwardLine, parseAwardLine } from '../../src/domain/award-line.ts';

const user = `0x${'aB'.repeat(20)}`;
const hash = `0x${'cD'.repeat(32)}`;
const lineOf = (parts: AwardLine = {}): AwardLine => ({
  ...{ user, category: 'trading', points: '1.5', created_at: '2026-01-31T12:00:00Z', hash },
  ...parts,
});
const problemsOf = (parts: AwardLine) => {
  try {
    parseAwardLine(lineOf(parts));
  } catch (error) {
    if (error instanceof Fault) return error.problems.map(({ path }) => path);
    throw error;
  }
  return [];
};

test('a line becomes an award without a block, with lower-case hex, and with ordinal 0 by default', () => {
  assert.deepEqual(parseAwardLine(lineOf()), {
    rule: 'import',
    version: 1,
    category: 'trading',
    user: user.toLowerCase(),
    points: decimal('1.5'),
    txHash: hash.toLowerCase(),
    ordinal: 0,
    role: 'user',
    block: undefined,
    awardedAt: new Date('2026-01-31T12:00:00.000Z'),
    inputs: {},
  });
  const { rule, ordinal } = parseAwardLine(lineOf({ id: 'season-1', ordinal: '7' }));
  assert.deepEqual([rule, ordinal], ['import:season-1', 7]);
});

test('a time may have an offset or be a day, and a month alone means its first moment', () => {
  const timeOf = (parts: AwardLine) => parseAwardLine(lineOf(parts)).awardedAt.toISOString();
  assert.equal(timeOf({ created_at: '2026-02-01T00:30:00.123456+01:00' }), '2026-01-31T23:30:00.123Z');
  assert.equal(timeOf({ created_at: '2024-02-29' }), '2024-02-29T00:00:00.000Z');
  assert.equal(timeOf({ created_at: '', month: '2026-02' }), '2026-02-01T00:00:00.000Z');
  assert.equal(timeOf({ month: '2026-01' }), '2026-01-31T12:00:00.000Z');
});

test('points keep every digit, with up to 78 before and 36 after the point', () => {
  const pointsOf = (points: string) => decimalText(parseAwardLine(lineOf({ points })).points);
  const huge = `-${'9'.repeat(78)}.${'9'.repeat(36)}`;
  for (const text of [huge, '-5', '0.1', '123456789012345678901']) assert.equal(pointsOf(text), text);
  assert.equal(pointsOf('1e-7'), '0.0000001');
  assert.equal(pointsOf('1.50'), '1.5');
});

test('composed and decomposed letters give the same category', () => {
  assert.equal(parseAwardLine(lineOf({ category: ' cafe\u0301 ' })).category, 'café');
  assert.equal(parseAwardLine(lineOf({ category: '🪙'.repeat(64) })).category, '🪙'.repeat(64));
});

test('all problems of a line are reported at once, each with its field', () => {
  const wrong: { [field in keyof AwardLine]-?: string[] } = {
    user: ['', user.slice(2), `${user}0`, user.slice(0, -1), 'alice'],
    category: ['', ' ', 'x'.repeat(65), 'a\u0000b', 'a\nb', '\ud800', 'a\ufffd'],
    points: [
      '',
      '0',
      '0.0',
      '-0',
      'NaN',
      'Infinity',
      '1,5',
      '0x10',
      '1e999',
      `1${'0'.repeat(78)}`,
      '1e78',
      '1e-37',
      '9'.repeat(300),
      '1e9999999999',
    ],
    created_at: [
      'x',
      '2026-02-30',
      '2026-02-29T00:00:00Z',
      '2026-13-01',
      '2026-01-31T25:00:00Z',
      '2026-01-31T12:00:00',
      '1969-12-31',
      '3000-01-01',
      '2026-00-10',
    ],
    month: ['2026-13', '0000-00', '2026-1', '2026-02'],
    hash: ['', hash.slice(2), user, `${hash}00`],
    id: ['a b', 'x'.repeat(65), 'ü'],
    ordinal: ['-1', '1.5', 'x', '1'.repeat(16)],
  };
  for (const [field, texts] of Object.entries(wrong))
    for (const text of texts) assert.deepEqual(problemsOf({ [field]: text }), [field], `${field} ${text}`);
  assert.deepEqual(problemsOf({ user: '1', hash: '2', created_at: '' }), ['user', 'hash', 'created_at']);
  for (const month of ['0000-00', '1969-12', '3000-01'])
    assert.deepEqual(problemsOf({ created_at: '', month }), ['month'], month);
});
