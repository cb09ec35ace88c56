/**
 * What is known of one watcher's receiver: whether it answers in time, and how many attempts it takes at once.
 */

/** isProven: its last attempt got an answer within the hand-over time. */
export type Receiver = { limit: number; isProven: boolean; averageMs: number };

const HAND_OVER_MS_MAX = 1_000;
const HAND_OVER_MS_MIN = 100;
/** An answer that takes so many times the receiver's average counts as hanging. */
const HAND_OVER_AVERAGES = 8;
/** Attempts at once: the floor keeps the retries of a dead receiver on time (delivery reference, trap 13). */
const CONCURRENCY_MIN = 4;
const CONCURRENCY_MAX = 64;
/** Rows that are read for an unproven one: it may hang, and the others would grow old in memory. */
const UNPROVEN_AHEAD = 2;
/** Receivers remembered between their leases, about 100 B each. */
const REMEMBERED_MAX = 65_536;

/** An attempt that takes longer is handed over to the hung ones. */
export function handOverMsOf({ isProven, averageMs }: Receiver): number {
  const expectedMs = isProven ? averageMs * HAND_OVER_AVERAGES : HAND_OVER_MS_MAX;
  return Math.min(Math.max(expectedMs, HAND_OVER_MS_MIN), HAND_OVER_MS_MAX);
}

/** Rows worth reading: of a proven one some to start while the next ones are read. */
export function aheadOf({ isProven, limit }: Receiver): number {
  return isProven ? 2 * limit : UNPROVEN_AHEAD;
}

/** From an answer, while `open` attempts were under way: more at once only where what was allowed has been used. */
export function learn(
  receiver: Receiver,
  { open, isInTime, durationMs }: { open: number; isInTime: boolean; durationMs: number },
): void {
  receiver.averageMs = receiver.isProven ? receiver.averageMs * 0.8 + durationMs * 0.2 : durationMs;
  receiver.isProven = isInTime;
  if (2 * open >= receiver.limit) receiver.limit = Math.min(receiver.limit * 2, CONCURRENCY_MAX);
}

/** It took too much at once. */
export function slowDown(receiver: Receiver): void {
  receiver.limit = Math.max(receiver.limit >> 1, CONCURRENCY_MIN);
}

/** What is known of receivers whose lanes are not at work here. */
type ReceiverMemory = {
  take(laneId: number): Receiver;
  keep(laneId: number, receiver: Receiver): void;
};

export function createReceiverMemory(): ReceiverMemory {
  const remembered = new Map<number, Receiver>();
  return {
    take(laneId) {
      const known = remembered.get(laneId);
      remembered.delete(laneId);
      return known ?? { limit: CONCURRENCY_MIN, isProven: false, averageMs: 0 };
    },
    keep(laneId, receiver) {
      if (!receiver.isProven) return;
      remembered.set(laneId, receiver);
      const [oldest] = remembered.keys();
      if (remembered.size > REMEMBERED_MAX && oldest !== undefined) remembered.delete(oldest);
    },
  };
}
