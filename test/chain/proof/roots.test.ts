/**
 * Complete real blocks are proved, and every change that a node could make is detected.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keccak256, type TransactionSerializable, toHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { serializeTransaction as serializeDeposit } from 'viem/op-stack';
import type { CheckName, Checks } from '../../../src/chain/proof/block-checks.ts';
import { proveBlock } from '../../../src/chain/proof/prove-block.ts';
import { encodeRlp, type RlpItem } from '../../../src/chain/proof/rlp.ts';
import {
  encodeReceipt,
  encodeTransaction,
  headerHash,
  transactionHash,
  unencodableType,
} from '../../../src/chain/proof/roots.ts';
import { type RealBlock, readBlock, readMainnetBlocks } from '../../kit/real-blocks.ts';
import { testWithRealchain } from '../../kit/replay.ts';
import { type Json, makeAddress, makeHash } from '../../kit/scripted-node.ts';
import { transactionJson } from '../../kit/transaction-json.ts';

const whole: Checks = {
  headerHash: 'holds',
  transactionsRoot: 'holds',
  transactionHashes: 'none',
  withdrawalsRoot: 'holds',
  receiptsRoot: 'holds',
  isEmpty: false,
  unencodableTypes: [],
};

/** The changes that a node could make to a block, each with the check that must detect it. */
const changes: { what: string; noticedBy: CheckName; change(draft: RealBlock): void }[] = [
  {
    what: 'one log dropped',
    noticedBy: 'receiptsRoot',
    change: ({ receipts }) => {
      receipts.findLast(({ logs }) => logs.length > 0)?.logs.pop();
    },
  },
  {
    what: 'the last receipt dropped',
    noticedBy: 'receiptsRoot',
    change: ({ receipts }) => void receipts.pop(),
  },
  {
    what: 'a status flipped',
    noticedBy: 'receiptsRoot',
    change: ({ receipts: [first] }) => flip(first, 'status'),
  },
  {
    what: 'a status in place of a state root',
    noticedBy: 'receiptsRoot',
    change: ({ receipts: [first] }) => {
      assert.ok(first !== undefined);
      Object.assign(first, { root: first.status === '0x0' ? '0x' : '0x01', status: undefined });
    },
  },
  {
    what: 'a type that is no number',
    noticedBy: 'transactionsRoot',
    change: ({ block: { transactions } }) => Object.assign(transactions[0] ?? {}, { type: 'none' }),
  },
  {
    what: 'the data of a log changed',
    noticedBy: 'receiptsRoot',
    change: ({ receipts }) => flip(receipts.find(({ logs }) => logs.length > 0)?.logs[0], 'address'),
  },
  ...['value', 'to', 'hash', 'nonce', 'r'].map((field) => ({
    what: `a transaction's ${field} changed`,
    noticedBy: 'transactionsRoot' as const,
    change: ({ block }: RealBlock) =>
      flip(
        block.transactions.find(({ to }) => to !== null),
        field,
      ),
  })),
  {
    what: 'the last transaction dropped with its receipt',
    noticedBy: 'transactionsRoot',
    change: ({ block, receipts }) => {
      const last = block.transactions.pop();
      receipts.splice(
        receipts.findIndex(({ transactionHash: hash }) => hash === last?.hash),
        1,
      );
    },
  },
];

for (const { what, noticedBy, change } of changes) {
  testWithRealchain(`every stored mainnet block is refused with ${what}`, (folder) => {
    for (const draft of readMainnetBlocks(folder)) {
      change(draft);
      assert.equal(proveBlock(draft.block, draft.receipts)[noticedBy], 'fails', draft.name);
    }
  });
}

testWithRealchain('a change of any field of the header changes its hash', (folder) => {
  const hashed = [
    ...['parentHash', 'sha3Uncles', 'miner', 'stateRoot', 'transactionsRoot', 'receiptsRoot', 'logsBloom'],
    ...['difficulty', 'number', 'gasLimit', 'gasUsed', 'timestamp', 'extraData', 'mixHash', 'nonce'],
    ...['baseFeePerGas', 'withdrawalsRoot', 'blobGasUsed', 'excessBlobGas', 'parentBeaconBlockRoot'],
    'requestsHash',
  ];
  const seen = new Set<string>();
  for (const { name, block } of readMainnetBlocks(folder)) {
    for (const field of hashed.filter((one) => block[one] !== undefined)) {
      seen.add(field);
      const draft = { ...block };
      flip(draft, field);
      assert.notEqual(headerHash(draft), block.hash, `${name} ${field}`);
    }
    assert.equal(proveBlock({ ...block, extraData: '0x1' }, []).headerHash, 'fails');
  }
  assert.equal(seen.size, hashed.length, 'all forks are in the data');
});

testWithRealchain('receipts prove a block in any order', (folder) => {
  const { block, receipts } = readBlock(folder, 'squid/18500000.');
  assert.deepEqual(proveBlock(block, receipts.reverse()), whole);
});

test('a transaction without a signature leaves the roots unknown instead of broken', () => {
  // Polygon lists its state syncs like this, and anvil its transactions for impersonated accounts.
  const unsigned = { hash: makeHash(0, 1, 1), type: '0x0', r: '0x0', s: '0x0' };
  const { transactionsRoot, receiptsRoot, unencodableTypes } = proveBlock({ transactions: [unsigned] }, []);
  assert.deepEqual([transactionsRoot, receiptsRoot, unencodableTypes], ['unknown', 'unknown', ['unsigned']]);
});

test('a message from L1 to Scroll, which has the type of the deposits of the OP Stack, leaves the transactions root unknown', () => {
  const message = {
    ...{
      hash: makeHash(0, 1, 1),
      type: '0x7e',
      queueIndex: '0x5',
      nonce: '0x5',
      gas: '0x5208',
      value: '0x0',
    },
    ...{ from: makeAddress(1), sender: makeAddress(1), to: makeAddress(2), input: '0x1234' },
    ...{ r: '0x0', s: '0x0', v: '0x0' },
  };
  const { transactionsRoot, unencodableTypes } = proveBlock({ transactions: [message] }, []);
  assert.deepEqual([transactionsRoot, unencodableTypes], ['unknown', ['0x7e']]);
});

testWithRealchain(
  'in a block with a transaction of an unknown type, the others must have their hashes',
  (folder) => {
    for (const [place, type] of [
      ['chains/arbitrum-150000000/', '0x6a'],
      ['chains/arb-sepolia/185232421.', '0x6a'],
    ] as const) {
      const { block, receipts } = readBlock(folder, place);
      const { transactionsRoot, transactionHashes, unencodableTypes } = proveBlock(block, receipts);
      assert.deepEqual([transactionsRoot, transactionHashes, unencodableTypes], ['unknown', 'holds', [type]]);
      flip(
        block.transactions.findLast((one) => unencodableType(one) === undefined),
        'value',
      );
      const changed = proveBlock(block, receipts);
      assert.deepEqual([changed.transactionsRoot, changed.transactionHashes], ['fails', 'fails'], place);
    }
  },
);

testWithRealchain(
  'a block with OP-stack deposits has its transactions root, and no field can be changed',
  (folder) => {
    const read = () => readBlock(folder, 'chains/rise-8138510/');
    const { block, receipts } = read();
    const { transactionsRoot, transactionHashes, unencodableTypes } = proveBlock(block, receipts);
    assert.deepEqual([transactionsRoot, transactionHashes, unencodableTypes], ['holds', 'none', []]);
    for (const [index, transaction] of block.transactions.entries()) {
      const names = transaction.type === '0x7e' ? ['sourceHash', 'from', 'value', 'gas', 'input'] : ['value'];
      for (const name of names) {
        const changed = read();
        flip(changed.block.transactions[index], name);
        assert.equal(proveBlock(changed.block, receipts).transactionsRoot, 'fails', `${index} ${name}`);
      }
    }
  },
);

testWithRealchain(
  'if a chain has deposits of another form, the signed transactions must have their hashes',
  (folder) => {
    const { block, receipts } = readBlock(folder, 'chains/rise-8138510/');
    const deposit = block.transactions.find(({ type }) => type === '0x7e');
    assert.ok(deposit !== undefined);
    delete deposit.sourceHash;
    const { transactionsRoot, transactionHashes, unencodableTypes } = proveBlock(block, receipts);
    assert.deepEqual([transactionsRoot, transactionHashes, unencodableTypes], ['unknown', 'holds', ['0x7e']]);
    flip(
      block.transactions.findLast(({ type }) => type !== '0x7e'),
      'value',
    );
    assert.equal(proveBlock(block, receipts).transactionHashes, 'fails');
  },
);

for (const [name, more] of Object.entries({
  'that mints coins': { mint: 10n ** 18n },
  'of the system': { isSystemTx: true },
  'that mints nothing': {},
}))
  test(`a deposit ${name} is encoded as by viem`, () => {
    const deposit = {
      ...{ sourceHash: makeHash(0, 1, 1), from: makeAddress(1), to: makeAddress(2) },
      ...{ value: 5n, gas: 21_000n, data: '0x1234' as const, type: 'deposit' as const },
      ...more,
    } as const;
    const json = {
      ...{ sourceHash: deposit.sourceHash, from: deposit.from, to: deposit.to, type: '0x7e', value: '0x5' },
      ...{ gas: '0x5208', input: '0x1234', r: '0x0', s: '0x0', v: '0x0' },
      ...('mint' in more && { mint: toHex(more.mint) }),
      ...('isSystemTx' in more && { isSystemTx: true }),
    };
    assert.equal(`0x${encodeTransaction(json).toString('hex')}`, serializeDeposit(deposit));
  });

testWithRealchain(
  'the receipts root shows whether a transaction has the type that the node says',
  (folder) => {
    const { block, receipts } = readBlock(folder, 'chains/arbitrum-150000000/');
    assert.equal(proveBlock(block, receipts).receiptsRoot, 'holds');
    const changed = block.transactions.find((one) => unencodableType(one) === undefined);
    assert.ok(changed !== undefined);
    changed.type = '0x6a';
    assert.equal(proveBlock(block, receipts).receiptsRoot, 'unknown');
  },
);

test('a type above one byte fails, because no chain can have it', () => {
  for (const type of ['0x100', `0x${'f'.repeat(300)}`, '0x5.5', -1]) {
    const { transactionsRoot } = proveBlock({ transactions: [{ hash: makeHash(0, 1, 1), type }] }, []);
    assert.equal(transactionsRoot, 'fails', String(type));
  }
});

test('the receipt of an OP-stack deposit has its nonce and version since Canyon', () => {
  const deposit = { hash: makeHash(0, 1, 1), type: '0x7e' };
  const receipt = { status: '0x1', cumulativeGasUsed: '0x5208', logsBloom: `0x${'0'.repeat(512)}`, logs: [] };
  const usual = ['0x01', '0x5208', receipt.logsBloom, []] as const;
  const encoded = (fields: readonly RlpItem[]) => Buffer.concat([Buffer.of(0x7e), encodeRlp(fields)]);
  assert.deepEqual(encodeReceipt({ ...receipt, depositNonce: '0x10' }, deposit), encoded(usual));
  assert.deepEqual(
    encodeReceipt({ ...receipt, depositNonce: '0x10', depositReceiptVersion: '0x1' }, deposit),
    encoded([...usual, '0x10', '0x01']),
  );
});

const account = privateKeyToAccount(`0x${'1'.repeat(64)}`);
const delegate = makeAddress(7);
const call = { to: makeAddress(2), value: 5n, gas: 21_000n, nonce: 3, data: '0x1234' } as const;
const fees = { maxFeePerGas: 9n, maxPriorityFeePerGas: 0n };
const accessList = [{ address: makeAddress(9), storageKeys: [makeHash(0, 1, 1), makeHash(0, 1, 2)] }];
const signable: Record<string, () => Promise<TransactionSerializable>> = {
  'legacy before EIP-155': async () => ({ ...call, type: 'legacy', gasPrice: 7n }),
  'legacy with EIP-155': async () => ({ ...call, type: 'legacy', gasPrice: 7n, chainId: 1 }),
  'with an access list': async () => ({ ...call, type: 'eip2930', gasPrice: 7n, chainId: 1, accessList }),
  'with a fee market': async () => ({ ...call, ...fees, type: 'eip1559', chainId: 1, accessList }),
  'that creates a contract': async () => ({ type: 'eip1559', ...fees, chainId: 1, gas: 9n, data: '0x60' }),
  'with blobs': async () => ({
    ...{ ...call, ...fees, type: 'eip4844', chainId: 1, maxFeePerBlobGas: 3n },
    blobVersionedHashes: [`0x01${'5'.repeat(62)}`],
  }),
  'with set code': async () => ({
    ...{ ...call, ...fees, type: 'eip7702', chainId: 1 },
    authorizationList: [await account.signAuthorization({ address: delegate, chainId: 0, nonce: 0 })],
  }),
};

for (const [what, make] of Object.entries(signable)) {
  test(`a transaction ${what} has the hash that its sender signed for`, async () => {
    const signed = await account.signTransaction(await make());
    assert.equal(transactionHash(encodeTransaction(transactionJson(signed))), keccak256(signed));
  });
}

/** Changes the last digit. */
function flip(json: Json | undefined, field: string): void {
  assert.ok(json !== undefined);
  const text = String(json[field]);
  if (text === '0x') json[field] = '0x01';
  else json[field] = `${text.slice(0, -1)}${text.endsWith('1') ? '2' : '1'}`;
}
