/**
 * How many rows a lane reads ahead, and how long it uses them, without a database.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createFairSlots } from '../../src/delivery/fair.ts';
import { runLane } from '../../src/delivery/lane.ts';
import { aheadOf, noteAhead } from '../../src/delivery/receiver.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { createTestClock } from '../kit/clock.ts';
import { dueOf } from '../kit/due.ts';

type Story = {
  count: number;
  /** 1: all of them are retries. */
  retryCount?: number;
  /** Called while a read waits for the database, and while a webhook is sent. */
  whileReading?(advance: (ms: number) => void, reads: number): void;
  whileSending?(advance: (ms: number) => void, sent: number): void;
};

/** Works a lane with due first attempts until all are sent. Returns how many rows each read asked for, and the waits that were noted. */
async function work({ count, retryCount = 0, whileReading, whileSending }: Story) {
  const clock = createTestClock();
  const stopping = new AbortController();
  let left = Array.from({ length: count }, (_, index) => dueOf({ laneId: 1, id: index, retryCount }));
  const limits: number[] = [];
  const waits: string[] = [];
  let sent = 0;
  const run = runLane(
    { id: 1, watcherId: 7, shardId: 7, origin: 'https://hooks.example.com', epoch: 1 },
    {
      ...{ clock, log: silentLog(), metrics: createMetrics('test'), nativeSymbol: 'ETH', retryMinutes: [1] },
      fair: createFairSlots({ clock, onCredit: () => {} }),
      database: {} as never,
      keyRing: deriveKeyRing(Buffer.alloc(32)),
      async send() {
        sent += 1;
        whileSending?.(clock.advance, sent);
        if (sent === count) stopping.abort();
        const body = { status: 200, requestCount: 1, mayHaveArrived: true, responseText: undefined };
        return { outcome: 'success' as const, durationMs: 100, ...body };
      },
      settler: {
        keepsUp: () => true,
        async submit({ notificationId }) {
          left = left.filter(({ notification }) => notification.id !== notificationId);
          return 'settled';
        },
      },
      reader: {
        async read({ exclude, limit }) {
          limits.push(limit);
          const readMs = clock.steadyMs();
          const due = left.filter(({ notification }) => !exclude.includes(notification.id)).slice(0, limit);
          whileReading?.(clock.advance, limits.length);
          return { due, readMs };
        },
      },
      noteWait: (_, error) => waits.push(error.message),
      release: async () => {},
      stopping: stopping.signal,
      killed: new AbortController().signal,
    },
  );
  await run.done;
  assert.equal(sent, count);
  return { limits, waits };
}

test('what took over a second to read is sent', async () => {
  const { limits, waits } = await work({ count: 2, whileReading: (advance) => advance(1_500) });
  assert.deepEqual([limits.length, waits], [1, []]);
});

test('what took over four seconds to read is read again, and the log says so', async () => {
  const whileReading = (advance: (ms: number) => void, reads: number) => advance(reads === 1 ? 4_001 : 1);
  const { limits, waits } = await work({ count: 2, whileReading });
  assert.equal(limits.length, 2);
  assert.deepEqual(waits, ['database: a read took 4001 ms, so it is repeated']);
});

for (const [kind, retryCount] of [
  ['first attempts', 0],
  ['retries', 1],
] as const)
  test(`a lane whose ${kind} become too old before they are sent reads fewer, and more again once it sends all in time`, async () => {
    // While other receivers are served too, ten rows a second.
    const whileSending = (advance: (ms: number) => void, sent: number) => sent < 200 && advance(100);
    const { limits } = await work({ count: 500, retryCount, whileSending });
    assert.ok(Math.max(...limits.slice(5, 15)) <= 16, String(limits));
    assert.equal(limits.at(-1), 64, String(limits));
  });

test('the rows to read ahead stay between two and twice the concurrency', () => {
  const pace = { limit: 64, isProven: true, averageMs: 1, aheadMax: 128 };
  for (let count = 0; count < 10; count += 1) noteAhead(pace, 'late');
  assert.equal(aheadOf(pace), 2);
  for (let count = 0; count < 10; count += 1) noteAhead(pace, 'used up');
  assert.equal(aheadOf(pace), 128);
});
