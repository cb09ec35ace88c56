/**
 * The chain that the contestants of `npm run bench -- follow` read.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBenchChain } from '../../../bench/follow/chain.ts';
import { quantity } from '../../../devnet/wallet.ts';

test('each block has the counted transfers, numbered, to recipients that never send', async () => {
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

test('with pairs each block holds a swap of each, which succeeds, and the same transfers besides', async () => {
  await using chain = await startBenchChain(2, { swaps: true });
  assert.equal(chain.pairs.length, 6);
  const swapTopic = '0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822';
  for (const block of [1, 2]) {
    const receipts = JSON.parse(JSON.stringify(await chain.rpc('eth_getBlockReceipts', [quantity(block)])));
    const logs = receipts.flatMap(({ logs }: { logs: { address: string; topics: string[] }[] }) => logs);
    const swapped = logs.filter(({ topics }: { topics: string[] }) => topics[0] === swapTopic);
    assert.deepEqual(
      swapped.map(({ address }: { address: string }) => address),
      chain.pairs.map(({ address }) => address),
    );
    const own = logs.filter(({ address }: { address: string }) => address === chain.token);
    assert.equal(own.length, 100);
  }
});
