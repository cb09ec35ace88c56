import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Bundle, type BundleTransaction, fetchBundles } from '../../src/chain/blocks/bundle.ts';
import { createRpc } from '../../src/chain/rpc/rpc.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import type { Transfer } from '../../src/domain/block.ts';
import { extractTransfers } from '../../src/ingest/extract.ts';
import { readRealchain, testWithRealchain } from '../kit/replay.ts';
import {
  chainMethods,
  type Json,
  makeAddress,
  makeHash,
  startScriptedNode,
  traceMethod,
} from '../kit/scripted-node.ts';

const TRANSFER = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
const hash = makeHash(0, 1, 1);
const token = makeAddress(9);
const [alice, bob, carol] = [makeAddress(1), makeAddress(2), makeAddress(3)];

/** One block of the reference extraction. Amounts are decimal text. */
type ReferenceBlock = {
  number: number;
  source: string;
  native: { hash: string; from: string; to: string; amount: string }[];
  internal: { hash: string; from: string; to: string; amount: string }[] | null;
  erc20: { hash: string; logIndex: number; token: string; from: string; to: string; amount: string }[];
  excluded: { failed_value: { hash: string }[]; erc721: number };
};
type Receipt = Json & { transactionHash: string; logs: { logIndex: string }[] };

testWithRealchain(
  '25 real mainnet blocks give exactly the transfers of the reference extraction',
  async (folder) => {
    const { blocks } = readRealchain<{ blocks: ReferenceBlock[] }>(folder, 'expected/transfers.json.gz');
    assert.equal(blocks.length, 25);
    for (const reference of blocks) {
      const file = `${reference.source}/${reference.number}`;
      const block = readRealchain<Json>(folder, `${file}.block.json.gz`);
      const receipts = readRealchain<Receipt[]>(folder, `${file}.receipts.json.gz`);
      const isTraced = reference.internal !== null;
      const traces = isTraced ? readRealchain<unknown>(folder, `${file}.calltrace.json.gz`) : undefined;
      const bundle = await fetchOne({ block, receipts, traces }, isTraced);
      checkAgainst(reference, receipts, extractTransfers(bundle));
    }
  },
);

async function fetchOne(
  block: { block: Json; receipts: Json[]; traces: unknown },
  isTraced: boolean,
): Promise<Bundle> {
  await using node = await startScriptedNode({
    ...chainMethods(1, [block]),
    debug_traceBlockByHash: traceMethod([block]),
  });
  const rpc = createRpc(node.url, createMetrics('test'));
  try {
    const traces = isTraced ? 'debug_traceBlockByHash' : 'none';
    const plan = { batch: true, blockReceipts: true, traces } as const;
    const [bundle] = await fetchBundles(
      rpc,
      [Number(block.block.number)],
      plan,
      new AbortController().signal,
    );
    assert.ok(bundle !== undefined);
    return bundle;
  } finally {
    await rpc.close();
  }
}

function checkAgainst(
  reference: ReferenceBlock,
  receipts: readonly Receipt[],
  transfers: readonly Transfer[],
): void {
  const ofKind = (wanted: Transfer['kind']) => transfers.filter(({ kind }) => kind === wanted);
  const line = (...parts: unknown[]) => parts.join(' ');
  const told = ({ txHash, sender, receiver, amount }: Transfer) =>
    line(txHash, sender, receiver ?? '', amount);
  const named = ({ hash: txHash, from, to, amount }: ReferenceBlock['native'][number]) =>
    line(txHash, from, to, amount);
  assert.deepEqual(
    ofKind('transaction').map(told),
    reference.native.map(named),
    `${reference.number} native`,
  );
  assert.deepEqual(
    ofKind('internal').map(told).sort(),
    (reference.internal ?? []).map(named).sort(),
    `${reference.number} internal`,
  );
  const logsOf = new Map(receipts.map(({ transactionHash, logs }) => [transactionHash, logs]));
  const logIndexOf = ({ txHash, ordinal }: Transfer) => Number(logsOf.get(txHash)?.[ordinal]?.logIndex);
  assert.deepEqual(
    ofKind('token').map((transfer) => line(told(transfer), transfer.token, logIndexOf(transfer))),
    reference.erc20.map((one) => line(named(one), one.token, one.logIndex)),
    `${reference.number} token`,
  );
  const places = transfers.map(({ txHash, kind, ordinal }) => line(txHash, kind, ordinal));
  assert.equal(new Set(places).size, places.length, `${reference.number}: two transfers have one place`);
}

test('a transfer of native coin has its sender, receiver and value', () => {
  assert.deepEqual(extract({ from: alice, to: bob, value: 7n }), [
    {
      kind: 'transaction',
      txHash: hash,
      ordinal: 0,
      sender: alice,
      receiver: bob,
      amount: 7n,
      token: undefined,
    },
  ]);
});

test('value that creates a contract has no receiver', () => {
  assert.deepEqual(
    extract({ to: 'creation', value: 7n }).map(({ receiver }) => receiver),
    [undefined],
  );
});

test('a transaction without value, with an unknown receiver or that failed is no transfer', () => {
  assert.deepEqual(extract({ value: 0n }), []);
  assert.deepEqual(extract({ value: undefined }), []);
  assert.deepEqual(extract({ to: undefined, value: 7n }), []);
  assert.deepEqual(extract({ succeeded: false, value: 7n }), []);
});

test('internal transfers follow the value of the transaction, numbered in their order', () => {
  const calls = [
    { sender: bob, receiver: carol, amount: 1n },
    { sender: bob, receiver: carol, amount: 1n },
  ];
  assert.deepEqual(
    extract({ value: 7n, calls }).map(({ kind, ordinal, sender, amount }) => [kind, ordinal, sender, amount]),
    [
      ['transaction', 0, alice, 7n],
      ['internal', 0, bob, 1n],
      ['internal', 1, bob, 1n],
    ],
  );
});

test("a token transfer's ordinal is the position of its log in the receipt, whatever the other logs are", () => {
  const other: Log = { address: token, topics: [makeHash(0, 1, 9)], data: '0x' };
  const transfers = extract({ logs: [other, transferLog(), other, transferLog({ amount: 0n })] });
  assert.deepEqual(
    transfers.map(({ kind, ordinal, amount }) => [kind, ordinal, amount]),
    [
      ['token', 1, 5n],
      ['token', 3, 0n],
    ],
  );
  assert.deepEqual(transfers[0], {
    kind: 'token',
    txHash: hash,
    ordinal: 1,
    sender: bob,
    receiver: carol,
    amount: 5n,
    token,
  });
});

test('the largest amount is exact', () => {
  const amount = 2n ** 256n - 1n;
  assert.deepEqual(
    extract({ logs: [transferLog({ amount })] }).map((transfer) => transfer.amount),
    [amount],
  );
});

test('a token transfer in a failed transaction counts', () => {
  assert.equal(extract({ succeeded: false, logs: [transferLog()] }).length, 1);
});

test('an address is the low 20 bytes of its topic', () => {
  const dirty = `0x${'f'.repeat(24)}${alice.slice(2)}` as const;
  assert.deepEqual(
    extract({ logs: [transferLog({ topics: [TRANSFER, dirty, wordOf(2n)] })] }).map(({ sender }) => sender),
    [alice],
  );
});

test('four topics (ERC-721), fewer than three, and other data than one word are no token transfers', () => {
  const [from, to, id] = [wordOf(1n), wordOf(2n), wordOf(3n)];
  const logs = [
    transferLog({ topics: [TRANSFER, from, to, id], data: '0x' }),
    transferLog({ topics: [TRANSFER, from, to, id] }),
    transferLog({ topics: [TRANSFER, from] }),
    transferLog({ topics: [TRANSFER], data: `0x${'0'.repeat(192)}` }),
    transferLog({ topics: [], data: '0x' }),
    transferLog({ data: '0x' }),
    transferLog({ data: `0x${'0'.repeat(62)}` }),
    transferLog({ data: `0x${'0'.repeat(128)}` }),
    transferLog({ topics: [makeHash(0, 1, 1), from, to] }),
  ];
  assert.deepEqual(extract({ logs }), []);
});

/** The transfers of a block with one transaction. Alice sends Bob nothing unless `parts` says otherwise. */
function extract(parts: Partial<BundleTransaction>): Transfer[] {
  const transaction = {
    hash,
    from: alice,
    to: bob,
    value: 0n,
    succeeded: true,
    logs: [],
    calls: [],
    ...parts,
  };
  const header = { number: 1, hash: makeHash(0, 1, 0), parentHash: makeHash(0, 0, 0), minedAt: new Date(0) };
  return extractTransfers({ header, proved: false, traced: true, transactions: [transaction] });
}

type Log = BundleTransaction['logs'][number];

/** Bob sends Carol 5 units. */
function transferLog({ amount = 5n, ...parts }: Partial<Log> & { amount?: bigint } = {}): Log {
  return { address: token, topics: [TRANSFER, wordOf(2n), wordOf(3n)], data: wordOf(amount), ...parts };
}

function wordOf(number: bigint): `0x${string}` {
  return `0x${number.toString(16).padStart(64, '0')}`;
}
