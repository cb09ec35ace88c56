/**
 * Data of a matched transfer that no hash covers is proved before the commit, or the block is read again.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { privateKeyToAccount } from 'viem/accounts';
import type { SenderEvidence } from '../../src/chain/proof/block-checks.ts';
import { createProver } from '../../src/chain/proof/proof-pool.ts';
import { encodeTransaction, transactionHash } from '../../src/chain/proof/roots.ts';
import { Fault } from '../../src/core/fault.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Transfer } from '../../src/domain/block.ts';
import { parseEventSignature } from '../../src/domain/event-signature.ts';
import { checkExpression } from '../../src/domain/expression/check.ts';
import type { Activity } from '../../src/domain/points/activity.ts';
import type { Listener, UserSource } from '../../src/domain/points/rules.ts';
import { createTransferProver } from '../../src/ingest/prove-transfers.ts';
import type { ReadBlock } from '../../src/ingest/read-block.ts';
import { commitBlocks, findTip } from '../../src/store/blocks/blocks.ts';
import {
  alice,
  bob,
  carol,
  hashOf,
  headerOf,
  listNotifications,
  noon,
  transferOf,
  watchAddress,
} from '../kit/chain-story.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { transactionJson } from '../kit/transaction-json.ts';

const { signal } = new AbortController();
const prover = createProver();
after(() => prover.close());

const account = privateKeyToAccount(`0x${'7'.repeat(64)}`);
const signer = account.address.toLowerCase() as Address;

/** A payment to Bob that the account signed, and the stored part of it. */
async function makePayment(sender: Address): Promise<{ transfer: Transfer; senders: SenderEvidence }> {
  const payment = { type: 'eip1559', chainId: 1, to: bob, value: 5n, gas: 21_000n } as const;
  const signed = await account.signTransaction({ ...payment, maxFeePerGas: 2n, maxPriorityFeePerGas: 1n });
  const bytes = encodeTransaction(transactionJson(signed));
  const txHash = transactionHash(bytes);
  const evidence = { hashes: [txHash], signed: { bytes: new Uint8Array(bytes), ends: [bytes.length] } };
  return { transfer: transferOf({ txHash, sender, receiver: bob, amount: 5n }), senders: evidence };
}

const blockOf = (transfers: Transfer[], parts: Partial<ReadBlock> = {}): ReadBlock => ({
  ...{ header: headerOf(1), proved: true, traced: true, pairEvents: [], activities: [] },
  transfers,
  unconfirmed: transfers.map(({ txHash }) => txHash),
  ...parts,
});

type Said = {
  quorum?: number;
  tracingNodes?: number;
  isConfirmed?: boolean;
  senders?: [Hash, Address][];
  disagree?: boolean;
};

/** `asked` lists the questions that the nodes decide. */
function proverWith(said: Said = {}) {
  const { quorum = 1, tracingNodes = 1, isConfirmed = true, senders = [], disagree = false } = said;
  const asked: string[] = [];
  const { hash, parentHash } = headerOf(1);
  const proverOf = createTransferProver({
    recover: prover.recover,
    log: silentLog(),
    voters: {
      agreement: () => ({ quorum, tracingNodes, silentTracer: undefined, outvoted: [] }),
      async areConfirmed() {
        asked.push('internal transfers');
        return isConfirmed;
      },
      async agree(calls, read) {
        asked.push(String(calls[0]?.method));
        if (disagree) throw new Fault('unavailable', 'these answer differently');
        const transactions = senders.map(([one, from]) => ({ hash: one, from, to: bob, value: '0x5' }));
        const block = { number: '0x1', hash, parentHash, timestamp: '0x1', transactions };
        return read([{ ok: true, result: block }], 'node');
      },
    },
  });
  return { asked, proverOf };
}

/** An activity of a rule whose user is the sender, by default of a transaction without a signature. */
function activityOf(sender: Address, user: UserSource = { kind: 'sender' }): Activity {
  const event = parseEventSignature('Voted(address voter)');
  const listener: Listener = {
    ...{ kind: 'movement', rule: 'votes', index: 0, signature: event, tokens: new Map(), user },
    ...{ change: checkExpression('1', { what: '', names: new Map(), tokens: new Map() }, 'integer') },
    when: undefined,
  };
  const place = { txHash: hashOf(1), sender, contract: carol, ordinal: 0, logIndex: 0 };
  return { listener, ...place, values: [bob] };
}

/** Proves and commits as the follower does. Returns whether the block was stored or must be read again. */
async function commit(database: Parameters<typeof commitBlocks>[0], block: ReadBlock, said: Said = {}) {
  const { asked, proverOf } = proverWith(said);
  const proof = proverOf([block]);
  const store = async () =>
    commitBlocks(database, {
      ...{ expectedTip: await findTip(database), blocks: [block], confirmations: 0, finalizedNumber: 0 },
      now: noon,
      findUnproved: proof.findUnproved,
    });
  await proof.proveActivities(signal);
  let committed = await store();
  let rounds = 0;
  while (committed.outcome === 'unproved') {
    rounds += 1;
    assert.equal(await findTip(database), undefined, 'nothing is stored while something is unproved');
    if ((await proof.prove(committed.transfers, signal)) !== undefined)
      return { outcome: 'read again', asked, rounds };
    committed = await store();
  }
  return { outcome: committed.outcome, asked, rounds };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a matched transfer is stored if its sender signed it, and the sender is recovered once', async () => {
    await watchAddress(database());
    const { transfer, senders } = await makePayment(signer);
    assert.deepEqual(await commit(database(), blockOf([transfer], { senders })), {
      outcome: 'committed',
      asked: [],
      rounds: 1,
    });
    assert.equal((await listNotifications(database())).length, 1);
  });

  test('the evidence of a block is read once, however many of its transfers match', async () => {
    const { senders } = await makePayment(signer);
    const payment = senders.signed?.bytes ?? assert.fail();
    const count = 50;
    const transfers = Array.from({ length: count }, (_, index) =>
      transferOf({ txHash: hashOf(index), sender: signer }),
    );
    const reads = { count: 0 };
    const hashes = new Proxy(
      transfers.map(({ txHash }) => String(txHash)),
      {
        get(target, key) {
          if (typeof key === 'string' && /^\d+$/.test(key)) reads.count += 1;
          return Reflect.get(target, key);
        },
      },
    );
    const bytes = new Uint8Array(Buffer.concat(transfers.map(() => payment)));
    const ends = transfers.map((_, index) => (index + 1) * payment.length);
    const block = blockOf(transfers, { senders: { hashes, signed: { bytes, ends } } });
    const proof = proverWith().proverOf([block]);
    const matched = transfers.map((transfer) => ({ transfer, block: 1 }));
    assert.equal(proof.findUnproved(matched).length, count);
    assert.equal(await proof.prove(matched, signal), undefined);
    assert.ok(reads.count <= 2 * count, `${reads.count} reads`);
  });

  test('a matched transfer whose sender did not sign it is not stored, and its block is read again', async () => {
    await watchAddress(database());
    const { transfer, senders } = await makePayment(alice);
    assert.equal((await commit(database(), blockOf([transfer], { senders }))).outcome, 'read again');
    assert.deepEqual(await listNotifications(database()), []);
  });

  test('the sender of a transfer that matches no record is not recovered', async () => {
    const { transfer, senders } = await makePayment(alice);
    assert.deepEqual(await commit(database(), blockOf([transfer], { senders })), {
      outcome: 'committed',
      asked: [],
      rounds: 0,
    });
  });

  test('without a signature, the sender that the nodes agree on is stored and matched', async () => {
    await watchAddress(database(), { address: carol });
    await watchAddress(database(), { address: bob });
    const transfer = transferOf({ sender: alice, receiver: bob });
    const senders = { hashes: [], signed: undefined };
    const said: Said = { quorum: 2, senders: [[transfer.txHash, carol]] };
    const { outcome, asked } = await commit(database(), blockOf([transfer], { senders }), said);
    assert.deepEqual([outcome, asked], ['committed', ['eth_getBlockByNumber']]);
    // One for the claimed receiver, and one for the real sender.
    assert.equal((await listNotifications(database())).length, 2);
  });

  test('with a single node, a sender without a signature is believed', async () => {
    await watchAddress(database());
    const block = blockOf([transferOf()], { senders: { hashes: [], signed: undefined } });
    assert.deepEqual(await commit(database(), block), { outcome: 'committed', asked: [], rounds: 0 });
  });

  test('a points rule gets the sender of an unsigned transaction that the nodes agree on', async () => {
    const activities = [activityOf(alice), activityOf(alice, { kind: 'argument', index: 0 })];
    const block = blockOf([], { activities, senders: { hashes: [], signed: undefined } });
    const said: Said = { quorum: 2, senders: [[hashOf(1), carol]] };
    assert.deepEqual((await commit(database(), block, said)).asked, ['eth_getBlockByNumber']);
    assert.deepEqual(
      block.activities.map(({ sender }) => sender),
      [carol, alice],
    );
  });

  test('a block is not stored while the nodes disagree about a sender that a points rule uses', async () => {
    const block = blockOf([], {
      activities: [activityOf(alice)],
      senders: { hashes: [], signed: undefined },
    });
    await assert.rejects(commit(database(), block, { quorum: 2, disagree: true }), { code: 'unavailable' });
    assert.equal(await findTip(database()), undefined);
  });

  test('no node is asked about a sender that signed, or that no points rule uses', async () => {
    const senders = { hashes: [hashOf(1)], signed: undefined };
    const said: Said = { quorum: 2, disagree: true };
    const signed = blockOf([], { activities: [activityOf(alice)], senders });
    assert.deepEqual((await commit(database(), signed, said)).asked, []);
    const ofArgument = activityOf(alice, { kind: 'argument', index: 0 });
    const { proverOf, asked } = proverWith(said);
    const unused = blockOf([], { activities: [ofArgument], senders: { hashes: [], signed: undefined } });
    await proverOf([unused]).proveActivities(signal);
    assert.deepEqual(asked, []);
  });

  test('with several tracing nodes, matched internal transfers are confirmed once for each block', async () => {
    await watchAddress(database());
    const internal = [0, 1].map((ordinal) => transferOf({ kind: 'internal', ordinal }));
    const said = { quorum: 2, tracingNodes: 2 };
    const { outcome, asked } = await commit(database(), blockOf(internal), said);
    assert.deepEqual([outcome, asked], ['committed', ['internal transfers']]);
  });

  test('a block is read again if other nodes contradict a matched internal transfer', async () => {
    await watchAddress(database());
    const said = { quorum: 2, tracingNodes: 2, isConfirmed: false };
    const { outcome } = await commit(database(), blockOf([transferOf({ kind: 'internal' })]), said);
    assert.equal(outcome, 'read again');
    assert.deepEqual(await listNotifications(database()), []);
  });

  test('a block that was checked in full needs no further proof', async () => {
    await watchAddress(database());
    const block = blockOf([transferOf({ kind: 'internal' })], { unconfirmed: undefined });
    assert.deepEqual(await commit(database(), block, { quorum: 2, tracingNodes: 2 }), {
      ...{ outcome: 'committed', asked: [], rounds: 0 },
    });
  });
});
