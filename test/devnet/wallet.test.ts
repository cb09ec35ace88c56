import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import { executeAll, findBlock, readBalanceWei, readChainTime } from '../../devnet/wallet.ts';
import { startChain } from '../kit/anvil.ts';

test('many transactions are mined in few blocks, each sender in its order, and then one by one again', async () => {
  await using chain = await startChain();
  const [first, second, third] = chain.accounts;
  const before = await readBalanceWei(chain, third);
  const transactions = Array.from({ length: 40 }, (_, place) => ({
    from: place % 2 === 0 ? first : second,
    to: third,
    valueWei: BigInt(place),
    gas: 21_000,
  }));
  const at = new Date('2050-01-01T00:00:00Z');
  await executeAll(chain, transactions, at);

  assert.equal((await readBalanceWei(chain, third)) - before, 780n);
  assert.equal((await chain.head()).number, 3);
  const block = Object(await chain.rpc('eth_getBlockByNumber', ['0x1', false]));
  assert.equal(Number(block.timestamp), at.getTime() / 1000);
  assert.equal(block.transactions.length, 16);
  assert.ok((await readChainTime(chain)) >= at);
  assert.equal((await chain.transferNative({ from: first, to: second, valueWei: 1n })).blockNumber, 4);
});

test('transactions that ask for more gas than a block has are spread, and none is lost', async () => {
  await using chain = await startChain();
  const [from, to] = chain.accounts;
  await executeAll(
    chain,
    Array.from({ length: 7 }, () => ({ from, to, gas: 10_000_000 })),
  );
  assert.equal((await findBlock(chain, 'latest'))?.number, 3);
  assert.equal(await chain.rpc('eth_getTransactionCount', [from, 'latest']), '0x7');
});

test('a failed transaction among many is an error that names its contract', async () => {
  await using chain = await startChain();
  const [from, other] = chain.accounts;
  const token = await chain.deploy('DemoToken', 'Token', 'TOK', 18);
  const input = encodeCall({ contract: 'DemoToken', method: 'transfer', values: [other, 1n] });
  await assert.rejects(
    executeAll(chain, [
      { from, to: other },
      { from, to: token, input },
    ]),
    {
      code: 'invalid',
      message: `a transaction to ${token} failed`,
    },
  );
});
