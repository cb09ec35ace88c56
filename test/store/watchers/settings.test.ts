import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { eventsOf, listExpected } from '../../../src/audit/compare.ts';
import type { Address } from '../../../src/core/hex.ts';
import type { Transfer } from '../../../src/domain/block.ts';

import { listStoredBlocks, listWatchesOf } from '../../../src/store/audit/comparison.ts';
import { writeDeferred } from '../../../src/store/blocks/write-deferred.ts';
import { deferralLimits } from '../../../src/store/matching/deferred.ts';
import { defaultSettings, findSettings, replaceSettings } from '../../../src/store/watchers/settings.ts';
import { findWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  alice,
  atOnce,
  bob,
  carol,
  coin,
  headerOf,
  later,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  type Watch,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const greatest = 2n ** 256n - 1n;

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a watched address without settings has the defaults of the specification', async () => {
    const { id } = await watchAddress(database());
    assert.deepEqual(await findSettings(database(), 1, id), defaultSettings);
  });

  test('settings are stored as given, amounts to the last digit, until they are replaced', async () => {
    const { id } = await watchAddress(database());
    const settings = {
      confirmations: 12,
      direction: 'in',
      minAmount: greatest,
      tokens: new Map([
        [coin, greatest],
        [carol, 0n],
      ]),
      removed: true,
      strictOrder: true,
    } as const;
    const change = { settings, now: noon };
    assert.deepEqual(await replaceSettings(database(), 1, id, change), settings);
    assert.deepEqual(await findSettings(database(), 1, id), settings);
    await replaceSettings(database(), 1, id, { settings: defaultSettings, now: noon });
    assert.deepEqual(await findSettings(database(), 1, id), defaultSettings);
  });

  test('another watcher neither sees nor changes settings, and an unknown watched address has none', async () => {
    const { id } = await watchAddress(database());
    const change = { settings: { ...defaultSettings, removed: true }, now: noon };
    for (const [watcherId, record] of [
      [2, id],
      [1, randomUUID()],
    ] as const) {
      assert.equal(await findSettings(database(), watcherId, record), undefined);
      assert.equal(await replaceSettings(database(), watcherId, record, change), undefined);
    }
    assert.deepEqual(await findSettings(database(), 1, id), defaultSettings);
  });

  test('a change of settings updates updated_at, so that verify does not judge earlier blocks by the new settings', async () => {
    const { id } = await watchAddress(database());
    await replaceSettings(database(), 1, id, {
      settings: { ...defaultSettings, removed: true },
      now: later(10),
    });
    assert.deepEqual((await findWatchedAddress(database(), 1, id))?.updatedAt, later(10));
  });

  test('settings that are the same as before leave updated_at as it is', async () => {
    const { id } = await watchAddress(database());
    const listed = new Map([
      [carol, 5n],
      [coin, greatest],
    ]);
    const sets = [
      defaultSettings,
      { ...defaultSettings, confirmations: 3, direction: 'out', minAmount: 5n, tokens: listed } as const,
    ];
    for (const [index, settings] of sets.entries()) {
      await replaceSettings(database(), 1, id, { settings, now: later(index * 100) });
      const before = await findWatchedAddress(database(), 1, id);
      const sameTokens = new Map([...settings.tokens].toReversed());
      const same = { settings: { ...settings, tokens: sameTokens }, now: later(index * 100 + 10) };
      assert.deepEqual(await replaceSettings(database(), 1, id, same), settings);
      assert.deepEqual(await findWatchedAddress(database(), 1, id), before);
    }
  });

  test('commit and comparison agree on every combination of flags, settings and transfers', async () => {
    const records: Watch[] = [];
    const lists: [Address, bigint][][] = [[], [[coin, 0n]], [[coin, 5n]], [[carol, 0n]]];
    const switches: Watch[] = [{}, { watchCoin: false }, { watchToken: false }];
    for (const direction of ['in', 'out', 'both'] as const)
      for (const minAmount of [0n, 5n])
        for (const tokens of lists)
          for (const flags of switches)
            records.push({ ...flags, settings: { direction, minAmount, tokens: new Map(tokens) } });
    for (const record of records) await watchAddress(database(), record);
    const sides = [
      { sender: alice, receiver: bob },
      { sender: bob, receiver: alice },
      { sender: bob, receiver: bob },
      { sender: bob, receiver: undefined },
    ];
    const transfers: Transfer[] = [];
    for (const side of sides)
      for (const amount of [4n, 5n, greatest])
        for (const token of [undefined, coin, alice])
          transfers.push(
            transferOf({ ...side, amount, token, kind: token === undefined ? 'internal' : 'token' }),
          );
    await mine(database(), headerOf(1), transfers, atOnce);

    const stored = (await listStoredBlocks(database(), { from: 1, to: 1 })).get(1);
    assert.ok(stored !== undefined);
    const read = {
      header: headerOf(1),
      proved: true,
      transfers,
      traced: true,
      pairEvents: [],
      activities: [],
    };
    const watches = await listWatchesOf(database(), [alice, bob], 1_000);
    const due = listExpected(eventsOf([{ read, stored }]), watches, 10_000);
    const rows = await listNotifications(database());
    const label = (parts: { id: string; hash: string }) => `${parts.id} ${parts.hash}`;
    assert.deepEqual(
      rows.map(({ watched_address_id: id, tx_hash: hash }) => label({ id, hash })).sort(),
      Array.from(due.values(), ({ watch: { id }, event }) =>
        label({ id, hash: event.transfer.txHash }),
      ).sort(),
    );
    // Some combinations match and some don't.
    assert.ok(rows.length > records.length && rows.length < records.length * transfers.length);
  });

  test('direction selects the side of a transfer: a transfer to oneself is on both, a contract creation is only outgoing', async () => {
    const amountsFor = async (direction: 'in' | 'out') => {
      const { id } = await watchAddress(database(), { settings: { direction } });
      return async () =>
        (await listNotifications(database()))
          .filter((row) => row.watched_address_id === id)
          .map(({ amount }) => amount);
    };
    const [received, sent] = [await amountsFor('in'), await amountsFor('out')];
    await mine(database(), headerOf(1), [
      transferOf({ amount: 1n }),
      transferOf({ sender: bob, receiver: alice, amount: 2n }),
      transferOf({ sender: bob, receiver: bob, amount: 3n }),
      transferOf({ sender: bob, receiver: undefined, amount: 4n }),
    ]);
    assert.deepEqual(await received(), ['1', '3']);
    assert.deepEqual(await sent(), ['2', '3', '4']);
  });

  test('min_amount is exact and applies to the native coin only, and each listed token has its own amount', async () => {
    await watchAddress(database(), {
      settings: { minAmount: greatest, tokens: new Map([[coin, greatest]]) },
    });
    const token = { kind: 'token', token: coin } as const;
    await mine(database(), headerOf(1), [
      transferOf({ amount: greatest - 1n }),
      transferOf({ amount: greatest }),
      transferOf({ ...token, amount: greatest - 1n }),
      transferOf({ ...token, amount: greatest }),
      transferOf({ ...token, amount: greatest, token: carol }),
    ]);
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ kind, amount }) => [kind, amount]),
      [
        ['transaction', String(greatest)],
        ['token', String(greatest)],
      ],
    );
  });

  test('a watched address can wait for its own number of confirmations while another one does not', async () => {
    const patient = await watchAddress(database(), { settings: { confirmations: 3 } });
    await watchAddress(database());
    const statesAfter = async (number: number, transfers: Transfer[]) => {
      await mine(database(), headerOf(number), transfers, {
        releasedBefore: number - 1,
        confirmations: 1,
        now: later(number),
      });
      return (await listStates(database())).sort();
    };
    assert.deepEqual(await statesAfter(1, [transferOf()]), ['held', 'held']);
    assert.deepEqual(await statesAfter(2, []), ['held', 'waiting']);
    assert.deepEqual(await statesAfter(3, []), ['held', 'waiting']);
    assert.deepEqual(await statesAfter(4, []), ['waiting', 'waiting']);
    const rows = await listNotifications(database());
    const its = rows.find((row) => row.watched_address_id === patient.id);
    assert.deepEqual(its?.next_attempt_at, later(4));
    assert.equal((await attemptDue(database(), { now: later(4), succeeds: true })).length, 2);
  });

  test('a notification keeps the confirmations that it was stored with when the service’s setting is lowered', async () => {
    for (const confirmations of [12, 20]) await watchAddress(database(), { settings: { confirmations } });
    await mine(database(), headerOf(1), [transferOf()], { confirmations: 12 });
    const release = () =>
      writeDeferred(database(), {
        ...{ confirmations: 0, now: later(1), sortWatchers: (ids) => ids, limits: deferralLimits },
      });
    assert.equal(await release(), undefined);
    assert.deepEqual(await listStates(database()), ['held', 'held']);
    await mine(database(), headerOf(12), [], {});
    await release();
    assert.deepEqual(await listStates(database()), ['held', 'held']);
    await mine(database(), headerOf(13), [], {});
    assert.deepEqual((await listStates(database())).sort(), ['held', 'waiting']);
    await mine(database(), headerOf(20), [], {});
    assert.deepEqual((await listStates(database())).sort(), ['held', 'waiting']);
    await mine(database(), headerOf(21), [], {});
    assert.deepEqual(await listStates(database()), ['waiting', 'waiting']);
  });

  test('fewer confirmations than those of the service change nothing', async () => {
    await watchAddress(database(), { settings: { confirmations: 1 } });
    await mine(database(), headerOf(1), [transferOf()], { confirmations: 3 });
    await mine(database(), headerOf(3), [], { confirmations: 3 });
    assert.deepEqual(await listStates(database()), ['held']);
    await mine(database(), headerOf(4), [], { confirmations: 3 });
    assert.deepEqual(await listStates(database()), ['waiting']);
  });

  test('a notification held for its watched address’s confirmations is withdrawn with its block, and held again when it is mined again', async () => {
    await watchAddress(database(), { settings: { confirmations: 2, removed: true } });
    const payment = transferOf();
    const commit = (number: number, branch: number, transfers: Transfer[]) =>
      mine(database(), headerOf(number, branch, 1), transfers, { releasedBefore: number - 1 });
    await commit(1, 0, []);
    await commit(2, 0, [payment]);
    await commit(3, 0, []);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(3), now: noon });
    assert.deepEqual(await listStates(database()), ['withdrawn']);
    await commit(2, 1, []);
    await commit(3, 1, [payment]);
    await commit(4, 1, []);
    assert.deepEqual(await listStates(database()), ['held']);
    await commit(5, 1, []);
    assert.deepEqual(await listStates(database()), ['waiting']);
  });
});
