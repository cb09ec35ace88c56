/**
 * Delivery queues that compete for slots, without a database or sockets. The test decides how each attempt ends.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Ticket } from '../../src/delivery/account.ts';
import { createFairSlots, type FairLimits } from '../../src/delivery/fair.ts';
import { createTestClock } from './clock.ts';

/** An attempt without a response fails after this time. */
export const ATTEMPT_MS = 10_000;
export const HAND_OVER_MS = 1_000;
export const TICK_MS = 50;
export const FAST = { isAnswered: true, isOverloaded: false, durationMs: 20 };

export type Attempt = { watcherId: number; laneId: number; atMs: number; ticket: Ticket };
type LaneStory = { watcherId: number; rows?: number; origin?: string };

/** Delivery queues in line, on a test clock. An attempt stays in flight until the test ends it. */
export function startLine(limits?: FairLimits) {
  const clock = createTestClock();
  const fair = createFairSlots({
    clock,
    ...(limits !== undefined && { limits }),
    onCredit: () => {
      story.credits += 1;
    },
  });
  const story = {
    clock,
    fair,
    credits: 0,
    started: [] as Attempt[],
    startedCount: 0,
    join,
    settle,
    pass,
    end,
  };
  let lanes = 0;

  function join({ watcherId, rows = 1, origin }: LaneStory) {
    lanes += 1;
    const laneId = lanes;
    const lane = {
      rows,
      seat: fair.join({ id: laneId, watcherId, origin: origin ?? `lane ${laneId}` }, take),
    };
    function take() {
      if (lane.rows === 0) return undefined;
      return (ticket: Ticket) => {
        lane.rows -= 1;
        story.startedCount += 1;
        story.started.push({ watcherId, laneId, atMs: clock.steadyMs(), ticket });
      };
    }
    return {
      laneId,
      seat: lane.seat,
      add(count: number) {
        lane.rows += count;
        lane.seat.want();
      },
    };
  }

  /** Waits until no more attempts start, because one turn of the event loop starts only a few. */
  async function settle(): Promise<void> {
    for (let before = -1; before !== story.startedCount; ) {
      before = story.startedCount;
      for (let turn = 0; turn < 3; turn += 1) await nextTurn();
    }
  }

  /** Lets time pass and checks the attempts meanwhile. */
  async function pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += TICK_MS) {
      clock.advance(TICK_MS);
      await settle();
    }
  }

  /** Ends these attempts with an answer of the receiver. */
  async function end(isMeant: (attempt: Attempt) => boolean, answer = FAST): Promise<void> {
    const ending = story.started.filter(isMeant);
    story.started = story.started.filter((attempt) => !isMeant(attempt));
    for (const { ticket } of ending) {
      ticket.decided(answer);
      ticket.end();
    }
    await settle();
  }
  return story;
}
