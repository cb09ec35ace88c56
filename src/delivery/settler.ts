/**
 * Records outcomes in groups: those that arrive while one commit runs go into the next.
 */
import { setImmediate } from 'node:timers/promises';
import { createGroups } from '../core/batching.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Database } from '../store/db/db.ts';
import { listLostAmong } from '../store/db/lost-shards.ts';
import { type Settlement, settle } from '../store/delivery/settle.ts';
import { untilUnlocked } from './retry-locked.ts';

export type Settler = {
  /** Resolves when the outcome is durable, or 'lost' when the lane belongs to another worker now. */
  submit(settlement: Settlement): Promise<'settled' | 'lost'>;
  /** Whether outcomes are recorded about as fast as they come, so that their attempts needn't keep their slots meanwhile. */
  keepsUp(): boolean;
};

/** Bounds one statement; at 3,000 deliveries a second a commit of 10 ms gathers about 30. */
const GROUP_MAX = 500;
/** Half of the concurrent attempts at one origin, so that half of them are sent while the other half is recorded. */
const GATHER_MAX = 64;
const RETRY_MS = 250;
/** One statement is on its way while the database works on another. */
const STATEMENTS_MAX = 2;
/**
 * While fewer outcomes than this are unrecorded, attempts that have ended give up their slots. So the death of the process repeats
 * at most this many requests more than it has slots. At 6,000 deliveries a second about 60 are unrecorded.
 */
const UNRECORDED_MAX = 256;

/**
 * A settler that retries while the database is unavailable, because a receiver that has responded must not get the webhook
 * again. After the signal aborts it gives up, and the rows stay due.
 */
export function createSettler(options: {
  database: Database;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  /** Called with the watchers of each recorded group. */
  onSettled?: ((watcherIds: readonly number[]) => void) | undefined;
}): Settler {
  const { database, clock, log, signal, onSettled } = options;

  /** While outcomes arrive in every turn of the event loop, a few more turns make one large commit of many small ones. */
  async function gather(count: () => number): Promise<void> {
    for (let before = 0; count() > before && count() < GATHER_MAX; ) {
      before = count();
      await setImmediate();
    }
  }

  /** On Citus: shards whose last outcomes could not be recorded. Their worker may be lost. */
  const failing = new Set<number>();

  async function work(
    group: readonly Settlement[],
  ): Promise<(one: Settlement) => 'settled' | 'lost' | 'locked'> {
    for (;;) {
      try {
        const shards = new Set(group.map(({ lane }) => lane.shardId));
        // Those that are lost with the failing ones have not been tried yet.
        const lost = await listLostAmong(database, failing.size === 0 ? [] : [...shards]);
        const reached = group.filter(({ lane }) => !lost.has(lane.shardId));
        const unrecorded = reached.length === 0 ? new Map() : await settle(database, reached);
        for (const one of reached)
          if (unrecorded.get(one) !== 'locked') failing.delete(one.lane.shardId);
          else if (database.isDistributed === true) failing.add(one.lane.shardId);
        if (reached.length > 0) onSettled?.([...new Set(reached.map(({ lane }) => lane.watcherId))]);
        return (one) => (lost.has(one.lane.shardId) ? 'locked' : (unrecorded.get(one) ?? 'settled'));
      } catch (error) {
        if (!(error instanceof Fault) || signal.aborted) throw error;
        log.warn({ outcomes: group.length, error: messageOf(error) }, 'delivery.outcomes_wait');
        await clock.wait(RETRY_MS, signal);
        if (database.isDistributed !== true) continue;
        // The outcomes of other shards must not wait for those of a lost one.
        for (const { lane } of group) failing.add(lane.shardId);
        return () => 'locked';
      }
    }
  }

  const inGroups = createGroups({ sizeMax: GROUP_MAX, groupsMax: STATEMENTS_MAX, gather, work });
  let unrecorded = 0;

  return {
    async submit(settlement) {
      unrecorded += 1;
      try {
        // Other groups continue meanwhile.
        const result = await untilUnlocked(clock, signal, () => inGroups(settlement));
        if (result === 'locked') throw new Fault('unavailable', 'the outcome could not be recorded in time');
        return result;
      } finally {
        unrecorded -= 1;
      }
    },
    keepsUp: () => unrecorded < UNRECORDED_MAX,
  };
}
