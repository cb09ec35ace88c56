/**
 * On Citus: asks the workers whether they answer, before a block's transaction needs them. A worker that hangs within that transaction
 * would hold up the blocks of all shards (docs/explanation/lost-workers.md).
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { declareLost } from '../store/blocks/catch-up.ts';
import type { Database } from '../store/db/db.ts';

/** Commits that follow each other this closely share a check. */
const CHECKED_MS = 100;

export type WorkerCheck = (because?: string) => Promise<boolean>;

/** Resolves to whether shards were declared lost now. With a reason, it asks in any case. */
export function createWorkerCheck({
  database,
  clock,
  log,
}: {
  database: Database;
  clock: Clock;
  log: Log;
}): WorkerCheck {
  let checkedMs = Number.NEGATIVE_INFINITY;
  return async (because) => {
    if (because === undefined && clock.steadyMs() - checkedMs < CHECKED_MS) return false;
    const lost = await declareLost(database, clock.now());
    for (const { worker, blockNumber } of lost)
      log.warn({ worker, block: blockNumber, error: because ?? 'it did not answer in time' }, 'shards.lost');
    checkedMs = clock.steadyMs();
    return lost.length > 0;
  };
}
