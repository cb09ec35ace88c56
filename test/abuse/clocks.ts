/**
 * The retry schedule on a clock that the abuse moves: over 200 failures (a third of them in a run of the whole suite), and
 * jumps of the clock.
 */
import assert from 'node:assert/strict';
import { waitMs } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createDeliverer } from '../../src/delivery/deliver.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { sql } from '../../src/store/db/sql.ts';
import { headerOf, listNotifications, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { createTestDatabase, type DatabaseKind, databaseKinds } from '../kit/database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { sampleOf, sampleSize } from '../kit/sample.ts';
import { openSender } from '../kit/sender.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Abuse } from './abuse.ts';

/** Spec 6.2. */
const RETRY_MINUTES = [1, 3, 10, 15, 60];
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** One second, so that a test can wait for several retries. */
const SECOND_MINUTES = 1 / 60;
const FAILURES = sampleSize(200);
/** The duration of a response, on the clock that the test moves. */
const ANSWER_MS = 1_234;
const never = new AbortController().signal;
/** Waits of the deliverer up to this length use true time. */
const MOMENT_MS_MAX = 250;

type Stage = Awaited<ReturnType<typeof setStage>>;

/** Sets up one notification, due at noon, whose receiver fails. `onRequest` runs during an attempt. */
async function setStage(parts: AsyncDisposableStack, kind: DatabaseKind, onRequest: () => void) {
  const clock = createTestClock(noon);
  let isWell = false;
  const receiver = parts.use(
    await startReceiver({
      answer() {
        onRequest();
        return { status: isWell ? 204 : 503 };
      },
    }),
  );
  const database = await parts.use(await createTestDatabase(kind)).open();
  const sender = parts.use(openSender([receiver]));
  const session = await database.session();
  parts.defer(() => session.close());
  const deliverer = createDeliverer({
    ...{ database, log: silentLog(), metrics: createMetrics('test') },
    // If another statement holds a lock, the deliverer retries after a moment. The story's clock does not move for that.
    clock: {
      ...clock,
      wait: (ms, signal) => (ms <= MOMENT_MS_MAX ? waitMs(ms, signal) : clock.wait(ms, signal)),
    },
    session: async () => session,
    keyRing: deriveKeyRing(Buffer.alloc(32)),
    nativeSymbol: 'ETH',
    retryMinutes: RETRY_MINUTES,
    send: sender.send,
  });
  await watchAddress(database, { url: receiver.url });
  await mine(database, headerOf(1), [transferOf()]);
  return {
    clock,
    receiver,
    /** Makes the receiver respond with 204 from now on. */
    recover() {
      isWell = true;
    },
    /** Attempts and settles everything that is due. Resolves with the number of requests so far. */
    async work(): Promise<number> {
      await deliverer.step(never);
      await waitUntil(
        async () => (await database.query(sql`select from lane where owner is not null`)).length === 0,
        { describe: 'the lanes to be given back' },
      );
      return receiver.requests.length;
    },
    async row() {
      const [row] = await listNotifications(database);
      assert(row !== undefined);
      return row;
    },
    attempts: () =>
      database.query<{ started_at: Date }>(
        sql`select started_at from delivery_attempt order by id limit 1000`,
      ),
  };
}

/** `YYYY-MM-DD HH:MM:SS.ffffff`, the format in the body. */
const textOf = (instant: Date) => `${instant.toISOString().slice(0, -1).replace('T', ' ')}000`;
const after = (instant: Date, ms: number) => new Date(instant.getTime() + ms);
const minutesAfter = (failures: number) => RETRY_MINUTES[failures - 1] ?? 60;

/** Asserts that no request is made a millisecond before the instant, and one request is made at the instant. */
async function assertDueAt(stage: Stage, dueAt: Date): Promise<void> {
  const { clock, work, receiver } = stage;
  const received = receiver.requests.length;
  clock.advance(dueAt.getTime() - clock.now().getTime() - 1);
  assert.equal(await work(), received, `before ${dueAt.toISOString()}`);
  clock.advance(1);
  assert.equal(await work(), received + 1, `at ${dueAt.toISOString()}`);
}

const schedule = (kind: DatabaseKind): Abuse => ({
  name: `over ${FAILURES} failures every attempt is made at the time that the body and the database give (${kind})`,
  async commit() {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts, kind, () => {
      stage.clock.advance(ANSWER_MS);
    });
    const { clock, receiver } = stage;
    const instants = [noon];
    let dueAt: Date | undefined;
    await stage.work();
    for (let failure = 1; failure <= FAILURES; failure += 1) {
      const startedAt = dueAt ?? noon;
      const request = receiver.requests[failure - 1];
      assert(request !== undefined);
      const told = dueAt === undefined ? null : textOf(dueAt);
      assert.equal((request.json as { next_retry_at: unknown }).next_retry_at, told, `attempt ${failure}`);
      assert.equal(request.headers['webhook-timestamp'], String(Math.floor(startedAt.getTime() / 1000)));
      // The delay counts from the failure, not from the start of the attempt.
      const next = after(startedAt, ANSWER_MS + minutesAfter(failure) * MINUTE_MS);
      const { state, retry_count, next_retry_at, next_attempt_at, processed_at } = await stage.row();
      assert.deepEqual(
        { state, retry_count, next_retry_at, next_attempt_at, processed_at },
        {
          state: 'waiting',
          retry_count: failure,
          next_retry_at: next,
          next_attempt_at: next,
          processed_at: null,
        },
      );
      if (failure === FAILURES) stage.recover();
      await assertDueAt(stage, next);
      dueAt = next;
      instants.push(next);
    }
    const { state, retry_count, next_retry_at, processed_at } = await stage.row();
    assert.deepEqual(
      { state, retry_count, next_retry_at, processed_at },
      { state: 'processed', retry_count: FAILURES, next_retry_at: null, processed_at: clock.now() },
    );
    assert.deepEqual(
      (await stage.attempts()).map(({ started_at }) => started_at),
      instants,
    );
    const days = Math.round((clock.now().getTime() - noon.getTime()) / (24 * HOUR_MS));
    return `${receiver.requests.length} attempts in ${days} days, each to the millisecond`;
  },
});

const jumps = (kind: DatabaseKind): Abuse[] => {
  const told = async (stage: Stage) => {
    const { retry_count, next_retry_at } = await stage.row();
    return { retry_count, next_retry_at };
  };
  return [
    {
      name: `a clock that jumps forward by three days makes one attempt, not one for each that was missed (${kind})`,
      async commit() {
        await using parts = new AsyncDisposableStack();
        const stage = await setStage(parts, kind, () => {});
        assert.equal(await stage.work(), 1);
        stage.clock.advance(72 * HOUR_MS);
        assert.equal(await stage.work(), 2);
        assert.equal(await stage.work(), 2);
        const dueAt = after(noon, 72 * HOUR_MS + 3 * MINUTE_MS);
        assert.deepEqual(await told(stage), { retry_count: 2, next_retry_at: dueAt });
        await assertDueAt(stage, dueAt);
        return '1 attempt for 72 missed hours';
      },
    },
    {
      name: `a clock that jumps back by an hour while a retry waits doesn't move its published time (${kind})`,
      async commit() {
        await using parts = new AsyncDisposableStack();
        const stage = await setStage(parts, kind, () => {});
        await stage.work();
        stage.clock.advance(-HOUR_MS);
        const dueAt = after(noon, MINUTE_MS);
        assert.deepEqual(await told(stage), { retry_count: 1, next_retry_at: dueAt });
        await assertDueAt(stage, dueAt);
        return 'attempted at the published instant';
      },
    },
    {
      name: `after a jump back by an hour during an attempt, the attempt counts once, from the new time (${kind})`,
      async commit() {
        await using parts = new AsyncDisposableStack();
        let isFirst = true;
        const stage = await setStage(parts, kind, () => {
          if (isFirst) stage.clock.advance(-HOUR_MS);
          isFirst = false;
        });
        assert.equal(await stage.work(), 1);
        const dueAt = after(noon, MINUTE_MS - HOUR_MS);
        assert.deepEqual(await told(stage), { retry_count: 1, next_retry_at: dueAt });
        await assertDueAt(stage, dueAt);
        assert.equal((await told(stage)).retry_count, 2);
        return 'counted once';
      },
    },
  ];
};

const machine: Abuse = {
  name: 'a process whose machine is set an hour forward still uses the time of the database',
  async commit() {
    await using parts = new AsyncDisposableStack();
    const place = parts.use(await createTestDatabase('postgres'));
    const service = parts.use(
      await startTestService({ database: place, rpc: ['http://127.0.0.1:1'], roles: ['api'] }),
    );
    const watcher = await createWatcher(service, 'acme');
    const { now } = Date;
    Date.now = () => now() + HOUR_MS;
    parts.defer(() => {
      Date.now = now;
    });
    let records = 0;
    const isRight = async () => {
      const { id } = await watcher.watch({ address: freshAddress(), webhookUrl: 'https://example.com/' });
      records += 1;
      const rows = await service.database.query(sql`
        select from watched_address where id = ${id} and created_at < now() + interval '1 minute'`);
      return rows.length === 1;
    };
    await waitUntil(isRight, { describe: 'a record with the time of the database' });
    return `right again with record ${records}`;
  },
};

/** Changes the machine's clock as the process sees it. */
function setMachineClock(parts: AsyncDisposableStack): (ms: number) => void {
  const { now } = Date;
  parts.defer(() => {
    Date.now = now;
  });
  return (ms) => {
    Date.now = () => now() + ms;
  };
}

const dayAndBack = (kind: DatabaseKind): Abuse => ({
  name: `a machine that is set a day forward and back, at once or later, delays no retry (${kind})`,
  async commit() {
    await using parts = new AsyncDisposableStack();
    const setClock = setMachineClock(parts);
    let isWell = false;
    const receiver = parts.use(await startReceiver({ answer: () => ({ status: isWell ? 204 : 503 }) }));
    const service = parts.use(
      await startTestService({
        database: parts.use(await createTestDatabase(kind)),
        ...{ rpc: ['http://127.0.0.1:1'], roles: ['api', 'delivery'], receivers: [receiver] },
        retryMinutes: [SECOND_MINUTES],
      }),
    );
    const watcher = await createWatcher(service, 'acme');
    const address = freshAddress();
    await watcher.watch({ address, webhookUrl: receiver.url });
    await mine(service.database, headerOf(1), [transferOf({ receiver: address })], { now: new Date() });
    for (const ms of [24 * HOUR_MS, 0, -24 * HOUR_MS, 0]) {
      const received = receiver.requests.length;
      setClock(ms);
      // If a row or its delivery queue were scheduled a day late, these three further attempts would not happen.
      await waitUntil(() => receiver.requests.length >= received + 3, {
        describe: `three retries with the clock at ${ms / HOUR_MS} hours`,
      });
    }
    isWell = true;
    await service.drained();
    const times = await service.database.query<{ ms: number }>(sql`
      select (extract(epoch from started_at) * 1000)::bigint as ms from delivery_attempt order by id limit 1000`);
    return `${times.length} attempts`;
  },
});

export const clockAbuses: readonly Abuse[] = [
  ...sampleOf(databaseKinds, { shares: 2 }).map(schedule),
  ...databaseKinds.flatMap(jumps),
  ...databaseKinds.map(dayAndBack),
  machine,
];
