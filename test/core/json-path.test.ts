import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { findAtPath, parseJsonPath } from '../../src/core/json-path.ts';

const find = (document: unknown, text: string) => {
  const path = parseJsonPath(text);
  assert.ok(path !== undefined, `${text} is a path`);
  return findAtPath(document, path);
};

test('all notations of a step find the same value', () => {
  const document = { a: { b: ['first', { 'c d': 'deep' }] }, 'usd-coin': { '1h': 7 } };
  assert.equal(find(document, '$.a.b[0]'), 'first');
  assert.equal(find(document, `$['a'].b[0]`), 'first');
  assert.equal(find(document, `$["a"]['b'][1]["c d"]`), 'deep');
  assert.equal(find(document, '$.a.b[-1]["c d"]'), 'deep');
  assert.equal(find(document, '$.usd-coin.1h'), 7);
  assert.equal(find(document, '$[ "usd-coin" ].1h'), 7);
  assert.equal(find(document, '$'), document);
});

test('any name can be written in quotes', () => {
  fc.assert(
    fc.property(fc.string(), fc.constantFrom("'", '"'), (name, quote) => {
      const escaped = name.replaceAll(/[\\'"]/g, (character) => `\\${character}`);
      const path = parseJsonPath(`$[${quote}${escaped}${quote}].x`);
      // A path can't escape line ends.
      if (/[\n\r\u2028\u2029]/.test(name) && path === undefined) return;
      assert.deepEqual(path, [name, 'x']);
    }),
  );
});

test('a missing value is undefined, and inherited properties are never found', () => {
  const document = { list: [1], text: 'abc', nothing: null };
  for (const path of [
    '$.other',
    '$.list[1]',
    '$.list[-2]',
    '$.list.length',
    '$.text[0]',
    '$.nothing.x',
    '$[0]',
  ])
    assert.equal(find(document, path), undefined, path);
  for (const path of ['$.constructor', '$.__proto__', '$.toString', '$.list.at'])
    assert.equal(find(document, path), undefined, path);
});

test('text that is not a path is refused', () => {
  const wrong = [
    '',
    'price',
    '$price',
    '$.',
    '$..a',
    '$[',
    '$[]',
    '$[a]',
    "$['a]",
    '$[01]',
    '$[1.5]',
    '$.a[*]',
    '$.a b',
  ];
  for (const text of wrong) assert.equal(parseJsonPath(text), undefined, text);
});
