import assert from 'node:assert/strict';
import { test } from 'node:test';
import { outcomeAfter } from '../../src/audit/repair-plan.ts';
import { createTally } from '../../src/audit/verify-report.ts';

const reportOf = (differences: number, undecided: { not_served?: number; unconfirmed?: number } = {}) => {
  const events = { onDifference: () => {}, onDissent: () => {} };
  const { report } = createTally({ nodes: 2, needed: 2 }, events);
  return {
    ...{ ...report, differences, outcome: 'different' as const },
    undecided: { ...report.undecided, ...undecided },
  };
};

test('a repair leaves differences that its plan left out', () => {
  assert.equal(outcomeAfter(reportOf(25_000), 10_000), 'different');
  assert.equal(outcomeAfter(reportOf(25_000), 25_000), 'equal');
});

test('a repaired range of which a part was not compared is not complete', () => {
  assert.equal(outcomeAfter(reportOf(1, { not_served: 500 }), 1), 'not_compared');
  assert.equal(outcomeAfter(reportOf(1, { unconfirmed: 1 }), 1), 'not_compared');
  assert.equal(outcomeAfter(reportOf(1, { not_served: 500 }), 0), 'different');
  assert.equal(outcomeAfter({ ...reportOf(0), outcome: 'reorganised' }, 0), 'reorganised');
});
