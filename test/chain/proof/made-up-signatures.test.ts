/**
 * Moonbeam gives r = s = 1 to transactions that another chain dispatches (XCM). Their senders are not their signers.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CalibrationOptions } from '../../../src/chain/proof/calibration.ts';
import {
  encodeReceipt,
  encodeTransaction,
  headerHash,
  rootOf,
  transactionHash,
} from '../../../src/chain/proof/roots.ts';
import { recoverSender } from '../../../src/chain/proof/senders.ts';
import { createVerifier, type Sampling, type Verifier } from '../../../src/chain/proof/verifier.ts';
import type { Hash } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import { type Json, makeAddress } from '../../kit/scripted-node.ts';

const zeros = (characters: number) => `0x${'0'.repeat(characters)}`;
const payment = {
  ...{ type: '0x2', chainId: '0x504', nonce: '0x0', gas: '0x5208', input: '0x', accessList: [] },
  ...{ to: makeAddress(2), value: '0x5', maxPriorityFeePerGas: '0x0', maxFeePerGas: '0x0' },
  ...{ yParity: '0x1', r: '0x1', s: '0x1' },
};
const call = { ...payment, value: '0x0' };
const callHash = transactionHash(encodeTransaction(call));
const hash = transactionHash(encodeTransaction(payment));
const signer = String(recoverSender(encodeTransaction(payment)));
const place = { number: 16, hash };

/** A block with one transaction of this sender, a native transfer by default, whose signature is r = s = 1. */
function blockFrom(
  from: string,
  changes: Json = {},
  content: Json = payment,
): { block: Json; receipts: Json[] } {
  const transaction: Json = { ...content, hash: transactionHash(encodeTransaction(content)), from };
  const receipt = {
    ...{
      transactionHash: transaction.hash,
      from,
      to: payment.to,
      status: '0x1',
      cumulativeGasUsed: '0x5208',
    },
    ...{ logsBloom: zeros(512), logs: [] },
  };
  const block: Json = {
    ...{ parentHash: zeros(64), sha3Uncles: zeros(64), miner: zeros(40), stateRoot: zeros(64) },
    transactionsRoot: rootOf([encodeTransaction(transaction)]),
    receiptsRoot: rootOf([encodeReceipt(receipt, transaction)]),
    ...{ logsBloom: zeros(512), difficulty: '0x0', number: '0x10', gasLimit: '0x1c9c380', gasUsed: '0x5208' },
    ...{ timestamp: '0x65', extraData: '0x', mixHash: zeros(64), nonce: '0x0000000000000000' },
    ...{ transactions: [transaction], ...changes },
  };
  return { block: { ...block, hash: headerHash(block) }, receipts: [receipt] };
}

async function withVerifier(
  options: Partial<CalibrationOptions>,
  work: (verifier: Verifier) => Promise<void>,
): Promise<void> {
  const verifier = createVerifier({
    ...{ mode: 'auto', chainId: 1284, nodeCount: 1, log: silentLog() },
    ...{ enforced: ['headerHash', 'transactionsRoot', 'receiptsRoot'], ...options },
  });
  try {
    await work(verifier);
  } finally {
    await verifier.close();
  }
}

/** A node that gives this block. */
const sampling = (node: number, from: string): Sampling => ({
  node,
  async read(verify) {
    await verify(place, blockFrom(from));
  },
});

const stranger = makeAddress(9);
const refused = {
  code: 'inconsistent',
  message: /the signature of a transaction is not of its sender.*set chain\.unprovedTypes: \["unsigned"\]/,
};

for (const scope of ['all', 'matched'] as const)
  test(`a made-up signature is taken where "unsigned" is listed, and leaves the sender open (${scope})`, () =>
    withVerifier({ unprovedTypes: ['unsigned'] }, async ({ verify }) => {
      const { proved, senders } = await verify(place, blockFrom(stranger), scope);
      assert.equal(proved, true);
      assert.deepEqual(senders?.hashes, []);
    }));

test('a single node can make up no sender on a chain that was not seen to make up signatures', () =>
  withVerifier({}, ({ verify }) => assert.rejects(verify(place, blockFrom(stranger)), refused)));

for (const [name, options] of [
  ['on Ethereum', { chainId: 1 }],
  ['in mode strict', { mode: 'strict', unprovedTypes: ['unsigned'] }],
] as const)
  test(`a made-up signature is refused ${name}`, () =>
    withVerifier(options, ({ verify }) =>
      assert.rejects(verify(place, blockFrom(stranger)), { code: 'inconsistent' }),
    ));

test('of several nodes, a quorum must show the made-up signature', () =>
  withVerifier({ nodeCount: 3 }, async ({ verify, calibrate, observedTypes }) => {
    const lying = [sampling(1, stranger), sampling(2, signer), sampling(3, signer)];
    await assert.rejects(verify(place, blockFrom(stranger)), refused);
    await calibrate(lying);
    assert.deepEqual(observedTypes(), []);
    await assert.rejects(verify(place, blockFrom(stranger)), refused);
    await calibrate([1, 2, 3].map((node) => sampling(node, stranger)));
    assert.deepEqual(observedTypes(), ['unsigned']);
    assert.deepEqual((await verify(place, blockFrom(stranger))).senders?.hashes, []);
  }));

test('a needed sender without a value is made up only where the chain makes up signatures', async () => {
  const verifyCall = ({ verify }: Pick<Verifier, 'verify'>, needed: Hash[]) =>
    verify(place, blockFrom(stranger, {}, call), 'matched', needed);
  await withVerifier({ nodeCount: 2 }, async (verifier) => {
    assert.equal((await verifyCall(verifier, [])).proved, true);
    await assert.rejects(verifyCall(verifier, [callHash]), refused);
    const samplings = [1, 2].map(
      (node): Sampling => ({
        node,
        async read(verify) {
          await verifyCall({ verify }, [callHash]);
        },
      }),
    );
    await verifier.calibrate(samplings);
    assert.deepEqual((await verifyCall(verifier, [callHash])).senders?.hashes, []);
  });
});

test('a sender that signed with r = s = 1 is proved by its signature', () =>
  withVerifier({}, async ({ verify }) => {
    assert.deepEqual((await verify(place, blockFrom(signer))).senders?.hashes, [hash]);
  }));

test('a transaction that is not in the block can have no made-up signature', () =>
  withVerifier({ enforced: ['receiptsRoot'], unprovedTypes: ['unsigned'] }, ({ verify }) =>
    assert.rejects(verify(place, blockFrom(stranger, { transactionsRoot: zeros(64) })), {
      message: `block 16 (${hash}) names a false sender: ${signer} signed ${hash}`,
    }),
  ));
