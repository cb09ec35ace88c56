import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createLru } from '../../../src/api/http/lru.ts';

const LARGE = 1_000_000;

test('the least recently used value goes first, when there are too many', () => {
  const lru = createLru<number>({ entriesMax: 3, bytesMax: LARGE });
  for (const value of [1, 2, 3]) lru.set(`${value}`, value, 0);
  assert.equal(lru.get('1'), 1);
  lru.set('4', 4, 0);
  assert.deepEqual(
    ['1', '2', '3', '4'].map((key) => lru.get(key)),
    [1, undefined, 3, 4],
  );
});

test('values that grow push others out, and one that is too large alone is not kept', () => {
  const lru = createLru<object>({ entriesMax: 10, bytesMax: 10_000 });
  const [first, second] = [{}, {}];
  lru.set('first', first, 4_000);
  lru.set('second', second, 4_000);
  lru.grow('second', second, 3_000);
  assert.equal(lru.get('first'), undefined);
  assert.equal(lru.get('second'), second);
  lru.grow('second', first, LARGE);
  assert.equal(lru.get('second'), second, 'another value has grown');
  lru.set('third', {}, 10_000);
  assert.equal(lru.get('third'), undefined);
  assert.equal(lru.get('second'), second);
});

test('whatever happens, it holds what a list of the last used would, within its bounds', () => {
  const key = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f');
  const bytes = fc.integer({ min: 0, max: 3_000 });
  const step = fc.oneof(
    fc.record({ do: fc.constant('set' as const), key, bytes }),
    fc.record({ do: fc.constant('get' as const), key, bytes }),
    fc.record({ do: fc.constant('delete' as const), key, bytes }),
    fc.record({ do: fc.constant('grow' as const), key, bytes }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const limits = { entriesMax: 4, bytesMax: 8_000 };
      const lru = createLru<object>(limits);
      const empty = createLru<object>({ entriesMax: 1, bytesMax: LARGE });
      empty.set('a', {}, 0);
      const overhead = empty.bytes();
      let model: { key: string; value: object; bytes: number }[] = [];
      for (const { do: what, key, bytes } of steps) {
        const known = model.find((one) => one.key === key);
        const others = model.filter((one) => one.key !== key);
        if (what === 'get') {
          assert.equal(lru.get(key), known?.value);
          if (known !== undefined) model = [...others, known];
        } else if (what === 'delete') {
          lru.delete(key);
          model = others;
        } else if (what === 'set') {
          const value = {};
          lru.set(key, value, bytes);
          model = [...others, { key, value, bytes: bytes + overhead }];
        } else if (known !== undefined) {
          lru.grow(key, known.value, bytes);
          known.bytes += bytes;
        }
        const sum = () => model.reduce((total, one) => total + one.bytes, 0);
        while (model.length > limits.entriesMax || sum() > limits.bytesMax) model = model.slice(1);
        assert.equal(lru.bytes(), sum());
      }
      for (const { key, value } of model) assert.equal(lru.get(key), value);
    }),
  );
});
