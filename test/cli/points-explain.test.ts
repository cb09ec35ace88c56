import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { createTestDatabase } from '../kit/database.ts';
import { startScriptedNode } from '../kit/scripted-node.ts';
import { chain, chainbell, startChainbell } from './chainbell.ts';

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

test('an interrupted points explain exits with 75 and prints that it was interrupted', async () => {
  await using place = await createTestDatabase('embedded');
  const env = { ...chain, CHAINBELL_DATA_DIR: place.dataDir };
  assert.equal((await chainbell(place.dataDir, env, 'migrate')).code, 0);
  await using node = await startScriptedNode();
  const words = ['points', 'explain', `0x${'1'.repeat(64)}`];
  const run = startChainbell(place.dataDir, { ...env, CHAINBELL_CHAIN_RPC: node.url }, ...words);
  node.setHttp(() => {
    run.process.kill('SIGINT');
    return 'hang';
  });
  assert.deepEqual(await run.ended, { code: 75, out: '', err: 'chainbell: interrupted\n' });
});
