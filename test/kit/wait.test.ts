import assert from 'node:assert/strict';
import { test } from 'node:test';
import { waitUntil } from './wait.ts';

test('waiting ends with the first result, and zero and the empty string are results', async () => {
  let asked = 0;
  assert.equal(await waitUntil(() => (++asked < 3 ? undefined : asked)), 3);
  assert.equal(await waitUntil(() => 0), 0);
  assert.equal(await waitUntil(async () => ''), '');
});

test('a wait that times out names its condition', async () => {
  await assert.rejects(
    waitUntil(() => false, { timeoutMs: 10, describe: 'the head to be 7' }),
    /waited 10 ms in vain for: the head to be 7/,
  );
});

test('an error of the condition ends the wait', async () => {
  await assert.rejects(
    waitUntil(() => {
      throw new TypeError('broken');
    }),
    TypeError,
  );
});

test('an asynchronous condition is called less often during a long wait', async () => {
  const startedAt = performance.now();
  let asked = 0;
  await waitUntil(async () => {
    asked += 1;
    return performance.now() - startedAt > 600;
  });
  // At 5 ms intervals, it would be called some hundred times.
  assert.ok(asked < 50, `${asked} times`);
});
