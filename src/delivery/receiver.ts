/**
 * The observed behavior of one watcher's receiver: whether it responds in time, and how many attempts it takes at once.
 */

/**
 * isProven: its last attempt got an answer within the hand-over time. aheadMax: rows of a read that are sent before they are too old, a
 * power of two.
 */
export type ReceiverPace = { limit: number; isProven: boolean; averageMs: number; aheadMax: number };

const HAND_OVER_MS_MAX = 1_000;
const HAND_OVER_MS_MIN = 100;
/** An attempt that takes this many times the receiver's average counts as hanging. */
const HAND_OVER_AVERAGES = 8;
/** Attempts at once. Below this floor, a receiver with many failed notifications would get its retries late. */
const CONCURRENCY_MIN = 4;
const CONCURRENCY_MAX = 64;
/** Rows to read for an unproven receiver. It may hang, and further rows would become outdated in memory. */
const UNPROVEN_AHEAD = 2;
/** Receivers remembered between their leases, about 200 B each. */
const REMEMBERED_MAX = 65_536;

/** After this time an attempt is handed over to the hung budget. */
export function handOverMsOf({ isProven, averageMs }: ReceiverPace): number {
  const expectedMs = isProven ? averageMs * HAND_OVER_AVERAGES : HAND_OVER_MS_MAX;
  return Math.min(Math.max(expectedMs, HAND_OVER_MS_MIN), HAND_OVER_MS_MAX);
}

/** How many rows to read: for a proven receiver, enough to send while the next ones are read. */
export function aheadOf({ isProven, limit, aheadMax }: ReceiverPace): number {
  return isProven ? Math.min(2 * limit, aheadMax) : UNPROVEN_AHEAD;
}

/** Learns from the rows of a read. Behind hundreds of receivers, most of them would be read again and again. */
export function noteAhead(receiver: ReceiverPace, were: 'used up' | 'late'): void {
  receiver.aheadMax =
    were === 'late'
      ? Math.max(aheadOf(receiver) / 2, UNPROVEN_AHEAD)
      : Math.min(receiver.aheadMax * 2, 2 * CONCURRENCY_MAX);
}

/** Learns from a response while `open` attempts were under way. The limit grows only when at least half of it was used. */
export function noteResponse(
  receiver: ReceiverPace,
  { open, isInTime, durationMs }: { open: number; isInTime: boolean; durationMs: number },
): void {
  receiver.averageMs = receiver.isProven ? receiver.averageMs * 0.8 + durationMs * 0.2 : durationMs;
  receiver.isProven = isInTime;
  if (2 * open >= receiver.limit) receiver.limit = Math.min(receiver.limit * 2, CONCURRENCY_MAX);
}

/** Halves the limit, after a timeout or a failed connection. */
export function slowDown(receiver: ReceiverPace): void {
  receiver.limit = Math.max(receiver.limit >> 1, CONCURRENCY_MIN);
}

/** A receiver of a watcher. */
type ReceiverKey = { watcherId: number; origin: string };

/** Remembers proven receivers while their lanes are not leased here. */
export type ReceiverMemory = {
  take(key: ReceiverKey): ReceiverPace;
  keep(key: ReceiverKey, receiver: ReceiverPace): void;
};

export function createReceiverMemory(): ReceiverMemory {
  const remembered = new Map<string, ReceiverPace>();
  const textOf = ({ watcherId, origin }: ReceiverKey) => `${watcherId} ${origin}`;
  return {
    take(key) {
      const known = remembered.get(textOf(key));
      remembered.delete(textOf(key));
      return (
        known ?? { limit: CONCURRENCY_MIN, isProven: false, averageMs: 0, aheadMax: 2 * CONCURRENCY_MAX }
      );
    },
    keep(key, receiver) {
      if (!receiver.isProven) return;
      remembered.set(textOf(key), receiver);
      const [oldest] = remembered.keys();
      if (remembered.size > REMEMBERED_MAX && oldest !== undefined) remembered.delete(oldest);
    },
  };
}
