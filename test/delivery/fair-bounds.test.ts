/**
 * The bounds that fair sharing keeps, whatever the receivers of other watchers do. Populations are random.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { COST_MS_MIN } from '../../src/delivery/account.ts';
import type { FairLimits } from '../../src/delivery/fair.ts';
import { ATTEMPT_MS, type Attempt, FAST, HAND_OVER_MS, startLine, TICK_MS } from '../kit/fair-line.ts';

const LIMITS: FairLimits = { unproven: 8, proven: 8, hung: 16, open: 32, perOrigin: 8 };
/** Many slots, because a watcher's share of them is rounded to a whole number. */
const MANY_SLOTS: FairLimits = { unproven: 32, proven: 64, hung: 64, open: 192, perOrigin: 16 };
const TICKS = 240;
const HEALTHY = 1;
/** The healthy watcher gets a notification this often. */
const EVERY_TICKS = 10;
const BACKLOG = 1e6;
/** Until all receivers have answered, the start of an attempt is charged ten times as much. */
const UNPROVEN_TICKS = 60;

/** How long the receivers of a watcher take to answer, before and after `turnsMs`. ATTEMPT_MS means no answer. */
type Hostile = { lanes: number; beforeMs: number; afterMs: number; turnsMs: number; sharesOrigin: boolean };

/** Many receivers stop answering at once, because a few could not fill the slots. */
const TURN_MS = 4_000;
const answerMs = fc.oneof(fc.constant(ATTEMPT_MS), fc.integer({ min: 1, max: ATTEMPT_MS }), fc.constant(5));
const hostile: fc.Arbitrary<Hostile> = fc.record({
  lanes: fc.integer({ min: 1, max: 20 }),
  beforeMs: answerMs,
  afterMs: fc.oneof(fc.constant(ATTEMPT_MS), answerMs),
  turnsMs: fc.constantFrom(0, TURN_MS, TURN_MS, 2 * TURN_MS),
  sharesOrigin: fc.boolean(),
});

/** Answered quickly at first, so their guesses are refunded at once. */
const quickOf = (beforeMs: number, turnsMs: number, afterMs = ATTEMPT_MS): Hostile => ({
  ...{ lanes: 1, beforeMs, afterMs, turnsMs, sharesOrigin: false },
});
/** A healthy watcher once had to wait until these had used up the guesses that they had got back. */
const REFUNDED: readonly Hostile[] = [
  ...[1, 5, 5, 5, 5].map((beforeMs) => quickOf(beforeMs, TURN_MS)),
  ...[quickOf(5, 2 * TURN_MS), quickOf(5, 0, 5), quickOf(101, TURN_MS)],
];

test('a healthy watcher waits at most for the hand-over time and one attempt of each other watcher, and open attempts are bounded', async () => {
  const property = async (others: readonly Hostile[]) => {
    const line = startLine(LIMITS);
    const healthy = line.join({ watcherId: HEALTHY, rows: 0 });
    healthy.add(1);
    await line.settle();
    await line.end(() => true);
    for (const [index, { lanes, sharesOrigin }] of others.entries()) {
      const origin = sharesOrigin ? { origin: 'one for all' } : {};
      for (let lane = 0; lane < lanes; lane += 1)
        line.join({ watcherId: HEALTHY + 1 + index, rows: BACKLOG, ...origin }).seat.want();
    }
    const durationOf = ({ watcherId, atMs }: Attempt): number => {
      const other = others[watcherId - HEALTHY - 1];
      if (other === undefined) return FAST.durationMs;
      return atMs < other.turnsMs ? other.beforeMs : other.afterMs;
    };
    const waitMsMax = HAND_OVER_MS + (others.length * HAND_OVER_MS) / LIMITS.proven;
    let waitingSinceMs: number | undefined;
    for (let tick = 0; tick < TICKS; tick += 1) {
      if (tick % EVERY_TICKS === 0 && waitingSinceMs === undefined) {
        waitingSinceMs = line.clock.steadyMs();
        healthy.add(1);
        await line.settle();
      }
      const nowMs = line.clock.steadyMs();
      if (line.started.some(({ watcherId }) => watcherId === HEALTHY)) waitingSinceMs = undefined;
      const waitedMs = nowMs - (waitingSinceMs ?? nowMs);
      assert.ok(waitedMs <= waitMsMax, `the healthy watcher has waited for ${waitedMs} ms`);
      const open = line.started.length;
      assert.ok(open <= LIMITS.open + others.length + 1, `${open} attempts are open`);
      await line.pass(TICK_MS);
      const isOver = (one: Attempt) => line.clock.steadyMs() - one.atMs >= durationOf(one);
      const isAnswered = (one: Attempt) => durationOf(one) < ATTEMPT_MS;
      for (const durationMs of new Set(line.started.filter(isOver).map(durationOf)))
        await line.end((one) => isOver(one) && durationOf(one) === durationMs, {
          isAnswered: durationMs < ATTEMPT_MS,
          isOverloaded: durationMs >= ATTEMPT_MS,
          durationMs,
        });
      assert.ok(!line.started.some((one) => isOver(one) && isAnswered(one)));
    }
  };
  const populations = fc.array(hostile, { minLength: 1, maxLength: 60, size: 'max' });
  await fc.assert(fc.asyncProperty(populations, property), { numRuns: 40, examples: [[[...REFUNDED]]] });
});

test('the slot time of two always busy watchers differs by less than their open attempts, for any receivers', async () => {
  const property = async (tookMs: readonly [number, number]) => {
    const line = startLine(MANY_SLOTS);
    const used = [0, 0];
    for (const index of [0, 1])
      for (let lane = 0; lane < 20; lane += 1) line.join({ watcherId: index, rows: BACKLOG }).seat.want();
    await line.settle();
    for (let tick = 0; tick < TICKS; tick += 1) {
      await line.pass(TICK_MS);
      for (const [index, durationMs] of tookMs.entries()) {
        const isOver = (one: Attempt) =>
          one.watcherId === index && line.clock.steadyMs() - one.atMs >= durationMs;
        const ended = tick < UNPROVEN_TICKS ? 0 : line.started.filter(isOver).length;
        used[index] = (used[index] ?? 0) + durationMs * ended;
        await line.end(isOver, { ...FAST, durationMs });
      }
    }
    const [one = 0, two = 0] = used;
    const allowedMs = MANY_SLOTS.proven * HAND_OVER_MS;
    assert.ok(Math.abs(one - two) <= allowedMs, `${one} ms and ${two} ms of slot time`);
  };
  // Below COST_MS_MIN the processor limits watchers, and this test does not use it.
  const ticks = { min: Math.ceil(COST_MS_MIN / TICK_MS), max: HAND_OVER_MS / TICK_MS - 1 };
  const took = fc.integer(ticks).map((count) => count * TICK_MS);
  await fc.assert(fc.asyncProperty(fc.tuple(took, took), property), { numRuns: 20 });
});
