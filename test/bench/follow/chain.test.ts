/**
 * The chain that the contestants of `npm run bench -- follow` read.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBenchChain } from '../../../bench/follow/chain.ts';
import { quantity } from '../../../devnet/wallet.ts';

test('each block holds the transfers that are counted, numbered, to recipients who never send', async () => {
  await using chain = await startBenchChain(2);
  const live = await chain.mineTransfer();
  assert.equal(live.block, 3);
  assert.equal(chain.head(), 3);
  const found = { token: [] as number[], native: [] as number[] };
  for (let block = 1; block <= chain.head(); block += 1) {
    const read = async (method: string, ...more: unknown[]) =>
      JSON.parse(JSON.stringify(await chain.rpc(method, [quantity(block), ...more])));
    const { transactions } = await read('eth_getBlockByNumber', true);
    for (const { from, to, value } of transactions) {
      assert.ok(!chain.recipients.includes(from));
      if (value === '0x0') continue;
      assert.ok(chain.recipients.includes(to));
      found.native.push(Number(value));
    }
    for (const { status, logs } of await read('eth_getBlockReceipts')) {
      assert.equal(status, '0x1');
      for (const { address, topics, data } of logs) {
        assert.equal(address, chain.token);
        assert.ok(chain.recipients.includes(`0x${topics[2].slice(26)}`));
        found.token.push(Number(data));
      }
    }
    assert.deepEqual(chain.countsUpTo(block), { token: found.token.length, native: found.native.length });
  }
  assert.deepEqual(chain.countsUpTo(3), { token: 201, native: 20 });
  for (const numbers of Object.values(found)) {
    const sorted = numbers.sort((one, other) => one - other);
    assert.deepEqual(
      sorted,
      sorted.map((_, index) => index + 1),
    );
  }
});
