/**
 * Real answers from nodes of other networks are read without a crash and without wrong data.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { type Bundle, fetchBundles } from '../../src/chain/blocks/bundle.ts';
import { createRpc } from '../../src/chain/rpc/rpc.ts';
import { encodeWord } from '../../src/core/abi.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import type { Transfer } from '../../src/domain/block.ts';
import { extractTransfers } from '../../src/ingest/extract.ts';
import { readRealchain, testWithRealchain } from '../kit/replay.ts';
import {
  chainMethods,
  type Json,
  type Methods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  startScriptedNode,
} from '../kit/scripted-node.ts';

const { signal } = new AbortController();

type StoredBlock = Json & { hash: string; number: string; transactions: (Json & { hash: string })[] };

/** The expected result of each block, by folder, and by the beginning of the file name where a folder has several blocks. */
const expected: Record<string, { transactions: number; logs: number; native: number; token: number }> = {
  'arb-sepolia/185232421.': { transactions: 7, logs: 46, native: 0, token: 41 },
  'arbitrum-150000000/': { transactions: 5, logs: 18, native: 1, token: 10 },
  'bittensor-testnet-6646068/': { transactions: 1, logs: 0, native: 0, token: 0 },
  'cronos-10000/': { transactions: 1, logs: 1, native: 0, token: 0 },
  'cronos-6542/': { transactions: 3, logs: 21, native: 0, token: 7 },
  'cronos-68215/': { transactions: 7, logs: 43, native: 2, token: 23 },
  'ethereum-4369999/': { transactions: 22, logs: 171, native: 6, token: 158 },
  'hyperliquid-50000/': { transactions: 1, logs: 0, native: 0, token: 0 },
  'tempo-mainnet-20636966/': { transactions: 2, logs: 4, native: 0, token: 2 },
  'tempoModerato-6541/': { transactions: 1, logs: 0, native: 0, token: 0 },
};

/** Blocks whose receipts are not stored. They are read with made-up ones: success, no logs. */
const withoutReceipts: Record<string, { transactions: number; native: number; type: string }> = {
  'arb-sepolia/185232422.': { transactions: 5, native: 0, type: '0x6a' },
  'gnosis-40000000/': { transactions: 45, native: 2, type: '0x2' },
  'rise-8138510/': { transactions: 7, native: 3, type: '0x7e' },
  'stable-13683593/': { transactions: 1, native: 0, type: '0x0' },
  'stable-14692806/': { transactions: 1, native: 0, type: '0x2' },
  'stable-testnet-61696562/': { transactions: 2, native: 0, type: '0x3f' },
};

for (const [place, counts] of Object.entries(expected)) {
  testWithRealchain(
    `${place} is read completely, with every transfer in a separate position`,
    async (folder) => {
      const block = readRealchain<StoredBlock>(folder, `chains/${place}block.json.gz`);
      const receipts = readRealchain<Json[]>(folder, `chains/${place}receipts.json.gz`);
      const bundle = await fetchFrom(block, receipts);
      assert.deepEqual(countsOf(bundle), counts);
      checkPlaces(extractTransfers(bundle));
    },
  );
}

for (const [place, counts] of Object.entries(withoutReceipts)) {
  testWithRealchain(`${place} (receipts made up) is read whole, type ${counts.type} too`, async (folder) => {
    const block = readRealchain<StoredBlock>(folder, `chains/${place}block.json.gz`);
    assert.ok(!existsSync(path.join(folder, `chains/${place}receipts.json.gz`)));
    const receipts = block.transactions.map(({ hash }) => ({
      ...{ transactionHash: hash, blockHash: block.hash },
      ...{ status: '0x1', logs: [] },
    }));
    const bundle = await fetchFrom(block, receipts);
    const { transactions, native } = countsOf(bundle);
    assert.deepEqual({ transactions, native, type: counts.type }, counts);
    assert.ok(block.transactions.some(({ type }) => type === counts.type));
  });
}

testWithRealchain('every chain in the folder has a test here', (folder) => {
  const tested = [...Object.keys({ ...expected, ...withoutReceipts }), 'cronos-6541/', 'cronos-68216/'];
  const missing = readdirSync(path.join(folder, 'chains')).filter(
    (name) => !tested.some((place) => place.startsWith(`${name}/`)),
  );
  assert.deepEqual(missing, []);
});

testWithRealchain(
  'cronos-6541: no receipts for one transaction is refused until the node has the receipt',
  async (folder) => {
    const block = readRealchain<StoredBlock>(folder, 'chains/cronos-6541/block.json.gz');
    const receipts = readRealchain<Json[]>(folder, 'chains/cronos-6541/receipts.json.gz');
    assert.equal(receipts.length, 0);
    await assert.rejects(fetchFrom(block, receipts), {
      name: 'Fault',
      code: 'inconsistent',
      message: /has no receipt of transaction 0x[0-9a-f]{64} in block 6541/,
    });
  },
);

testWithRealchain(
  'cronos-68216: the receipt that the list leaves out is found by its transaction',
  async (folder) => {
    const block = readRealchain<StoredBlock>(folder, 'chains/cronos-68216/block.json.gz');
    const receipts = readRealchain<Json[]>(folder, 'chains/cronos-68216/receipts.json.gz');
    const missing = readRealchain<Json>(folder, 'chains/cronos-68216/tx-0xc453d4-receipt.json.gz');
    await assert.rejects(fetchFrom(block, receipts), { name: 'Fault', code: 'inconsistent' });
    const single: Methods = {
      eth_getTransactionReceipt: ([hash]) => (hash === missing.transactionHash ? missing : null),
    };
    const bundle = await fetchFrom(block, receipts, single);
    assert.equal(bundle.transactions.length, 2);
    const transfers = extractTransfers(bundle);
    checkPlaces(transfers);
    assert.ok(
      transfers.some(({ kind, amount }) => kind === 'transaction' && amount === 0x1a80b6ceb80040555n),
    );
    assert.ok(transfers.some(({ kind }) => kind === 'token'));
  },
);

testWithRealchain('ethereum-4369999: receipts without a status count as successes', async (folder) => {
  const block = readRealchain<StoredBlock>(folder, 'chains/ethereum-4369999/block.json.gz');
  const receipts = readRealchain<Json[]>(folder, 'chains/ethereum-4369999/receipts.json.gz');
  assert.ok(receipts.every(({ status }) => status === undefined || status === null));
  const bundle = await fetchFrom(block, receipts);
  const valued = block.transactions.filter(({ value }) => BigInt(String(value)) > 0n);
  const native = extractTransfers(bundle).filter(({ kind }) => kind === 'transaction');
  assert.deepEqual(
    native.map(({ txHash }) => txHash),
    valued.map(({ hash }) => hash),
  );
});

test('each transfer has a separate ordinal even if log indices restart in each receipt', async () => {
  const { block, receipts } = makeNodeBlock(7, { transactions: 2 });
  for (const receipt of receipts)
    receipt.logs = [transferLog(1, '0x0'), transferLog(2, '0x0'), transferLog(3, '0x0')];
  const bundle = await fetchFrom(block as StoredBlock, receipts);
  const transfers = extractTransfers(bundle);
  assert.equal(transfers.filter(({ kind }) => kind === 'token').length, 6);
  checkPlaces(transfers);
});

test('a failed transaction keeps its logs and loses its value', async () => {
  const { block, receipts } = makeNodeBlock(7, { transactions: 1 });
  Object.assign(receipts[0] ?? {}, { status: '0x0', logs: [transferLog(5, '0x0')] });
  const transfers = extractTransfers(await fetchFrom(block as StoredBlock, receipts));
  assert.deepEqual(
    transfers.map(({ kind, amount }) => [kind, amount]),
    [['token', 5n]],
  );
});

test('a transaction of a known type without a receiver is a creation, and its value is a transfer', async () => {
  const { block, receipts } = makeNodeBlock(7, { transactions: 1 });
  delete (block as StoredBlock).transactions[0]?.to;
  const transfers = extractTransfers(await fetchFrom(block as StoredBlock, receipts));
  assert.deepEqual(
    transfers.map(({ receiver, amount }) => [receiver, amount]),
    [[undefined, 16n]],
  );
});

test('the position that a log claims is ignored, and the position of its receipt counts', async () => {
  const { block, receipts } = makeNodeBlock(7, { transactions: 1 });
  const log = transferLog(5, '0x0');
  const foreign = { transactionHash: makeHash(1, 8, 9), blockHash: makeHash(1, 8, 0), removed: true };
  const transfersOf = async (logs: Json[]) => {
    Object.assign(receipts[0] ?? {}, { logs });
    return extractTransfers(await fetchFrom(block as StoredBlock, receipts));
  };
  assert.deepEqual(await transfersOf([{ ...log, ...foreign, logIndex: '0x63' }]), await transfersOf([log]));
});

for (const type of ['0x3f', '0x6a', '0x76', '0x7e']) {
  test(`a transaction of type ${type} without receiver and value is neither a creation nor a transfer`, async () => {
    const { block, receipts } = makeNodeBlock(7, { transactions: 1 });
    const [transaction]: Json[] = (block as StoredBlock).transactions;
    assert.ok(transaction !== undefined);
    delete transaction.to;
    delete transaction.value;
    Object.assign(transaction, { type, calls: [{ to: makeAddress(9), value: '0x5', input: '0x' }] });
    const bundle = await fetchFrom(block as StoredBlock, receipts);
    assert.deepEqual(extractTransfers(bundle), []);
    assert.equal(bundle.transactions[0]?.to, undefined);
  });
}

async function fetchFrom(block: StoredBlock, receipts: Json[], more: Methods = {}): Promise<Bundle> {
  await using node = await startScriptedNode({ ...chainMethods(1, [{ block, receipts }]), ...more });
  const rpc = createRpc(node.url, createMetrics('test'));
  try {
    const plan = { batch: true, blockReceipts: true, traces: 'none' } as const;
    const [byHash] = await fetchBundles(rpc, [block.hash as `0x${string}`], plan, signal);
    const [byNumber] = await fetchBundles(rpc, [Number(block.number)], plan, signal);
    assert.ok(byHash !== undefined);
    assert.deepEqual(byHash, byNumber);
    return byHash;
  } finally {
    await rpc.close();
  }
}

function countsOf(bundle: Bundle): { transactions: number; logs: number; native: number; token: number } {
  const transfers = extractTransfers(bundle);
  const count = (wanted: Transfer['kind']) => transfers.filter(({ kind }) => kind === wanted).length;
  return {
    transactions: bundle.transactions.length,
    logs: bundle.transactions.flatMap(({ logs }) => logs).length,
    native: count('transaction'),
    token: count('token'),
  };
}

/** Hash, kind and ordinal identify one transfer, so they distinguish notifications. */
function checkPlaces(transfers: readonly Transfer[]): void {
  const places = transfers.map(({ txHash, kind, ordinal }) => `${txHash} ${kind} ${ordinal}`);
  assert.equal(new Set(places).size, places.length);
}

function transferLog(amount: number, logIndex: string): Json {
  const topic = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
  const word = (number: number) => `0x${encodeWord(number)}`;
  return { address: makeAddress(9), topics: [topic, word(1), word(2)], data: word(amount), logIndex };
}
