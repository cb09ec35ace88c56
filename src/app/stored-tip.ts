/**
 * The newest stored block, for a report that must not wait for it: a lock on the table must not hold up the heartbeat.
 */
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import type { Db } from '../store/db/db.ts';

type StoredTip = Awaited<ReturnType<typeof findTipTimes>>;

const TIP_MS_MAX = 500;

/** Reads the newest block. If that fails or takes TIP_MS_MAX, returns what was read last, which is never above the present one. */
export function createTipReader(database: Db, clock: Clock): () => Promise<StoredTip> {
  let last: StoredTip;
  let reading: Promise<void> | undefined;

  async function read(): Promise<void> {
    try {
      last = await findTipTimes(database);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
    } finally {
      reading = undefined;
    }
  }

  return async () => {
    reading ??= read();
    await firstOrLate({ clock, signal: never }, [reading], TIP_MS_MAX);
    return last;
  };
}
