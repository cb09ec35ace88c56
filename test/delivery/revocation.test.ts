import assert from 'node:assert/strict';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createDeliverer } from '../../src/delivery/deliver.ts';
import type { Resolver } from '../../src/delivery/resolver.ts';
import { CONNECTIONS_PER_ORIGIN_MAX } from '../../src/delivery/send.ts';
import { createTestSender } from '../../src/delivery/test-webhook.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database } from '../../src/store/db/db.ts';
import { revokeKey } from '../../src/store/watchers/api-keys.ts';
import { addressOf, headerOf, listStates, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { type Answer, startReceiver } from '../kit/receiver.ts';
import { openSender } from '../kit/sender.ts';
import { waitUntil } from '../kit/wait.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32));
const never = new AbortController().signal;
/** The attempts that a lane has under way at first. */
const AT_ONCE = 4;
/** A lane, and the settler, wait this long before they query an unavailable database again. */
const DATABASE_WAIT_MS = 250;
/** A webhook that is sent this long after the revocation must not carry the key. */
const EFFECTIVE_MS = 5_000;
const LOOPBACK: Awaited<ReturnType<Resolver>> = [{ address: '127.0.0.1', family: 4 }];

/** The deliverer and its sender as the service builds them, with a separate clock and a receiver that answers on demand. */
async function startStory(
  database: Database,
  { resolve = async () => LOOPBACK }: { resolve?: Resolver } = {},
) {
  await using parts = new AsyncDisposableStack();
  const clock = createTestClock();
  const answering = Promise.withResolvers<Answer>();
  const receiver = parts.use(await startReceiver({ answer: () => answering.promise }));
  const sender = parts.use(openSender([receiver], { resolve }));
  let isDatabaseAway = false;
  const options = {
    ...{ clock, log: silentLog(), metrics: createMetrics('test'), keyRing, nativeSymbol: 'ETH' },
    database: {
      ...database,
      query<Row>(statement: Parameters<Database['query']>[0]) {
        if (isDatabaseAway) throw new Fault('unavailable', 'database: away');
        return database.query<Row>(statement);
      },
    },
    send: sender.send,
  };
  const session = {
    tryLock: async () => true,
    unlock: async () => {},
    listen: async () => {},
    abandon() {},
    lost: never,
    close: async () => {},
  };
  const deliverer = createDeliverer({ ...options, retryMinutes: [1], session: async () => session });
  parts.defer(async () => {
    isDatabaseAway = false;
    answering.resolve({});
    const stopped = deliverer.stop();
    clock.advance(EFFECTIVE_MS);
    await stopped;
  });
  const url = `http://receiver.example.com:${receiver.port}/hook`;
  let blocks = 0;
  const running = parts.move();
  return {
    clock,
    receiver,
    step: () => deliverer.step(never),
    sendTest: createTestSender(options),
    answer: () => answering.resolve({}),
    setDatabaseAway(isAway: boolean) {
      isDatabaseAway = isAway;
    },
    /** Creates a watcher with a key and with as many due notifications as `payments`. */
    async join(name: string, payments: number) {
      const { watcherId, keyId, key } = await issueKey({ database, keyRing }, name, clock.now());
      const address = addressOf(watcherId);
      const record = await watchAddress(database, { watcherId, address, url });
      blocks += 1;
      const transfers = Array.from({ length: payments }, () => transferOf({ receiver: address }));
      await mine(database, headerOf(blocks), transfers, { now: clock.now() });
      // The lane of the first watcher waits longest and is leased first.
      clock.advance(1);
      return { watcherId, record, key, revoke: () => revokeKey(database, keyId, clock.now()) };
    },
    /** The requests that contain this text anywhere. */
    carrying: (text: string) =>
      receiver.requests.filter(({ headers, body }) => `${JSON.stringify(headers)}${body}`.includes(text)),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** A name server that answers on demand. */
function startNameServer() {
  const answering = Promise.withResolvers<typeof LOOPBACK>();
  let asked = 0;
  return {
    resolve: () => {
      asked += 1;
      return answering.promise;
    },
    asked: () => asked,
    answer: () => answering.resolve(LOOPBACK),
  };
}

const databaseWaits = ({ clock }: { clock: TestClock }) =>
  clock.waits().filter((ms) => ms === DATABASE_WAIT_MS).length;

onSampledDatabase(import.meta.url, ({ database }) => {
  const waitForAll = () =>
    waitUntil(async () => (await listStates(database())).every((state) => state === 'processed'), {
      describe: 'everything to be delivered',
    });

  test('a webhook that waits in its lane is sent without a key revoked meanwhile', async () => {
    await using story = await startStory(database());
    const acme = await story.join('acme', AT_ONCE + 4);
    await story.step();
    await story.receiver.waitFor(AT_ONCE);
    await acme.revoke();
    story.clock.advance(EFFECTIVE_MS);
    story.answer();
    await waitForAll();
    assert.equal(story.carrying(acme.key).length, AT_ONCE);
    assert.equal(story.receiver.requests.length, AT_ONCE + 4);
  });

  test('a webhook that waits for a busy connection is sent without a key revoked meanwhile', async () => {
    await using story = await startStory(database());
    const others = CONNECTIONS_PER_ORIGIN_MAX;
    for (let count = 1; count <= others; count += 1) await story.join(`other ${count}`, 1);
    await story.step();
    await story.receiver.waitFor(others);
    const acme = await story.join('acme', AT_ONCE);
    await story.step();
    await acme.revoke();
    story.clock.advance(EFFECTIVE_MS);
    story.answer();
    await waitForAll();
    assert.deepEqual(story.carrying(acme.key), []);
    assert.equal(story.receiver.requests.length, CONNECTIONS_PER_ORIGIN_MAX + AT_ONCE);
  });

  test('a webhook whose connection opens late is sent without a key revoked meanwhile', async () => {
    const names = startNameServer();
    await using story = await startStory(database(), names);
    story.answer();
    const acme = await story.join('acme', 3);
    await story.step();
    const testing = story.sendTest(acme.record, never);
    await waitUntil(() => names.asked() === 4);
    await acme.revoke();
    story.clock.advance(EFFECTIVE_MS);
    names.answer();
    await waitForAll();
    assert.equal((await testing).outcome, 'success');
    assert.deepEqual(story.carrying(acme.key), []);
    assert.equal(story.receiver.requests.length, 4);
    assert.equal(story.receiver.connectionCount(), 4);
  });

  test("a webhook whose connection opens late while the database is down is not sent, and doesn't count as an attempt", async () => {
    const names = startNameServer();
    await using story = await startStory(database(), names);
    story.answer();
    const acme = await story.join('acme', 1);
    await story.step();
    await waitUntil(() => names.asked() === 1);
    story.setDatabaseAway(true);
    await acme.revoke();
    story.clock.advance(EFFECTIVE_MS);
    names.answer();
    await waitUntil(() => databaseWaits(story) === 1, { describe: 'the lane to wait' });
    assert.deepEqual(story.receiver.requests, []);
    story.setDatabaseAway(false);
    story.clock.advance(DATABASE_WAIT_MS);
    await waitForAll();
    assert.equal(story.receiver.requests.length, 1);
    assert.deepEqual(story.carrying(acme.key), []);
  });

  test('rows read before the database went down are not sent, because the key may be revoked', async () => {
    await using story = await startStory(database());
    const acme = await story.join('acme', AT_ONCE + 4);
    await story.step();
    await story.receiver.waitFor(AT_ONCE);
    story.setDatabaseAway(true);
    await acme.revoke();
    story.clock.advance(EFFECTIVE_MS);
    story.answer();
    await waitUntil(() => databaseWaits(story) === 2, { describe: 'lane and settler to wait' });
    assert.equal(story.receiver.requests.length, AT_ONCE);
    story.setDatabaseAway(false);
    story.clock.advance(DATABASE_WAIT_MS);
    await waitForAll();
    assert.equal(story.carrying(acme.key).length, AT_ONCE);
  });
});
