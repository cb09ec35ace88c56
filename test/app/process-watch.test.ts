/**
 * Which processes run, by their heartbeats: with paused processes, a database that is down, and clocks that are set.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createProcessWatch } from '../../src/app/process-watch.ts';
import type { StoredProcess } from '../../src/store/deployment/processes.ts';
import { noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';

type Parts = { beat: number; ageMs?: number; leads?: boolean; isStopped?: boolean; isFailed?: boolean };

const processOf = ({
  beat,
  ageMs = 0,
  leads = true,
  isStopped = false,
  isFailed = false,
}: Parts): StoredProcess => ({
  ...{
    id: 'a',
    roles: ['follower'],
    version: '1',
    host: 'one',
    pid: 1,
    startedAt: noon,
    kekIds: [],
    seenAt: noon,
  },
  ...{ ageMs, beat, isStopped, isFailed, error: undefined, writeFailures: [], failingWork: [] },
  follower: { leads, state: 'ok', head: 9, problem: undefined },
});

function createStory() {
  const clock = createTestClock();
  const watch = createProcessWatch(clock);
  return {
    clock,
    watch,
    /** Looks after this much time, and returns the state of the first process. */
    look(afterMs: number, ...parts: Parts[]) {
      clock.advance(afterMs);
      watch.note(parts.map(processOf));
      const [seen] = watch.seen();
      return seen && { state: seen.state, silentMs: seen.silentMs, leadMs: seen.leadMs };
    },
  };
}

test('a process that sends no heartbeat for 10 s is lost, and runs again with the next one', () => {
  const { look } = createStory();
  assert.equal(look(0, { beat: 1 })?.state, 'running');
  for (const seconds of [2, 4, 6, 8]) {
    const seen = look(2_000, { beat: 1, ageMs: seconds * 1_000 });
    assert.deepEqual([seen?.state, seen?.silentMs], ['running', seconds * 1_000]);
  }
  assert.equal(look(2_000, { beat: 1, ageMs: 10_000 })?.state, 'lost');
  assert.deepEqual(look(2_000, { beat: 2, ageMs: 500 }), { state: 'running', silentMs: 500, leadMs: 500 });
});

test('the first look takes the age from the database, and a heartbeat in the future has age 0', () => {
  assert.equal(createStory().look(0, { beat: 1, ageMs: 11_000 })?.state, 'lost');
  assert.deepEqual(createStory().look(0, { beat: 1, ageMs: -3_600_000 })?.silentMs, 0);
});

test('a pause, and time without its own heartbeat, break the time for which a process has looked', () => {
  const { clock, watch, look } = createStory();
  for (let seconds = 0; seconds < 20; seconds += 2) look(2_000, { beat: seconds });
  assert.deepEqual([watch.watchedMs(), watch.unbrokenMs()], [20_000, 20_000]);
  look(600_000, { beat: 20 });
  assert.equal(watch.unbrokenMs(), 0, 'it was paused');
  look(2_000, { beat: 21 });
  assert.equal(watch.unbrokenMs(), 2_000);
  clock.advance(2_000);
  watch.note([], { isSilent: true });
  assert.equal(watch.unbrokenMs(), 0, 'it could not store its heartbeat');
  assert.equal(watch.watchedMs(), 26_000, 'of the pause only 4 s count');
});

test('a step of the clock neither makes a running process lost nor hides a lost one', () => {
  const forward = createStory();
  forward.look(0, { beat: 1 });
  assert.equal(forward.look(2_000, { beat: 1, ageMs: 3_602_000 })?.state, 'running');
  assert.equal(forward.look(2_000, { beat: 2, ageMs: 3_600_000 })?.state, 'running');
  const back = createStory();
  back.look(0, { beat: 1 });
  for (let seconds = 0; seconds < 10; seconds += 2)
    back.look(2_000, { beat: 1, ageMs: -3_600_000 + seconds * 1_000 });
  assert.equal(back.watch.seen()[0]?.state, 'lost');
});

test('after a minute without a look, because this process was paused or the database was down, no other process is lost', () => {
  const { look } = createStory();
  look(0, { beat: 1 });
  assert.deepEqual(look(60_000, { beat: 1, ageMs: 60_000 })?.state, 'running');
  assert.deepEqual(look(2_000, { beat: 2, ageMs: 100 })?.silentMs, 100);
});

test('of two overlapping looks, the older reading changes nothing', () => {
  const { look } = createStory();
  look(0, { beat: 5 });
  assert.deepEqual(look(100, { beat: 4, ageMs: 2_000 })?.silentMs, 100);
});

test('a process that ended is stopped, and its time since it led counts from its end', () => {
  const { look } = createStory();
  look(0, { beat: 1 });
  assert.deepEqual(look(2_000, { beat: 2, isStopped: true }), { state: 'stopped', silentMs: 0, leadMs: 0 });
  assert.deepEqual(look(3_000, { beat: 2, isStopped: true })?.leadMs, 3_000);
});

test('a standby has never led, and a process that loses the lead has led until then', () => {
  const { look } = createStory();
  assert.equal(look(0, { beat: 1, leads: false })?.leadMs, Infinity);
  assert.equal(look(2_000, { beat: 2, leads: true })?.leadMs, 0);
  assert.equal(look(2_000, { beat: 3, leads: false })?.leadMs, 2_000);
});

test('the watched time counts from the first look and leaves out gaps', () => {
  const { look, watch } = createStory();
  look(2_000);
  look(60_000);
  look(2_000);
  assert.equal(watch.watchedMs(), 8_000);
});

test('the process that began to lead last is known, even while another one still reports that it leads', () => {
  const clock = createTestClock();
  const watch = createProcessWatch(clock);
  const look = (...processes: (Parts & { id: string })[]) => {
    clock.advance(2_000);
    watch.note(processes.map(({ id, ...parts }) => ({ ...processOf(parts), id })));
    return watch.seen().map(({ leadingMs }) => leadingMs);
  };
  const a = (beat: number) => ({ id: 'a', beat });
  const b = (beat: number, leads: boolean) => ({ id: 'b', beat, leads });
  assert.deepEqual(look(a(1), b(1, false)), [Infinity, Infinity], 'the first look does not show since when');
  assert.deepEqual(look(a(2), b(2, true)), [Infinity, 0]);
  assert.deepEqual(look(a(3), b(3, true)), [Infinity, 2_000]);
  assert.deepEqual(look({ ...a(4), leads: false }, b(4, true)), [Infinity, 4_000]);
  assert.deepEqual(look(a(5), b(5, true)), [0, 6_000]);
});
