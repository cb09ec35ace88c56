import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import { readBalanceWei } from '../../devnet/wallet.ts';
import type { Hash, Hex } from '../../src/core/hex.ts';
import { type Chain, startChain } from '../kit/anvil.ts';

const transferTopic = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

type CallFrame = { type: string; to: string; value?: Hex; error?: string; calls?: CallFrame[] };

async function traceOf(chain: Chain, blockHash: Hash): Promise<CallFrame> {
  const traces = await chain.rpc('debug_traceBlockByHash', [blockHash, { tracer: 'callTracer' }]);
  assert.ok(Array.isArray(traces) && traces.length === 1);
  return traces[0].result;
}

test('a fee-on-transfer token moves less than was sent, in two Transfer events', async () => {
  await using chain = await startChain();
  const [sender, receiver, collector] = chain.accounts;
  const token = await chain.deploy('FeeToken', 'Fee Token', 'FEE', collector);
  await chain.mintToken(token, { to: sender, amount: 1_000n });

  const { logs } = await chain.transferToken(token, { from: sender, to: receiver, amount: 1_000n });

  const transfers = logs.map(({ topics: [topic, from, to], data }) => {
    assert.equal(topic, transferTopic);
    return [`0x${from?.slice(-40)}`, `0x${to?.slice(-40)}`, BigInt(data)];
  });
  assert.deepEqual(transfers, [
    [sender, collector, 10n],
    [sender, receiver, 990n],
  ]);
});

test('an ERC-721 transfer has the topic of an ERC-20 transfer and four topics', async () => {
  await using chain = await startChain();
  const [owner] = chain.accounts;
  const collectible = await chain.deploy('DemoCollectible', 'Demo Collectible', 'DEMO');
  const input = encodeCall({ contract: 'DemoCollectible', method: 'mint', values: [owner] });

  const { logs } = await chain.execute({ from: owner, to: collectible, input });

  assert.equal(logs.length, 1);
  assert.equal(logs[0]?.topics[0], transferTopic);
  assert.equal(logs[0]?.topics.length, 4);
  assert.equal(logs[0]?.data, '0x');
});

test('a split payment shows in the trace, and nowhere in the receipt', async () => {
  await using chain = await startChain();
  const [payer, first, second] = chain.accounts;
  const splitter = await chain.deploy('Splitter');
  const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[first, second]] });

  const { logs, blockHash } = await chain.execute({ from: payer, to: splitter, valueWei: 101n, input });

  assert.deepEqual(logs, []);
  const { calls = [] } = await traceOf(chain, blockHash);
  assert.deepEqual(
    calls.map(({ type, to, value }) => [type, to, value]),
    [
      ['CALL', first, '0x32'],
      ['CALL', second, '0x33'],
    ],
  );
});

test('a transfer inside a reverted call is in the trace of a successful transaction, and did not happen', async () => {
  await using chain = await startChain();
  const [payer, kept, reverted] = chain.accounts;
  const splitter = await chain.deploy('Splitter');
  const before = { kept: await readBalanceWei(chain, kept), reverted: await readBalanceWei(chain, reverted) };
  const input = encodeCall({
    contract: 'Splitter',
    method: 'splitWithRevertedHalf',
    values: [kept, reverted],
  });

  const { succeeded, blockHash } = await chain.execute({ from: payer, to: splitter, valueWei: 100n, input });

  assert.equal(succeeded, true);
  const { calls = [] } = await traceOf(chain, blockHash);
  assert.match(calls[0]?.error ?? '', /revert/);
  assert.equal(calls[0]?.calls?.[0]?.to, reverted);
  assert.equal(calls[0]?.calls?.[0]?.value, '0x32');
  assert.equal((await readBalanceWei(chain, kept)) - before.kept, 100n);
  assert.equal(await readBalanceWei(chain, reverted), before.reverted);
});

test('a contract is created with value and destroyed in one transaction: CREATE, then SELFDESTRUCT', async () => {
  await using chain = await startChain();
  const [payer, receiver] = chain.accounts;
  const splitter = await chain.deploy('Splitter');
  const before = await readBalanceWei(chain, receiver);
  const input = encodeCall({ contract: 'Splitter', method: 'createAndClosePurse', values: [receiver] });

  const { blockHash } = await chain.execute({ from: payer, to: splitter, valueWei: 100n, input });

  const { calls = [] } = await traceOf(chain, blockHash);
  assert.deepEqual([calls[0]?.type, calls[0]?.value], ['CREATE', '0x64']);
  assert.deepEqual([calls[1]?.calls?.[0]?.type, calls[1]?.calls?.[0]?.to], ['SELFDESTRUCT', receiver]);
  assert.equal((await readBalanceWei(chain, receiver)) - before, 100n);
});
