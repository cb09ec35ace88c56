import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createStringCutter, createValueCounter } from '../../src/core/json-values.ts';

/** The text in pieces that end after these bytes, cut to strings of `bytesMax` bytes. */
function cut(text: string, bytesMax: number, ends: readonly number[] = []): string {
  const cutter = createStringCutter(bytesMax);
  const bytes = Buffer.from(text);
  const places = [0, ...ends.map((end) => end % (bytes.length + 1)).sort((one, other) => one - other)];
  const pieces = places.map((place, index) => cutter(bytes.subarray(place, places[index + 1])));
  return new TextDecoder().decode(Buffer.concat(pieces));
}

test('a long string keeps its beginning and gets an ellipsis, and everything else is unchanged', () => {
  const text = '{"input":"0x123456","calls":[{"gas":"0x5"},[1,2,null]],"output":""}';
  assert.equal(cut(text, 100), text);
  assert.equal(cut(text, 8), text);
  assert.equal(cut(text, 5), '{"input":"0x123…","calls":[{"gas":"0x5"},[1,2,null]],"outpu…":""}');
});

test('an escape sequence is kept or cut as a whole', () => {
  assert.equal(cut('["a\\"b","c"]', 1), '["a…","c"]');
  assert.equal(cut('["a\\"b","c"]', 2), '["a\\"…","c"]');
  assert.equal(cut('["\\\\\\\\","c"]', 1), '["\\\\…","c"]');
  for (const bytesMax of [1, 2, 5, 6]) assert.equal(cut('["\\u00e9x"]', bytesMax), '["\\u00e9…"]');
});

test('JSON in any pieces remains JSON with the same values, except for the end of long strings', () => {
  const asciiEscaped = (json: string) =>
    json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const strings = fc.array(fc.string({ unit: 'binary' }));
  fc.assert(
    fc.property(strings, fc.array(fc.nat(200)), fc.integer({ min: 3, max: 12 }), (given, ends, bytesMax) => {
      const text = asciiEscaped(JSON.stringify({ key: given, n: [1, null, {}] }));
      assert.equal(cut(text, text.length, ends), text);
      const { key, n } = JSON.parse(cut(text, bytesMax, ends));
      assert.deepEqual([key.length, n], [given.length, [1, null, {}]]);
      for (const [index, one] of given.entries())
        assert.ok(one === key[index] || one.startsWith(key[index].replace(/…$/, '')));
    }),
    { numRuns: 1_000 },
  );
});

test('of a piece that is cut, only the rest stays in memory', () => {
  const piece = Buffer.from(`"${'a'.repeat(1_000_000)}"`);
  assert.ok(createStringCutter(512)(piece).buffer.byteLength < 100_000);
});

test('each key that differs from those before is counted, and nothing else that looks like one', () => {
  const keysOf = (value: unknown): string[] =>
    typeof value === 'object' && value !== null
      ? [...(Array.isArray(value) ? [] : Object.keys(value)), ...Object.values(value).flatMap(keysOf)]
      : [];
  const property = fc.property(fc.jsonValue(), fc.constantFrom(0, 1), (value, indent) => {
    const bytes = Buffer.from(JSON.stringify(value, null, indent));
    assert.equal(createValueCounter()(bytes).newKeys, new Set(keysOf(value)).size);
  });
  fc.assert(property, { examples: [[{ 'a":': '":', b: [{ 'a":': ',"c":' }] }, 0]] });
});
