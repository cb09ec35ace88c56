/**
 * Delivery processes that stall or die beside a live one, on a real PostgreSQL.
 */
import assert from 'node:assert/strict';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { headerOf, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestDatabase } from '../kit/database.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Abuse } from './abuse.ts';

/** More than a delivery queue sends at once, so that the worker has read some rows ahead. */
const NOTICES = 100;
/** The minimum number of concurrent attempts of a delivery queue here. */
const IN_FLIGHT_MIN = 4;
/** The maximum number of concurrent attempts. */
const IN_FLIGHT_MAX = 64;
const TAKEOVERS = 5;
const LEASE_MS_MAX = 60_000;
/** Long, because a process has to start beside others. */
const WORK_MS_MAX = 60_000;
const patient = (describe: string) => ({ describe, timeoutMs: WORK_MS_MAX });

/** A delivery queue with notifications, a receiver that holds its responses, and functions that start workers. */
async function setStage(parts: AsyncDisposableStack) {
  const place = parts.use(await createTestDatabase('postgres'));
  const database = await place.open();
  let release = Promise.withResolvers<void>();
  let isHolding = true;
  let held = 0;
  const receiver = parts.use(
    await startReceiver({
      async answer() {
        if (!isHolding) return {};
        held += 1;
        await release.promise;
        return { status: 500 };
      },
    }),
  );
  await watchAddress(database, { url: receiver.url });
  let blocks = 0;
  return {
    database,
    receiver,
    held: () => held,
    /** Holds new requests until `letGo`, then fails them. */
    hold() {
      isHolding = true;
      held = 0;
      release = Promise.withResolvers();
    },
    /** Responds to new requests at once. Held requests stay held. */
    answer() {
      isHolding = false;
    },
    letGo: () => release.resolve(),
    async pay(count: number) {
      blocks += 1;
      await mine(
        database,
        headerOf(blocks),
        Array.from({ length: count }, () => transferOf()),
        // The processes use the real clock, and retention would delete older ones.
        { now: new Date() },
      );
    },
    startWorker(): Program {
      // A process that only delivers sends no requests to nodes.
      const rpc = ['http://127.0.0.1:1'];
      const worker = startProgram({ database: place, rpc, startBlock: 0, receiver, roles: ['delivery'] });
      parts.defer(async () => {
        worker.child.kill('SIGKILL');
        await worker.ended;
      });
      return worker;
    },
    drained: () =>
      waitUntil(
        async () =>
          (await database.query(sql`select from notification_status where state = 'waiting'`)).length === 0,
        patient('everything to be processed'),
      ),
  };
}

/** All rows that a worker without a lease must not change. */
async function readRows(database: Database): Promise<string[]> {
  const rows = await database.query<{ row: string }>(sql`
    select n::text as row from notification_status n order by n.id limit 1000`);
  const attempts = await database.query<{ row: string }>(sql`
    select a::text as row from delivery_attempt a order by a.id limit 1000`);
  return [...rows, ...attempts].map(({ row }) => row);
}

/** The number of delivery queues that a process works on, from its metrics. */
async function countLanes({ log }: Program): Promise<number> {
  const url = /"metrics":"(http[^"]+)"/.exec(log)?.[1] ?? '';
  return Number(/^chainbell_webhook_delivery_queues (\d+)$/m.exec(await (await fetch(url)).text())?.[1]);
}

const stalled = (endLease: (database: Database) => Promise<void>): Pick<Abuse, 'commit'> => ({
  async commit() {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts);
    const { database, receiver } = stage;
    await stage.pay(NOTICES);
    const first = stage.startWorker();
    await waitUntil(() => stage.held() >= IN_FLIGHT_MIN, patient('requests under way'));
    first.child.kill('SIGSTOP');
    await endLease(database);
    stage.answer();
    stage.startWorker();
    await stage.drained();
    const before = await readRows(database);
    stage.letGo();
    first.child.kill('SIGCONT');
    const refused = () => first.log.split('"settled":"lost"').length - 1;
    await waitUntil(
      async () => refused() > 0 && (await countLanes(first)) === 0,
      patient('the lane to be let go'),
    );
    assert.deepEqual(await readRows(database), before);
    // Some attempts in flight may not have connected yet.
    assert(refused() >= stage.held() && refused() <= IN_FLIGHT_MAX, `${refused()} of ${stage.held()}`);
    assert.equal(receiver.requests.length, refused() + NOTICES);

    // Both processes keep running and don't disturb each other.
    await stage.pay(1);
    await stage.drained();
    assert.equal(receiver.requests.length, refused() + NOTICES + 1);
    return `${refused()} attempts under way, all of their results refused, 0 rows changed, 0 more requests`;
  },
});

const killed: Abuse = {
  name: 'attempts under way in a delivery process that is killed are repeated by another one at once',
  async commit() {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts);
    const { receiver } = stage;
    const takeoversMs: number[] = [];
    let working = stage.startWorker();
    for (let takeover = 0; takeover < TAKEOVERS; takeover += 1) {
      stage.hold();
      const receivedBefore = receiver.requests.length;
      await stage.pay(NOTICES);
      await waitUntil(() => stage.held() >= IN_FLIGHT_MIN, patient('requests under way'));
      const next = stage.startWorker();
      await waitUntil(() => next.log.includes('service.started'), patient(`a start: ${next.log}`));
      stage.answer();
      const received = receiver.requests.length;
      const startedAt = performance.now();
      working.child.kill('SIGKILL');
      await waitUntil(() => receiver.requests.length > received, patient('a request of the other worker'));
      takeoversMs.push(Math.round(performance.now() - startedAt));
      await stage.drained();
      assert.equal(receiver.requests.length, receivedBefore + stage.held() + NOTICES);
      stage.letGo();
      working = next;
    }
    return `taken over after ${takeoversMs.sort((one, other) => one - other).join(', ')} ms`;
  },
};

export const workerAbuses: readonly Abuse[] = [
  {
    name: 'a delivery process that was stopped longer than its lease changes no row and sends nothing more',
    ...stalled(async (database) => {
      // Ends the lease for the other worker. The long story below waits for the real end.
      await database.query(sql`update lane set lease_until = now()`);
    }),
  },
  {
    name: 'a delivery process that was stopped until its lease of 30 s was over changes no row and sends nothing more',
    isLong: true,
    ...stalled(async (database) => {
      await waitUntil(
        async () => (await database.query(sql`select from lane where lease_until > now()`)).length === 0,
        { describe: 'the lease to end', timeoutMs: LEASE_MS_MAX },
      );
    }),
  },
  killed,
];
