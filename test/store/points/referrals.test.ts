import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Address } from '../../../src/core/hex.ts';
import {
  deleteReferralsAbove,
  findReferrers,
  insertReferrals,
  type Referral,
} from '../../../src/store/points/referrals.ts';
import { alice, bob, carol, later } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const link = (referrer: Address, blockNumber: number, logIndex = 0, user = alice): Referral => ({
  ...{ user, referrer, blockNumber, logIndex },
  linkedAt: later(blockNumber * 1000),
});
const before = (blockNumber: number, logIndex = 0, user = alice) => ({
  user,
  before: { blockNumber, logIndex },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a user’s first referral stays, across blocks and within one, and applies after its log', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5, 3), link(carol, 5, 4)], 'first'));
    await database().transaction((tx) =>
      insertReferrals(tx, [link(carol, 6), link(alice, 6, 1, bob)], 'first'),
    );
    const questions = [before(5, 3), before(5, 4), before(9), before(9, 0, bob), before(9, 0, carol)];
    assert.deepEqual(await findReferrers(database(), questions, 'first'), [
      undefined,
      bob,
      bob,
      alice,
      undefined,
    ]);
  });

  test('if the newest referral counts, each log and time gets the newest one before it', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5), link(carol, 7)], 'newest'));
    const questions = [
      ...[before(6), before(7), before(7, 1)],
      ...[5000, 5001, 7001].map((ms) => ({ user: alice, before: { time: later(ms) } })),
    ];
    assert.deepEqual(await findReferrers(database(), questions, 'newest'), [
      bob,
      bob,
      carol,
      undefined,
      bob,
      carol,
    ]);
  });

  test('a reorg deletes the referrals of orphaned blocks, and the first one after it stays', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5)], 'first'));
    await database().transaction((tx) => deleteReferralsAbove(tx, 4));
    await database().transaction((tx) => insertReferrals(tx, [link(carol, 5)], 'first'));
    assert.deepEqual(await findReferrers(database(), [before(9)], 'first'), [carol]);
  });
});
