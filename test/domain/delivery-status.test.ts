import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type NotificationState, type StoredStatus, statusOf } from '../../src/domain/delivery-status.ts';

test('every state has one status, and the number of failures tells waiting, retrying and failing apart', () => {
  const cases: [NotificationState, failures: number, isOrphanedTransfer: boolean, StoredStatus][] = [
    ['held', 0, false, 'held'],
    ['held', 2, true, 'held'],
    ['waiting', 0, false, 'waiting'],
    ['waiting', 0, true, 'waiting'],
    ['waiting', 1, false, 'retrying'],
    ['waiting', 3, false, 'retrying'],
    ['waiting', 4, false, 'failing'],
    ['waiting', 4_000_000, false, 'failing'],
    ['processed', 0, false, 'delivered'],
    ['processed', 9, false, 'delivered'],
    ['processed', 0, true, 'orphaned'],
    ['withdrawn', 0, true, 'orphaned'],
    ['withdrawn', 0, false, 'orphaned'],
    ['cancelled', 2, false, 'cancelled'],
  ];
  for (const [state, failures, isOrphanedTransfer, status] of cases)
    assert.equal(statusOf({ state, failures, isOrphanedTransfer }), status, `${state} ${failures}`);
});

test('only a waiting notification with an attempt under way is being sent', () => {
  const progress = { failures: 5, isOrphanedTransfer: false, isUnderWay: true };
  assert.equal(statusOf({ ...progress, state: 'waiting' }), 'sending');
  assert.equal(statusOf({ ...progress, state: 'cancelled' }), 'cancelled');
});
