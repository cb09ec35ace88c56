/**
 * Lost shards on a Citus cluster: blocks go on without them, and they catch up exactly. Runs where TEST_CITUS_URL names the
 * coordinator (`npm run citus`). `test/system/citus.test.ts` loses real workers.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Transfer } from '../../../src/domain/block.ts';
import { readSnapshot } from '../../../src/store/audit/comparison.ts';
import { findTip } from '../../../src/store/blocks/blocks.ts';
import { catchUp, declareLost } from '../../../src/store/blocks/catch-up.ts';
import { countMissed } from '../../../src/store/blocks/missed-blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { listLost, withoutLost } from '../../../src/store/db/lost-shards.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { type DueNotification, listDue } from '../../../src/store/delivery/due.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { findLateWatchers, hasWaiting } from '../../../src/store/delivery/lateness.ts';
import { countOrphaned } from '../../../src/store/delivery/orphaned.ts';
import { listPendingAbove, queueStatistics } from '../../../src/store/delivery/pending.ts';
import { settle } from '../../../src/store/delivery/settle.ts';
import { defaultSettings, replaceSettings } from '../../../src/store/watchers/settings.ts';
import { attemptDue, leaseDue } from '../../kit/attempts.ts';
import {
  carol,
  hashOf,
  headerOf,
  later,
  listNotifications,
  mine,
  noon,
  transferOf,
  type Watch,
  watchAddress,
} from '../../kit/chain-story.ts';
import { citusUrl, onServer, withHost } from '../../kit/citus.ts';
import { createDice } from '../../kit/dice.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { planAll } from '../../kit/many-notifications.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const skip =
  citusUrl() === undefined && 'TEST_CITUS_URL is not set: run `npm run citus -- store/blocks/lost-shards`';
const STEPS = 120;

/** A watcher on the first worker and one on the second. */
async function watchersByWorker(database: Database): Promise<{ near: number; far: number }> {
  const rows = await database.query<{ id: number; groupid: number }>(sql`
    select i as id, (select p.groupid from pg_dist_placement p
      where p.shardid = get_shard_id_for_distribution_column('watched_address', i)) as groupid
    from generate_series(1::bigint, 40) as i order by i`);
  const groups = [...new Set(rows.map(({ groupid }) => groupid))].sort((one, other) => one - other);
  const of = (index: number) => rows.find(({ groupid }) => groupid === groups[index])?.id ?? 0;
  return { near: of(0), far: of(1) };
}

/** Declares the shards of the second worker lost, though it answers. */
async function loseFar(database: Database): Promise<void> {
  let index = 0;
  await declareLost(database, noon, async () => {
    index += 1;
    return index === 1;
  });
}

/** Leaves a prepared transaction on the watcher's worker, which the coordinator has committed. Returns its name. */
async function interruptCommit(database: Database, url: string, watcherId: number): Promise<string> {
  const [shard] = await database.query<{ name: string; groupid: number; host: string; port: number }>(sql`
    select 'queue_' || p.shardid as name, p.groupid, n.nodename as host, n.nodeport as port
    from pg_dist_placement p join pg_dist_node n using (groupid)
    where p.shardid = get_shard_id_for_distribution_column('queue', ${watcherId}::bigint)`);
  assert.ok(shard !== undefined);
  const gid = `citus_0_1_${Date.now()}_0`;
  await onServer(withHost(url, shard.host, shard.port), async (worker) => {
    await worker.query('begin');
    await worker.query(`update ${shard.name} set due_at = due_at + interval '1 h'`);
    await worker.query(`prepare transaction '${gid}'`);
  });
  await database.query(sql`insert into pg_dist_transaction (groupid, gid) values (${shard.groupid}, ${gid})`);
  return gid;
}

async function catchUpAll(database: Database, blocksMax = 64): Promise<void> {
  for (const lost of await listLost(database))
    while ((await catchUpOnce(database, lost, blocksMax)) === 'left');
}

async function catchUpOnce(database: Database, lost: { id: number }, blocksMax: number, now = noon) {
  const limits = { blocksMax, transfersMax: 1_000 };
  return (await catchUp(database, lost, { confirmations: 0, now, limits })).outcome;
}

/** As `attemptDue`, but leaves out shards that have yet to make up for a reorg. */
async function attempt(
  database: Database,
  { now, succeeds }: { now: Date; succeeds: boolean },
): Promise<DueNotification[]> {
  const attempted: DueNotification[] = [];
  for (const lane of await leaseDue(database, { now })) {
    const due = (await listDue(database, [lane], { now, exclude: [], limit: 100 })).get(lane.id);
    if (Array.isArray(due)) {
      const nextRetryAt = succeeds ? undefined : new Date(now.getTime() + 60_000);
      const outcome = succeeds
        ? { outcome: 'success', status: 200, nextRetryAt }
        : { outcome: 'timeout', status: undefined, nextRetryAt };
      const common = {
        lane,
        startedAt: now,
        settledAt: now,
        mayHaveArrived: true,
        durationMs: 1,
        response: undefined,
      };
      await settle(
        database,
        due.map(({ id, revision, retryCount, redeliveryCount }) => ({
          ...{ ...common, ...outcome },
          ...{ notificationId: id, revision, retryCount, redeliveryCount },
        })),
      );
      attempted.push(...due);
    } else assert.equal(due, 'absent');
    await releaseLanes(database, [lane], now);
  }
  return attempted;
}

onPostgres(({ database, place }) => {
  test('statements of a commit, and of /status, touch no lost worker', { skip }, async () => {
    const { near, far } = await watchersByWorker(database());
    for (const watcherId of [near, far]) await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf()]);
    await mine(database(), headerOf(2), [transferOf()]);
    await loseFar(database());
    const { plans, database: planned } = planAll(database());
    await mine(planned, headerOf(3), [transferOf()]);
    await mine(planned, headerOf(3, 1, 1), [transferOf()], { reorg: { ancestorNumber: 1 } });
    await planned.transaction(async (tx) => {
      const present = await withoutLost(tx, await listLost(tx));
      await queueStatistics(present, noon);
      await countOrphaned(present);
      await listPendingAbove(present, 1);
      assert.equal(await hasWaiting(present), true);
      await findLateWatchers(present, later(60_000), { lateMs: 1_000, limit: 10 });
    });
    const [lostPort] = await database().query<{ port: number }>(sql`
      select n.nodeport as port from pg_dist_placement p join pg_dist_node n using (groupid)
      where p.shardid = get_shard_id_for_distribution_column('watched_address', ${far}::bigint)`);
    assert.ok(plans.length > 10, `${plans.length} plans`);
    assert.deepEqual(
      plans.filter((plan) => plan.includes(`port=${lostPort?.port}`)).map((plan) => plan.slice(0, 2_000)),
      [],
    );
  });

  test('lost shards get the blocks that they miss, in their order and once', { skip }, async () => {
    const { near, far } = await watchersByWorker(database());
    for (const watcherId of [near, far]) await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf()]);
    await loseFar(database());
    await mine(database(), headerOf(2), [transferOf(), transferOf({ sender: carol, receiver: addressless })]);
    await mine(database(), headerOf(3), [transferOf()]);
    const watcherIds = async () => (await listNotifications(database())).map((row) => row.watcher_id);
    assert.deepEqual((await watcherIds()).slice(2), [near, near]);
    const [missed] = await countMissed(database());
    assert.deepEqual([missed?.blockNumber, missed?.blocks, missed?.transfers], [1, 2, 3]);
    await catchUpAll(database(), 1);
    assert.deepEqual((await watcherIds()).slice(2), [near, near, far, far]);
    assert.deepEqual(await countMissed(database()), []);
    assert.deepEqual(await database().query(sql`select number from missed_block`), []);
    await mine(database(), headerOf(4), [transferOf()]);
    const due = await attemptDue(database(), { now: noon, succeeds: true });
    assert.equal(due.length, 8);
  });

  test('a reorg withdraws what lost shards have of the orphaned blocks; nothing of it is sent meanwhile', {
    skip,
  }, async () => {
    const { near, far } = await watchersByWorker(database());
    for (const watcherId of [near, far]) await watchAddress(database(), { watcherId });
    const [stays, gone, again] = [transferOf(), transferOf(), transferOf()];
    await mine(database(), headerOf(1), [stays]);
    await mine(database(), headerOf(2), [gone]);
    await loseFar(database());
    await mine(database(), headerOf(3), [again]);
    await mine(database(), headerOf(2, 1, 1), [again], { reorg: { ancestorNumber: 1 } });
    const of = (due: readonly DueNotification[], watcherId: number) =>
      due.filter((one) => one.watcherId === watcherId).map(({ hash }) => hash);
    const before = await attempt(database(), { now: noon, succeeds: true });
    assert.deepEqual(of(before, near), [stays.txHash, again.txHash]);
    assert.deepEqual(of(before, far), []);
    await catchUpAll(database());
    const after = await attempt(database(), { now: later(1), succeeds: true });
    assert.deepEqual(of(after, far), [stays.txHash, again.txHash]);
    const states = (await listNotifications(database())).map(({ tx_hash, state }) => [tx_hash, state]);
    assert.deepEqual(
      states.filter(([hash]) => hash === gone.txHash),
      [
        [gone.txHash, 'withdrawn'],
        [gone.txHash, 'withdrawn'],
      ],
    );
  });

  test('what a commit left in a worker, because the coordinator failed, is withdrawn', { skip }, async () => {
    const { far } = await watchersByWorker(database());
    await watchAddress(database(), { watcherId: far });
    const [gone, again, mined] = [transferOf(), transferOf(), transferOf()];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [gone, again]);
    await database().query(sql`delete from block where number = 2`);
    await loseFar(database());
    await mine(database(), headerOf(2, 1, 1), [again, mined]);
    await catchUpAll(database());
    const states = (await listNotifications(database())).map(({ tx_hash, state }) => [tx_hash, state]);
    assert.deepEqual(states, [
      [gone.txHash, 'withdrawn'],
      [again.txHash, 'waiting'],
      [mined.txHash, 'waiting'],
    ]);
  });

  for (const isLost of [true, false])
    test(`a two-phase commit that was interrupted on the worker is ended before ${isLost ? 'its shards catch up' : 'a reorg'}`, {
      skip,
    }, async () => {
      const { far } = await watchersByWorker(database());
      await watchAddress(database(), { watcherId: far });
      await mine(database(), headerOf(1), []);
      await mine(database(), headerOf(2), [transferOf()]);
      const gid = await interruptCommit(database(), place().url, far);
      if (isLost) await loseFar(database());
      await mine(database(), headerOf(2, 1, 1), [], { reorg: { ancestorNumber: 1 } });
      await catchUpAll(database());
      const left = await database().query(sql`select from pg_dist_transaction where gid = ${gid}`);
      assert.equal(left.length, 0);
      assert.deepEqual(
        (await listNotifications(database())).map(({ state }) => state),
        ['withdrawn'],
      );
    });

  test('records of lost shards can not be changed until they have caught up', { skip }, async () => {
    const { near, far } = await watchersByWorker(database());
    const record = await watchAddress(database(), { watcherId: far });
    await loseFar(database());
    const isRefused = (error: unknown) => error instanceof Fault && error.code === 'unavailable';
    await assert.rejects(watchAddress(database(), { watcherId: far, address: carol }), isRefused);
    await watchAddress(database(), { watcherId: near, address: carol });
    await assert.rejects(
      readSnapshot(database(), async () => {}),
      /miss blocks after -1/,
    );
    const change = { settings: defaultSettings, now: noon };
    await assert.rejects(replaceSettings(database(), far, record.id, change), isRefused);
    await catchUpAll(database());
    await watchAddress(database(), { watcherId: far, address: carol });
  });

  for (const seed of [1, 2, 3]) {
    test(`after random losses, reorgs and attempts, the last message for each transfer is true and was delivered (${seed})`, {
      skip,
    }, async () => {
      const dice = createDice(seed);
      const places = await watchersByWorker(database());
      const settings: Watch['settings'][] = [
        {},
        { removed: true, strictOrder: true },
        { removed: true, confirmations: 1 },
      ];
      const patient = new Set<string>();
      const records: string[] = [];
      for (const watcherId of Object.values(places))
        for (const own of settings) {
          const record = await watchAddress(database(), { watcherId, ...(own && { settings: own }) });
          records.push(record.id);
          if (own?.confirmations === 1) patient.add(record.id);
        }
      const blocks: Transfer[][] = [[]];
      let pool: Transfer[] = [];
      /** The revision of each notification that was sent last. */
      const lastSent = new Map<number, number>();
      let ms = 0;
      let headers = 0;
      const deliver = async (succeeds: boolean) => {
        const due = await attempt(database(), { now: later(ms), succeeds });
        for (const { id, revision } of due) lastSent.set(id, revision);
        return due.length;
      };
      async function mineBlock(reorg?: { ancestorNumber: number }): Promise<void> {
        const fresh = Array.from({ length: dice(3) }, () => transferOf());
        const again = pool.filter(() => dice(2) === 0);
        pool = pool.filter((one) => !again.includes(one));
        const number = blocks.push([...again, ...fresh]);
        headers += 1;
        const header = { number, hash: hashOf(headers), parentHash: hashOf(0), minedAt: later(ms) };
        await mine(database(), header, blocks.at(-1) ?? [], { now: later(ms), reorg });
      }
      async function reorg(): Promise<void> {
        const tip = await findTip(database());
        if (tip === undefined || blocks.length < 2) return;
        const orphaned = blocks.splice(Math.max(1, blocks.length - 1 - dice(3)));
        pool.push(...orphaned.flat().filter(() => dice(2) === 0));
        const ancestorNumber = blocks.length;
        if (dice(2) === 0) await mineBlock({ ancestorNumber });
        else await rollbackTo(database(), { ancestorNumber, expectedTip: tip, now: later(ms) });
      }

      await mineBlock();
      let losses = 0;
      for (let step = 0; step < STEPS; step += 1) {
        ms += dice(30_000);
        const choice = dice(12);
        const lost = await listLost(database());
        if (choice < 4) await mineBlock();
        else if (choice < 7) await reorg();
        else if (choice < 10) await deliver(dice(2) === 0);
        else if (lost[0] !== undefined) await catchUpOnce(database(), lost[0], 2, later(ms));
        else {
          losses += 1;
          await loseFar(database());
        }
      }
      assert.ok(losses > 2);
      await catchUpAll(database());
      await mineBlock();
      await mineBlock();
      for (;;) {
        ms += 60_000;
        if ((await deliver(true)) === 0) break;
      }

      const onChain = new Set<string>(blocks.flat().map(({ txHash }) => txHash));
      const unconfirmed = new Set<string>(blocks.at(-1)?.map(({ txHash }) => txHash));
      const rows = await listNotifications(database());
      for (const { id, tx_hash, state, watched_address_id } of rows) {
        const last = lastSent.get(id);
        const isOn = onChain.has(tx_hash);
        if (patient.has(watched_address_id) && unconfirmed.has(tx_hash)) assert.equal(state, 'held');
        else if (last === undefined) assert.deepEqual([state, isOn], ['withdrawn', false]);
        else if (watched_address_id === records[0] || watched_address_id === records[3])
          // Without `removed`, nothing follows after a transfer that was sent.
          assert.ok(isOn ? state === 'processed' : ['processed', 'withdrawn'].includes(state));
        else assert.deepEqual([state, last % 2 === 0], ['processed', isOn]);
      }
      const made = rows.filter((row) => onChain.has(row.tx_hash));
      assert.equal(made.length, onChain.size * records.length);
    });
  }
});

const addressless = '0x00000000000000000000000000000000000000ff';
