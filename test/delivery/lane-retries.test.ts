/**
 * Retries of the lanes that a watcher with slices has for one receiver, without a database.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { never } from '../../src/core/abort.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createFairSlots, type FairSlots } from '../../src/delivery/fair.ts';
import { type LaneRun, runLane } from '../../src/delivery/lane.ts';
import type { Due } from '../../src/delivery/reader.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { createTestClock } from '../kit/clock.ts';
import { dueOf } from '../kit/due.ts';
import { waitUntil } from '../kit/wait.ts';

/** A receiver begins with four attempts at once, one of which is kept for first attempts. */
const RETRIES_AT_ONCE = 3;

/** Lanes of one receiver on a test clock. Each attempt hangs until the test ends it, and then fails. */
function startLanes(change = (fair: FairSlots) => fair) {
  const clock = createTestClock();
  const fair = change(createFairSlots({ clock, onCredit: () => {} }));
  const due = new Map<number, Due[]>();
  const attempts: { laneId: number; fail(): void }[] = [];

  async function send(laneId: number, id: number) {
    const { promise, resolve } = Promise.withResolvers<void>();
    attempts.push({ laneId, fail: resolve });
    await promise;
    due.set(laneId, due.get(laneId)?.filter(({ notification }) => notification.id !== id) ?? []);
    const body = { status: undefined, requestCount: 1, mayHaveArrived: true, responseText: undefined };
    return { outcome: 'network' as const, durationMs: 1, ...body };
  }

  return {
    clock,
    attempts,
    begin(laneId: number, count: number): LaneRun {
      const ids = Array.from({ length: count }, (_, index) => laneId * 100 + index);
      due.set(
        laneId,
        ids.map((id) => dueOf({ laneId, id, retryCount: 1 })),
      );
      const lane = {
        id: laneId,
        watcherId: 7,
        shardId: laneId,
        origin: 'https://hooks.example.com',
        epoch: 1,
      };
      return runLane(lane, {
        ...{ clock, fair, log: silentLog(), metrics: createMetrics('test'), nativeSymbol: 'ETH' },
        database: {} as never,
        keyRing: deriveKeyRing(Buffer.alloc(32)),
        retryMinutes: [1],
        send: (message) => send(laneId, Number(JSON.parse(message.body).id)),
        settler: { keepsUp: () => true, submit: async () => 'settled' },
        reader: {
          read: async ({ exclude, limit }) => ({
            due: (due.get(laneId) ?? [])
              .filter(({ notification }) => !exclude.includes(notification.id))
              .slice(0, limit),
            readMs: clock.steadyMs(),
          }),
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
