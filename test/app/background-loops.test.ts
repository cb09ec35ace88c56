import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLoops } from '../../src/app/background-loops.ts';
import { LASTING_MS } from '../../src/app/work-watch.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createTestClock } from '../kit/clock.ts';
import { waitUntil } from '../kit/wait.ts';

test('a loop that blocks or webhooks depend on is listed once its steps have failed for five minutes, until one succeeds', async () => {
  const clock = createTestClock();
  const loops = createLoops({ clock, log: silentLog(), metrics: createMetrics('1') });
  let isLocked = true;
  let steps = 0;
  loops.run(
    'delivery',
    async () => {
      steps += 1;
      if (isLocked) throw new Fault('unavailable', 'database: a lock');
      return 'idle';
    },
    { idleMs: () => 1_000 },
  );
  // Only failures count here: a standby may wait for long.
  loops.run(
    'standby',
    () => new Promise((resolve) => loops.signal.addEventListener('abort', () => resolve('idle'))),
    {
      idleMs: () => 1_000,
    },
  );
  const next = async (ms: number) => {
    const before = steps;
    await waitUntil(() => clock.waits().length > 0);
    clock.advance(ms);
    await waitUntil(() => steps > before);
  };
  await waitUntil(() => steps > 0);
  const since = clock.now();
  await next(LASTING_MS - 1);
  assert.deepEqual(loops.failing(), []);
  await next(60_000);
  assert.deepEqual(loops.failing(), [{ work: 'delivery', since, isBug: false }]);
  isLocked = false;
  await next(60_000);
  await waitUntil(() => loops.failing().length === 0);
  await loops.end();
});

test('the heartbeat of a process goes on until its attempts have ended', async () => {
  const clock = createTestClock();
  const loops = createLoops({ clock, log: silentLog(), metrics: createMetrics('1') });
  let beats = 0;
  loops.runToTheEnd(
    'heartbeat',
    async () => {
      beats += 1;
      return 'idle';
    },
    { idleMs: () => 1_000 },
  );
  const attempts = Promise.withResolvers<void>();
  const commit = Promise.withResolvers<'idle'>();
  loops.run('follower', () => commit.promise, { idleMs: () => 1_000 });
  const beat = async () => {
    const before = beats;
    await waitUntil(() => clock.waits().length > 0);
    clock.advance(1_000);
    await waitUntil(() => beats > before);
  };
  let isStopped = false;
  const stopping = loops
    .end(() => attempts.promise)
    .then(() => {
      isStopped = true;
    });
  await beat();
  attempts.resolve();
  await beat();
  assert.deepEqual([isStopped, loops.running()], [false, ['follower']]);
  commit.resolve('idle');
  await stopping;
  assert.deepEqual([clock.waits(), loops.running()], [[], []]);
});
