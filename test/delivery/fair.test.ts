import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { COST_MS_MIN, GUESS_MS } from '../../src/delivery/account.ts';
import { createFairSlots, type FairLimits } from '../../src/delivery/fair.ts';
import { createTestClock } from '../kit/clock.ts';
import { ATTEMPT_MS, type Attempt, FAST, HAND_OVER_MS, startLine, TICK_MS } from '../kit/fair-line.ts';

const hung = { isAnswered: false, isOverloaded: true, durationMs: ATTEMPT_MS };
const countOf = (started: readonly Attempt[], watcherId: number) =>
  started.filter((attempt) => attempt.watcherId === watcherId).length;
const few: FairLimits = { unproven: 8, proven: 8, hung: 8, open: 24, perOrigin: 8 };

test('a watcher never has more attempts under way than it leaves free slots', async () => {
  const line = startLine(few);
  for (let lane = 0; lane < 10; lane += 1) line.join({ watcherId: 1 }).seat.want();
  await line.settle();
  assert.equal(line.started.length, 4);
  line.join({ watcherId: 2 }).seat.want();
  await line.settle();
  assert.equal(countOf(line.started, 2), 1);
});

test('the watcher with the least slot time goes first, and among its receivers the one with the least', async () => {
  const line = startLine({ ...few, unproven: 1, proven: 1 });
  for (const watcherId of [1, 2]) line.join({ watcherId, rows: 100 }).seat.want();
  await line.settle();
  const order: number[] = [];
  for (let count = 0; count < 40; count += 1) {
    // Both are unproven at first; then one slot is left.
    const [one] = line.started;
    assert.ok(one !== undefined);
    if (count >= 20) order.push(one.watcherId);
    await line.end((other) => other === one, { ...FAST, durationMs: one.watcherId === 1 ? 900 : 20 });
  }
  // 900 ms of slot time is what four attempts of the fast one are charged.
  assert.equal(order.filter((watcherId) => watcherId === 1).length, 4);
});

test('two always busy watchers share the slot time equally, however slow their receivers are', async () => {
  const line = startLine({ ...few, unproven: 64, proven: 64 });
  const took: Record<number, number> = { 1: 900, 2: 150 };
  const used: Record<number, number> = { 1: 0, 2: 0 };
  for (const watcherId of [1, 2])
    for (let lane = 0; lane < 20; lane += 1) line.join({ watcherId, rows: 1e6 }).seat.want();
  await line.settle();
  for (let tick = 0; tick < 600; tick += 1) {
    await line.pass(TICK_MS);
    for (const watcherId of [1, 2]) {
      const ms = took[watcherId] ?? 0;
      const isOver = (one: Attempt) => one.watcherId === watcherId && line.clock.steadyMs() - one.atMs >= ms;
      used[watcherId] =
        (used[watcherId] ?? 0) + Math.max(ms, COST_MS_MIN) * line.started.filter(isOver).length;
      await line.end(isOver, { ...FAST, durationMs: ms });
    }
  }
  const [one = 0, two = 0] = [used[1], used[2]];
  assert.ok(Math.abs(one - two) <= 64 * HAND_OVER_MS, `${one} ms and ${two} ms of slot time`);
});

test('a healthy watcher starts at once while 100 others hang, and at most 1,536 attempts are open', async () => {
  const line = startLine();
  const healthy = line.join({ watcherId: 1, rows: 0 });
  healthy.add(1);
  await line.settle();
  await line.end(() => true);
  for (let watcherId = 2; watcherId <= 101; watcherId += 1)
    for (let lane = 0; lane < 100; lane += 1) line.join({ watcherId, rows: 1_000 }).seat.want();
  await line.settle();
  for (let second = 0; second < 15; second += 1) {
    await line.pass(HAND_OVER_MS);
    const nowMs = line.clock.steadyMs();
    await line.end((one) => nowMs - one.atMs >= ATTEMPT_MS, hung);
    assert.ok(line.started.length <= 1_536 + 101, `${line.started.length} attempts under way`);
    healthy.add(1);
    await line.settle();
    assert.equal(countOf(line.started, 1), 1, `after ${second + 1} s`);
    await line.end((one) => one.watcherId === 1);
  }
});

test('receivers that responded before and then hang free their slots after the hand-over time', async () => {
  const line = startLine(few);
  const turning = Array.from({ length: 8 }, () => line.join({ watcherId: 1, rows: 1e6 }));
  const healthy = line.join({ watcherId: 2, rows: 1 });
  healthy.seat.want();
  for (const { seat } of turning) seat.want();
  await line.settle();
  for (let round = 0; round < 20; round += 1) await line.end(() => true);
  // From now on all of them hang.
  await line.pass(2 * HAND_OVER_MS);
  const hanging = line.started.length;
  assert.ok(hanging < few.hung, `${hanging} hang`);
  await line.pass(2 * HAND_OVER_MS);
  assert.equal(line.started.length, hanging, 'nothing more is started');
  healthy.add(1);
  await line.settle();
  assert.equal(countOf(line.started, 2), 1);
});

test("a receiver's concurrency grows while it is used, and shrinks when the receiver doesn't respond", async () => {
  const line = startLine();
  const limitOf = (id: number) => line.fair.receiver(id, `lane ${id}`)?.pace.limit;
  line.join({ watcherId: 1, rows: 200 }).seat.want();
  await line.settle();
  assert.equal(line.started.length, 4);
  for (const limit of [8, 64]) {
    await line.end(() => true);
    assert.ok(line.started.length >= limit);
  }
  assert.equal(line.started.length, 64);
  await line.end(() => true, hung);
  assert.equal(limitOf(1), 4);
  line.join({ watcherId: 2, rows: 1 }).seat.want();
  await line.settle();
  await line.end((one) => one.watcherId === 2);
  assert.equal(limitOf(2), 4, 'one at a time shows nothing');
});

test('the concurrency of a slow receiver that responds still grows', async () => {
  const line = startLine();
  const lane = line.join({ watcherId: 1, rows: 100 });
  lane.seat.want();
  await line.settle();
  await line.pass(3 * HAND_OVER_MS);
  await line.end(() => true, { ...FAST, durationMs: 3 * HAND_OVER_MS });
  assert.ok(line.started.length > 4);
});

test('a watcher never takes the last connections to an origin', async () => {
  const line = startLine({ ...few, unproven: 100, hung: 100, perOrigin: 8 });
  for (let lane = 0; lane < 3; lane += 1) line.join({ watcherId: 1, rows: 10, origin: 'shared' }).seat.want();
  await line.settle();
  assert.equal(line.started.length, 4);
  line.join({ watcherId: 2, origin: 'shared' }).seat.want();
  line.join({ watcherId: 1, origin: 'other' }).seat.want();
  await line.settle();
  assert.deepEqual([countOf(line.started, 1), countOf(line.started, 2)], [5, 1]);
});

test("a watcher that can't start another lane is full, and onCredit is called when it can again", async () => {
  const line = startLine(few);
  for (let lane = 0; lane < 10; lane += 1) line.join({ watcherId: 1 }).seat.want();
  await line.settle();
  await line.pass(2 * HAND_OVER_MS);
  assert.deepEqual(line.fair.full(), [1]);
  assert.equal(line.credits, 0);
  await line.end(() => true, hung);
  assert.ok(line.credits > 0);
});

test('slot time that a watcher used beyond its share still counts after its lanes leave', async () => {
  const line = startLine({ ...few, unproven: 1, proven: 1 });
  const greedy = line.join({ watcherId: 1, rows: 1 });
  greedy.seat.want();
  await line.settle();
  await line.end(() => true, { ...FAST, durationMs: GUESS_MS });
  greedy.seat.leave();
  const blocker = line.join({ watcherId: 3, rows: 1 });
  blocker.seat.want();
  await line.settle();
  line.join({ watcherId: 1, rows: 1 }).seat.want();
  line.join({ watcherId: 2, rows: 1 }).seat.want();
  await line.end((one) => one.watcherId === 3);
  assert.deepEqual(
    line.started.map(({ watcherId }) => watcherId),
    [2],
  );
});

test('an attempt that ends without an outcome costs its watcher nothing', async () => {
  const line = startLine({ ...few, unproven: 1, proven: 1 });
  line.join({ watcherId: 1 }).seat.want();
  await line.settle();
  line.started.pop()?.ticket.end();
  line.join({ watcherId: 2 }).seat.want();
  await line.settle();
  await line.end(() => true, { ...FAST, durationMs: 400 });
  line.join({ watcherId: 3 }).seat.want();
  await line.settle();
  for (const watcherId of [2, 1]) line.join({ watcherId }).seat.want();
  await line.end((one) => one.watcherId === 3);
  assert.deepEqual(
    line.started.map(({ watcherId }) => watcherId),
    [1],
  );
});

test('a lane with nothing to send is not asked again before it calls want', async () => {
  const line = startLine(few);
  const lane = line.join({ watcherId: 1, rows: 0 });
  lane.seat.want();
  await line.settle();
  line.join({ watcherId: 2 }).seat.want();
  await line.settle();
  assert.equal(line.started.length, 1);
  lane.add(1);
  await line.settle();
  assert.equal(countOf(line.started, 1), 1);
});

test('a lane holds a slot while it reads, so no more lanes read than may send', async () => {
  const line = startLine(few);
  const reads: PromiseWithResolvers<void>[] = [];
  for (let id = 1; id <= 10; id += 1) {
    const read = () => {
      const reading = Promise.withResolvers<void>();
      reads.push(reading);
      return reading.promise;
    };
    line.fair.join({ id, watcherId: 1, origin: `lane ${id}` }, read).want();
  }
  await line.settle();
  assert.equal(reads.length, 4);
  const other = line.join({ watcherId: 2 });
  other.seat.want();
  await line.settle();
  assert.equal(countOf(line.started, 2), 1, 'half of what is left is for others');
  const [one, two] = reads;
  one?.resolve();
  two?.reject(new Error('the database is away'));
  await line.settle();
  assert.equal(reads.length, 6, 'two slots are free again, and two more lanes read');
});

test('when the hung budget is full, a watcher tries one unproven receiver at a time', async () => {
  const line = startLine(few);
  const wantAll = (watcherId: number) => {
    for (let lane = 0; lane < 10; lane += 1) line.join({ watcherId }).seat.want();
  };
  for (const watcherId of [1, 2]) {
    wantAll(watcherId);
    await line.settle();
    await line.pass(2 * HAND_OVER_MS);
  }
  assert.equal(line.started.length, 6, 'four and two of them hang');
  wantAll(3);
  await line.settle();
  assert.equal(countOf(line.started, 3), 1);
  await line.end((one) => one.watcherId === 3);
  assert.equal(countOf(line.started, 3), 1, 'the next one, once the first has answered');
});

test("waiting lanes beyond their watcher's slots are surplus", async () => {
  const line = startLine(few);
  const lanes = Array.from({ length: 30 }, () => line.join({ watcherId: 1 }));
  for (const { seat } of lanes) seat.want();
  await line.settle();
  await line.pass(2 * HAND_OVER_MS);
  assert.deepEqual(
    line.fair.surplus(),
    lanes.slice(16).map(({ laneId }) => laneId),
    'two for each of the four that hang, and eight that wait',
  );
});

test('a receiver that hangs takes its limit once, however many lanes it has, and other receivers of its watcher go on', async () => {
  const line = startLine();
  const slices = Array.from({ length: 32 }, () => line.join({ watcherId: 1, rows: 10, origin: 'hangs' }));
  for (const { seat } of slices) seat.want();
  await line.settle();
  assert.equal(line.startedCount, 4);
  assert.equal(new Set(line.started.map(({ laneId }) => laneId)).size, 4, 'its lanes take turns');
  await line.pass(2 * HAND_OVER_MS);
  assert.equal(line.startedCount, 4);
  assert.deepEqual([line.fair.full(), line.fair.surplus()], [[], []]);
  const other = line.join({ watcherId: 1, rows: 1 });
  other.seat.want();
  await line.settle();
  assert.equal(line.started.at(-1)?.laneId, other.laneId);
});

test('the lanes of a receiver that hangs give back no lane of another receiver that waits for a slot', async () => {
  const line = startLine(few);
  const slices = Array.from({ length: 32 }, () => line.join({ watcherId: 1, rows: 10, origin: 'hangs' }));
  for (const { seat } of slices) seat.want();
  await line.settle();
  await line.pass(2 * HAND_OVER_MS);
  const other = line.join({ watcherId: 1, rows: 1 });
  other.seat.want();
  await line.settle();
  assert.ok(
    line.started.every(({ laneId }) => laneId !== other.laneId),
    'it waits',
  );
  assert.deepEqual(line.fair.surplus(), []);
});

test('a receiver with several lanes gets no larger share of its watcher than one with a single lane', async () => {
  const line = startLine({ ...few, unproven: 1, proven: 1 });
  const slices = Array.from({ length: 3 }, () => line.join({ watcherId: 1, rows: 30, origin: 'sliced' }));
  const single = line.join({ watcherId: 1, rows: 30 });
  for (const { seat } of [...slices, single]) seat.want();
  const counts = new Map<number, number>();
  for (let count = 0; count < 40; count += 1) {
    await line.settle();
    for (const { laneId } of line.started) counts.set(laneId, (counts.get(laneId) ?? 0) + 1);
    await line.end(() => true);
  }
  const ofSingle = counts.get(single.laneId) ?? 0;
  const ofSlices = slices.map(({ laneId }) => counts.get(laneId) ?? 0);
  const sum = ofSlices.reduce((one, other) => one + other, 0);
  assert.ok(Math.abs(ofSingle - sum) <= 2, `${ofSingle} and ${ofSlices.join()}`);
  assert.ok(Math.max(...ofSlices) - Math.min(...ofSlices) <= 1, ofSlices.join());
});

/** Lanes that read before each attempt, and how often they have read. The test decides when a read ends. */
function startReaders(watcherIds: readonly number[], limits: FairLimits) {
  const fair = createFairSlots({ clock: createTestClock(), limits, onCredit() {} });
  const reads: number[] = [];
  const started: number[] = [];
  const endings: (() => void)[] = [];
  for (const [id, watcherId] of watcherIds.entries()) {
    let hasRow = false;
    const seat = fair.join({ id, watcherId, origin: `lane ${id}` }, () => {
      if (hasRow) return () => void started.push(watcherId);
      reads.push(watcherId);
      const { promise, resolve } = Promise.withResolvers<void>();
      endings.push(() => {
        hasRow = true;
        seat.want();
        resolve();
      });
      return promise;
    });
    seat.want();
  }
  const endReads = async () => {
    for (const end of endings.splice(0)) end();
    for (let turn = 0; turn < 3; turn += 1) await nextTurn();
  };
  return { reads, started, endReads };
}

test('a lane that has read its rows sends first, and no other lane reads for the same slot', async () => {
  const { reads, started, endReads } = startReaders(
    Array.from({ length: 20 }, () => 1),
    {
      ...few,
      unproven: 1,
    },
  );
  for (let turn = 0; turn < 3; turn += 1) await endReads();
  assert.deepEqual([reads.length, started.length], [1, 1]);
});

test('while one lane of a watcher reads, the next slot goes to another watcher', async () => {
  const { reads, endReads } = startReaders([1, 1, 1, 1, 2, 3], { ...few, unproven: 4 });
  await nextTurn();
  assert.deepEqual(reads, [1, 2, 3]);
  await endReads();
});

test("a hundred new watchers don't all go before a watcher that is always busy", async () => {
  const line = startLine();
  const known = line.join({ watcherId: 1, rows: 0 });
  for (let count = 0; count < 3; count += 1) {
    known.add(1);
    await line.settle();
    await line.end(() => true);
  }
  for (let watcherId = 2; watcherId <= 101; watcherId += 1) line.join({ watcherId }).seat.want();
  known.add(1);
  await line.settle();
  const place = line.started.findIndex(({ watcherId }) => watcherId === 1);
  assert.ok(place === 0, `after ${place} others`);
});
