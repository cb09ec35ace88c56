import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { readAwards } from '../../src/cli/award-file.ts';
import { decimalText } from '../../src/core/decimal.ts';
import { Fault } from '../../src/core/fault.ts';
import { alice, hashOf } from '../kit/chain-story.ts';

/** Reads a file in pieces of `pieceBytes`: the category and points of each award, or the messages of its problems. */
async function readAll(file: string | Buffer, pieceBytes = 65_536): Promise<[line: number, what: string][]> {
  const bytes = Buffer.from(file);
  const pieces = Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, index) =>
    bytes.subarray(index * pieceBytes, (index + 1) * pieceBytes),
  );
  const read: [number, string][] = [];
  for await (const { line, award } of readAwards(Readable.from(pieces)))
    read.push([
      line,
      award instanceof Fault
        ? [award.message, ...award.problems.map(({ path, message }) => `${path} ${message}`)].join('; ')
        : `${award.category} ${decimalText(award.points)}`,
    ]);
  return read;
}

const fields = { user: alice, category: 'trading', points: 10, month: '2026-01', hash: hashOf(1) };
const lineOf = (parts: Record<string, unknown> = {}) => JSON.stringify({ ...fields, ...parts });
const HEADER = 'user,category,points,month,hash';
const rowOf = (category: string, points: string) => `${alice},${category},${points},2026-01,${hashOf(1)}`;

test('lines and their numbers are the same however the file is split into pieces', async () => {
  const json = ['\ufeff', lineOf({ category: 'мост 🪙' }), '', lineOf({ points: '0.1' }), '{}', ''].join(
    '\r\n',
  );
  const csv = [`\ufeff${HEADER}`, rowOf('"мост 🪙"', '10'), '', rowOf('"a,""b"""', '0.1'), 'x', ''].join(
    '\n',
  );
  for (const file of [json, csv]) {
    const whole = await readAll(file);
    assert.equal(whole.length, 3);
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 300 }), async (pieceBytes) => {
        assert.deepEqual(await readAll(file, pieceBytes), whole);
      }),
      { numRuns: 30 },
    );
  }
  assert.deepEqual((await readAll(json)).slice(0, 2), [
    [2, 'мост 🪙 10'],
    [4, 'trading 0.1'],
  ]);
  assert.deepEqual((await readAll(csv)).slice(0, 2), [
    [2, 'мост 🪙 10'],
    [4, 'a,"b" 0.1'],
  ]);
});

test('numbers keep every digit of the file', async () => {
  const digits = '123456789012345678901.000000000000000000000000000000000001';
  const json = lineOf().replace('10', digits);
  assert.deepEqual(await readAll(json), [[1, `trading ${digits}`]]);
  assert.deepEqual(await readAll(`${HEADER}\n${rowOf('trading', digits)}`), [[2, `trading ${digits}`]]);
});

test('each problem of a file is reported with its line', async () => {
  const cut = Buffer.from([0xff, 0x22, 0x7d]);
  const cases: [name: string, file: string | Buffer, line: number, message: RegExp][] = [
    [
      'unknown field',
      lineOf({ amount: 1 }),
      1,
      /^has unknown fields: amount\. The fields are user, category/,
    ],
    ['a list', `\n${lineOf()}\n[1]`, 3, /^is not a JSON object/],
    [
      'a list of all',
      `[${lineOf()}, ${lineOf()}]`,
      1,
      /^is not a JSON object: write each award as one object/,
    ],
    ['compressed', gzipSync(HEADER), 1, /^is not UTF-8 text/],
    ['half a line', `${lineOf()}\n{"user":`, 2, /^is not JSON: /],
    ['a value of another type', lineOf({ user: { a: 1 } }), 1, /user must be a string or a number/],
    ['a line without end', `{"user":"${'x'.repeat(1_000_000)}`, 1, /^is longer than 8192 characters/],
    [
      'bytes that are not UTF-8',
      Buffer.concat([Buffer.from('{"category":"x'), cut]),
      1,
      /category must be a text of/,
    ],
    [
      'unknown column',
      `${HEADER},amount\n${rowOf('a', '1')},1`,
      1,
      /^has unknown fields: amount\. The fields are/,
    ],
    ['lacking columns', 'user,points\n', 1, /^the header lacks category, hash, created_at/],
    ['a column twice', `${HEADER},user\n`, 1, /^the header has the same column twice/],
    [
      'a short row',
      `${HEADER}\n${rowOf('a', '1')}\n${alice},trading`,
      3,
      /^has 2 values, but the header has 5 columns/,
    ],
    ['an open quote', `${HEADER}\n${rowOf('a', '1')}\n"${alice},trading,1`, 3, /^is not CSV: /],
    ['a row without end', `${HEADER}\n${'x'.repeat(1_000_000)}`, 2, /^is not CSV: /],
    ['no table at all', 'hello', 1, /^has unknown fields: hello\. The fields are/],
  ];
  for (const [name, file, line, message] of cases) {
    const last = (await readAll(file)).at(-1);
    assert.equal(last?.[0], line, name);
    assert.match(last[1], message, name);
  }
});

test('the rows before a row with invalid CSV are read', async () => {
  const rows = [rowOf('a', '1'), rowOf('b', '0'), rowOf('"c"c', '1'), rowOf('d', '1')];
  for (const pieceBytes of [7, 65_536]) {
    const read = await readAll([HEADER, ...rows].join('\n'), pieceBytes);
    assert.deepEqual(
      read.map(([line]) => line),
      [2, 3, 4],
    );
    assert.equal(read[0]?.[1], 'a 1');
    assert.match(read[1]?.[1] ?? '', /points must be/);
    assert.match(read[2]?.[1] ?? '', /^is not CSV: /);
  }
});

test('a file without rows has no awards', async () => {
  for (const file of ['', '\n\n', '\ufeff \r\n', `${HEADER}\n`]) assert.deepEqual(await readAll(file), []);
});
