import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decimalText } from '../../../src/core/decimal.ts';
import { floorTo, fractionFrom, fractionOf } from '../../../src/core/fraction.ts';
import { TextError } from '../../../src/core/text-error.ts';
import { checkExpression, type Scope, type Value } from '../../../src/domain/expression/check.ts';
import {
  type Environment,
  evaluateBoolean,
  evaluateNumber,
} from '../../../src/domain/expression/evaluate.ts';
import { type Expression, parseExpression } from '../../../src/domain/expression/parse.ts';

const router = '0x00000000000000000000000000000000000000aa';
const scope: Scope = {
  what: 'not an argument of the event',
  names: new Map([
    ['amount', 'integer'],
    ['tick', 'integer'],
    ['isFinal', 'boolean'],
    ['to', 'bytes20'],
    ['id', 'bytes32'],
  ]),
  tokens: new Map([
    ['token0', 'priced'],
    ['ETH', 'priced'],
    ['LP', 'unpriced'],
  ]),
};
const values: Record<string, Value> = {
  amount: fractionOf(1_500_000n),
  tick: fractionOf(-7n),
  isFinal: true,
  to: router,
  id: `0x${'ab'.repeat(32)}`,
};
const environment: Environment = {
  valueOf: (name) => values[name] ?? assert.fail(`asked for ${name}`),
  decimalsOf: (token) => (token === 'token0' ? 6 : 18),
  usdOf: (token) => (token === 'token0' ? fractionFrom('1.0001') : undefined),
};

function number(text: string): string | undefined {
  const value = evaluateNumber(checkExpression(text, scope, 'number'), environment);
  return value && decimalText(floorTo(value, 18));
}

const truth = (text: string) => evaluateBoolean(checkExpression(text, scope, 'boolean'), environment);

const numbers: [text: string, value: string][] = [
  ['1 + 2 * 3', '7'],
  ['(1 + 2) * 3', '9'],
  ['10 - 2 - 3', '5'],
  ['100 / 10 / 2', '5'],
  ['-tick', '7'],
  ['--3', '3'],
  ['1 / 3', '0.333333333333333333'],
  ['1 / 3 * 3', '1'],
  ['floor(7 / 2)', '3'],
  ['floor(-7 / 2)', '-4'],
  ['abs(tick) + abs(3)', '10'],
  ['min(3, 1, 2)', '1'],
  ['max(0, tick)', '0'],
  ['amount(amount, token0)', '1.5'],
  ['usd(amount, token0)', '1.50015'],
  ['floor(usd(amount, token0) * 10) / 10', '1.5'],
  ['0.1 + 0.2', '0.3'],
  ['115792089237316195423570985008687907853269984665640564039457584007913129639935 + 1', `${2n ** 256n}`],
  ['usd(amount, ETH)', '0'],
];

for (const [text, value] of numbers) test(`${text} is ${value}`, () => assert.equal(number(text), value));

const truths: [text: string, value: boolean][] = [
  ['amount >= 1500000 && tick < 0', true],
  ['amount != 1500000 || tick == -7', true],
  ['!(isFinal && tick > 0)', true],
  [`to == ${router}`, true],
  [`to == ${router.toUpperCase().replace('0X', '0x')}`, true],
  [`id != 0x${'ab'.repeat(32)}`, false],
  ['isFinal == true', true],
  ['1 / 2 == 0.5', true],
  ['0.1 + 0.2 == 0.3', true],
  ['true || false && false', true],
];

for (const [text, value] of truths) test(`${text} is ${value}`, () => assert.equal(truth(text), value));

test('a division by zero has no value, unless a condition before it skips it', () => {
  assert.equal(number('amount / (tick + 7)'), undefined);
  assert.equal(number('1 + floor(min(1 / 0, 2))'), undefined);
  assert.equal(truth('!(1 / 0 > 1)'), undefined);
  assert.equal(truth('tick + 7 != 0 && 1 / (tick + 7) > 1'), false);
  assert.equal(truth('isFinal || 1 / 0 > 1'), true);
});

/** The text marks the part that the error must point at. */
const mistakes: [marked: string, message: string | RegExp][] = [
  ['amount + «amuont»', '"amuont" is not an argument of the event: use one of amount, tick, isFinal, to, id'],
  ['«flor»(1)'.replace('«flor»(1)', '«flor(1)»'), /^"flor" is not a function: use one of floor/],
  ['usd(amount, «token9»)', /^"token9" is not a known token: use (one of )?token0/],
  ['usd(amount, «1»)', /^a token is expected here/],
  ['usd(amount, «LP»)', '"LP" has no price: give it one under tokens (usd) or prices'],
  ['«usd(amount)»', 'must be written usd(units, token)'],
  ['«min(1)»', 'must be written min(number, number, …)'],
  ['«floor()»', 'must be written floor(number)'],
  ['1 + «isFinal»', 'must be a number, and is true or false'],
  ['!«amount» && true', 'must be true or false, and is a number'.replace('a number', 'an integer')],
  ['«to == amount»', 'an address is never equal to an integer'],
  ['«id == to»', '32 bytes is never equal to an address'],
  ['«isFinal»', 'must be a number, and is true or false'],
  ['1 + «»', '"a value" '],
  ['(1 + 2«»', /^"\)" is expected here/],
  ['1 «2»', '"2" is unexpected here'],
  ['1 < 2 «<» 3', 'comparisons cannot be chained: combine them with &&'],
  ['amount «=» 1', '"=" is unexpected here: did you mean ==?'],
  ['amount «€» 1', '"€" is unexpected here'],
  ['«1e»18', '"1e" is not a number'],
  ['«1.»', '"1." is not a number'],
  ['to == «0xabc»', /^must be an address or up to 32 bytes/],
  [`«${'9'.repeat(81)}»`, 'a number has at most 80 digits'],
];

for (const [marked, message] of mistakes) {
  test(`the error for ${marked.slice(0, 60)} points at the marked part`, () => {
    const start = marked.indexOf('«');
    const text = marked.replace('«', '').replace('»', '');
    const end = marked.indexOf('»') - 1;
    const error = errorOf(text);
    assert.ok(error !== undefined);
    assert.equal(error.span.start, start);
    if (end > start) assert.equal(error.span.end, end);
    if (message instanceof RegExp) assert.match(error.message, message);
    else if (!message.startsWith('"a value"')) assert.equal(error.message, message);
  });
}

function errorOf(text: string): TextError | undefined {
  try {
    checkExpression(text, scope, 'number');
    return undefined;
  } catch (error) {
    assert.ok(error instanceof TextError, String(error));
    return error;
  }
}

test('depth and length are limited', () => {
  assert.match(errorOf(`${'('.repeat(40)}1${')'.repeat(40)}`)?.message ?? '', /nested more than 32 deep/);
  assert.match(errorOf(`${'-'.repeat(40)}1`)?.message ?? '', /nested more than 32 deep/);
  assert.match(errorOf(`1${'+1'.repeat(500)}`)?.message ?? '', /at most 1000 characters/);
  assert.equal(number(`1${'+1'.repeat(499)}`), '500');
});

test('a number is accepted as an integer only after floor', () => {
  assert.throws(() => checkExpression('amount / 2', scope, 'integer'), /use floor\(…\)/);
  checkExpression('floor(amount / 2) * -1 + min(1, 2)', scope, 'integer');
});

test('any text gives a result, or an error with a position inside the text', () => {
  const words = [
    'amount',
    'usd',
    '(',
    ')',
    ',',
    '+',
    '-',
    '*',
    '/',
    '<',
    '==',
    '&&',
    '||',
    '!',
    '1',
    '0.5',
    'token0',
  ];
  const texts = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc
      .array(fc.constantFrom(...words, 'floor(', 'isFinal', 'to', '0xab', ' ', 'min('), { maxLength: 30 })
      .map((all) => all.join(' ')),
  );
  fc.assert(
    fc.property(texts, (text) => {
      const error = errorOf(text);
      if (error === undefined) {
        number(text);
        return;
      }
      assert.ok(error.span.start >= 0 && error.span.start <= text.length, JSON.stringify(error.span));
      assert.ok(error.span.end >= error.span.start && error.span.end <= Math.max(text.length, 1));
    }),
    { numRuns: 2_000 },
  );
});

const trees: fc.Arbitrary<string> = fc.letrec<{ tree: string }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.nat(1_000_000).map(String),
    fc.constantFrom('amount', 'tick'),
    fc
      .tuple(tie('tree'), fc.constantFrom('+', '-', '*', '/'), tie('tree'))
      .map(([left, operator, right]) => `(${left} ${operator} ${right})`),
    tie('tree').map((inner) => `floor(${inner})`),
    tie('tree').map((inner) => `-${inner}`),
  ),
})).tree;

test('a tree that is printed and parsed again is the same tree, and has the same value without spaces', () => {
  fc.assert(
    fc.property(trees, (text) => {
      const compact = text.replaceAll(' ', '');
      if (compact.length > 1_000) return;
      assert.equal(print(parseExpression(text)), print(parseExpression(print(parseExpression(text)))));
      assert.equal(print(parseExpression(compact)), print(parseExpression(text)));
      assert.equal(number(compact), number(text));
    }),
  );
});

function print(expression: Expression): string {
  switch (expression.kind) {
    case 'number':
    case 'hex':
      return expression.text;
    case 'boolean':
      return String(expression.value);
    case 'name':
      return expression.name;
    case 'call':
      return `${expression.name}(${expression.values.map(print).join(', ')})`;
    case 'unary':
      return `${expression.operator}${print(expression.operand)}`;
    case 'binary':
      return `(${print(expression.left)} ${expression.operator} ${print(expression.right)})`;
  }
}
