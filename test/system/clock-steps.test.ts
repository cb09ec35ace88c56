import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { sql } from '../../src/store/db/sql.ts';
import { headerOf, listNotifications, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTimeStory, type TimeStory } from '../kit/common-clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { sampleSize } from '../kit/sample.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;
const YEAR_MS = 365 * DAY_MS;
const RETRY_MINUTES = [1, 2];
/** The longest interval at which a process of these stories works. */
const TICK_MS = 20 * SECOND_MS;
const DAY_STEPS = [[DAY_MS], [-DAY_MS], [DAY_MS, -DAY_MS], [-DAY_MS, DAY_MS], [YEAR_MS], [-YEAR_MS]] as const;

onSampledDatabase(import.meta.url, ({ kind, database }) => {
  async function startStory() {
    const story = createTimeStory(database(), RETRY_MINUTES);
    const first = await story.start();
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()], { now: first.clock.now() });
    return { story, first };
  }

  for (const steps of DAY_STEPS) {
    const names = steps.map((ms) => `${ms / DAY_MS} days`).join(', then by ');
    test(`a clock that is set by ${names} moves no retry by more than a second`, async () => {
      const { story, first } = await startStory();
      await first.work();
      for (const step of steps) {
        story.advance(TICK_MS);
        story.step(step);
        await first.follow();
        await first.work();
        assert.equal(story.attempts.length, 1, 'not before its time');
      }
      story.advance(MINUTE_MS - story.trueMs() - 2);
      await first.work();
      assert.equal(story.attempts.length, 1, 'not before its time');
      story.advance(3);
      await first.work();
      assert.equal(story.attempts.length, 2, 'at its time');
    });
  }

  for (const step of [DAY_MS, -DAY_MS])
    test(`a clock that is set by ${step / DAY_MS} days moves queues and visits with their retries`, async () => {
      const { story, first } = await startStory();
      await first.work();
      story.step(step);
      await first.follow();
      const [times] = await database().query<Record<'retry' | 'queue' | 'visit', Date>>(sql`
        select q.due_at as retry, l.next_due as queue, v.next_due as visit
        from queue q, lane l, watcher_queue v where l.id = q.lane_id and v.watcher_id = l.watcher_id`);
      const due = new Date(story.wall().getTime() + MINUTE_MS);
      assert.deepEqual(times, { retry: due, queue: due, visit: due });
    });

  test('an attempt carries the schedule by the current clock', async () => {
    const { story, first } = await startStory();
    await first.work();
    story.step(DAY_MS);
    await first.follow();
    story.advance(MINUTE_MS);
    const [row] = await listNotifications(database());
    assert.equal(row?.next_retry_at?.getTime(), story.wall().getTime());
    await first.work();
    const told = story.attempts[1]?.told;
    assert.equal(told, `${story.wall().toISOString().slice(0, -1).replace('T', ' ')}000`);
  });

  for (const step of [DAY_MS, -DAY_MS]) {
    test(`a clock set by ${step / DAY_MS} days during an attempt, seen by another process first, delays the retry by its interval`, async () => {
      const { story, first } = await startStory();
      const second = await story.start();
      let isFirst = true;
      story.onAttempt(async () => {
        if (isFirst) {
          story.step(step);
          await second.follow();
        }
        isFirst = false;
        return 'http_5xx';
      });
      // The first process settles by its old time, although the schedule has moved already.
      await first.work();
      const [row] = await listNotifications(database());
      assert.equal(row?.next_attempt_at.getTime(), story.wall().getTime() + MINUTE_MS);
      // It leases nothing by its old time.
      story.advance(TICK_MS);
      await first.work();
      await second.work();
      assert.equal(story.attempts.length, 1);
      await first.follow();
      story.advance(MINUTE_MS - TICK_MS - 2);
      await first.work();
      await second.work();
      assert.equal(story.attempts.length, 1, 'not before its time');
      story.advance(4);
      await second.work();
      await first.work();
      assert.equal(story.attempts.length, 2, 'at its time');
    });
  }

  test('a first attempt that a process schedules by the old time, a day ahead, is made once the process has followed the step', async () => {
    const { story, first } = await startStory();
    const second = await story.start();
    await first.work();
    story.step(-DAY_MS);
    await second.follow();
    await mine(database(), headerOf(2), [transferOf()], { now: first.clock.now() });
    await first.follow();
    await second.work();
    assert.equal(story.attempts.length, 2);
  });

  test('after the clock was set back while no process ran, a retry waits for one interval at most', async () => {
    const { story, first } = await startStory();
    await first.work();
    story.step(-DAY_MS);
    const restarted = await story.start();
    story.advance(MINUTE_MS + 1);
    await restarted.work();
    assert.equal(story.attempts.length, 2);
  });

  test('a lane whose worker was killed before the clock was set back moves on after a lease', async () => {
    const { story, first } = await startStory();
    await first.work();
    const leaseUntil = new Date(first.clock.now().getTime() + 30 * SECOND_MS);
    await database().query(sql`update lane set owner = 4711, lease_until = ${leaseUntil}`);
    story.step(-DAY_MS);
    await first.follow();
    const [lane] = await database().query<{ lease_until: Date }>(sql`select lease_until from lane`);
    assert.equal(lane?.lease_until.getTime(), story.wall().getTime() + 30 * SECOND_MS);
  });

  test('a machine that was paused for a day delays the retries of other machines by one interval at most', async () => {
    const { story, first } = await startStory();
    const second = await story.start();
    await first.work();
    first.pause(DAY_MS);
    await second.work();
    assert.equal(story.attempts.length, 2);
    await first.follow();
    // It recognizes the wrong clock, gives the other process some seconds to recognize it too, and restores the schedule.
    for (const _ of [1, 2, 3, 4, 5]) {
      await second.follow();
      story.advance(SECOND_MS);
    }
    story.advance(2 * MINUTE_MS);
    await second.work();
    assert.equal(story.attempts.length, 3);
  });

  for (const [step, second] of [
    [DAY_MS, DAY_MS],
    [DAY_MS, -DAY_MS],
    [-DAY_MS, DAY_MS],
    [-61_000, 30_000],
  ] as const) {
    const names = `${step / SECOND_MS} s, and by ${second / SECOND_MS} s after the only process that saw it was killed`;
    test(`retries keep their intervals when the clock is set by ${names}`, async () => {
      const { story, first } = await startStory();
      const other = await story.start();
      await first.work();
      story.step(step);
      await first.follow();
      story.step(second);
      for (const _ of [1, 2, 3, 4, 5]) {
        await other.follow();
        await other.work();
        story.advance(SECOND_MS);
      }
      story.advance(MINUTE_MS - story.trueMs() - 2);
      await other.work();
      assert.equal(story.attempts.length, 1, 'not before its time');
      story.advance(3);
      await other.work();
      assert.equal(story.attempts.length, 2, 'at its time');
    });
  }

  /** Keeps what a server has that lacks later commits. Returns what makes it the primary. */
  async function keepServer(): Promise<() => Promise<void>> {
    const [kept] = await database().query<{
      steps_ms: number;
      last_step_ms: number | null;
      last_step_at: Date | null;
      retry: Date;
      queue: Date;
      visit: Date;
    }>(sql`
      select c.steps_ms, c.last_step_ms, c.last_step_at, q.due_at as retry, l.next_due as queue, v.next_due as visit
      from clock_state c, queue q, lane l, watcher_queue v`);
    assert.ok(kept);
    return async () => {
      await database().query(sql`
        update clock_state set steps_ms = ${kept.steps_ms}::bigint, last_step_ms = ${kept.last_step_ms}::bigint,
          last_step_at = ${kept.last_step_at}::timestamptz`);
      await database().query(sql`update queue set due_at = ${kept.retry}, next_retry_at = ${kept.retry}`);
      await database().query(sql`update lane set next_due = ${kept.queue}`);
      await database().query(sql`update watcher_queue set next_due = ${kept.visit}`);
    };
  }

  /** The sum of all steps, and when the retry is due, in ms after the present time of the server. */
  async function readSchedule(story: TimeStory) {
    const [row] = await database().query<{ steps_ms: number; due_at: Date }>(
      sql`select c.steps_ms, q.due_at from clock_state c, queue q`,
    );
    return { stepsMs: row?.steps_ms, dueInMs: (row?.due_at.getTime() ?? 0) - story.wall().getTime() };
  }

  for (const { name, earlier, ageMs, lost, isSet, count } of [
    { name: 'one process', earlier: DAY_MS, ageMs: 21 * DAY_MS, lost: 3_600_000, isSet: true, count: 1 },
    { name: 'two processes', earlier: DAY_MS, ageMs: 21 * DAY_MS, lost: 3_600_000, isSet: true, count: 2 },
    {
      ...{ name: 'a server that was not set', earlier: DAY_MS, ageMs: 21 * DAY_MS },
      ...{ lost: -3_600_000, isSet: false, count: 2 },
    },
    {
      ...{ name: 'a correction of the step before', earlier: DAY_MS, ageMs: 10 * MINUTE_MS },
      ...{ lost: -DAY_MS, isSet: true, count: 2 },
    },
  ])
    test(`a fail-over that loses a step moves the schedule by what the new server lacks: ${name}`, async () => {
      const { story, first } = await startStory();
      const processes = count === 1 ? [first] : [first, await story.start()];
      const follow = async () => {
        for (const one of processes) await one.follow();
      };
      story.step(earlier);
      await follow();
      story.advance(ageMs);
      await follow();
      await first.work();
      const promote = await keepServer();
      story.step(lost);
      await follow();
      await promote();
      if (!isSet) story.step(-lost);
      for (const _ of [1, 2, 3]) {
        story.advance(SECOND_MS);
        await follow();
      }
      const stepsMs = earlier + (isSet ? lost : 0);
      assert.deepEqual(await readSchedule(story), { stepsMs, dueInMs: MINUTE_MS - 3 * SECOND_MS });
      for (const { clock } of processes) assert.equal(clock.now().getTime(), story.wall().getTime());
    });

  test('back on the server whose step a fail-over lost weeks ago, the clock goes as that one is set', async () => {
    const { story, first } = await startStory();
    await first.work();
    const promote = await keepServer();
    story.step(3_600_000);
    await first.follow();
    const goBack = await keepServer();
    await promote();
    story.step(-3_600_000);
    story.advance(SECOND_MS);
    await first.follow();
    assert.deepEqual(await readSchedule(story), { stepsMs: 0, dueInMs: MINUTE_MS - SECOND_MS });
    story.advance(21 * DAY_MS);
    await first.follow();
    await goBack();
    story.step(3_600_000);
    story.advance(SECOND_MS);
    await first.follow();
    assert.equal((await readSchedule(story)).stepsMs, 3_600_000);
    assert.equal(first.clock.now().getTime(), story.wall().getTime());
  });

  test('no process prunes data for a day after a step of a minute, not even one that starts then', async () => {
    const { story, first } = await startStory();
    assert.equal(first.mayPrune(), true);
    assert.equal(first.recentStep(), undefined);
    // Each night a snapshot of a virtual machine may look like such a step.
    story.step(MINUTE_MS - SECOND_MS);
    await first.follow();
    assert.equal(first.mayPrune(), true, 'after less than a minute');
    story.step(YEAR_MS);
    await first.follow();
    assert.equal(first.mayPrune(), false);
    const large = first.recentStep();
    assert.equal(large?.ms, YEAR_MS);
    story.advance(60 * MINUTE_MS);
    story.step(2 * SECOND_MS);
    await first.follow();
    assert.deepEqual(first.recentStep(), large, 'a small step doesn’t hide it');
    assert.deepEqual((await story.start()).recentStep(), large);
    assert.equal(first.mayPrune(), false);
    story.advance(DAY_MS - 60 * MINUTE_MS - 2 * SECOND_MS - 1);
    assert.equal(first.mayPrune(), false);
    story.advance(1);
    assert.equal(first.mayPrune(), true);
  });

  test('a virtual machine that is suspended each night prunes, and a larger step begins another pause', async () => {
    const { story, first } = await startStory();
    const hours = async (count: number) => {
      story.advance(count * 60 * MINUTE_MS);
      await first.follow();
    };
    story.step(2 * 60 * MINUTE_MS);
    await first.follow();
    await hours(22);
    story.step(3 * 60 * MINUTE_MS);
    await first.follow();
    const { ms, at } = first.recentStep() ?? {};
    assert.deepEqual(
      [ms, at?.getTime(), first.mayPrune()],
      [3 * 60 * MINUTE_MS, story.wall().getTime(), false],
      'the last step is shown',
    );
    await hours(2);
    assert.equal(first.mayPrune(), true, 'a day after the first night');
    story.step(2 * 60 * MINUTE_MS);
    await first.follow();
    await hours(23);
    story.step(YEAR_MS);
    await first.follow();
    await hours(23);
    assert.equal(first.mayPrune(), false, 'for a day after the clock was set by a year');
    await hours(1);
    assert.equal(first.mayPrune(), true);
  });

  test('a short pause of one machine, which it mistakes for a step, is not followed to and fro by two', async () => {
    const { story, first } = await startStory();
    const second = await story.start();
    const steps = new Set<number | undefined>();
    first.pause(800);
    for (let seconds = 0; seconds < 10; seconds += 1) {
      for (const one of [first, second]) {
        await one.follow();
        story.advance(SECOND_MS / 2);
      }
      steps.add((await readSchedule(story)).stepsMs);
    }
    assert.deepEqual([...steps], [800]);
    for (const { clock } of [first, second])
      assert.ok(Math.abs(clock.now().getTime() - story.wall().getTime()) < 10);
  });

  for (const slewMs of [83, -83])
    test(`a clock that is slewed by ${slewMs} ms each second is no step: no retry moves, and the process follows it`, async () => {
      const { story, first } = await startStory();
      await first.work();
      const before = await readSchedule(story);
      for (let seconds = 1; seconds <= 30; seconds += 1) {
        story.advance(SECOND_MS);
        story.step(slewMs);
        await first.follow();
        const leftMs = Math.abs(first.clock.now().getTime() - story.wall().getTime());
        assert.ok(leftMs < 200, `${leftMs} ms after ${seconds} s`);
      }
      const { stepsMs, dueInMs } = await readSchedule(story);
      assert.deepEqual([stepsMs, dueInMs], [0, before.dueInMs - 30 * (SECOND_MS + slewMs)]);
    });

  test('a start on a slow database, whose time is inexact, is corrected without a step', async () => {
    const { story, first } = await startStory();
    await first.work();
    for (const _ of [1, 2, 3, 4, 5]) story.delayReading(6 * SECOND_MS);
    const slow = await story.start();
    assert.ok(Math.abs(slow.clock.now().getTime() - story.wall().getTime()) > 2 * SECOND_MS);
    await slow.follow();
    assert.equal(slow.clock.now().getTime(), story.wall().getTime());
    assert.equal((await readSchedule(story)).stepsMs, 0);
  });

  test('a reading that comes late at the start, or is wrong once, is no step', async () => {
    const { story } = await startStory();
    story.delayReading(2 * SECOND_MS);
    const late = await story.start();
    await late.follow();
    story.spoilReading(2 * MINUTE_MS);
    await late.follow();
    assert.equal(late.recentStep(), undefined);
    assert.equal(late.mayPrune(), true);
    assert.equal(late.clock.now().getTime(), story.wall().getTime());
  });

  test('a clock that is slightly faster is followed without a step', async () => {
    const { story, first } = await startStory();
    for (let second = 0; second < 3_000; second += 1) {
      story.advance(SECOND_MS);
      story.step(0.05);
      await first.follow();
    }
    assert.equal(first.recentStep(), undefined);
    assert.ok(Math.abs(first.clock.now().getTime() - story.wall().getTime()) <= 2);
  });

  /** Actions of two processes and changes of their clock, in any order. */
  const event = fc.oneof(
    { weight: 6, arbitrary: fc.record({ tick: fc.integer({ min: 1, max: TICK_MS }), mask: fc.nat(15) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        follow: fc.nat(1),
        second: fc.integer({ min: -DAY_MS, max: DAY_MS }),
        dies: fc.boolean(),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        step: fc.oneof(
          fc.constantFrom(
            DAY_MS,
            -DAY_MS,
            YEAR_MS,
            -YEAR_MS,
            3_600_000,
            -3_600_000,
            61_000,
            -61_000,
            499,
            -499,
          ),
          fc.integer({ min: -3 * DAY_MS, max: 3 * DAY_MS }),
        ),
      }),
    },
  );

  test('for any steps of the clock, a retry is at most a second early or an interval late', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(event, { minLength: 30, maxLength: 60 }), async (events) => {
        const { story, first } = await startStory();
        const processes = [first, await story.start()];
        for (const one of events) {
          if ('follow' in one) {
            // Two steps within a second. Only one process has seen the first one, because each compares once a second.
            await processes[one.follow]?.follow();
            story.advance(SECOND_MS / 4);
            story.step(one.second);
            const other = processes[1 - one.follow];
            await other?.follow();
            // That process may die before it sees the second step, and a new process takes its place.
            if (one.dies) processes[one.follow] = await story.start();
            else await processes[one.follow]?.follow();
            await other?.work();
            continue;
          }
          if ('step' in one) {
            story.step(one.step);
            continue;
          }
          story.advance(one.tick);
          // Some work before they compare clocks, some after. Each has compared them by the end of the tick.
          for (const [index, process] of processes.entries())
            if ((one.mask >> index) % 2 === 1) await process.work();
          for (const process of (one.mask & 4) === 0 ? processes : processes.toReversed())
            await process.follow();
          for (const process of processes) await process.work();
        }
        assertPunctual(story);
        await database().script(
          'truncate block, lane, watched_address, notification, queue, ended, delivery_attempt restart identity; update clock_state set steps_ms = 0',
        );
      }),
      { numRuns: sampleSize(kind === 'embedded' ? 12 : 25), endOnFailure: true },
    );
  });
});

function assertPunctual({ attempts, trueMs }: TimeStory): void {
  for (const [index, { trueMs: atMs }] of attempts.entries()) {
    const intervalMs = (RETRY_MINUTES[index] ?? RETRY_MINUTES.at(-1) ?? 0) * MINUTE_MS;
    const next = attempts[index + 1];
    const passedMs = (next?.trueMs ?? trueMs()) - atMs;
    if (next !== undefined)
      assert.ok(passedMs >= intervalMs - SECOND_MS, `${intervalMs - passedMs} ms early`);
    assert.ok(passedMs <= 2 * intervalMs + TICK_MS, `${passedMs - intervalMs} ms late`);
  }
}
