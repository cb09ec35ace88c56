/**
 * Recovers senders from signatures of another implementation and of real blocks.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { keccak256, type TransactionSerializable } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { indexSenders } from '../../../src/chain/proof/block-checks.ts';
import { collectSenders } from '../../../src/chain/proof/block-senders.ts';
import { createProver } from '../../../src/chain/proof/proof-pool.ts';
import { type OnHashed, proveBlock } from '../../../src/chain/proof/prove-block.ts';
import { encodeTransaction, transactionHash } from '../../../src/chain/proof/roots.ts';
import { recoverSender } from '../../../src/chain/proof/senders.ts';
import { createVerifier } from '../../../src/chain/proof/verifier.ts';
import { silentLog } from '../../../src/core/log.ts';
import { readBlock, readMainnetBlocks } from '../../kit/real-blocks.ts';
import { testWithRealchain } from '../../kit/replay.ts';
import { type Json, makeAddress } from '../../kit/scripted-node.ts';
import { transactionJson } from '../../kit/transaction-json.ts';

const account = privateKeyToAccount(`0x${'7'.repeat(64)}`);
const from = account.address.toLowerCase();
const to = makeAddress(7);
const key = `0x${'5'.repeat(64)}` as const;

const fees = { gas: 21_000n, maxFeePerGas: 9n, maxPriorityFeePerGas: 1n };
const accessList = [{ address: to, storageKeys: [key, key] }];
const transactions: Record<string, TransactionSerializable> = {
  'type 0 without a chain id': { type: 'legacy', to, value: 1n, gas: 90_000n, gasPrice: 1n, nonce: 0 },
  'type 0 of chain 1': {
    type: 'legacy',
    chainId: 1,
    to,
    value: 1n,
    gas: 90_000n,
    gasPrice: 1n,
    data: `0x${'ab'.repeat(300)}`,
  },
  'type 0 of a chain with a long id': {
    type: 'legacy',
    chainId: 11_155_111_000,
    gas: 90_000n,
    gasPrice: 1n,
    data: '0x60',
  },
  'type 1': { type: 'eip2930', chainId: 1, to, value: 2n ** 80n, gas: 90_000n, gasPrice: 1n, accessList },
  'type 2': { type: 'eip1559', chainId: 137, to, value: 5n, nonce: 300, ...fees, accessList },
  'type 3': {
    ...{ type: 'eip4844', chainId: 1, to, value: 5n, maxFeePerBlobGas: 3n, ...fees },
    blobVersionedHashes: [`0x01${'5'.repeat(62)}`],
  },
};

for (const [name, transaction] of Object.entries(transactions)) {
  test(`the signer of a transaction of ${name} is recovered`, async () => {
    // Signatures of both parities, and with short r or s among so many.
    for (let nonce = 0; nonce < 20; nonce += 1) {
      const signed = await account.signTransaction({ ...transaction, nonce });
      const encoded = encodeTransaction(transactionJson(signed));
      assert.equal(transactionHash(encoded), keccak256(signed));
      assert.equal(recoverSender(encoded), from);
    }
  });
}

test('the signer of a transaction of type 4 is recovered, not that of its authorizations', async () => {
  const other = privateKeyToAccount(`0x${'8'.repeat(64)}`);
  const authorization = await other.signAuthorization({ contractAddress: to, chainId: 1, nonce: 0 });
  const signed = await account.signTransaction({
    ...{ type: 'eip7702', chainId: 1, to, value: 1n, nonce: 0, ...fees },
    authorizationList: [authorization],
  });
  const encoded = encodeTransaction(transactionJson(signed));
  assert.equal(transactionHash(encoded), keccak256(signed));
  assert.equal(recoverSender(encoded), from);
});

test('an impossible signature has no signer', async () => {
  const signed = transactionJson(await account.signTransaction({ type: 'eip1559', chainId: 1, to, ...fees }));
  const order = '0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141';
  for (const spoilt of [{ r: order }, { s: order }, { r: '0x0' }, { s: '0x0' }, { yParity: '0x2' }])
    assert.equal(
      recoverSender(encodeTransaction({ ...signed, ...spoilt })),
      undefined,
      JSON.stringify(spoilt),
    );
  const legacy = transactionJson(
    await account.signTransaction({ type: 'legacy', to, gas: 90_000n, gasPrice: 1n }),
  );
  for (const v of ['0x0', '0x1', '0x1a', '0x1d', '0x22'])
    assert.equal(recoverSender(encodeTransaction({ ...legacy, v })), undefined, v);
});

testWithRealchain('every signature of every stored block recovers to its sender', (folder) => {
  const places = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('block.json.gz'))
    .map((file) => file.replaceAll(path.sep, '/').replace('block.json.gz', ''));
  const lines = gunzipSync(readFileSync(path.join(folder, 'sepolia/blocks.jsonl.gz')));
  const sepolia = lines
    .toString()
    .trim()
    .split('\n')
    .map((line): { block: { transactions: Json[] } } => JSON.parse(line));
  const blocks = [...places.map((place) => readBlock(folder, place)), ...sepolia];
  const types = new Map<unknown, number>();
  // Leaves out transactions that only their chain can encode or hash, because Chainbell can't read their signatures.
  const check: OnHashed = (one, encoded) => {
    assert.equal(recoverSender(encoded), String(one.from).toLowerCase(), String(one.hash));
    types.set(one.type, (types.get(one.type) ?? 0) + 1);
  };
  for (const { block } of blocks) proveBlock(block, [], check);
  assert.deepEqual(new Set(types.keys()), new Set(['0x0', '0x1', '0x2', '0x3']));
  assert.ok([...types.values()].reduce((sum, count) => sum + count, 0) > 3_600);
});

test('a forged sender is found by sampling even if only matched senders are requested', async () => {
  const senders = collectSenders({ isSampled: () => true });
  const others = collectSenders({ isSampled: () => false });
  const payment = { type: 'eip1559', chainId: 1, to, value: 5n, ...fees } as const;
  const signed = await account.signTransaction(payment);
  for (const said of [from, makeAddress(9)])
    for (const collection of [senders, others])
      collection.add(
        { ...transactionJson(signed), hash: keccak256(signed), from: said },
        encodeTransaction(transactionJson(signed)),
      );
  assert.deepEqual(senders.finish('matched').forged, [{ hash: keccak256(signed), signer: from }]);
  const unsampled = others.finish('matched');
  assert.deepEqual([unsampled.forged, unsampled.senders.signed?.ends.length], [[], 2]);
});

test('a needed sender is recovered although its transaction has no value, and is never left to a sample', async () => {
  const signed = await account.signTransaction({ type: 'eip1559', chainId: 1, to, ...fees });
  const hash = keccak256(signed);
  const add = (needed: string[], said: string) => {
    const senders = collectSenders({ needed, isSampled: () => false });
    senders.add({ ...transactionJson(signed), hash, from: said }, encodeTransaction(transactionJson(signed)));
    const { senders: evidence, forged } = senders.finish('matched');
    return { hashes: evidence.hashes, forged };
  };
  assert.deepEqual(add([hash], makeAddress(9)), { hashes: [hash], forged: [{ hash, signer: from }] });
  assert.deepEqual(add([hash], from), { hashes: [hash], forged: [] });
  assert.deepEqual(add([], makeAddress(9)), { hashes: [], forged: [] });
});

testWithRealchain(
  'a sender that is forged in both block and receipt is refused with the proof',
  async (folder) => {
    const [{ block, receipts } = { block: { transactions: [] }, receipts: [] }] = readMainnetBlocks(folder);
    const paid = block.transactions.find(({ value }) => value !== '0x0') ?? {};
    const receipt = receipts.find(({ transactionHash: hash }) => hash === paid.hash) ?? {};
    const signer = String(paid.from);
    const verifier = createVerifier({
      mode: 'strict',
      chainId: 1,
      nodeCount: 1,
      enforced: [],
      log: silentLog(),
    });
    try {
      const place = { number: 1, hash: key };
      const honest = await verifier.verify(place, { block, receipts }, 'all');
      assert.equal(honest.proved, true);
      assert.equal(honest.senders?.signed, undefined);
      Object.assign(paid, { from: makeAddress(9) });
      Object.assign(receipt, { from: makeAddress(9) });
      await assert.rejects(verifier.verify(place, { block, receipts }, 'all'), {
        code: 'inconsistent',
        message: `block 1 (${key}) names a false sender: ${signer} signed ${String(paid.hash)}`,
      });
    } finally {
      await verifier.close();
    }
  },
);

testWithRealchain('a block keeps the signed bytes of each of its transfers for later', async (folder) => {
  const prover = createProver();
  try {
    for (const { block, receipts, name } of readMainnetBlocks(folder)) {
      const { senders } = await prover.prove({ block, receipts });
      const paid = block.transactions.filter(({ value }) => value !== '0x0');
      const signed = paid.map(({ hash }) => indexSenders(senders).findSigned(String(hash)));
      const found = await prover.recover(signed.flatMap((one) => one ?? []));
      assert.deepEqual(
        found,
        paid.map((one) => one.from),
        name,
      );
      assert.equal(indexSenders(senders).findSigned(key), undefined);
    }
  } finally {
    await prover.close();
  }
});
