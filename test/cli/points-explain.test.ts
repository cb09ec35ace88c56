import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { chain, chainbell } from './chainbell.ts';

test('points explain says what is wrong with a hash and exits with 64', async () => {
  for (const [hash, message] of [
    ['0x12', /has 64 hexadecimal digits after 0x\. This one has 2\./],
    [`0x${'1'.repeat(65)}`, /This one has 65\./],
    ['0xyz', /has hexadecimal digits only, after 0x\./],
  ] as const) {
    const { code, out, err } = await chainbell(tmpdir(), chain, 'points', 'explain', hash);
    assert.deepEqual([code, out], [64, '']);
    assert.match(err, message);
  }
});
