import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createFairSlots } from '../../src/delivery/fair.ts';
import { type DeliveryOptions, type LaneRun, runLane } from '../../src/delivery/lane.ts';
import { createDueReader } from '../../src/delivery/reader.ts';
import { createSettler, type Settler } from '../../src/delivery/settler.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { releaseLanes } from '../../src/store/delivery/lanes.ts';
import type { WatchSettings } from '../../src/store/watchers/settings.ts';
import { leaseDue } from '../kit/attempts.ts';
import { headerOf, listLanes, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

/** An outcome whose record the test holds back. */
type Unrecorded = { record(): void };

type Story = {
  /** The settings of the watched address. */
  settings?: Partial<WatchSettings>;
  /** The number of due notifications. */
  count?: number;
  beforeRelease?: (run: LaneRun) => Promise<void>;
  /** One attempt at a time, with this settler instead of the database's. */
  settler?: Settler;
  onSent?(sent: number): void;
};

/** Works a lane under one lease, calls a function after the lane has read its rows, and counts the sent webhooks. */
async function countSent(
  database: Database,
  afterRead: (run: LaneRun, stopping: AbortController) => void,
  { settings = {}, count = 1, beforeRelease, settler, onSent }: Story = {},
): Promise<number> {
  await watchAddress(database, { settings });
  await mine(
    database,
    headerOf(1),
    Array.from({ length: count }, () => transferOf()),
  );
  const [lane] = await leaseDue(database, { now: noon, limit: 1 });
  assert.ok(lane !== undefined);
  const stopping = new AbortController();
  const killed = new AbortController();
  const common = { clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') };
  let sent = 0;
  const delivery: DeliveryOptions = {
    ...common,
    database: {
      ...database,
      async query<Row>(statement: Parameters<Database['query']>[0]) {
        const rows = await database.query<Row>(statement);
        if (statement.text.includes('left join watched_address')) afterRead(run, stopping);
        return rows;
      },
      async transaction(work) {
        await beforeRelease?.(run);
        return database.transaction(work);
      },
    },
    keyRing: deriveKeyRing(Buffer.alloc(32)),
    nativeSymbol: 'ETH',
    retryMinutes: [1],
    async send() {
      sent += 1;
      onSent?.(sent);
      if (beforeRelease === undefined && sent === count) stopping.abort();
      return {
        outcome: 'success',
        status: 200,
        durationMs: 1,
        requestCount: 1,
        mayHaveArrived: true,
        responseText: undefined,
      };
    },
  };
  const run: LaneRun = runLane(lane, {
    ...delivery,
    settler: settler ?? createSettler({ ...common, database, signal: killed.signal }),
    reader: createDueReader(delivery),
    fair: createFairSlots({
      ...{ ...common, onCredit: () => {} },
      ...(settler !== undefined && { limits: { unproven: 1, proven: 1, hung: 1, open: 1, perOrigin: 1 } }),
    }),
    async release(own) {
      await releaseLanes(delivery.database, [own], noon);
    },
    noteWait: () => {},
    stopping: stopping.signal,
    killed: killed.signal,
  });
  await run.done;
  return sent;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a due notification is sent', async () => {
    assert.equal(await countSent(database(), () => {}), 1);
  });

  test('in strict order a lane sends one notification after the other under one lease, without a NOTIFY', async () => {
    const settings = { strictOrder: true };
    assert.equal(await countSent(database(), () => {}, { settings, count: 3 }), 3);
  });

  test('the next attempt starts while outcomes are recorded, but not when the database falls behind', async () => {
    const unrecorded: Unrecorded[] = [];
    let keepsUp = true;
    let sent = 0;
    const settler: Settler = {
      async submit() {
        const { promise, resolve } = Promise.withResolvers<'settled'>();
        unrecorded.push({ record: () => resolve('settled') });
        return promise;
      },
      keepsUp: () => keepsUp,
    };
    const onSent = (count: number) => {
      sent = count;
      if (count === 2) keepsUp = false;
    };
    const all = countSent(database(), () => {}, { count: 3, settler, onSent });
    await waitUntil(() => unrecorded.length === 2, { describe: 'two outcomes that are not recorded' });
    // Long enough for a third attempt to begin.
    for (let turn = 0; turn < 20; turn += 1) await database().query(sql`select`);
    assert.equal(sent, 2);
    unrecorded[1]?.record();
    await waitUntil(() => unrecorded.length === 3, { describe: 'the third attempt' });
    for (const { record } of unrecorded) record();
    assert.equal(await all, 3);
  });

  test('a lane that is stopped while it reads sends none of those rows', async () => {
    assert.equal(await countSent(database(), (_run, stopping) => stopping.abort()), 0);
  });

  test('a lane that loses its lease while it reads sends none of those rows', async () => {
    assert.equal(await countSent(database(), (run) => run.lose()), 0);
  });

  test('a ring while the lane is given back starts no attempt under the old lease', async () => {
    let isGivenBack = false;
    const beforeRelease = async (run: LaneRun) => {
      if (isGivenBack) return;
      isGivenBack = true;
      await mine(database(), headerOf(2), [transferOf()]);
      run.ring();
      // Long enough for a read and a webhook to begin.
      for (let turn = 0; turn < 20; turn += 1) await database().query(sql`select`);
    };
    const sent = await countSent(database(), () => {}, { beforeRelease });
    assert.equal(sent, 1);
    assert.notEqual((await listLanes(database()))[0]?.next_due, null);
  });

  test('a lane whose notifications could not be read leaves its slot to other lanes until it reads again', async () => {
    const clock = createTestClock();
    const fair = createFairSlots({
      ...{ clock, onCredit: () => {} },
      limits: { unproven: 1, proven: 1, hung: 1, open: 1, perOrigin: 1 },
    });
    const stopping = new AbortController();
    const read: number[] = [];
    const run = (id: number) =>
      runLane(
        { id, watcherId: id, shardId: id, origin: `https://${id}.example`, epoch: 1 },
        {
          ...{ clock, fair, log: silentLog(), metrics: createMetrics('test') },
          ...{
            database: database(),
            keyRing: deriveKeyRing(Buffer.alloc(32)),
            nativeSymbol: 'ETH',
            retryMinutes: [1],
          },
          send: async () => assert.fail(),
          settler: { submit: async () => assert.fail(), keepsUp: () => true },
          reader: {
            async read({ lane }) {
              read.push(lane.id);
              throw new Fault('unavailable', 'database: timeout');
            },
          },
          ...{ noteWait: () => {}, release: async () => {} },
          ...{ stopping: stopping.signal, killed: stopping.signal },
        },
      );
    const runs = [1, 2, 3].map(run);
    const pauses = () => clock.waits().filter((ms) => ms === 250);
    await waitUntil(() => pauses().length === 3, { describe: 'a read of each lane' });
    assert.deepEqual(
      read.toSorted((one, other) => one - other),
      [1, 2, 3],
    );
    clock.advance(250);
    await waitUntil(() => read.length === 6, { describe: 'another read of each lane' });
    assert.deepEqual(
      read.toSorted((one, other) => one - other),
      [1, 1, 2, 2, 3, 3],
    );
    stopping.abort();
    await Promise.all(runs.map(({ done }) => done));
  });
});
