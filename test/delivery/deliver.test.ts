import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { asDistributed, loseShards } from '../kit/as-distributed.ts';
import {
  addressOf,
  headerOf,
  listLanes,
  listStates,
  mine,
  transferOf,
  watchAddress,
} from '../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../kit/clock.ts';
import {
  AT_ONCE,
  LEFT,
  pay,
  startLiving as startLivingWorker,
  startWorker,
} from '../kit/delivery-workers.ts';
import { onPostgres, onSampledDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

const LONGER_THAN_A_TURN_MS = 10_001;
/** A worker that gave away a watcher's lanes takes no lanes of that watcher for this long. */
const LONGER_THAN_A_PAUSE_MS = 2_001;
const LONGER_THAN_A_LEASE_MS = 30_001;
const MINUTE_MS = 60_000;
/** Locked lanes are tried again at least this often. */
const LOCKED_MS = 250;

/** Watchers with due notifications, and one worker. */
async function startStory(
  database: Database,
  { watchers, lanesMax }: { watchers: number; lanesMax?: number },
) {
  const clock = createTestClock();
  await pay(database, clock, watchers);
  return { clock, ...startWorker(database, { clock, lanesMax }) };
}

const urlsOf = (...watcherIds: number[]) => new Set(watcherIds.map((id) => `https://${id}.example/hook`));

onSampledDatabase(import.meta.url, ({ database }) => {
  test('when more lanes have work than a worker may lease, leased lanes continue until they have had their turn', async () => {
    const story = await startStory(database(), { watchers: 3, lanesMax: 2 });
    await story.step();
    assert.deepEqual(new Set(await story.underWay(2 * AT_ONCE)), urlsOf(1, 2));
    await story.step();
    story.end('success');
    assert.deepEqual(new Set(await story.underWay(2 * LEFT)), urlsOf(1, 2));
    await story.stop();
  });

  test('a worker knows its attempts under way, how many a receiver takes, and whose attempts it has recorded', async () => {
    const story = await startStory(database(), { watchers: 1 });
    const { inFlight, settled } = story;
    const origin = 'https://1.example:443';
    const rows = await database().query<{ id: number; lane_id: number }>(
      sql`select id, lane_id from queue order by id`,
    );
    const states = () => rows.map(({ id, lane_id }) => inFlight.isUnderWay(lane_id, id));
    assert.deepEqual(inFlight.receiver(1, origin), undefined);
    await story.step();
    await story.underWay(AT_ONCE);
    assert.deepEqual(states(), [...Array(AT_ONCE).fill(true), ...Array(LEFT).fill(false)]);
    assert.deepEqual(inFlight.receiver(1, origin), { open: AT_ONCE, limit: AT_ONCE });
    assert.deepEqual(settled, []);
    story.end('success');
    await story.underWay(LEFT);
    await waitUntil(() => settled.length > 0);
    assert.equal(new Set(settled).size, 1);
    await story.stop();
    assert.ok(!states().includes(true));
  });

  test('a lane that has had its turn gives way to waiting lanes, and sends the rest after them', async () => {
    const story = await startStory(database(), { watchers: 3, lanesMax: 2 });
    await story.step();
    await story.underWay(2 * AT_ONCE);
    story.clock.advance(LONGER_THAN_A_TURN_MS);
    await story.step();
    story.end('success');
    await story.idle();
    const waiting = (await listStates(database())).filter((state) => state === 'waiting');
    assert.equal(waiting.length, LEFT + LEFT + AT_ONCE + LEFT);
    await story.step();
    const next = await story.underWay(AT_ONCE + LEFT);
    assert.equal(next.filter((url) => urlsOf(3).has(url)).length, AT_ONCE);
    assert.equal(new Set(next).size, 2);
    await story.stop();
  });

  test('when 200 receivers share 48 lanes, each gets a turn before any gets a second one', async () => {
    const [watchers, lanesMax] = [200, 48];
    const story = await startStory(database(), { watchers, lanesMax });
    const all = Array.from({ length: watchers }, (_, index) => index + 1);
    const served: string[] = [];
    for (let from = 0; from < watchers; from += lanesMax) {
      await story.step();
      const newcomers = Math.min(lanesMax, watchers - from);
      const attempts = newcomers * AT_ONCE + (lanesMax - newcomers) * LEFT;
      const atWork = new Set(await story.underWay(attempts));
      assert.ok(urlsOf(...all.slice(from, from + lanesMax)).isSubsetOf(atWork));
      assert.ok(atWork.size <= lanesMax);
      served.push(...[...atWork].filter((url) => !served.includes(url)));
      story.clock.advance(LONGER_THAN_A_TURN_MS);
      await story.step();
      story.end('success');
      await story.idle();
    }
    assert.deepEqual(new Set(served), urlsOf(...all));
    await waitUntil(
      async () => {
        await story.step();
        story.end('success');
        return (await listStates(database())).every((state) => state === 'processed');
      },
      { describe: 'what is left', pollMs: 50, timeoutMs: 120_000 },
    );
    await story.stop();
  });

  test("a receiver that didn't respond gets a few webhooks at a time when its lane is leased again", async () => {
    const story = await startStory(database(), { watchers: 1 });
    await story.step();
    await story.underWay(AT_ONCE);
    story.end('timeout');
    await story.underWay(LEFT);
    story.end('timeout');
    await story.idle();
    story.clock.advance(MINUTE_MS);
    await story.step();
    // One of the four slots is reserved for first attempts.
    assert.equal((await story.underWay(1)).length, 3);
    await story.stop();
  });

  test('lanes whose lease arrives too late are given back unused', async () => {
    const story = await startStory(database(), { watchers: 1 });
    const late: Database = {
      ...database(),
      async query<Row>(statement: Parameters<Database['query']>[0]) {
        const rows = await database().query<Row>(statement);
        if (statement.text.includes('epoch = epoch + 1')) story.clock.advance(LONGER_THAN_A_LEASE_MS);
        return rows;
      },
    };
    const slow = startWorker(late, { clock: story.clock });
    await slow.step();
    assert.equal((await listLanes(database()))[0]?.owner, null);
    await story.step();
    assert.equal((await story.underWay(AT_ONCE)).length, AT_ONCE);
    await Promise.all([slow.stop(), story.stop()]);
  });

  test('lanes whose lease or release got no answer from the database are leased again with the next step', async () => {
    const clock = createTestClock();
    await pay(database(), clock, 1);
    let isUnanswered = true;
    const unanswered = () => {
      if (!isUnanswered) return;
      isUnanswered = false;
      throw new Fault('unavailable', 'database: the connection broke');
    };
    const worker = startWorker(
      {
        ...database(),
        async query<Row>(statement: Parameters<Database['query']>[0]) {
          const rows = await database().query<Row>(statement);
          if (statement.text.includes('epoch = epoch + 1')) unanswered();
          return rows;
        },
        transaction: (work) =>
          database().transaction((tx) =>
            work({
              ...tx,
              query(statement) {
                if (statement.text.includes('set owner = null')) unanswered();
                return tx.query(statement);
              },
            }),
          ),
      },
      { clock },
    );
    await assert.rejects(worker.step(), Fault);
    await worker.step();
    await worker.underWay(AT_ONCE);
    worker.end('success');
    await worker.underWay(LEFT);
    isUnanswered = true;
    worker.end('timeout');
    await worker.idle();
    assert.notEqual((await listLanes(database()))[0]?.owner, null);
    await worker.step();
    const isFree = async () => {
      // The step may have had the watcher's visit locked.
      clock.advance(LOCKED_MS);
      return (await listLanes(database()))[0]?.owner === null;
    };
    await waitUntil(isFree, { describe: 'the lane to be given back' });
    await worker.stop();
  });

  test("lanes start no further attempt once the worker's session is lost, even before the next step", async () => {
    const story = await startStory(database(), { watchers: 1 });
    await story.step();
    await story.underWay(AT_ONCE);
    story.loseSession();
    story.end('success');
    await story.idle();
    assert.deepEqual(await story.underWay(0), []);
    await story.stop();
  });
});

onPostgres(({ database, place }) => {
  const startLiving = (context: TestContext, clock: TestClock, lanesMax?: number) =>
    startLivingWorker(context, {
      place: place(),
      database: database(),
      clock,
      ...(lanesMax !== undefined && { lanesMax }),
    });

  test('lanes that have had their turn are shared among the living workers', async (context) => {
    const clock = createTestClock();
    await pay(database(), clock, 5);
    const [former, newcomer] = [await startLiving(context, clock), await startLiving(context, clock)];
    await former.step();
    await former.underWay(5 * AT_ONCE);
    await newcomer.step();
    await former.heartbeat();
    clock.advance(LONGER_THAN_A_TURN_MS);
    await former.heartbeat();
    former.end('success');
    const kept = await former.underWay(3 * LEFT);
    // It does not take back at once what it has given away.
    await former.step();
    const taken = async () => {
      await newcomer.step();
      return newcomer.underWay(0);
    };
    await waitUntil(async () => (await taken()).length === 2 * LEFT, { describe: 'two lanes to be taken' });
    assert.deepEqual(new Set(await taken()), urlsOf(1, 2));
    assert.deepEqual([new Set(kept), kept.length], [urlsOf(3, 4, 5), 3 * LEFT]);
    await Promise.all([former.stop(), newcomer.stop()]);
    assert.ok((await listStates(database())).every((state) => state === 'processed'));
  });

  test("locked lanes of one watcher don't delay other watchers, and keep their leases", async (context) => {
    await database().script(
      `do $$ begin execute format('alter database %I set lock_timeout = ''3s''', current_database()); end $$`,
    );
    const clock = createTestClock();
    await pay(database(), clock, 2);
    const worker = await startLiving(context, clock);
    await worker.step();
    await worker.underWay(2 * AT_ONCE);
    const readLanes = async () => new Map((await listLanes(database())).map((lane) => [lane.id, lane]));
    const leasedMs = async (id: number) =>
      Number((await readLanes()).get(id)?.lease_until) - Number(clock.now());
    const countOf = async (watcherId: number) =>
      (
        await database().query(
          sql`select from notification_status where watcher_id = ${watcherId} and state = 'processed'`,
        )
      ).length;
    await database().transaction(async (tx) => {
      await tx.query(sql`select from lane where watcher_id = 1 for update`);
      await tx.query(sql`select from watcher_queue where watcher_id = 1 for update`);
      clock.advance(LONGER_THAN_A_TURN_MS);
      await worker.heartbeat();
      assert.ok((await leasedMs(1)) < (await leasedMs(2)), 'only the other lease is renewed');
      const isGivenBack = async () => {
        worker.end('success', 'https://2.example/hook');
        return (await readLanes()).get(2)?.owner === null;
      };
      await waitUntil(isGivenBack, { describe: 'lane 2 to be given back' });
      await worker.underWay(LEFT);
      assert.deepEqual([await countOf(1), await countOf(2)], [0, AT_ONCE + LEFT]);
      clock.advance(LONGER_THAN_A_LEASE_MS);
    });
    // An outcome that is retried may hold the lane's lock too.
    const isRenewed = async () => {
      await worker.heartbeat();
      return (await leasedMs(1)) > 0;
    };
    await waitUntil(isRenewed, { describe: 'the lease to be renewed, and not to be freed' });
    const isDone = async () => {
      clock.advance(LOCKED_MS);
      worker.end('success');
      return (await readLanes()).get(1)?.owner === null;
    };
    await waitUntil(isDone, { describe: 'lane 1 to be given back' });
    assert.deepEqual([await countOf(1), (await readLanes()).get(1)?.epoch], [AT_ONCE + LEFT, 1]);
    await worker.stop();
  });

  test('a single worker keeps its lanes and leases more, even while one of them ends', async (context) => {
    const clock = createTestClock();
    await pay(database(), clock, 3);
    const alone = await startLiving(context, clock);
    await alone.step();
    await alone.underWay(3 * AT_ONCE);
    // Like a lane that was given back a moment ago, before the worker is notified.
    await database().query(sql`update lane set owner = null, next_due = null where id = 1`);
    clock.advance(LONGER_THAN_A_TURN_MS);
    await alone.heartbeat();
    await watchAddress(database(), { watcherId: 4, address: addressOf(4), url: 'https://4.example/hook' });
    await mine(database(), headerOf(4), [transferOf({ receiver: addressOf(4) })], { now: clock.now() });
    await alone.step();
    assert.equal((await alone.underWay(3 * AT_ONCE + 1)).at(-1), 'https://4.example/hook');
    alone.end('success');
    assert.deepEqual(new Set(await alone.underWay(2 * LEFT)), urlsOf(2, 3));
    await alone.stop();
  });

  test('a paused worker is offered lanes once and then not for a minute, without delay for other watchers', async (context) => {
    const clock = createTestClock();
    const payOther = async (watcherId: number) => {
      const address = addressOf(watcherId);
      await watchAddress(database(), { watcherId, address, url: `https://${watcherId}.example/hook` });
      await mine(database(), headerOf(watcherId), [transferOf({ receiver: address })], { now: clock.now() });
    };
    await pay(database(), clock, 3);
    const [busy, stopped] = [await startLiving(context, clock), await startLiving(context, clock)];
    await busy.step();
    await busy.underWay(3 * AT_ONCE);
    await stopped.step();
    clock.advance(LONGER_THAN_A_TURN_MS);
    await busy.heartbeat();
    busy.end('success');
    await busy.underWay(2 * LEFT);
    await payOther(4);
    await busy.step();
    assert.deepEqual(
      new Set(await busy.underWay(2 * LEFT + 1)),
      urlsOf(2, 3, 4),
      'watcher 1 is for the other',
    );
    const isGivenBack = async () =>
      (await listLanes(database())).some(({ id, owner }) => id === 1 && owner === null);
    await waitUntil(isGivenBack);
    clock.advance(LONGER_THAN_A_PAUSE_MS);
    await busy.heartbeat();
    await busy.step();
    assert.deepEqual(new Set(await busy.underWay(3 * LEFT + 1)), urlsOf(1, 2, 3, 4));
    clock.advance(LONGER_THAN_A_TURN_MS);
    await busy.heartbeat();
    busy.end('success', 'https://4.example/hook');
    await payOther(5);
    await busy.step();
    assert.deepEqual(
      new Set(await busy.underWay(3 * LEFT + 1)),
      urlsOf(1, 2, 3, 5),
      'nothing was given away',
    );
    busy.end('success');
    await busy.idle();
    await Promise.all([busy.stop(), stopped.stop()]);
  });

  test('a worker with no more lanes than the others gives none away and continues', async (context) => {
    const clock = createTestClock();
    await pay(database(), clock, 4);
    const [one, other] = [await startLiving(context, clock, 2), await startLiving(context, clock)];
    await one.step();
    await other.step();
    await Promise.all([one.underWay(2 * AT_ONCE), other.underWay(2 * AT_ONCE)]);
    clock.advance(LONGER_THAN_A_TURN_MS);
    await Promise.all([one.heartbeat(), other.heartbeat()]);
    one.end('success');
    other.end('success');
    assert.deepEqual(new Set(await one.underWay(2 * LEFT)), urlsOf(1, 2));
    assert.deepEqual(new Set(await other.underWay(2 * LEFT)), urlsOf(3, 4));
    await Promise.all([one.stop(), other.stop()]);
  });

  test('on Citus, delivery queues of lost shards leave the process room for others', async () => {
    const clock = createTestClock();
    await pay(database(), clock, 3);
    let reads = 0;
    const distributed = await asDistributed(database(), async ({ text, values }) => {
      if (!text.includes('from queue') || values.includes(3)) return;
      reads += 1;
      throw new Fault('unavailable', 'database: timeout');
    });
    const worker = startWorker(distributed, { clock, lanesMax: 2 });
    await worker.step();
    await waitUntil(() => reads === 2, { describe: 'two reads that fail' });
    await loseShards(database(), [1, 2]);
    const isRoom = async () => {
      clock.advance(LOCKED_MS);
      return (await listLanes(database())).every(({ owner }) => owner === null);
    };
    await waitUntil(isRoom, { describe: 'both to be given back' });
    await worker.step();
    assert.deepEqual(new Set(await worker.underWay(AT_ONCE)), urlsOf(3));
    await worker.stop();
  });
});
