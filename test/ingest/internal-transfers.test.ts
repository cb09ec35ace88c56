/**
 * Internal transfers of real nodes: the same ones in the same positions with every trace method. Together with the
 * transactions' own values they explain all changes of balances, except fees, rewards and withdrawals.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import { fetchBundles, type TraceMethod } from '../../src/chain/blocks/bundle.ts';
import { createRpc } from '../../src/chain/rpc/rpc.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import type { Transfer } from '../../src/domain/block.ts';
import { extractTransfers } from '../../src/ingest/extract.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { type RealBlock, readBlock } from '../kit/real-blocks.ts';
import { readRealchain, testWithRealchain } from '../kit/replay.ts';
import { chainMethods, startScriptedNode, traceMethod } from '../kit/scripted-node.ts';

const traceMethods = ['debug_traceBlockByHash', 'debug_traceBlockByNumber', 'trace_block'] as const;

test('each trace method gives the same internal transfers, and they add up to the balances', async () => {
  await using chain = await startChain();
  const [payer, , receiver] = chain.accounts;
  const old = await chain.deploy('Animal');
  await chain.transferNative({ from: payer, to: old, valueWei: 100n });
  const zoo = await chain.deploy('Zoo');
  const input = encodeCall({ contract: 'Zoo', method: 'run', values: [old, receiver] });

  const { hash, blockHash, blockNumber, succeeded } = await chain.execute({
    from: payer,
    to: zoo,
    valueWei: 500n,
    input,
  });

  assert.ok(succeeded);
  const transfers = await readTransfers(chain.url, blockHash, 'debug_traceBlockByHash');
  for (const method of traceMethods) {
    assert.deepEqual(await readTransfers(chain.url, blockHash, method), transfers, `${method}, by hash`);
    assert.deepEqual(await readTransfers(chain.url, blockNumber, method), transfers, `${method}, by number`);
  }
  const internal = transfers.filter(({ kind }) => kind === 'internal');
  const [made, salted] = internal.map(({ receiver: created }) => created);
  const moved = internal.map(({ ordinal, sender, receiver: to, amount }) => [
    ordinal,
    sender,
    to,
    Number(amount),
  ]);
  assert.deepEqual(moved, [
    [0, zoo, made, 40],
    [1, zoo, salted, 30],
    [2, zoo, made, 7],
    [3, made, receiver, 3],
    [4, zoo, receiver, 2],
    [5, zoo, precompile, 6],
    [6, salted, receiver, 30],
    [7, made, old, 44],
    [8, old, receiver, 1],
    [9, zoo, zoo, 9],
    [10, zoo, receiver, 415],
  ]);
  const fee = await feeOf(chain, hash);
  for (const [account, gain] of gainsOf(transfers)) {
    const before = await balanceAt(chain, account, blockNumber - 1);
    const after = await balanceAt(chain, account, blockNumber);
    assert.equal(after - before, gain - (account === payer ? fee : 0n), account);
  }
});

testWithRealchain(
  'in twelve real blocks, transfers, fees, rewards and withdrawals explain every change of a balance',
  async (folder) => {
    const { balances } = readRealchain<{ balances: Record<Address, Balance> }>(
      folder,
      'expected/balances.json.gz',
    );
    const current = new Map(
      Object.entries(balances).map(([account, { before }]) => [account, BigInt(before)]),
    );
    let explainedCount = 0;
    let withdrawalCount = 0;
    for (let number = 17_686_110; number <= 17_686_121; number += 1) {
      const real = readBlock(folder, `semiotic/${number}.`);
      const traces = readRealchain<unknown>(folder, `semiotic/${number}.calltrace.json.gz`);
      const expected = sumsOf(await transfersOfRealBlock(real, traces), real);
      for (const [account, { changes }] of Object.entries(balances)) {
        const before = current.get(account) ?? 0n;
        const after = BigInt(changes.find(([block]) => block === number)?.[1] ?? before);
        current.set(account, after);
        const unexplained = after - before - (expected.get(account) ?? 0n);
        if (unexplained === 0n) explainedCount += Number(after !== before);
        else {
          // The recorded blocks come without their withdrawals: whole Gwei from nowhere (EIP-4895).
          assert.ok(
            unexplained > 0n && unexplained % 1_000_000_000n === 0n,
            `${number} ${account} ${unexplained}`,
          );
          withdrawalCount += 1;
        }
      }
    }
    assert.deepEqual({ explainedCount, withdrawalCount }, { explainedCount: 2_755, withdrawalCount: 25 });
  },
);

type Balance = { before: string; changes: [block: number, balance: string][] };

/** The change of each account's balance in the block by transfers, fees and the block reward. */
function sumsOf(transfers: readonly Transfer[], { block, receipts }: RealBlock): Map<string, bigint> {
  const gains = gainsOf(transfers);
  for (const { from, gasUsed, effectiveGasPrice } of receipts) {
    const [gas, price] = [BigInt(String(gasUsed)), BigInt(String(effectiveGasPrice))];
    add(gains, String(from), -gas * price);
    add(gains, String(block.miner), gas * (price - BigInt(String(block.baseFeePerGas))));
  }
  return gains;
}

async function transfersOfRealBlock({ block, receipts }: RealBlock, traces: unknown): Promise<Transfer[]> {
  const blocks = [{ block, receipts, traces }];
  await using node = await startScriptedNode({
    ...chainMethods(1, blocks),
    debug_traceBlockByHash: traceMethod(blocks),
  });
  return await readTransfers(node.url, Number(block.number), 'debug_traceBlockByHash');
}

/** The transfers of a block, with the traces of a node by this method. */
async function readTransfers(
  url: string,
  reference: Hash | number,
  traces: TraceMethod,
): Promise<Transfer[]> {
  const rpc = createRpc(url, createMetrics('test'));
  try {
    const plan = { batch: true, blockReceipts: true, traces };
    return (await fetchBundles(rpc, [reference], plan, new AbortController().signal)).flatMap(
      extractTransfers,
    );
  } finally {
    await rpc.close();
  }
}

/** The identity function (yellow paper, appendix E). */
const precompile = `0x${'4'.padStart(40, '0')}`;

/** The change of each account's balance by transfers of native coin. */
function gainsOf(transfers: readonly Transfer[]): Map<string, bigint> {
  const gains = new Map<string, bigint>();
  for (const { kind, sender, receiver = '', amount } of transfers) {
    if (kind === 'token') continue;
    add(gains, sender, -amount);
    add(gains, receiver, amount);
  }
  return gains;
}

function add(gains: Map<string, bigint>, account: string, amount: bigint): void {
  gains.set(account, (gains.get(account) ?? 0n) + amount);
}

async function balanceAt(chain: Chain, account: string, number: number): Promise<bigint> {
  return BigInt(String(await chain.rpc('eth_getBalance', [account, `0x${number.toString(16)}`])));
}

async function feeOf(chain: Chain, hash: Hash): Promise<bigint> {
  const receipt = await chain.rpc('eth_getTransactionReceipt', [hash]);
  assert.ok(
    typeof receipt === 'object' && receipt !== null && 'gasUsed' in receipt && 'effectiveGasPrice' in receipt,
  );
  return BigInt(String(receipt.gasUsed)) * BigInt(String(receipt.effectiveGasPrice));
}
