/**
 * Notices that the database holds up the follower: a lock, a slow statement, or connections that are all in use. Its step then
 * doesn't fail for up to two minutes.
 */
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';

export type HoldUp = {
  /** The same database, with its statements and transactions under watch. */
  watch(database: Database): Database;
  /** Watches work that is one transaction. */
  during<T>(work: () => Promise<T>): Promise<T>;
  /** Since when the oldest of them has waited, once that is HELD_UP_MS. */
  since(): Date | undefined;
};

/** The largest commits take a second or two. Less than a step waits for a connection while others wait for the same lock with all of them. */
export const HELD_UP_MS = 8_000;

export function createHoldUp(clock: Pick<Clock, 'now' | 'steadyMs'>): HoldUp {
  /** The oldest comes first. */
  const underWay = new Set<{ at: Date; ms: number }>();

  async function during<T>(work: () => Promise<T>): Promise<T> {
    const begun = { at: clock.now(), ms: clock.steadyMs() };
    underWay.add(begun);
    try {
      return await work();
    } finally {
      underWay.delete(begun);
    }
  }

  return {
    during,
    watch: (database) => ({
      ...database,
      query: (statement) => during(() => database.query(statement)),
      transaction: (work) => during(() => database.transaction(work)),
    }),
    since() {
      const [oldest] = underWay;
      return oldest !== undefined && clock.steadyMs() - oldest.ms >= HELD_UP_MS ? oldest.at : undefined;
    },
  };
}
