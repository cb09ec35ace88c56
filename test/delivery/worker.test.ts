import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { HEARTBEAT_MS, LEASE_MS } from '../../src/delivery/deliver.ts';
import { sql } from '../../src/store/db/sql.ts';
import { WORKER_LOCK_SPACE } from '../../src/store/delivery/workers.ts';
import { listLanes } from '../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../kit/clock.ts';
import { AT_ONCE, LEFT, laneOwners, pay, startLiving, type Worker } from '../kit/delivery-workers.ts';
import { onPostgres } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

/** How long workers leave lanes to others: after the database was away, and after another has lost its session. */
const [RESUME_MS, GRACE_MS] = [4_000, 1_000];
/** What two answers of the database prove about the time between them, at most. */
const PAUSE_MS = 600;
/** A worker without a session tries to get one at least this often. */
const RETRY_MS = 2_000;
const LONGER_THAN_A_LEASE_MS = LEASE_MS + 1;
const LONGER_THAN_A_RENEWAL_MS = 8_001;

onPostgres(({ database, place }) => {
  const owners = () => laneOwners(database());
  async function start(context: TestContext, watchers: number) {
    const clock = createTestClock();
    await pay(database(), clock, watchers);
    const startOne = () => startLiving(context, { place: place(), database: database(), clock });
    return { clock, startOne, worker: await startOne() };
  }

  /** Two workers with sessions, of which the first has all lanes and attempts under way in each. */
  async function startTwo(context: TestContext) {
    const { clock, worker, startOne } = await start(context, 2);
    await worker.step();
    await worker.underWay(2 * AT_ONCE);
    const other = await startOne();
    await other.step();
    return { clock, worker, other, startOne, before: await owners() };
  }

  const isLocked = async (number: number | null | undefined) => {
    const rows = await database().query(sql`
      select from pg_locks where locktype = 'advisory' and classid = ${WORKER_LOCK_SPACE} and objid = ${number}
        and database = (select oid from pg_database where datname = current_database())`);
    return rows.length > 0;
  };

  /** As if the database answered all the time. */
  const pass = async (clock: TestClock, ms: number, worker: Worker) => {
    for (let leftMs = ms; leftMs > 0; leftMs -= HEARTBEAT_MS) {
      clock.advance(Math.min(HEARTBEAT_MS, leftMs));
      await worker.heartbeat();
    }
  };

  /** Ends the worker's session. The server ends it a moment after its connection, and with it the lock of the number. */
  const loseSession = async (worker: Worker, number: number | null | undefined) => {
    await worker.loseSession();
    await waitUntil(async () => !(await isLocked(number)), { describe: 'the lock to end' });
  };

  const untilProcessed = (count: number) =>
    waitUntil(
      async () => {
        const rows = await database().query(
          sql`select from notification_status where state = 'processed' limit ${count + 1}`,
        );
        return rows.length === count;
      },
      { describe: `${count} recorded outcomes` },
    );

  test('after the database was away, attempts stay with their workers, however long they take', async (context) => {
    const { clock, worker, other, before } = await startTwo(context);
    await Promise.all([loseSession(worker, before[0]), other.loseSession()]);
    await other.step();
    await other.heartbeat();
    await pass(clock, RESUME_MS - 1, other);
    await worker.step();
    for (const ms of [1, GRACE_MS, GRACE_MS]) {
      clock.advance(ms);
      await other.heartbeat();
    }
    await worker.heartbeat();
    assert.deepEqual(await owners(), before);
    worker.end('success', 'https://1.example/hook');
    await untilProcessed(AT_ONCE);
    await waitUntil(
      async () => {
        await worker.heartbeat();
        return (await owners()).includes(null);
      },
      { describe: 'the lane of these attempts to be free' },
    );
    await other.step();
    assert.deepEqual(await other.underWay(LEFT), Array(LEFT).fill('https://1.example/hook'));
    worker.end('success');
    await untilProcessed(2 * AT_ONCE);
    await Promise.all([worker.stop(), other.stop()]);
  });

  test('a worker that loses only its session keeps its lanes until it has been without one for a second', async (context) => {
    const { clock, worker, other, before } = await startTwo(context);
    clock.advance(RESUME_MS);
    await other.heartbeat();
    await loseSession(worker, before[0]);
    await other.heartbeat();
    clock.advance(RESUME_MS);
    await other.heartbeat();
    assert.deepEqual(await owners(), before, 'while the database stands still');
    await pass(clock, GRACE_MS - PAUSE_MS - 1, other);
    assert.deepEqual(await owners(), before);
    await worker.step();
    await pass(clock, GRACE_MS, other);
    assert.deepEqual(await owners(), before, 'after it has a new session');
    await loseSession(worker, before[0]);
    await other.heartbeat();
    await pass(clock, GRACE_MS, other);
    assert.deepEqual(await owners(), [null, null]);
    await Promise.all([worker.stop(), other.stop()]);
  });

  test('after a database that stood still for longer than a lease, workers renew their leases before others take the lanes', async (context) => {
    const { clock, worker, other, before } = await startTwo(context);
    for (const one of [worker, other]) await one.heartbeat();
    clock.advance(LONGER_THAN_A_LEASE_MS);
    await other.heartbeat();
    clock.advance(2 * RESUME_MS);
    await other.heartbeat();
    assert.deepEqual(await owners(), before, 'while the database stands still again');
    await pass(clock, RESUME_MS - PAUSE_MS - 1, other);
    for (const one of [worker, other]) await one.heartbeat();
    await pass(clock, RESUME_MS, other);
    assert.deepEqual(await owners(), before);
    clock.advance(LONGER_THAN_A_LEASE_MS);
    await other.heartbeat();
    await pass(clock, RESUME_MS, other);
    assert.deepEqual(await owners(), [null, null], 'of a worker that hangs');
    await Promise.all([worker.stop(), other.stop()]);
  });

  test('a worker that lost its session renews the leases of attempts that are still under way', async (context) => {
    const { clock, worker, other, before } = await startTwo(context);
    await loseSession(worker, before[0]);
    await worker.step();
    clock.advance(LONGER_THAN_A_RENEWAL_MS);
    await worker.heartbeat();
    const leases = (await listLanes(database())).map(
      (lane) => Number(lane.lease_until) - Number(clock.now()),
    );
    assert.deepEqual(leases, [LEASE_MS, LEASE_MS]);
    await Promise.all([worker.stop(), other.stop()]);
  });

  test('a worker that loses its session while it stops keeps its lanes until its attempts have ended', async (context) => {
    const { clock, worker, other, before } = await startTwo(context);
    clock.advance(RESUME_MS);
    await other.heartbeat();
    const stopped = worker.drain();
    await worker.loseSession({ mayReconnect: true });
    const isLockedAgain = async () => {
      clock.advance(HEARTBEAT_MS);
      return isLocked(before[0]);
    };
    await waitUntil(isLockedAgain, { describe: 'the former number to be locked again' });
    for (const _ of [1, 2, 3]) {
      await other.heartbeat();
      clock.advance(GRACE_MS);
    }
    assert.deepEqual(await owners(), before);
    worker.end('success');
    await stopped;
    await untilProcessed(2 * AT_ONCE);
    await other.stop();
  });

  test('a worker that loses its session locks its number again although its step waits, as for a connection', async (context) => {
    const { worker, other, before } = await startTwo(context);
    await worker.loseSession({ mayReconnect: true });
    await waitUntil(() => isLocked(before[0]), { describe: 'the former number to be locked again' });
    await Promise.all([worker.stop(), other.stop()]);
  });

  test('a lane whose lease could not be renewed is freed when its session has ended and its outcomes are recorded', async (context) => {
    const { clock, startOne } = await start(context, 1);
    const worker = await startOne();
    await worker.step();
    await worker.underWay(AT_ONCE);
    clock.advance(LONGER_THAN_A_RENEWAL_MS);
    await database().transaction(async (tx) => {
      await tx.query(sql`select from lane for update`);
      await worker.heartbeat();
    });
    await loseSession(worker, (await owners())[0]);
    worker.end('success');
    await untilProcessed(AT_ONCE);
    await worker.idle();
    await worker.step();
    await waitUntil(
      async () => {
        await worker.heartbeat();
        return (await owners())[0] === null;
      },
      { describe: 'the lane to be free' },
    );
    await worker.stop();
  });

  test('a worker whose lock is gone without its notice abandons its session, and keeps its lanes', async (context) => {
    const { clock, worker } = await start(context, 1);
    await worker.step();
    await worker.underWay(AT_ONCE);
    const before = await owners();
    await worker.loseLocks();
    await worker.heartbeat();
    assert.deepEqual(await owners(), before);
    await worker.step();
    await pass(clock, RESUME_MS, worker);
    assert.deepEqual(await owners(), before);
    worker.end('success');
    await untilProcessed(AT_ONCE);
    await worker.stop();
  });

  test('a worker that starts beside others frees no lanes at once, and does so sooner where it is alone', async (context) => {
    const { clock, worker, startOne } = await start(context, 2);
    const second = await startOne();
    for (const one of [worker, second]) await one.step();
    await worker.underWay(2 * AT_ONCE);
    const before = await owners();
    await loseSession(worker, before[0]);
    const newcomer = await startOne();
    await newcomer.step();
    await newcomer.heartbeat();
    await pass(clock, RETRY_MS, newcomer);
    assert.deepEqual(await owners(), before);
    await second.loseSession();
    // The server ends a session a moment after its connection.
    const areFree = async () => {
      await newcomer.heartbeat();
      return (await owners()).every((owner) => owner === null);
    };
    await waitUntil(areFree, { describe: 'the lanes of both to be free' });
    await newcomer.step();
    assert.equal((await newcomer.underWay(2 * AT_ONCE)).length, 2 * AT_ONCE);
    await Promise.all([worker.stop(), second.stop(), newcomer.stop()]);
  });

  test('a worker that starts while all others are without a session leaves them the time to get one', async (context) => {
    const { clock, worker, startOne } = await start(context, 1);
    await worker.step();
    await worker.underWay(AT_ONCE);
    const before = await owners();
    await loseSession(worker, before[0]);
    const newcomer = await startOne();
    await newcomer.step();
    await newcomer.heartbeat();
    await pass(clock, RETRY_MS - 1, newcomer);
    await worker.step();
    await pass(clock, RESUME_MS, newcomer);
    assert.deepEqual(await owners(), before);
    await Promise.all([worker.stop(), newcomer.stop()]);
  });
});
