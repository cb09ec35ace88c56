import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BlockId } from '../../../src/domain/block.ts';
import {
  commitBlocks,
  findBlockHash,
  findChain,
  findTip,
  findTipTimes,
  insertChain,
} from '../../../src/store/blocks/blocks.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { countOrphaned } from '../../../src/store/delivery/orphaned.ts';
import { deleteWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  alice,
  bob,
  carol,
  coin,
  hashOf,
  headerOf,
  later,
  listLanes,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const idOf = (header: BlockId): BlockId => ({ number: header.number, hash: header.hash });

const fails = { now: later(1), succeeds: false };
const succeeds = { now: later(1), succeeds: true };

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a transfer matches its sender and its receiver, and matches once if they are the same', async () => {
    const sends = await watchAddress(database(), { address: alice });
    const receives = await watchAddress(database(), { address: bob });
    await watchAddress(database(), { address: carol });
    const self = transferOf({ sender: bob, receiver: bob, amount: 3n });
    await mine(database(), headerOf(1), [transferOf(), self]);
    const rows = await listNotifications(database());
    const amountsOf = ({ id }: { id: string }) =>
      rows.filter((row) => row.watched_address_id === id).map((row) => row.amount);
    assert.deepEqual([amountsOf(sends), amountsOf(receives)], [['1'], ['1', '3']]);
    assert.equal(rows.length, 3);
  });

  test('two records of the same address get one notification each, also across watchers (spec 6.1)', async () => {
    const records = [
      await watchAddress(database()),
      await watchAddress(database(), { url: 'https://two.example/hook' }),
      await watchAddress(database(), { watcherId: 2 }),
    ];
    const committed = await mine(database(), headerOf(1), [transferOf()]);
    assert.deepEqual(committed, {
      outcome: 'committed',
      notificationCount: 3,
      orphanedCount: 0,
      hasDeferred: false,
    });
    const rows = await listNotifications(database());
    assert.deepEqual(rows.map((row) => row.watched_address_id).sort(), records.map(({ id }) => id).sort());
    assert.deepEqual(
      rows.map((row) => row.watcher_id).sort((a, b) => a - b),
      [1, 1, 2],
    );
    assert.equal(new Set(rows.map((row) => row.lane_id)).size, 3);
  });

  test('watch_coin and watch_token decide which kinds of transfers match', async () => {
    await watchAddress(database(), { watchToken: false, url: 'https://coins.example/' });
    await watchAddress(database(), { watchCoin: false, url: 'https://tokens.example/' });
    await watchAddress(database(), { watchCoin: false, watchToken: false });
    const txHash = hashOf(77);
    await mine(database(), headerOf(1), [
      transferOf({ txHash }),
      transferOf({ txHash, kind: 'internal', ordinal: 0 }),
      transferOf({ txHash, kind: 'token', ordinal: 0, token: coin }),
      transferOf({ txHash, kind: 'token', ordinal: 1, token: coin, amount: 0n }),
    ]);
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ lane_id, kind, amount }) => [lane_id, kind, amount]),
      [
        [1, 'transaction', '1'],
        [1, 'internal', '1'],
        [2, 'token', '1'],
        [2, 'token', '0'],
      ],
    );
  });

  test('a contract creation matches its sender, and an amount of 256 bits is stored exactly', async () => {
    await watchAddress(database(), { address: alice });
    await mine(database(), headerOf(1), [transferOf({ receiver: undefined, amount: 2n ** 256n - 1n })]);
    assert.deepEqual(
      (await listNotifications(database())).map(({ amount }) => amount),
      [String(2n ** 256n - 1n)],
    );
  });

  test('one commit stores several blocks, and a watched address matches only blocks stored after its creation', async () => {
    await mine(database(), headerOf(1), [transferOf()]);
    await watchAddress(database());
    const blocks = [2, 3].map((number) => ({
      header: headerOf(number),
      proved: number === 2,
      transfers: [transferOf()],
    }));
    await commitBlocks(database(), {
      expectedTip: idOf(headerOf(1)),
      blocks,
      confirmations: 0,
      finalizedNumber: 1,
      now: noon,
    });
    assert.deepEqual(
      (await listNotifications(database())).map((row) => row.block_number),
      [2, 3],
    );
    assert.deepEqual(await findTip(database()), idOf(headerOf(3)));
    assert.equal(await findBlockHash(database(), 2), headerOf(2).hash);
    assert.equal(await findBlockHash(database(), 4), undefined);
    assert.deepEqual(await findTipTimes(database()), {
      number: 3,
      minedAt: headerOf(3).minedAt,
      storedAt: noon,
    });
  });

  test('one transaction hash in two blocks of a commit notifies once', async () => {
    await watchAddress(database());
    const payment = transferOf();
    const blocks = [1, 2].map((number) => ({
      header: headerOf(number),
      proved: false,
      transfers: [payment],
    }));
    const committed = await commitBlocks(database(), {
      expectedTip: undefined,
      blocks,
      confirmations: 0,
      finalizedNumber: 0,
      now: noon,
    });
    assert.deepEqual(committed, {
      outcome: 'committed',
      notificationCount: 1,
      orphanedCount: 0,
      hasDeferred: false,
    });
  });

  test('a commit that expects another tip than the stored one is lost and stores nothing', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), []);
    for (const expectedTip of [undefined, idOf(headerOf(2)), { number: 1, hash: hashOf(99) }]) {
      assert.deepEqual(await mine(database(), headerOf(2), [transferOf()], { expectedTip }), {
        outcome: 'lost',
      });
    }
    assert.deepEqual(await findTip(database()), idOf(headerOf(1)));
    assert.deepEqual(await listStates(database()), []);
    assert.equal(
      await rollbackTo(database(), {
        ancestorNumber: 0,
        expectedTip: { number: 1, hash: hashOf(99) },
        now: noon,
      }),
      'lost',
    );
    assert.deepEqual(await findTip(database()), idOf(headerOf(1)));
  });

  test('a commit that fails in the middle stores nothing', async () => {
    await watchAddress(database());
    const tooMuch = transferOf({ amount: 10n ** 78n });
    await assert.rejects(mine(database(), headerOf(1), [transferOf(), tooMuch]), /numeric field overflow/);
    assert.equal(await findTip(database()), undefined);
    assert.deepEqual(await listStates(database()), []);
  });

  test('a notification is held until the block that completes its confirmations', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()], { confirmations: 2 });
    assert.deepEqual(await listStates(database()), ['held']);
    const isLaneAsleep = async () => (await listLanes(database()))[0]?.next_due === null;
    assert.equal(await isLaneAsleep(), true);
    await mine(database(), headerOf(2), [transferOf()], { confirmations: 2 });
    assert.deepEqual(await listStates(database()), ['held', 'held']);
    await mine(database(), headerOf(3), [], { confirmations: 2, now: later(7) });
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ state }) => state),
      ['waiting', 'held'],
    );
    assert.deepEqual(rows[0]?.next_attempt_at, later(7));
    assert.equal(await isLaneAsleep(), false);
    await mine(database(), headerOf(4), [], { releasedBefore: 3, confirmations: 2 });
    assert.deepEqual(await listStates(database()), ['waiting', 'waiting']);
  });

  test('a reorg withdraws held and waiting notifications that were never attempted, only above the ancestor', async () => {
    await watchAddress(database());
    for (const number of [1, 2, 3])
      await mine(database(), headerOf(number), [transferOf()], { confirmations: number === 3 ? 1 : 0 });
    assert.deepEqual(await listStates(database()), ['waiting', 'waiting', 'held']);
    assert.equal(
      await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(3)), now: noon }),
      2,
    );
    assert.deepEqual(await listStates(database()), ['waiting', 'withdrawn', 'withdrawn']);
    assert.deepEqual(await findTip(database()), idOf(headerOf(1)));
  });

  test('a reorg with an unproved match stores nothing and orphans nothing', async () => {
    await watchAddress(database());
    for (const number of [1, 2]) await mine(database(), headerOf(number), [transferOf()]);
    const block = { header: headerOf(2, 1, 1), proved: true, transfers: [transferOf()] };
    const committed = await commitBlocks(database(), {
      ...{
        expectedTip: idOf(headerOf(2)),
        blocks: [block],
        confirmations: 0,
        finalizedNumber: 0,
        now: noon,
      },
      reorg: { ancestorNumber: 1, undo: () => assert.fail('nothing may be undone yet') },
      findUnproved: (matched) => matched,
    });
    assert.equal(committed.outcome, 'unproved');
    assert.deepEqual(await findTip(database()), idOf(headerOf(2)));
    assert.deepEqual(await listStates(database()), ['waiting', 'waiting']);
  });

  test('a reorg ends the retries of orphaned transfers, and leaves delivered ones processed', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [transferOf()]);
    await attemptDue(database(), succeeds);
    await mine(database(), headerOf(3), [transferOf()]);
    await attemptDue(database(), fails);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(3)), now: noon });
    assert.deepEqual(await listStates(database()), ['processed', 'withdrawn']);
  });

  test('a withdrawn notification is revived under its id when its transaction is mined again', async () => {
    const record = await watchAddress(database());
    const payment = transferOf({ amount: 5n });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    const [before] = await listNotifications(database());
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(2)), now: noon });
    await mine(database(), headerOf(2, 1, 1), []);
    const again = await mine(database(), headerOf(3, 1, 1), [payment], { now: later(9) });
    assert.deepEqual(again, {
      outcome: 'committed',
      notificationCount: 0,
      orphanedCount: 0,
      hasDeferred: false,
    });
    const [after, ...more] = await listNotifications(database());
    assert.deepEqual(more, []);
    assert.deepEqual(
      [after?.id, after?.state, after?.block_number, after?.next_attempt_at, after?.watched_address_id],
      [before?.id, 'waiting', 3, later(9), record.id],
    );
  });

  test('a revived notification waits for its confirmations again', async () => {
    await watchAddress(database());
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(2)), now: noon });
    await mine(database(), headerOf(2, 1, 1), [payment], { confirmations: 1 });
    assert.deepEqual(await listStates(database()), ['held']);
  });

  test('an attempted notification stays the same when the reorg includes its transaction again', async () => {
    await watchAddress(database());
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await attemptDue(database(), fails);
    const [before] = await listNotifications(database());
    const again = await mine(database(), headerOf(2, 1, 1), [payment], { reorg: { ancestorNumber: 1 } });
    assert.deepEqual(again, {
      outcome: 'committed',
      notificationCount: 0,
      orphanedCount: 1,
      hasDeferred: false,
    });
    assert.deepEqual(await listNotifications(database()), [before]);
  });

  test('a delivered notification stays delivered when its transaction is mined again', async () => {
    await watchAddress(database());
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await attemptDue(database(), succeeds);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(2)), now: noon });
    await mine(database(), headerOf(2, 1, 1), [payment]);
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  test('a watched address deleted while its block was orphaned is not notified when the transaction is mined again', async () => {
    const record = await watchAddress(database());
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: idOf(headerOf(2)), now: noon });
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    await mine(database(), headerOf(2, 1, 1), [payment]);
    assert.deepEqual(await listStates(database()), ['withdrawn']);
  });

  test('a delivered notification of a deleted watched address is not orphaned by a reorg whose new branch has its transfer', async () => {
    const record = await watchAddress(database());
    const [stays, moves, goes] = [transferOf(), transferOf(), transferOf()];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [stays, moves, goes]);
    await attemptDue(database(), succeeds);
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    await commitBlocks(database(), {
      ...{ expectedTip: idOf(headerOf(2)), confirmations: 0, finalizedNumber: 0, now: noon },
      reorg: { ancestorNumber: 1 },
      blocks: [
        { header: headerOf(2, 1, 1), proved: true, transfers: [stays] },
        { header: headerOf(3, 1, 1), proved: true, transfers: [moves] },
      ],
    });
    const rows = await database().query(sql`
      select state, reorg_id is not null as is_orphaned, block_number as block from notification_status order by id`);
    assert.deepEqual(rows, [
      { state: 'processed', is_orphaned: false, block: 2 },
      { state: 'processed', is_orphaned: false, block: 3 },
      { state: 'processed', is_orphaned: true, block: 2 },
    ]);
    assert.equal((await countOrphaned(database())).count, 1);
  });

  test('the database belongs to the first chain that it was used with, and finality never moves back', async () => {
    assert.equal(await findChain(database()), undefined);
    await insertChain(database(), 31337, hashOf(1));
    await insertChain(database(), 1, hashOf(2));
    await mine(database(), headerOf(5), [], { finalizedNumber: 4 });
    await mine(database(), headerOf(6), [], { finalizedNumber: 2 });
    assert.deepEqual(await findChain(database()), {
      chainId: 31337,
      genesisHash: hashOf(1),
      startNumber: 5,
      finalizedNumber: 4,
      corroboratedNumber: undefined,
      enforcedChecks: [],
      unprovedTypes: [],
      hasTraces: false,
    });
  });

  test('observed checks stay enforced when later commits do not list them', async () => {
    await insertChain(database(), 31337, hashOf(1));
    const enforcedAfter = async (number: number, enforcedChecks: string[]) => {
      await mine(database(), headerOf(number), [], { enforcedChecks });
      return (await findChain(database()))?.enforcedChecks;
    };
    assert.deepEqual(await enforcedAfter(1, ['b']), ['b']);
    assert.deepEqual(await enforcedAfter(2, ['a', 'b']), ['a', 'b']);
    assert.deepEqual(await enforcedAfter(3, []), ['a', 'b']);
  });

  test('that blocks had traces stays when later ones have none', async () => {
    await insertChain(database(), 31337, hashOf(1));
    const after = async (number: number, hasTraces: boolean) => {
      await mine(database(), headerOf(number), [], { hasTraces });
      return (await findChain(database()))?.hasTraces;
    };
    assert.deepEqual(
      [await after(1, false), await after(2, true), await after(3, false)],
      [false, true, true],
    );
  });

  test('observed transaction types stay when later commits do not list them', async () => {
    await insertChain(database(), 31337, hashOf(1));
    const typesAfter = async (number: number, unprovedTypes: string[]) => {
      await mine(database(), headerOf(number), [], { unprovedTypes });
      return (await findChain(database()))?.unprovedTypes;
    };
    assert.deepEqual(await typesAfter(1, ['unsigned']), ['unsigned']);
    assert.deepEqual(await typesAfter(2, ['0x7e']), ['0x7e', 'unsigned']);
    assert.deepEqual(await typesAfter(3, []), ['0x7e', 'unsigned']);
  });
});

onPostgres(({ database, place }) => {
  test('if several followers commit the same block at once, exactly one succeeds', async () => {
    await watchAddress(database());
    const payment = transferOf();
    const others = await Promise.all([place().open(), place().open(), place().open()]);
    const outcomes = await Promise.all(
      others.map((one) => mine(one, headerOf(1), [payment], { expectedTip: undefined })),
    );
    assert.deepEqual(outcomes.map(({ outcome }) => outcome).sort(), ['committed', 'lost', 'lost']);
    assert.deepEqual(await listStates(database()), ['waiting']);
    for (const one of others) await one.close();
  });
});
