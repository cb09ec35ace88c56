/**
 * Repairs of notifications that receivers may have seen. Compares the receivers' books, kept as in
 * docs/how-to/credit-deposits.md, with the chain. Every notification is damaged before or after it is sent, because the
 * sent content is not stored.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RepairPlan } from '../../src/audit/repair-plan.ts';
import { toBytes } from '../../src/core/hex.ts';
import { renderMessage } from '../../src/delivery/payload.ts';
import { raw, type Sql, sql } from '../../src/store/db/sql.ts';
import { attemptDue, leaseDue } from '../kit/attempts.ts';
import { hashOf, listNotifications, watchAddress } from '../kit/chain-story.ts';
import { readBlocks } from '../kit/documentation.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { BLOCKS, createPaidChain } from '../kit/paid-chain.ts';
import { createHeaderLedger, createPlainLedger, type Ledger } from '../sim/ledger.ts';

type Fate = 'never sent' | 'not connected' | 'timed out' | 'acknowledged';
const DAMAGED = 3;

onSampledDatabase(import.meta.url, ({ database }) => {
  const paid = createPaidChain(database);

  /** A record whose receiver keeps books by the headers where it has `removed`, else by the body alone. */
  async function createStory(removed: boolean, settings = {}) {
    const ledger: Ledger = removed ? createHeaderLedger() : createPlainLedger();
    const sent: string[] = [];
    let ms = Date.now();
    await paid.follow({ removed, ...settings });
    const [record] = await database().query<{ id: string }>(sql`select id from watched_address`);
    assert.ok(record !== undefined);
    async function attempt(succeeds: boolean, arrives = true): Promise<void> {
      ms += 3_600_000;
      const due = await attemptDue(database(), { now: new Date(ms), succeeds, arrives });
      for (const one of arrives ? due : []) {
        const sending = { apiKey: undefined, signingKeys: [], nativeSymbol: 'ETH', now: new Date(ms) };
        const { headers, body } = renderMessage(one, sending);
        ledger.take({ headers, body });
        sent.push(`${headers['webhook-id']}: ${one.amount}`);
      }
    }
    return {
      record,
      sent,
      async first(fate: Fate) {
        if (fate !== 'never sent') await attempt(fate === 'acknowledged', fate !== 'not connected');
      },
      async deliver() {
        for (let round = 0; round < 2 + BLOCKS; round += 1) await attempt(true);
      },
      /** The balance of its account. */
      balance: () => [...ledger.creditsOf(record.id).values()].reduce((sum, amount) => sum + amount, 0n),
    };
  }

  const damage = (fields: Sql) =>
    database().query(
      sql`update notification_status set ${fields} where tx_hash = ${toBytes(paid.txHashOf(DAMAGED))}`,
    );
  const damages = {
    'another amount': sql`amount = 17`,
    'another sender': sql`sender = receiver`,
    'another transaction': sql`tx_hash = ${toBytes(hashOf(5))}`,
  };
  const true_ = BigInt((BLOCKS * (BLOCKS + 1)) / 2);
  const outline = ({ repairable, unrepairable }: RepairPlan) => ({
    repairable: repairable.length,
    held: repairable.filter((one) => one.mayCreditTwice).length,
    unrepairable: unrepairable.length,
  });

  for (const [name, fields] of Object.entries(damages))
    for (const fate of ['never sent', 'not connected', 'timed out', 'acknowledged'] as const)
      for (const moment of ['before', 'after'] as const) {
        const isSeen = fate === 'timed out' || fate === 'acknowledged';
        if (moment === 'before' && !isSeen) continue;
        const title = `${name}, ${fate}, damaged ${moment} it was sent`;

        async function tell(removed: boolean) {
          const story = await createStory(removed);
          if (moment === 'before') await damage(fields);
          await story.first(fate);
          if (moment === 'after') await damage(fields);
          return story;
        }

        test(`${title}: with removed on, the receiver's books are exact after one repair`, async () => {
          const story = await tell(true);
          const made = await paid.plan();
          assert.deepEqual([outline(made).held, made.unrepairable], [0, []]);
          assert.equal((await paid.apply(made)).size, made.repairable.length);
          const again = await paid.plan();
          assert.deepEqual([again.report.outcome, again.repairable], ['equal', []]);
          await story.deliver();
          assert.equal(story.balance(), true_, story.sent.join());
          assert.equal((await paid.plan()).report.outcome, 'equal');
          const notices = story.sent.filter((line) => line.startsWith('3-1:'));
          assert.equal(notices.length, isSeen ? 1 : 0, story.sent.join());
        });

        test(`${title}: with removed off, no transfer is credited twice without permission, and none is lost in the end`, async () => {
          const story = await tell(false);
          const made = await paid.plan();
          assert.equal(outline(made).held > 0, isSeen);
          await paid.apply(made);
          await story.deliver();
          const before = story.balance();
          const rest = await paid.plan();
          assert.equal(rest.repairable.length > 0, isSeen);
          // A repair that needs permission isn't applied, however often it runs.
          assert.equal((await paid.apply(rest)).size, 0);
          assert.equal((await paid.apply(rest, { mayCreditTwice: true })).size, rest.repairable.length);
          await story.deliver();
          assert.equal(story.balance(), before + (isSeen ? BigInt(DAMAGED) : 0n), story.sent.join());
          assert.ok(story.balance() >= true_, story.sent.join());
          assert.equal((await paid.plan()).report.outcome, 'equal');
        });
      }

  for (const fate of ['timed out', 'acknowledged'] as const)
    test(`the documented statements correct the row of a transfer that was ${fate} and credited, and nothing is sent`, async () => {
      const [block] = readBlocks('how-to/verify-and-repair.md').filter(({ language }) => language === 'sql');
      const story = await createStory(false);
      await story.first(fate);
      const sent = story.sent.filter((line) => line.startsWith('3:'));
      await damage(sql`amount = 17`);
      await paid.apply(await paid.plan());
      await database().transaction(async (tx) => {
        for (const [statement] of (block?.text ?? '').matchAll(/^update [^;]+/gm))
          await tx.query(raw(statement));
      });
      const { report, repairable } = await paid.plan();
      assert.deepEqual([report.outcome, repairable], ['equal', []]);
      await story.deliver();
      assert.equal(story.balance(), true_);
      assert.deepEqual(
        story.sent.filter((line) => line.startsWith('3:')),
        sent,
      );
      const row = (await listNotifications(database())).find(({ id }) => id === DAMAGED);
      assert.deepEqual([row?.amount, row?.state], ['3', 'processed']);
    });

  test('the right notification names the wrong one that it replaces, and the delivery log shows that one as orphaned', async () => {
    const story = await createStory(true);
    await story.first('acknowledged');
    await damage(sql`amount = 17`);
    await paid.apply(await paid.plan());
    const rows = await database().query<{
      id: number;
      replaces: number | null;
      orphaned: boolean;
      at: number | null;
    }>(sql`
      select n.id, n.replaces, n.reorg_id is not null as orphaned, o.number as at from notification_status n
      left join orphaned_block o on o.reorg_id = n.reorg_id and o.number = n.block_number
      where n.id in (3, ${BLOCKS + 1}) order by n.id`);
    assert.deepEqual(rows, [
      { id: 3, replaces: null, orphaned: true, at: DAMAGED },
      { id: BLOCKS + 1, replaces: 3, orphaned: false, at: null },
    ]);
  });

  test('in strict order, the removal notice comes first, and then the rest in the order of the chain', async () => {
    const story = await createStory(true, { strictOrder: true });
    await story.first('acknowledged');
    await story.first('acknowledged');
    await story.first('acknowledged');
    await damage(sql`amount = 17`);
    await paid.apply(await paid.plan());
    await story.deliver();
    assert.deepEqual(story.sent, ['1: 1', '2: 2', '3: 3', '3-1: 17', '6: 3', '4: 4', '5: 5']);
  });

  test('a notification that is sent between plan and repair is not credited twice', async () => {
    const story = await createStory(false);
    await damage(sql`amount = 17`);
    const made = await paid.plan();
    assert.deepEqual(outline(made), { repairable: 1, held: 0, unrepairable: 0 });
    // No row is written before an attempt: only the lease says that it may have been sent.
    await leaseDue(database(), { now: new Date(), limit: 1 });
    assert.equal((await paid.apply(made)).size, 0);
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ amount, state }) => `${amount} ${state}`),
      ['1 waiting', '2 waiting', '17 withdrawn', '4 waiting', '5 waiting'],
    );
    assert.deepEqual(outline(await paid.plan()), { repairable: 1, held: 1, unrepairable: 0 });
    assert.equal(story.sent.length, 0);
  });

  test('a notification that was acknowledged between plan and repair stays as it is', async () => {
    const story = await createStory(false);
    await damage(sql`amount = 17`);
    const made = await paid.plan();
    await story.deliver();
    assert.equal((await paid.apply(made)).size, 0);
    assert.deepEqual(
      (await listNotifications(database())).map(({ amount, state }) => `${amount} ${state}`),
      ['1', '2', '17', '4', '5'].map((amount) => `${amount} processed`),
    );
  });

  test('the notification of a deleted record is withdrawn, and nothing is sent', async () => {
    const story = await createStory(true);
    await damage(sql`amount = 17`);
    await database().query(sql`delete from watched_address`);
    const made = await paid.plan();
    assert.deepEqual(outline(made), { repairable: 1, held: 0, unrepairable: 0 });
    assert.equal((await paid.apply(made)).size, 1);
    await story.deliver();
    assert.deepEqual(story.sent, []);
  });
});

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Three equal transfers in each transaction, beside its value. */
  const EQUAL = 3;
  const paid = createPaidChain(database, { equalCalls: EQUAL });
  const ofBlock = (occurrence: number) => sql`
    kind = 'internal' and occurrence = ${occurrence} and tx_hash = ${toBytes(paid.txHashOf(DAMAGED))}`;
  const list = () =>
    database().query<{ ordinal: number; occurrence: number; amount: string; replaces: number | null }>(sql`
      select ordinal, occurrence, amount, replaces from notification_status
      where kind = 'internal' and tx_hash = ${toBytes(paid.txHashOf(DAMAGED))} and reorg_id is null
      order by occurrence`);
  const whole = [0, 1, 2].map((index) => ({
    ordinal: index,
    occurrence: index,
    amount: '1',
    replaces: null,
  }));
  const processed = sql`state = 'processed', processed_at = next_attempt_at, may_be_seen = true`;

  async function repairAll(count: number): Promise<void> {
    const made = await paid.plan();
    assert.deepEqual([made.repairable.length, made.unrepairable], [count, []]);
    assert.equal((await paid.apply(made)).size, count);
    assert.equal((await paid.plan()).report.outcome, 'equal');
  }

  for (const gone of [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]])
    test(`of three equal transfers, only the missing ones (${gone.join(', ')}) are created`, async () => {
      await paid.follow();
      for (const occurrence of gone)
        await database().query(sql`delete from notification_status where ${ofBlock(occurrence)}`);
      await repairAll(gone.length);
      assert.deepEqual(await list(), whole);
    });

  for (const wrong of [[0], [1], [2], [0, 2], [0, 1, 2]])
    test(`of three equal acknowledged transfers, each wrong one (${wrong.join(', ')}) gets one removal notice and one right notification`, async () => {
      await paid.follow({ removed: true });
      await database().query(sql`update notification_status set ${processed}`);
      for (const occurrence of wrong)
        await database().query(
          sql`update notification_status set amount = ${String(100 + occurrence)} where ${ofBlock(occurrence)}`,
        );
      const ids = await database().query<{ id: number }>(
        sql`select id from notification_status where amount >= 100 order by id`,
      );
      await repairAll(wrong.length);
      assert.deepEqual(
        (await list()).map(({ ordinal, occurrence, amount }) => [ordinal, occurrence, amount]),
        whole.map(({ ordinal, occurrence, amount }) => [ordinal, occurrence, amount]),
      );
      const notices = await database().query<{ id: number; state: string }>(
        sql`select id, state from notification_status where revision = 1 order by id`,
      );
      assert.deepEqual(
        notices,
        ids.map(({ id }) => ({ id, state: 'waiting' })),
      );
      const replaced = (await list()).flatMap(({ replaces }) => replaces ?? []);
      assert.deepEqual(new Set(replaced), new Set(ids.map(({ id }) => id)));
    });

  test('creating one of several equal transfers does not create another one that needs permission', async () => {
    await paid.follow();
    await database().query(sql`update notification_status set ${processed}`);
    await database().query(sql`update notification_status set amount = 100 where ${ofBlock(0)}`);
    await database().query(sql`delete from notification_status where ${ofBlock(1)}`);
    const made = await paid.plan();
    assert.deepEqual(
      made.repairable.map(({ kind, mayCreditTwice = false }) => [kind, mayCreditTwice]),
      [
        ['changed', true],
        ['missing', false],
      ],
    );
    assert.equal((await paid.apply(made)).size, 1);
    assert.deepEqual(
      (await list()).map(({ occurrence, amount }) => `${occurrence}: ${amount}`),
      ['0: 100', '1: 1', '2: 1'],
    );
  });

  test('an acknowledged surplus notification is taken back', async () => {
    await paid.follow({ removed: true });
    await database().query(sql`update notification_status set ${processed}`);
    await database().query(sql`
      insert into notification_status (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, receiver,
        amount, token, block_number, state, next_attempt_at, created_at, occurrence, processed_at, may_be_seen)
      select shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, 7, sender, receiver, amount, token,
        block_number, state, next_attempt_at, created_at, 7, processed_at, may_be_seen
      from notification_status where ${ofBlock(0)}`);
    await repairAll(1);
    assert.deepEqual(await list(), whole);
    const rows = await database().query(sql`select ordinal from notification_status where revision = 1`);
    assert.deepEqual(rows, [{ ordinal: 7 }]);
  });

  test('equal transfers of two records are repaired for each of them', async () => {
    await watchAddress(database());
    await paid.follow();
    await database().query(sql`delete from notification_status where ${ofBlock(1)}`);
    await repairAll(2);
    assert.deepEqual(
      await list(),
      whole.flatMap((row) => [row, row]),
    );
  });
});
