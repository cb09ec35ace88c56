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
const place = (blockNumber: number, logIndex = 0, user = alice) => ({
  user,
  before: { blockNumber, logIndex },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the first referral of a user stays, over blocks and within one, and counts from behind its log on', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5, 3), link(carol, 5, 4)], 'first'));
    await database().transaction((tx) =>
      insertReferrals(tx, [link(carol, 6), link(alice, 6, 1, bob)], 'first'),
    );
    const questions = [place(5, 3), place(5, 4), place(9), place(9, 0, bob), place(9, 0, carol)];
    assert.deepEqual(await findReferrers(database(), questions, 'first'), [
      undefined,
      bob,
      bob,
      alice,
      undefined,
    ]);
  });

  test('where the newest counts, each place and time has its own', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5), link(carol, 7)], 'newest'));
    const questions = [
      ...[place(6), place(7), place(7, 1)],
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

  test('a fork undoes the referrals of its blocks, and the first one after it stays', async () => {
    await database().transaction((tx) => insertReferrals(tx, [link(bob, 5)], 'first'));
    await database().transaction((tx) => deleteReferralsAbove(tx, 4));
    await database().transaction((tx) => insertReferrals(tx, [link(carol, 5)], 'first'));
    assert.deepEqual(await findReferrers(database(), [place(9)], 'first'), [carol]);
  });
});
