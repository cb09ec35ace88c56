/**
 * On Citus: gives lost shards the blocks that they miss, once their worker answers again (store/db/lost-shards.ts).
 */
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { catchUp } from '../store/blocks/catch-up.ts';
import type { Database } from '../store/db/db.ts';
import { type LostShards, listLost } from '../store/db/lost-shards.ts';
import type { WorkerCheck } from './worker-check.ts';

/** The pause after a transaction, because each holds up the commits of blocks. */
const PAUSE_MS = 50;

type CatchUpOptions = {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Pick<Metrics, 'ingestNotifications'>;
  /** The same as the follower's. */
  confirmations: number;
  checkWorkers: WorkerCheck;
};

/** A step looks for lost workers, and catches up some blocks for the shards of each one. */
export function createCatchUp(options: CatchUpOptions): Step {
  const { database, clock, log, metrics, confirmations, checkWorkers } = options;
  /** Returns whether the shards miss further blocks that they can be given at once. */
  async function advance({ id, worker }: LostShards): Promise<boolean> {
    try {
      const result = await catchUp(database, { id }, { confirmations, now: clock.now() });
      if (result.outcome === 'silent') return false;
      const { outcome, blocks, notificationCount: notifications } = result;
      metrics.ingestNotifications.inc(notifications);
      if (outcome === 'done') log.info({ worker, blocks, notifications }, 'shards.back');
      else log.info({ worker, blocks, notifications }, 'shards.catching_up');
      return outcome === 'left';
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      // The shards of other workers must not wait for it.
      log.warn({ worker, error: messageOf(error) }, 'shards.still_lost');
      return false;
    }
  }

  return async (signal) => {
    await checkWorkers();
    let isLeft = false;
    for (const lost of await listLost(database)) isLeft = (await advance(lost)) || isLeft;
    if (!isLeft) return 'idle';
    await clock.wait(PAUSE_MS, signal);
    return 'worked';
  };
}
