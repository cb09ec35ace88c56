import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import { createWake, type LoopOptions, runLoop, type Step, type StepOutcome } from '../../src/core/loop.ts';
import { createTestClock } from '../kit/clock.ts';
import { waitUntil } from '../kit/wait.ts';

/** A loop over scripted outcomes, on a separate clock. After the last outcome it is idle. */
function startLoop(script: (StepOutcome | Error)[], options: Partial<LoopOptions> = {}) {
  const clock = createTestClock();
  const stopping = new AbortController();
  const faults: [string, number][] = [];
  let steps = 0;
  const step: Step = async () => {
    const outcome = script[steps] ?? 'idle';
    steps += 1;
    if (outcome instanceof Error) throw outcome;
    return outcome;
  };
  const done = runLoop(step, {
    name: 'story',
    clock,
    signal: stopping.signal,
    idleMs: () => 1_000,
    retryMsMax: 300,
    onFault: (fault, retryMs) => faults.push([fault.message, retryMs]),
    ...options,
  });
  return { clock, stopping, faults, done, steps: () => steps };
}

const busy = () => new Fault('unavailable', 'busy');

test('a step that worked is repeated at once, and an idle one after the idle time', async () => {
  const loop = startLoop(['worked', 'worked', 'idle', 'idle']);
  await waitUntil(() => loop.steps() === 3 && loop.clock.waits().length === 1);
  assert.deepEqual(loop.clock.waits(), [1_000]);
  loop.clock.advance(999);
  assert.equal(loop.clock.waits().length, 1);
  loop.clock.advance(1);
  await waitUntil(() => loop.steps() === 4);
  loop.stopping.abort();
  await loop.done;
});

test('after Faults the wait doubles up to its maximum, and a success resets it', async () => {
  const loop = startLoop([busy(), busy(), busy(), busy(), busy(), 'worked', busy()]);
  for (const [count, waitMs] of [50, 100, 200, 300, 300, 50].entries()) {
    await waitUntil(() => loop.faults.length === count + 1 && loop.clock.waits().length === 1);
    assert.deepEqual(loop.faults.at(-1), ['busy', waitMs]);
    assert.deepEqual(loop.clock.waits(), [waitMs]);
    loop.clock.advance(waitMs);
  }
  loop.stopping.abort();
  await loop.done;
});

test('the wait also doubles where only the idle time cannot be found', async () => {
  const loop = startLoop([], {
    idleMs: () => {
      throw busy();
    },
  });
  for (const waitMs of [50, 100, 200]) {
    await waitUntil(() => loop.clock.waits().length === 1);
    assert.deepEqual(loop.clock.waits(), [waitMs]);
    loop.clock.advance(waitMs);
  }
  loop.stopping.abort();
  await loop.done;
});

test('where bugs are reported, the loop goes on, and waits longer after each of them', async () => {
  const bugs: [unknown, number][] = [];
  const bug = new TypeError('x is not a function');
  const loop = startLoop([bug, bug, busy(), 'worked', bug], {
    onBug: (error, retryMs) => bugs.push([error, retryMs]),
  });
  for (const waitMs of [1_000, 2_000, 200, 1_000]) {
    await waitUntil(() => loop.clock.waits().length === 1);
    assert.deepEqual(loop.clock.waits(), [waitMs]);
    loop.clock.advance(waitMs);
  }
  await waitUntil(() => loop.steps() === 6);
  assert.deepEqual(bugs, [
    [bug, 1_000],
    [bug, 2_000],
    [bug, 1_000],
  ]);
  assert.deepEqual(loop.faults, [['busy', 200]]);
  loop.stopping.abort();
  await loop.done;
});

test('any error except a Fault ends the loop, and the message names the loop', async () => {
  const bug = new TypeError('x is not a function');
  const loop = startLoop([bug]);
  await assert.rejects(
    loop.done,
    (error) =>
      error instanceof Error && error.message === 'story failed: x is not a function' && error.cause === bug,
  );
  assert.equal(loop.steps(), 1);
});

test('a loop that is aborted during a wait or a step ends without another step', async () => {
  const waiting = startLoop(['idle']);
  await waitUntil(() => waiting.clock.waits().length === 1);
  waiting.stopping.abort();
  await waiting.done;
  assert.equal(waiting.steps(), 1);

  const stopping = new AbortController();
  let steps = 0;
  const step: Step = async (signal) => {
    steps += 1;
    stopping.abort();
    signal.throwIfAborted();
    return 'worked';
  };
  const onFault = () => assert.fail('what an abort throws is no Fault to report');
  await runLoop(step, {
    name: 'story',
    clock: createTestClock(),
    signal: stopping.signal,
    idleMs: () => 1,
    retryMsMax: 1,
    onFault,
  });
  assert.equal(steps, 1);
});

test('a Fault while computing the idle time is retried like a Fault of the step', async () => {
  let asked = 0;
  const loop = startLoop(['idle', 'idle'], {
    idleMs: async () => {
      asked += 1;
      if (asked === 1) throw busy();
      return 1_000;
    },
  });
  await waitUntil(() => loop.clock.waits().length === 1);
  assert.deepEqual(loop.clock.waits(), [50]);
  loop.clock.advance(50);
  await waitUntil(() => loop.clock.waits()[0] === 1_000);
  loop.stopping.abort();
  await loop.done;
});

test('a bell ends an idle wait early, even if it rang before the wait', async () => {
  const clock = createTestClock();
  const wake = createWake(clock);
  const { signal } = new AbortController();
  const early = wake.wait(1_000, signal);
  assert.deepEqual(clock.waits(), [1_000]);
  wake.ring();
  await early;
  assert.deepEqual(clock.waits(), []);

  wake.ring();
  wake.ring();
  await wake.wait(1_000, signal);
  // Both rings ended the same wait, so the next one lasts its full time.
  const next = wake.wait(1_000, signal);
  assert.deepEqual(clock.waits(), [1_000]);
  clock.advance(1_000);
  await next;
});

test('a bell does not shorten the wait after a Fault', async () => {
  const clock = createTestClock();
  const wake = createWake(clock);
  const stopping = new AbortController();
  let steps = 0;
  const done = runLoop(
    async () => {
      steps += 1;
      throw busy();
    },
    {
      name: 'story',
      clock,
      signal: stopping.signal,
      idleMs: () => 1,
      wake,
      retryMsMax: 300,
      onFault: () => {},
    },
  );
  await waitUntil(() => clock.waits().length === 1);
  wake.ring();
  clock.advance(49);
  assert.deepEqual(clock.waits(), [50]);
  assert.equal(steps, 1);
  stopping.abort();
  await done;
});
