import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, decimalText } from '../../../src/core/decimal.ts';
import { fractionFrom, zero } from '../../../src/core/fraction.ts';
import { checkExpression } from '../../../src/domain/expression/check.ts';
import { capAwards, dayKey } from '../../../src/ingest/points/cap-awards.ts';
import type { PendingAward } from '../../../src/ingest/points/pending-awards.ts';
import { alice, bob, hashOf, headerOf } from '../../kit/chain-story.ts';

const scope = { what: '', names: new Map(), tokens: new Map() };
const rule: PendingAward['rule'] = {
  ...{
    id: 'pay',
    version: 1,
    category: 'trading',
    window: { from: undefined, to: undefined },
    successors: [],
  },
  ...{ deny: new Set(), when: undefined, points: checkExpression('1', scope, 'number'), multipliers: [] },
  perUserPerDay: fractionFrom('10'),
  perTx: fractionFrom('6'),
  referralShare: fractionFrom('0.1'),
};
const block = headerOf(3);

function pendingAward(points: string, parts: Partial<PendingAward> = {}): PendingAward {
  const place = { txHash: hashOf(1), ordinal: 0, block, earnedAt: block.minedAt };
  const referredBefore = { blockNumber: block.number, logIndex: 0 };
  return { rule, user: alice, points: fractionFrom(points), ...place, referredBefore, inputs: {}, ...parts };
}

const nothing = { earnedBefore: new Map(), referrers: new Map() };
const pointsOf = (pendingAwards: readonly PendingAward[], state = nothing) =>
  capAwards(pendingAwards, state).map(({ role, points }) => `${role} ${decimalText(points)}`);

test('each transaction earns up to its cap, however many users it has', () => {
  const pendingAwards = [
    pendingAward('4'),
    pendingAward('4', { user: bob }),
    pendingAward('4'),
    pendingAward('3', { txHash: hashOf(2) }),
  ];
  assert.deepEqual(pointsOf(pendingAwards), ['user 4', 'user 2', 'user 3']);
});

test('a user earns up to the cap of the day, including awards that are stored already', () => {
  const earnedBefore = new Map([[dayKey(pendingAward('1')), decimal('7.5')]]);
  const next = new Date(block.minedAt.getTime() + 86_400_000);
  const pendingAwards = [
    pendingAward('2'),
    pendingAward('2', { txHash: hashOf(2) }),
    pendingAward('2', { txHash: hashOf(3), earnedAt: next }),
  ];
  assert.deepEqual(pointsOf(pendingAwards, { ...nothing, earnedBefore }), ['user 2', 'user 0.5', 'user 2']);
});

test('points are truncated to 18 decimals, and an award of zero points is not made', () => {
  const capless = { ...rule, perTx: undefined, perUserPerDay: undefined };
  const third = { numerator: 2n, denominator: 3n };
  const tiny = { numerator: 1n, denominator: 10n ** 19n };
  assert.deepEqual(pointsOf([pendingAward('1', { rule: capless, points: third })]), [
    'user 0.666666666666666666',
  ]);
  assert.deepEqual(pointsOf([pendingAward('1', { rule: capless, points: tiny })]), []);
});

test('the referrer gets a share of the points after caps, as a separate award', () => {
  const parent = pendingAward('9');
  const [award, share] = capAwards([parent], { ...nothing, referrers: new Map([[parent, bob]]) });
  assert.deepEqual(
    [award, share].map((one) => one && [one.role, one.user, decimalText(one.points), one.category]),
    [
      ['user', alice, '6', 'trading'],
      ['referrer', bob, '0.6', 'referral'],
    ],
  );
  assert.deepEqual(
    [share?.txHash, share?.ordinal, share?.rule],
    [award?.txHash, award?.ordinal, award?.rule],
  );
  assert.deepEqual(share?.inputs, { referred: alice, points: '6', share: '0.1' });
  const unshared = pendingAward('1', { rule: { ...rule, referralShare: zero } });
  assert.equal(capAwards([unshared], { ...nothing, referrers: new Map([[unshared, bob]]) }).length, 1);
});

test('a denied address earns nothing as a referrer either, and the user earns the same', () => {
  const parent = pendingAward('5', { rule: { ...rule, deny: new Set([bob]) } });
  assert.deepEqual(pointsOf([parent], { ...nothing, referrers: new Map([[parent, bob]]) }), ['user 5']);
});
