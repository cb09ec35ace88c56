/**
 * The case table of docs/explanation/reorgs.md, row by row: the webhooks that receivers get when a reorg changes the outcome of
 * a transaction.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toBytes } from '../../../src/core/hex.ts';
import type { BlockHeader, Transfer } from '../../../src/domain/block.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { freeAbandonedLanes, LANE_CHANNEL, REORG_PREFIX } from '../../../src/store/delivery/lanes.ts';
import { listLog } from '../../../src/store/delivery/log.ts';
import { updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue, leaseDue, readDue } from '../../kit/attempts.ts';
import {
  bob,
  carol,
  coin,
  hashOf,
  headerOf,
  later,
  listNotifications,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';

/** The outcome of the first attempt before the reorg. */
type FirstOutcome = 'never sent' | 'not connected' | 'timed out' | 'acknowledged';

const TX = hashOf(0x77);
const paymentOf = (amount: bigint, parts: Partial<Transfer> = {}) =>
  transferOf({ kind: 'token', token: coin, txHash: TX, amount, ...parts });

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Mines blocks after block 1 and collects the webhooks that receivers get, as webhook-id and amount. */
  function createStory(removed: boolean) {
    const sent: string[] = [];
    let ms = 0;
    const attempt = async (succeeds: boolean, arrives = true) => {
      ms += 3_600_000;
      const due = await attemptDue(database(), { now: later(ms), succeeds, arrives });
      if (arrives)
        sent.push(
          ...due
            .toSorted((one, other) => (other.revision % 2) - (one.revision % 2) || one.id - other.id)
            .map(({ id, revision, amount }) => `${id}${revision === 0 ? '' : `-${revision}`}: ${amount}`),
        );
    };
    return {
      sent,
      watch: (address = bob, confirmations = 0) =>
        watchAddress(database(), { address, settings: { removed, confirmations } }),
      mine: (header: BlockHeader, transfers: readonly Transfer[] = []) =>
        mine(database(), header, transfers, { now: later(ms) }),
      /** Switches to a branch that starts after block 1. */
      reorg: (header: BlockHeader, transfers: readonly Transfer[] = []) =>
        mine(database(), header, transfers, { now: later(ms), reorg: { ancestorNumber: 1 } }),
      async first(outcome: FirstOutcome) {
        if (outcome !== 'never sent') await attempt(outcome === 'acknowledged', outcome !== 'not connected');
      },
      /** Delivers everything that is due now or later. */
      async deliver() {
        for (let round = 0; round < 3; round += 1) await attempt(true);
        return sent;
      },
    };
  }

  /** Block 2 contains the transfers `before`, whose first attempts end in `outcome`. Then a reorg replaces them with `after`. */
  async function play(
    removed: boolean,
    outcome: FirstOutcome,
    before: readonly Transfer[],
    after: readonly Transfer[],
  ) {
    const story = createStory(removed);
    await story.watch();
    await story.mine(headerOf(1));
    await story.mine(headerOf(2), before);
    await story.first(outcome);
    await story.reorg(headerOf(2, 1, 1), after);
    return story.deliver();
  }

  const hundred = () => paymentOf(100n);
  const ninety = () => paymentOf(90n);
  const both = async (
    outcome: FirstOutcome,
    [before, after]: [Transfer[], Transfer[]],
    { off, on }: { off: string[]; on: string[] },
    removed: boolean,
  ) => assert.deepEqual(await play(removed, outcome, before, after), removed ? on : off);

  for (const removed of [false, true]) {
    const name = `with removed ${removed ? 'on' : 'off'}`;

    test(`${name}, the same outcome at the switch is sent once, and only moves to its new block`, async () => {
      await both('acknowledged', [[hundred()], [hundred()]], { off: ['1: 100'], on: ['1: 100'] }, removed);
      const [row] = await listNotifications(database());
      assert.deepEqual([row?.revision, row?.block_number], [0, 2]);
    });

    test(`${name}, a transfer that timed out and is in both branches continues its retry schedule`, async () => {
      await both(
        'timed out',
        [[hundred()], [hundred()]],
        { off: ['1: 100', '1: 100'], on: ['1: 100', '1: 100'] },
        removed,
      );
    });

    for (const [what, change] of Object.entries({
      'watches no tokens any more': sql`watch_token = false`,
      'has another address': sql`address = ${toBytes(carol)}`,
      'wants larger transfers': sql`tokens = ${{ [coin.slice(2)]: '1000' }}::jsonb`,
    }))
      for (const outcome of ['never sent', 'timed out', 'acknowledged'] as const)
        test(`${name}, a transfer that was ${outcome} and is in both branches stays, although its watched address ${what}`, async () => {
          const story = createStory(removed);
          await story.watch();
          await story.mine(headerOf(1));
          await story.mine(headerOf(2), [hundred()]);
          await story.first(outcome);
          await database().query(sql`update watched_address set ${change}`);
          await story.reorg(headerOf(2, 1, 1), [ninety(), hundred()]);
          const sent = await story.deliver();
          assert.deepEqual(sent, outcome === 'timed out' ? ['1: 100', '1: 100'] : ['1: 100']);
          const rows = await listNotifications(database());
          assert.deepEqual(
            rows.map((row) => [row.state, row.revision]),
            [['processed', 0]],
          );
        });

    test(`${name}, the same outcome mined later is sent again only after a removal notice`, async () => {
      const story = createStory(removed);
      await story.watch();
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.first('acknowledged');
      await story.reorg(headerOf(2, 1, 1));
      await story.deliver();
      await story.mine(headerOf(3, 1, 1), [hundred()]);
      const wanted = removed ? ['1: 100', '1-1: 100', '1-2: 100'] : ['1: 100'];
      assert.deepEqual(await story.deliver(), wanted);
      const [row] = await listNotifications(database());
      assert.deepEqual([row?.block_number, row?.state], [3, 'processed']);
    });

    test(`${name}, the same outcome mined later resumes a delivery that was not acknowledged`, async () => {
      const story = createStory(removed);
      await story.watch();
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.first('timed out');
      await story.reorg(headerOf(2, 1, 1));
      await story.mine(headerOf(3, 1, 1), [hundred()]);
      assert.deepEqual(await story.deliver(), removed ? ['1: 100', '1-2: 100'] : ['1: 100', '1: 100']);
    });

    for (const outcome of ['never sent', 'not connected'] as const)
      test(`${name}, another amount is sent instead of a transfer that was ${outcome}`, async () => {
        await both(outcome, [[hundred()], [ninety()]], { off: ['2: 90'], on: ['2: 90'] }, removed);
        assert.deepEqual(await replacements(), [null, null]);
      });

    test(`${name}, another amount is sent under a new id after the old one timed out`, async () => {
      const on = ['1: 100', '1-1: 100', '2: 90'];
      await both('timed out', [[hundred()], [ninety()]], { off: ['1: 100', '2: 90'], on }, removed);
      assert.deepEqual(await replacements(), [null, 1]);
    });

    test(`${name}, another amount is sent under a new id after the old one was acknowledged`, async () => {
      const on = ['1: 100', '1-1: 100', '2: 90'];
      await both('acknowledged', [[hundred()], [ninety()]], { off: ['1: 100', '2: 90'], on }, removed);
      assert.deepEqual(await replacements(), [null, 1]);
    });

    test(`${name}, another receiver of the transfer gets its own notification`, async () => {
      const story = createStory(removed);
      await story.watch(bob);
      await story.watch(carol);
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.first('acknowledged');
      await story.reorg(headerOf(2, 1, 1), [paymentOf(100n, { receiver: carol })]);
      assert.deepEqual(
        await story.deliver(),
        removed ? ['1: 100', '1-1: 100', '2: 100'] : ['1: 100', '2: 100'],
      );
      assert.deepEqual(await replacements(), [null, null]);
    });

    for (const outcome of ['never sent', 'not connected'] as const)
      test(`${name}, a transfer that is gone and was ${outcome} is never sent`, async () => {
        await both(outcome, [[hundred()], []], { off: [], on: [] }, removed);
      });

    for (const outcome of ['timed out', 'acknowledged'] as const)
      test(`${name}, a transfer that is gone and was ${outcome} ${removed ? 'gets a removal notice' : 'is not sent again'}`, async () => {
        await both(outcome, [[hundred()], []], { off: ['1: 100'], on: ['1: 100', '1-1: 100'] }, removed);
      });

    test(`${name}, a transfer that appears in the new branch is sent`, async () => {
      await both('never sent', [[], [hundred()]], { off: ['1: 100'], on: ['1: 100'] }, removed);
    });

    test(`${name}, back to the first outcome, every id keeps its content`, async () => {
      const story = createStory(removed);
      await story.watch();
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.deliver();
      await story.reorg(headerOf(2, 1, 1), [ninety()]);
      await story.deliver();
      await story.reorg(headerOf(2, 2, 1), [hundred()]);
      const on = ['1: 100', '1-1: 100', '2: 90', '2-1: 90', '1-2: 100'];
      assert.deepEqual(await story.deliver(), removed ? on : ['1: 100', '2: 90']);
    });

    test(`${name}, a log inserted before an unchanged transfer sends nothing for that transfer`, async () => {
      const moved = paymentOf(100n, { ordinal: 3 });
      await both(
        'acknowledged',
        [[hundred()], [paymentOf(5n, { ordinal: 2 }), moved]],
        { off: ['1: 100', '2: 5'], on: ['1: 100', '2: 5'] },
        removed,
      );
    });

    test(`${name}, if one of two equal transfers of a transaction is gone, only that one is affected`, async () => {
      const twice = [hundred(), paymentOf(100n, { ordinal: 1 })];
      const off = ['1: 100', '2: 100'];
      await both(
        'acknowledged',
        [twice, [paymentOf(100n, { ordinal: 7 })]],
        { off, on: [...off, '2-1: 100'] },
        removed,
      );
    });

    test(`${name}, a reorg before the confirmations are complete sends nothing, and they count from the new block`, async () => {
      const story = createStory(removed);
      await story.watch(bob, 2);
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.mine(headerOf(3));
      await story.reorg(headerOf(2, 1, 1), [ninety()]);
      await story.mine(headerOf(3, 1, 1));
      assert.deepEqual(await story.deliver(), []);
      await story.mine(headerOf(4, 1, 1));
      assert.deepEqual(await story.deliver(), ['2: 90']);
    });

    test(`${name}, a transfer that was not sent yet waits for its confirmations again in its new block`, async () => {
      const story = createStory(removed);
      await story.watch(bob, 1);
      await story.mine(headerOf(1));
      await story.mine(headerOf(2), [hundred()]);
      await story.mine(headerOf(3));
      await story.reorg(headerOf(2, 1, 1), []);
      await story.mine(headerOf(3, 1, 1), [hundred()]);
      assert.deepEqual(await story.deliver(), []);
      await story.mine(headerOf(4, 1, 1));
      assert.deepEqual(await story.deliver(), ['1: 100']);
    });
  }

  test('a webhook under way counts as seen if its watched address got a new URL while it was held', async () => {
    const settings = { removed: true, confirmations: 1 };
    const record = await watchAddress(database(), { settings });
    await mine(database(), headerOf(1), []);
    // The former lane was leased many times before, the new one never.
    await database().query(sql`update lane set epoch = 9`);
    await mine(database(), headerOf(2), [hundred()]);
    const origin = 'https://two.example';
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: `${origin}/` }, { origin, now: noon });
    await mine(database(), headerOf(3), []);
    const lanes = await leaseDue(database(), { now: later(1), limit: 9 });
    for (const lane of lanes) await readDue(database(), lane, later(1));
    await database().query(sql`update lane set owner = null`);
    await mine(database(), headerOf(2, 1, 1), [], { reorg: { ancestorNumber: 1 }, now: later(2) });
    const [row] = await listNotifications(database());
    assert.deepEqual([row?.state, row?.revision], ['waiting', 1]);
  });

  test('the log shows which notifications are orphaned, and which one replaces which', async () => {
    await play(true, 'acknowledged', [hundred()], [ninety()]);
    const page = { order: 'oldest first', after: undefined, limit: 10 } as const;
    const { notifications } = await listLog(database(), 1, {}, page);
    assert.deepEqual(
      notifications.map(({ id, revision, orphaned, replaces, replacedBy }) => [
        ...[id, revision, orphaned !== undefined, replaces, replacedBy],
      ]),
      [
        [1, 1, true, undefined, 2],
        [2, 0, false, 1, undefined],
      ],
    );
  });

  const replacements = async () =>
    (
      await database().query<{ replaces: number | null }>(
        sql`select replaces from notification_status order by id`,
      )
    ).map(({ replaces }) => replaces);

  for (const hasFailedSince of [false, true])
    test(`an attempt whose outcome was lost in a crash counts as seen${hasFailedSince ? ', also after a later attempt that did not connect' : ''}`, async () => {
      await watchAddress(database(), { settings: { removed: true } });
      await mine(database(), headerOf(1), []);
      await mine(database(), headerOf(2), [hundred()]);
      const now = later(1);
      const [lane] = await leaseDue(database(), { now, limit: 1 });
      assert.ok(lane !== undefined);
      assert.equal((await readDue(database(), lane, now)).length, 1);
      assert.equal((await freeAbandonedLanes(database(), { now })).freed, 1);
      if (hasFailedSince) await attemptDue(database(), { now: later(2), succeeds: false, arrives: false });
      await mine(database(), headerOf(2, 1, 1), [], { now: later(3), reorg: { ancestorNumber: 1 } });
      const [row] = await listNotifications(database());
      assert.deepEqual([row?.state, row?.revision], ['waiting', 1]);
    });

  test('a watched address that turns removal notices off gets no further ones', async () => {
    const record = await watchAddress(database(), { settings: { removed: true } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [hundred()]);
    await attemptDue(database(), { now: later(1), succeeds: true });
    await mine(database(), headerOf(2, 1, 1), [], { now: later(3), reorg: { ancestorNumber: 1 } });
    await database().query(sql`update watched_address set removed = false where id = ${record.id}`);
    assert.deepEqual(await attemptDue(database(), { now: later(4), succeeds: true }), []);
    const [row] = await listNotifications(database());
    assert.deepEqual([row?.state, row?.revision], ['withdrawn', 1]);
  });

  test('a transfer that stays makes workers read it again, because its block is another one', async () => {
    const session = await database().session();
    const payloads: string[] = [];
    await session.listen(LANE_CHANNEL, (payload) => payloads.push(payload));
    await watchAddress(database());
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [paymentOf(1n)]);
    await mine(database(), headerOf(2, 1, 1), [paymentOf(1n)], { reorg: { ancestorNumber: 1 } });
    await waitUntil(() => payloads.length === 2, { describe: 'two wake-ups' });
    assert.deepEqual(payloads, ['1', `${REORG_PREFIX}1`]);
    await session.close();
  });

  /** One transaction with these transfers, acknowledged in block 2, that another block mines with the others. Returns its notifications. */
  async function mineAgain(before: readonly Transfer[], after: readonly Transfer[]) {
    await watchAddress(database());
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), before);
    await database().query(sql`update queue set may_be_seen = true`);
    await mine(database(), headerOf(2, 1, 1), after, { now: later(3), reorg: { ancestorNumber: 1 } });
    return database().query<{ id: number; ordinal: number; state: string; replaces: number | null }>(
      sql`select id, ordinal, state, replaces from notification_status order by id`,
    );
  }

  test('a transfer with new content replaces the nearest one of its transaction that is lost, and of two the later one', async () => {
    const at = (amount: bigint, ...ordinals: number[]) =>
      ordinals.map((ordinal) => paymentOf(amount + BigInt(ordinal), { ordinal }));
    const rows = await mineAgain(
      [...at(100n, 1, 5, 9), ...at(300n, 12)],
      [...at(200n, 0, 3, 5, 7, 20), ...at(300n, 12)],
    );
    const ordinalOf = new Map(rows.map(({ id, ordinal }) => [id, ordinal]));
    const replaced = rows.flatMap(({ ordinal, replaces }) =>
      replaces === null ? [] : [[ordinal, ordinalOf.get(replaces)]],
    );
    assert.deepEqual(replaced, [
      [0, 1],
      [3, 5],
      [5, 5],
      [7, 9],
      [20, 9],
    ]);
    assert.deepEqual(
      rows.map(({ ordinal, state }) => `${ordinal} ${state}`),
      ['1', '5', '9']
        .map((ordinal) => `${ordinal} withdrawn`)
        .concat(['12', '0', '3', '5', '7', '20'].map((ordinal) => `${ordinal} waiting`)),
    );
  });

  // With other content, each notification was once compared with each transfer for each new one, which took longer than statements may.
  for (const [content, changes] of [
    ['other content', 1n],
    ['the same content', 0n],
  ] as const)
    test(`a transaction of 1,500 transfers that is mined again with ${content} is one block like others`, async () => {
      const logs = (plus: bigint) =>
        Array.from({ length: 1_500 }, (_, ordinal) => paymentOf(BigInt(ordinal) + plus, { ordinal }));
      const rows = await mineAgain(logs(1n), logs(1n + changes * 1_500n));
      const replacing = rows.filter(({ replaces }) => replaces !== null);
      assert.equal(rows.filter(({ state }) => state === 'waiting').length, 1_500);
      assert.equal(rows.length, changes === 0n ? 1_500 : 3_000);
      assert.equal(replacing.length, changes === 0n ? 0 : 1_500);
      assert.ok(replacing.every(({ id, replaces }) => id - Number(replaces) === 1_500));
    });
});
