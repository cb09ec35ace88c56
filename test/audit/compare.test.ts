/**
 * Compares stored blocks, watched addresses and notifications with the chain, and judges each of them.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  type ComparisonOutcome,
  compareBlock,
  eventsOf,
  listExpected,
  notificationKeysOf,
} from '../../src/audit/compare.ts';
import type { DeliverySide } from '../../src/audit/compare-delivery.ts';
import { compareNotifications, type StoredSide } from '../../src/audit/compare-notifications.ts';
import type { Transfer } from '../../src/domain/block.ts';
import type { ReadBlock } from '../../src/ingest/read-block.ts';
import type { StoredBlock, StoredNotification, StoredWatch } from '../../src/store/audit/comparison.ts';
import { defaultSettings } from '../../src/store/watchers/settings.ts';
import { alice, bob, carol, coin, hashOf, headerOf, later, noon, transferOf } from '../kit/chain-story.ts';

/** If a record and a block are closer than this, their order is unknown. */
const ORDER_MS = 10_000;
const SHARD = 1;

type Block = { read: ReadBlock; stored: StoredBlock };

/** A block of this height that was stored at noon, proved and traced, with these transfers. */
function blockOf(
  number: number,
  transfers: Transfer[] = [],
  parts: { read?: Partial<ReadBlock>; stored?: Partial<StoredBlock> } = {},
): Block {
  const header = headerOf(number);
  const { hash, parentHash, minedAt } = header;
  return {
    read: {
      ...{ header, proved: true, traced: true, transfers, pairEvents: [], activities: [] },
      ...parts.read,
    },
    stored: { ...{ number, hash, parentHash, minedAt, proved: true, storedAt: noon }, ...parts.stored },
  };
}

/** A record of bob's that was made an hour before noon and never changed. */
function watchOf(parts: Partial<StoredWatch> = {}): StoredWatch {
  const createdAt = parts.createdAt ?? later(-3_600_000);
  const wants = { address: bob, watchCoin: true, watchToken: true, settings: defaultSettings };
  const place = { laneId: 1, webhookUrl: 'https://one.example/hook' };
  return {
    ...{ shardId: SHARD, id: randomUUID(), createdAt, updatedAt: createdAt },
    ...{ ...wants, ...place, ...parts },
  };
}

let noticeCount = 0;

/** As the commit of its block creates it, then acknowledged. */
function noticeOf(
  transfer: Transfer,
  { stored }: Block,
  watch: StoredWatch,
  parts: Partial<StoredNotification> = {},
): StoredNotification {
  const place = { shardId: SHARD, watchedAddressId: watch.id, blockNumber: stored.number };
  noticeCount += 1;
  return {
    ...{ ...transfer, ...place, createdAt: stored.storedAt },
    ...{ id: noticeCount, version: '1', state: 'processed', revision: 0, retryCount: 0, redeliveryCount: 0 },
    ...{ occurrence: 0, mayBeSeen: true, processedAt: stored.storedAt },
    ...{ nextAttemptAt: stored.storedAt, laneId: 1, releaseNumber: undefined, sequence: undefined },
    ...parts,
  };
}

/** At noon with block 9 stored, after a failure it is tried again a minute later; the queue of bob's webhook is due. */
const delivery: DeliverySide = {
  ...{
    now: noon,
    confirmations: 0,
    releasedNumber: 9,
    retryDelayMs: () => 60_000,
    firstInSequence: new Map(),
  },
  lanes: new Map([
    [1, { id: 1, shardId: SHARD, origin: 'https://one.example:443', nextDue: noon, isLeased: false }],
  ]),
};

/** The outcomes about these notifications. `gone` lists deleted records. */
function judge(
  blocks: readonly Block[],
  watches: readonly StoredWatch[],
  notifications: readonly StoredNotification[] = [],
  { keptSince = later(-1), ...parts }: Partial<StoredSide> = {},
): ComparisonOutcome[] {
  const events = eventsOf(blocks);
  const side = {
    ...{ events, notifications, told: [], keptSince, expected: listExpected(events, watches, 100) },
    blocks: new Map(blocks.map((block) => [block.stored.number, block])),
    watches: new Map(watches.map((watch) => [watch.id, watch])),
    delivery,
  };
  return [...compareNotifications({ ...side, ...parts })];
}

/** Kind and block of each difference, and other outcomes as they are. */
const outline = (outcomes: readonly ComparisonOutcome[]): string[] =>
  outcomes.map((outcome) => (typeof outcome === 'string' ? outcome : `${outcome.kind} in ${outcome.block}`));

test('a different parent or proof is reported in both directions, and the proof only when proof is on', () => {
  const block = (stored: boolean, proved: boolean, parentHash = headerOf(4).parentHash) =>
    blockOf(4, [], { read: { proved }, stored: { proved: stored, parentHash } });
  const compare = ({ read, stored }: Block, isProofOn = true) =>
    outline(compareBlock(read, stored, isProofOn));
  assert.deepEqual(compare(block(true, true)), []);
  assert.deepEqual(compare(block(false, false)), []);
  assert.deepEqual(compare(block(true, false)), ['proved in 4']);
  assert.deepEqual(compare(block(false, true)), ['proved in 4']);
  assert.deepEqual(compare(block(true, false, hashOf(1))), ['hash in 4', 'proved in 4']);
  assert.deepEqual(compare(block(true, false), false), ['proof_off']);
});

test('a block that is stored with another time is a difference', () => {
  const { read, stored } = blockOf(4, [], { stored: { minedAt: later(1) } });
  const [difference, ...others] = compareBlock(read, stored, true);
  assert.ok(typeof difference === 'object');
  assert.deepEqual([difference.kind, difference.block, others], ['changed', 4, []]);
  assert.match(
    difference.message,
    /time of the block: \S+:00\.001Z is stored, \S+:04\.000Z is on the chain$/,
  );
});

test('a transaction that two blocks have belongs to the first of them', () => {
  const transfer = transferOf();
  const [first, second] = [blockOf(1, [transfer]), blockOf(2, [transfer])];
  const watch = watchOf();
  const told = [noticeOf(transfer, first, watch)];
  assert.deepEqual(outline(judge([first, second], [watch], told)), ['equal']);
  assert.deepEqual(outline(judge([first, second], [watch])), ['missing in 1']);
});

test('due notifications are listed up to one more than the limit', () => {
  const watches = Array.from({ length: 5 }, () => watchOf());
  const count = (limit: number) =>
    listExpected(eventsOf([blockOf(1, [transferOf()])]), watches, limit).length;
  assert.deepEqual([3, 4, 5].map(count), [4, 5, 5]);
});

test('each record of both parties gets each transfer of a transaction, and a contract creation has one party', () => {
  const txHash = hashOf(77);
  const transfers = [
    transferOf({ txHash }),
    transferOf({ txHash, kind: 'internal' }),
    transferOf({ txHash, kind: 'internal', ordinal: 1 }),
    transferOf({ txHash, kind: 'internal', ordinal: 2, receiver: undefined }),
    transferOf({ txHash, kind: 'internal', ordinal: 3, sender: bob }),
    transferOf({ kind: 'internal' }),
  ];
  const block = blockOf(1, transfers);
  const watches = [watchOf(), watchOf(), watchOf({ address: alice }), watchOf({ address: carol })];
  const told = transfers.flatMap((transfer) =>
    watches
      .filter(({ address }) => [transfer.sender, transfer.receiver].includes(address))
      .map((watch) => noticeOf(transfer, block, watch, { occurrence: transfer.ordinal === 1 ? 1 : 0 })),
  );
  assert.deepEqual(judge([block], watches, told), Array(told.length).fill('equal'));
  for (const [index, one] of told.entries()) {
    const [outcome, ...equal] = judge([block], watches, told.toSpliced(index, 1)).reverse();
    const { watchedAddressId, kind, ordinal } = one;
    assert.ok(typeof outcome === 'object');
    const place = { watchedAddressId, txHash: one.txHash, kind, ordinal, id: undefined };
    assert.deepEqual(outcome.notification, place);
    assert.deepEqual([outcome.kind, equal], ['missing', Array(told.length - 1).fill('equal')]);
  }
});

test('a missing notification is reported with its amount, both parties and its token', () => {
  const [creation, token] = [transferOf({ receiver: undefined }), transferOf({ kind: 'token', token: coin })];
  const watch = watchOf({ address: alice });
  const messages = judge([blockOf(1, [creation, token])], [watch]).map((outcome) =>
    typeof outcome === 'string' ? outcome : outcome.message,
  );
  const place = (kind: string, { txHash }: Transfer) =>
    `block 1: missing: ${kind} ${txHash}, watched address ${watch.id}`;
  assert.deepEqual(messages, [
    `${place('value of transaction', creation)}: 1 from ${alice} to a new contract`,
    `${place('token transfer in log 0 of transaction', token)}: 1 from ${alice} to ${bob} of token ${coin}`,
  ]);
});

test('notifications are looked up once for each transaction and record', () => {
  const txHash = hashOf(77);
  const transfers = [transferOf({ txHash }), transferOf({ txHash, kind: 'internal' }), transferOf()];
  const watches = [watchOf(), watchOf()];
  const expected = watches.flatMap(({ id: watchedAddressId }) =>
    [txHash, transfers[2]?.txHash].map((hash) => ({ shardId: SHARD, watchedAddressId, txHash: hash })),
  );
  const places = notificationKeysOf(listExpected(eventsOf([blockOf(1, transfers)]), watches, 100));
  assert.deepEqual(new Set(places), new Set(expected));
  assert.equal(places.length, expected.length);
});

test('each field that differs from the chain is reported with both values', () => {
  const transfer = transferOf({ kind: 'token', token: coin, amount: 5n });
  const [block, other] = [blockOf(1, [transfer]), blockOf(2)];
  const watch = watchOf();
  const changes: [Partial<StoredNotification>, RegExp][] = [
    [{ sender: carol }, new RegExp(`: sender ${carol} is stored, ${alice} is on the chain$`)],
    [{ receiver: undefined }, new RegExp(`: receiver none is stored, ${bob} is on the chain$`)],
    [{ amount: 4n }, /: amount 4 is stored, 5 is on the chain$/],
    [{ token: carol }, new RegExp(`: token ${carol} is stored, ${coin} is on the chain$`)],
    [{ blockNumber: 2, createdAt: later(1) }, /: block 2 is stored, 1 is on the chain$/],
    [{ amount: 4n, sender: carol }, /: sender .* is on the chain, amount 4 is stored/],
  ];
  for (const [change, message] of changes) {
    const [outcome, ...rest] = judge([block, other], [watch], [noticeOf(transfer, block, watch, change)]);
    assert.ok(typeof outcome === 'object' && rest.length === 0);
    assert.deepEqual([outcome.kind, outcome.block], ['changed', 1]);
    assert.match(outcome.message, message);
  }
});

test('a notification older than its block belongs to an orphaned block; one of the same moment belongs to this block', () => {
  const absent = transferOf();
  const block = blockOf(1, [transferOf()]);
  const watch = watchOf({ address: carol });
  const judgeAt = (ms: number, parts: Partial<StoredNotification> = {}) =>
    outline(judge([block], [watch], [noticeOf(absent, block, watch, { createdAt: later(ms), ...parts })]));
  assert.deepEqual(
    [-1, 0, 1].map((ms) => judgeAt(ms)),
    [['orphaned'], ['unexpected in 1'], ['unexpected in 1']],
  );
  // An acknowledged notification stays. Sending a waiting one would be wrong.
  for (const state of ['held', 'waiting']) {
    assert.deepEqual(judgeAt(-1, { state, retryCount: 1 }), ['unexpected in 1'], state);
    assert.deepEqual(judgeAt(-1, { state, revision: 1 }), ['orphaned'], `${state}, announces the removal`);
    assert.deepEqual(
      judgeAt(-1, { state, redeliveryCount: 1 }),
      ['unexpected in 1'],
      `${state}, asked for again`,
    );
  }
});

test('a transaction that was mined again with other content is a difference, however old its notification is', () => {
  const transfer = transferOf({ amount: 9n });
  const block = blockOf(1, [transfer]);
  const watch = watchOf();
  for (const ms of [-1, 0, 1]) {
    const old = noticeOf({ ...transfer, amount: 10n }, block, watch, { createdAt: later(ms) });
    assert.deepEqual(outline(judge([block], [watch], [old])), ['changed in 1'], String(ms));
  }
  // Once the new content has its own notification, the old one is history.
  const both = [
    noticeOf({ ...transfer, amount: 10n }, block, watch, { createdAt: later(-1) }),
    noticeOf(transfer, block, watch),
  ];
  assert.deepEqual(outline(judge([block], [watch], both)), ['equal', 'orphaned']);
});

test('notifications are matched by content: another block is a difference, another ordinal is not', () => {
  const first = transferOf({ kind: 'token', token: coin, ordinal: 1 });
  const [other, block] = [blockOf(1), blockOf(2, [first], { stored: { storedAt: later(5) } })];
  const watch = watchOf();
  const judgeOne = (parts: Partial<StoredNotification>) =>
    outline(judge([other, block], [watch], [noticeOf(first, block, watch, parts)]));
  assert.deepEqual(judgeOne({ ordinal: 4 }), ['equal']);
  for (const ms of [4, 5, 6])
    assert.deepEqual(judgeOne({ blockNumber: 1, createdAt: later(ms) }), ['changed in 2'], String(ms));
});

test('each of several equal transfers in one transaction is due once, and a surplus one is unexpected', () => {
  const txHash = hashOf(77);
  const [one, two] = [0, 1].map((ordinal) => transferOf({ txHash, kind: 'internal', ordinal }));
  assert.ok(one !== undefined && two !== undefined);
  const block = blockOf(1, [one, two]);
  const watch = watchOf();
  const told = [one, two].map((transfer) => noticeOf(transfer, block, watch));
  assert.deepEqual(outline(judge([block], [watch], told)), ['equal', 'equal']);
  assert.deepEqual(outline(judge([block], [watch], told.slice(1))), ['equal', 'missing in 1']);
  const thrice = [...told, noticeOf({ ...one, ordinal: 2 }, block, watch)];
  assert.deepEqual(outline(judge([block], [watch], thrice)), ['equal', 'equal', 'unexpected in 1']);
});

test('a notification of a block that is not compared counts with that block', () => {
  const watch = watchOf();
  assert.deepEqual(judge([blockOf(1)], [watch], [noticeOf(transferOf(), blockOf(2), watch)]), []);
});

test('internal transfers of a block that was not traced are not compared, but all other transfers are', () => {
  const block = blockOf(1, [], { read: { traced: false } });
  const watch = watchOf();
  const judgeKind = (kind: Transfer['kind']) =>
    outline(judge([block], [watch], [noticeOf(transferOf({ kind }), block, watch)]));
  assert.deepEqual((['internal', 'transaction', 'token'] as const).map(judgeKind), [
    ['not_traced'],
    ['unexpected in 1'],
    ['unexpected in 1'],
  ]);
});

test("a stored notification of a deleted record can't be judged", () => {
  const transfer = transferOf();
  const block = blockOf(1, [transfer]);
  assert.deepEqual(judge([block], [], [noticeOf(transfer, block, watchOf())]), ['record_deleted']);
});

test('whether a record existed at a block is known only if more than 10 s are between them', () => {
  const transfer = transferOf();
  const block = blockOf(1, [transfer]);
  const made = (ms: number) => watchOf({ createdAt: later(ms) });
  const missing = (ms: number) => outline(judge([block], [made(ms)]));
  assert.deepEqual(missing(-ORDER_MS - 1), ['missing in 1']);
  for (const ms of [-ORDER_MS, 0, ORDER_MS]) assert.deepEqual(missing(ms), ['record_new'], String(ms));
  assert.deepEqual(missing(ORDER_MS + 1), []);
  const stored = (watch: StoredWatch, ms = 0) =>
    outline(judge([block], [watch], [noticeOf(transfer, block, watch, { createdAt: later(ms) })]));
  assert.deepEqual(stored(made(ORDER_MS)), ['equal']);
  assert.deepEqual(stored(made(ORDER_MS + 1)), ['unexpected in 1']);
  // The transaction was in an orphaned block too: the notification is older than the block.
  assert.deepEqual(stored(made(ORDER_MS + 1), -1), ['equal']);
});

test("a record's settings at a block are known only if its last change was at least 10 s earlier", () => {
  const transfer = transferOf();
  const block = blockOf(1, [transfer]);
  const changed = (ms: number) => watchOf({ updatedAt: later(ms) });
  assert.deepEqual(outline(judge([block], [changed(-ORDER_MS - 1)])), ['missing in 1']);
  assert.deepEqual(judge([block], [changed(-ORDER_MS)]), ['record_changed']);
  const unwanted = (parts: Partial<StoredWatch>) => {
    const watch = watchOf({ ...parts, watchCoin: false });
    return outline(judge([block], [watch], [noticeOf(transfer, block, watch)]));
  };
  assert.deepEqual(unwanted({ updatedAt: later(-ORDER_MS - 1) }), ['unexpected in 1']);
  assert.deepEqual(unwanted({ updatedAt: later(-ORDER_MS) }), ['record_changed']);
  // A record that never changed excluded it from the beginning.
  assert.deepEqual(unwanted({ createdAt: later(1) }), ['unexpected in 1']);
});

test('a missing notification of a block older than the retention may have been deleted', () => {
  const block = blockOf(1, [transferOf()]);
  const missing = (ms: number, watch = watchOf()) =>
    outline(judge([block], [watch], [], { keptSince: later(ms) }));
  assert.deepEqual(missing(0), ['missing in 1']);
  assert.deepEqual(missing(1), ['pruned']);
  assert.deepEqual(missing(1, watchOf({ updatedAt: later(1) })), ['record_changed']);
});

test('a record that was created before the clock was set back is not called younger than a block after that', () => {
  const block = blockOf(1, [transferOf()]);
  const [transfer] = block.read.transfers;
  assert.ok(transfer !== undefined);
  // The clock said 12:59, and was set back by an hour a minute before the block was stored.
  const hour = 3_600_000;
  const lastStep = { ms: -hour, at: later(-60_000) };
  const watch = watchOf({ createdAt: later(hour - 120_000) });
  const notice = noticeOf(transfer, block, watch);
  assert.deepEqual(outline(judge([block], [watch], [notice])), ['unexpected in 1']);
  assert.deepEqual(outline(judge([block], [watch], [notice], { lastStep })), ['equal']);
  // Whether a missing one was due is unknown then.
  assert.deepEqual(outline(judge([block], [watch], [], { lastStep })), ['record_new']);
  assert.deepEqual(outline(judge([block], [watch])), []);
  for (const [createdMs, step] of [
    // Later than the old clock ever was, a clock that was set forward, and a block that was stored before the step.
    [2 * hour, lastStep],
    [hour - 120_000, { ...lastStep, ms: hour }],
    [hour - 120_000, { ...lastStep, at: later(60_000) }],
  ] as const) {
    const young = watchOf({ createdAt: later(createdMs) });
    const outcomes = judge([block], [young], [noticeOf(transfer, block, young)], { lastStep: step });
    assert.deepEqual(outline(outcomes), ['unexpected in 1']);
  }
});
