/**
 * Finds notifications of canonical transfers that no worker would ever send.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DeliverySide, findDeliveryFault } from '../../src/audit/compare-delivery.ts';
import type { StoredNotification, StoredWatch } from '../../src/store/audit/comparison.ts';
import type { StoredLane } from '../../src/store/audit/delivery-state.ts';
import { CONFIRMATIONS_MAX, defaultSettings } from '../../src/store/watchers/settings.ts';
import { bob, later, noon, transferOf } from '../kit/chain-story.ts';

const MINUTE_MS = 60_000;
/** Clocks may differ by this much. */
const SLACK_MS = 1_000;
/** A change of a record whose time is this much earlier than that of a block may have been committed after it. */
const ORDER_MS = 10_000;
const TIP = 20;

const watch: StoredWatch = {
  ...{ shardId: 1, id: 'record', laneId: 1, address: bob, webhookUrl: 'https://one.example/hook' },
  ...{ watchCoin: true, watchToken: true, createdAt: later(-MINUTE_MS), updatedAt: later(-MINUTE_MS) },
  settings: defaultSettings,
};

const waiting: StoredNotification = {
  ...transferOf(),
  ...{ shardId: 1, id: 5, watchedAddressId: watch.id, blockNumber: 10, createdAt: noon, state: 'waiting' },
  ...{ revision: 0, retryCount: 0, redeliveryCount: 0, nextAttemptAt: noon, laneId: 1, version: '1' },
  ...{ occurrence: 0, mayBeSeen: false, processedAt: undefined },
  ...{ releaseNumber: undefined, sequence: undefined },
};

const lane: StoredLane = {
  ...{ id: 1, shardId: 1, origin: 'https://one.example:443', nextDue: noon, isLeased: false },
};

type Change = {
  one?: Partial<StoredNotification>;
  lane?: Partial<StoredLane>;
  watch?: Partial<StoredWatch>;
  side?: Partial<DeliverySide>;
};

/** The fault, if there is one, at noon, when notifications up to block 20 have been released. Failure n is followed by a delay of n minutes. */
function faultOf(change: Change) {
  const own = { ...lane, ...change.lane };
  const side: DeliverySide = {
    ...{ now: noon, confirmations: 0, releasedNumber: TIP, retryDelayMs: (count) => count * MINUTE_MS },
    ...{ lanes: new Map([[own.id, own]]), firstInSequence: new Map() },
    ...change.side,
  };
  return findDeliveryFault({ ...waiting, ...change.one }, { ...watch, ...change.watch }, side);
}

const isOnItsWay = (change: Change) => faultOf(change) === undefined;

test('an acknowledged notification is delivered, whatever its queue', () => {
  assert.ok(isOnItsWay({ one: { state: 'processed', laneId: 9 } }));
});

test('a cancelled notification, or one in an unknown state, is reported if its record exists', () => {
  for (const state of ['cancelled', 'orphaned', 'lost'])
    assert.match(
      faultOf({ one: { state } })?.message ?? '',
      new RegExp(`^it is ${state}, but its watched address exists`),
    );
});

test('a removal notice of a transfer on the chain is wrong, whether it was received or not', () => {
  for (const state of ['held', 'waiting', 'processed'])
    assert.match(
      faultOf({ one: { state, revision: 3 } })?.message ?? '',
      /removal is announced \(revision 3\)/,
    );
  assert.ok(isOnItsWay({ one: { revision: 2 } }));
});

test('an attempt is scheduled no later than the number of failures requires', () => {
  for (const retryCount of [0, 1, 3]) {
    const latestMs = retryCount * MINUTE_MS + SLACK_MS;
    const at = (ms: number) => faultOf({ one: { retryCount, nextAttemptAt: later(ms) } });
    assert.equal(at(latestMs), undefined);
    assert.equal(at(-1_000_000), undefined, 'what is overdue waits for a worker');
    assert.equal(at(latestMs + 1)?.isLate, true);
    assert.match(at(latestMs + 1)?.message ?? '', /^it is scheduled for 2025-11-20T12:0\S+, but /);
  }
});

test("a queue of another shard or receiver, or a missing queue, is reported; the record's queue is right", () => {
  for (const change of [{ shardId: 2 }, { origin: 'https://two.example:443' }, { id: 3 }])
    assert.match(
      faultOf({ lane: change })?.message ?? '',
      /^its delivery queue 1 (does not exist|belongs to)/,
    );
  const two = { origin: 'https://two.example:443' };
  assert.ok(isOnItsWay({ lane: two, watch: { webhookUrl: 'https://two.example/other' } }));
  assert.ok(isOnItsWay({ lane: two, watch: { updatedAt: later(1) } }), 'it moves, as its record did');
  assert.ok(!isOnItsWay({ lane: { ...two, shardId: 2 }, watch: { updatedAt: later(1) } }));
  // A notification in a wrong queue keeps its schedule unless that is wrong too.
  assert.equal(faultOf({ lane: two })?.isLate, false);
  assert.equal(faultOf({ lane: two, one: { nextAttemptAt: later(MINUTE_MS) } })?.isLate, true);
  assert.match(faultOf({ lane: two, one: { state: 'held', sequence: 1 } })?.message ?? '', /belongs to/);
});

test('a queue must be due by the time of the attempt, or be leased by a worker', () => {
  const retry = { retryCount: 1, nextAttemptAt: later(MINUTE_MS) };
  const isDueAt = (nextDue: Date | undefined, one: Partial<StoredNotification>) =>
    isOnItsWay({ one, lane: { nextDue } });
  assert.ok(isDueAt(later(MINUTE_MS), retry));
  assert.ok(!isDueAt(later(MINUTE_MS + SLACK_MS + 1), retry));
  // A queue that was given back with work left is due at that moment, which is later than its oldest attempt.
  assert.ok(isDueAt(noon, { nextAttemptAt: later(-MINUTE_MS) }));
  assert.ok(!isDueAt(later(SLACK_MS + 1), {}));
  assert.match(
    faultOf({ lane: { nextDue: undefined } })?.message ?? '',
    /is never due, and no worker has leased it/,
  );
  assert.ok(isOnItsWay({ lane: { nextDue: undefined, isLeased: true } }));
});

test('a notification without enough confirmations is held until it has them, and no longer than its record requires', () => {
  const held = (releaseNumber: number, change: Change = {}) =>
    faultOf({ ...change, one: { state: 'held', releaseNumber, blockNumber: TIP - 2 } })?.message;
  const asking = { settings: { ...defaultSettings, confirmations: 5 } };
  assert.equal(held(TIP + 1, { watch: asking }), undefined);
  assert.match(held(TIP, { watch: asking }) ?? '', /until block 20, which has its confirmations/);
  assert.equal(held(TIP - 2, { side: { releasedNumber: TIP - 3 } }), undefined);
  assert.match(held(TIP - 2, { side: { releasedNumber: TIP - 2 } }) ?? '', /which has its confirmations/);
  assert.equal(held(TIP + 3, { watch: asking }), undefined);
  assert.match(held(TIP + 4, { watch: asking }) ?? '', /but its watched address asks for 5 confirmations/);
  // A changed record may have required more confirmations before, but not more than the maximum.
  const changed = { updatedAt: later(1) };
  assert.equal(held(TIP - 2 + CONFIRMATIONS_MAX, { watch: changed }), undefined);
  assert.match(held(TIP - 1 + CONFIRMATIONS_MAX, { watch: changed }) ?? '', /asks for 100000 confirmations/);
});

test('a change of its record explains a notification if it may have been committed after the block', () => {
  const two = { origin: 'https://two.example:443' };
  const held = { state: 'held', releaseNumber: TIP + 2, blockNumber: TIP - 2 };
  for (const change of [{ lane: two }, { one: held }]) {
    const changed = (parts: Partial<StoredWatch>) => isOnItsWay({ ...change, watch: parts });
    assert.ok(changed({ updatedAt: later(-ORDER_MS) }));
    assert.ok(!changed({ updatedAt: later(-ORDER_MS - 1) }));
    // A record that never changed had these settings from the beginning.
    assert.ok(!changed({ createdAt: later(-1), updatedAt: later(-1) }));
  }
});

test('a notification held for strict order must follow another one, and no notification is held without a reason', () => {
  const behind = (first: number | undefined) =>
    faultOf({
      one: { state: 'held', sequence: 7 },
      side: { firstInSequence: new Map(first === undefined ? [] : [[watch.id, first]]) },
    })?.message;
  assert.equal(behind(4), undefined);
  assert.match(behind(waiting.id) ?? '', /no notification of its watched address comes before it/);
  assert.match(faultOf({ one: { state: 'held' } })?.message ?? '', /held without a reason/);
});
