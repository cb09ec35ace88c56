/**
 * Delivery workers whose attempts end when the test decides.
 */
import type { TestContext } from 'node:test';
import { onAbort } from '../../src/core/abort.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createDeliverer } from '../../src/delivery/deliver.ts';
import type { SendOutcome } from '../../src/delivery/send.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database, Session } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { WORKER_LOCK_SPACE } from '../../src/store/delivery/workers.ts';
import { addressOf, headerOf, mine, transferOf, watchAddress } from './chain-story.ts';
import type { TestClock } from './clock.ts';
import type { TestDatabase } from './database.ts';
import { waitUntil } from './wait.ts';

/** Attempts that a lane has under way at first, and notifications that are left then. */
export const AT_ONCE = 4;
export const LEFT = 4;
const MINUTE_MS = 60_000;
/** How soon work on a locked lane is tried again. */
const LOCKED_MS = 5;

/** Creates watchers with due notifications. */
export async function pay(database: Database, clock: TestClock, watchers: number): Promise<void> {
  for (let watcherId = 1; watcherId <= watchers; watcherId += 1) {
    const address = addressOf(watcherId);
    await watchAddress(database, { watcherId, address, url: `https://${watcherId}.example/hook` });
    const payments = Array.from({ length: AT_ONCE + LEFT }, () => transferOf({ receiver: address }));
    // A millisecond apart, because the lane that waits longest is leased first.
    await mine(database, headerOf(watcherId), payments, { now: clock.now() });
    clock.advance(1);
  }
}

/** A deliverer whose attempts end when the test decides. Without a given session, it takes no real locks. */
export function startWorker(
  database: Database,
  {
    clock,
    lanesMax,
    session,
  }: { clock: TestClock; lanesMax?: number | undefined; session?(): Promise<Session> },
) {
  const lost = new AbortController();
  const underWay: { url: string; end(outcome: SendOutcome): void }[] = [];
  const unlocked: Session = {
    tryLock: async () => true,
    unlock: async () => {},
    listen: async () => {},
    abandon() {},
    lost: lost.signal,
    close: async () => {},
  };
  const metrics = createMetrics('test');
  const settled: number[] = [];
  const deliverer = createDeliverer({
    onSettled: (watcherIds) => settled.push(...watcherIds),
    ...{ database, clock, metrics, log: silentLog(), keyRing: deriveKeyRing(Buffer.alloc(32)) },
    nativeSymbol: 'ETH',
    retryMinutes: [1],
    ...(lanesMax !== undefined && { lanesMax }),
    session: session ?? (async () => unlocked),
    send({ url }) {
      const { promise, resolve } = Promise.withResolvers<SendOutcome>();
      underWay.push({ url, end: resolve });
      return promise.then((outcome) => ({
        outcome,
        status: 200,
        durationMs: 1,
        requestCount: 1,
        mayHaveArrived: true,
        responseText: undefined,
      }));
    },
  });
  const never = new AbortController().signal;
  /** Ends all attempts under way, or only those to this URL. */
  const end = (outcome: SendOutcome, url?: string) => {
    for (const attempt of underWay.splice(0))
      if (url === undefined || attempt.url === url) attempt.end(outcome);
      else underWay.push(attempt);
  };
  return {
    step: () => deliverer.step(never),
    heartbeat: () => deliverer.heartbeat(never),
    inFlight: deliverer.inFlight,
    settled,
    end,
    loseSession: () => lost.abort(),
    /** Waits until `count` attempts are under way, and returns their URLs. */
    async underWay(count: number) {
      const areThere = () => {
        if (count > 8 * AT_ONCE) clock.advance(50);
        return underWay.length >= count;
      };
      await waitUntil(areThere, { describe: `${count} attempts under way` });
      return underWay.map(({ url }) => url);
    },
    async idle() {
      const lanes = async () =>
        /^chainbell_webhook_delivery_queues (\d+)$/m.exec(await metrics.registry.metrics())?.[1];
      await waitUntil(async () => (await lanes()) === '0', { describe: 'all lanes to be given back' });
    },
    /** Starts no further attempt and waits for those under way. */
    drain: () => deliverer.stop(MINUTE_MS),
    /** Ends the attempts with success. Time passes, because an outcome of a locked lane is recorded a moment later. */
    async stop() {
      let hasStopped = false;
      const stopped = deliverer.stop(MINUTE_MS).finally(() => {
        hasStopped = true;
      });
      end('success');
      const hasEnded = () => {
        if (!hasStopped) clock.advance(LOCKED_MS);
        return hasStopped;
      };
      await waitUntil(hasEnded, { describe: 'the worker to stop' });
      await stopped;
    },
  };
}

/** The owner of each lane. */
export async function laneOwners(database: Database): Promise<(number | null)[]> {
  const rows = await database.query<{ owner: number | null }>(sql`select owner from lane order by id`);
  return rows.map((row) => row.owner);
}

export type Worker = Awaited<ReturnType<typeof startLiving>>;

/** A worker with a session, which lives until the test ends. */
export async function startLiving(
  context: TestContext,
  {
    place,
    database,
    clock,
    lanesMax,
  }: { place: TestDatabase; database: Database; clock: TestClock; lanesMax?: number },
) {
  let session = await database.session();
  let opening = Promise.resolve(session);
  let isCutOff = false;
  context.after(async () => (await opening).close());
  const worker = startWorker(await place.open(), {
    ...{ clock, lanesMax },
    async session() {
      if (isCutOff) throw new Fault('unavailable', 'database: no connection');
      if (session.lost.aborted) {
        opening = database.session();
        session = await opening;
      }
      return session;
    },
  });
  return {
    ...worker,
    step() {
      isCutOff = false;
      return worker.step();
    },
    /** Ends the session's locks, as a server does that loses it without a word. */
    async loseLocks() {
      for (const owner of await laneOwners(database))
        if (owner !== null) await session.unlock(WORKER_LOCK_SPACE, owner);
    },
    /** Ends the session's connection, as a crash of the database does. By default there is no other one until the next step. */
    async loseSession({ mayReconnect = false } = {}) {
      isCutOff = !mayReconnect;
      const { promise, resolve } = Promise.withResolvers<void>();
      onAbort(session.lost, resolve);
      if (session.lost.aborted) resolve();
      await session.close();
      await promise;
    },
  };
}
