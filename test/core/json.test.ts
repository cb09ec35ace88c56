import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { exactInteger, jsonText, parseDecimals, parseExact } from '../../src/core/json.ts';

const UINT256_MAX = 2n ** 256n - 1n;

test('an integer of any size is written as a bare JSON number with every digit (spec 2.7)', () => {
  assert.equal(JSON.stringify({ amount: exactInteger(UINT256_MAX) }), `{"amount":${UINT256_MAX}}`);
  assert.equal(JSON.stringify([exactInteger(0n), exactInteger(-5n)]), '[0,-5]');
});

test('integers that a double cannot hold are parsed as bigint, and all other values as usual', () => {
  const text = `{"a":${UINT256_MAX},"b":9007199254740991,"c":9007199254740993,"d":1.5,"e":1e400,"f":"12","g":[-9007199254740993,null,true]}`;
  assert.deepEqual(parseExact(text), {
    a: UINT256_MAX,
    b: Number.MAX_SAFE_INTEGER,
    c: 9007199254740993n,
    d: 1.5,
    e: Number.POSITIVE_INFINITY,
    f: '12',
    g: [-9007199254740993n, null, true],
  });
});

test('invalid JSON throws a SyntaxError', () => {
  for (const text of ['', '{', '01', 'NaN']) assert.throws(() => parseExact(text), SyntaxError);
});

test('no integer is rounded in a round trip through JSON', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 256n), max: 2n ** 256n }), (value) => {
      const [parsed] = parseExact(JSON.stringify([exactInteger(value)])) as (number | bigint)[];
      assert.equal(BigInt(parsed ?? 'nothing'), value);
    }),
  );
});

test('decimals of any length keep every digit as written', () => {
  const long = '2500.12345678901234567890123456789';
  assert.deepEqual(parseDecimals(`{"a":${long},"b":[1E-30,-0,7],"c":"7","d":null,"e":true}`), {
    a: long,
    b: ['1E-30', '-0', '7'],
    c: '7',
    d: null,
    e: true,
  });
  for (const text of ['', '{', 'Infinity', '[1,]']) assert.throws(() => parseDecimals(text), SyntaxError);
});

test('a value is written as JSON, and one that is nested too deeply is none', () => {
  assert.equal(jsonText({ a: [1, 'b'] }), '{"a":[1,"b"]}');
  assert.equal(jsonText(JSON.parse(`${'['.repeat(20_000)}${']'.repeat(20_000)}`)), undefined);
  assert.throws(() => jsonText(1n), TypeError);
});
