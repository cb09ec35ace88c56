/**
 * Retries of the lanes that a watcher with slices has for one receiver, without a database.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { never } from '../../src/core/abort.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createFairSlots, type FairLimits, type FairSlots } from '../../src/delivery/fair.ts';
import { type LaneRun, runLane } from '../../src/delivery/lane.ts';
import type { Due } from '../../src/delivery/reader.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { createTestClock } from '../kit/clock.ts';
import { dueOf } from '../kit/due.ts';
import { waitUntil } from '../kit/wait.ts';

/** A receiver begins with four attempts at once, one of which is kept for first attempts. */
const RETRIES_AT_ONCE = 3;

/** Lanes of one receiver on a test clock. Each attempt hangs until the test ends it, and then fails. */
function startLanes(change = (fair: FairSlots) => fair, limits?: FairLimits) {
  const clock = createTestClock();
  const fair = change(createFairSlots({ clock, ...(limits && { limits }), onCredit: () => {} }));
  const due = new Map<number, Due[]>();
  const attempts: { laneId: number; retryCount: number; fail(): void }[] = [];

  async function send(laneId: number, id: number) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { retryCount = 0 } =
      due.get(laneId)?.find(({ notification }) => notification.id === id)?.notification ?? {};
    attempts.push({ laneId, retryCount, fail: resolve });
    await promise;
    due.set(laneId, due.get(laneId)?.filter(({ notification }) => notification.id !== id) ?? []);
    const body = { status: undefined, requestCount: 1, mayHaveArrived: true, responseText: undefined };
    return { outcome: 'network' as const, durationMs: 1, ...body };
  }

  return {
    clock,
    attempts,
    /** With this many retries and first attempts. */
    begin(laneId: number, retries: number, firsts = 0, epoch = 1): LaneRun {
      const ids = Array.from({ length: retries + firsts }, (_, index) => laneId * 100 + index);
      due.set(
        laneId,
        ids.map((id, index) => dueOf({ laneId, id, retryCount: index < retries ? 1 : 0 })),
      );
      const lane = {
        id: laneId,
        watcherId: 7,
        shardId: laneId,
        origin: 'https://hooks.example.com',
        epoch,
      };
      return runLane(lane, {
        ...{ clock, fair, log: silentLog(), metrics: createMetrics('test'), nativeSymbol: 'ETH' },
        database: {} as never,
        keyRing: deriveKeyRing(Buffer.alloc(32)),
        retryMinutes: [1],
        send: (message) => send(laneId, Number(JSON.parse(message.body).id)),
        settler: { keepsUp: () => limits === undefined, submit: async () => 'settled' },
        reader: {
          async read({ exclude, limit }) {
            const rest = (due.get(laneId) ?? []).filter(
              ({ notification }) => !exclude.includes(notification.id),
            );
            const isRetry = ({ notification }: Due) => notification.retryCount > 0;
            const firsts = rest.filter((one) => !isRetry(one)).slice(0, limit);
            return { due: [...firsts, ...rest.filter(isRetry).slice(0, limit)], readMs: clock.steadyMs() };
          },
        },
        noteWait: () => {},
        release: async () => {},
        stopping: never,
        killed: never,
      });
    },
    async settle(): Promise<void> {
      for (let turn = 0; turn < 10; turn += 1) await nextTurn();
    },
  };
}

test("a lane whose retries had to wait for another lane's starts one as soon as one of those ends, and the lanes take turns", async () => {
  const lanes = startLanes();
  const first = lanes.begin(1, 9);
  await waitUntil(() => lanes.attempts.length === RETRIES_AT_ONCE, {
    describe: 'the retries of the first lane',
  });
  const second = lanes.begin(2, 2);
  await lanes.settle();
  assert.equal(lanes.attempts.length, RETRIES_AT_ONCE, 'one place is left to first attempts');
  // The end of each attempt lets the next one begin.
  for (const attempt of lanes.attempts) {
    attempt.fail();
    await lanes.settle();
  }
  assert.equal(lanes.attempts.map(({ laneId }) => laneId).join(''), '11112121111');
  await Promise.all([first.done, second.done]);
});

test('a lane that may make one attempt at a time sends first attempts and retries in turn', async () => {
  // An outcome is recorded before the next attempt starts, as between the turns of many watchers.
  const one = { unproven: 1, proven: 1, hung: 1, open: 1, perOrigin: 1 };
  const lanes = startLanes((fair) => fair, one);
  const lane = lanes.begin(1, 3, 30);
  for (let count = 1; count <= 10; count++) {
    await waitUntil(() => lanes.attempts.length === count, { describe: `attempt ${count}` });
    lanes.attempts.at(-1)?.fail();
    await lanes.settle();
  }
  assert.equal(lanes.attempts.slice(0, 6).filter(({ retryCount }) => retryCount > 0).length, 3);
  for (let count = 11; count <= 33; count++) {
    await waitUntil(() => lanes.attempts.length === count, { describe: `attempt ${count}` });
    lanes.attempts.at(-1)?.fail();
  }
  await lane.done;
});

test('successive leases of one attempt each make a retry and a first attempt in turn', async () => {
  const one = { unproven: 1, proven: 1, hung: 1, open: 1, perOrigin: 1 };
  const lanes = startLanes((fair) => fair, one);
  for (let epoch = 1; epoch <= 4; epoch++) {
    const lane = lanes.begin(1, 9, 9, epoch);
    await waitUntil(() => lanes.attempts.length === epoch, { describe: `attempt ${epoch}` });
    lane.giveWay();
    lanes.attempts.at(-1)?.fail();
    await lane.done;
  }
  assert.equal(lanes.attempts.map(({ retryCount }) => retryCount).join(''), '1010');
});

test('a poll asks again for retries that could not start', async () => {
  let mayRetry = false;
  const lanes = startLanes((fair) => ({
    ...fair,
    join: (lane, take) => ({ ...fair.join(lane, take), mayRetry: () => mayRetry }),
  }));
  const lane = lanes.begin(1, 1);
  await lanes.settle();
  mayRetry = true;
  await lanes.settle();
  assert.equal(lanes.attempts.length, 0);
  lane.poll();
  await lanes.settle();
  assert.equal(lanes.attempts.length, 1);
});
