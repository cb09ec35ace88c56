/**
 * Answers a change of one watched address in bounded time, however many of its notifications wait: what is left then is moved
 * or cancelled after the answer. Meanwhile workers send none of it to the former URL, because they read the watched address with
 * each notification (store/delivery/due.ts).
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import { alignNotifications } from '../../store/delivery/record-changes.ts';
import type { ApiOptions } from '../context.ts';

/** Common clients give up after 10 s or later. A client that repeats a deletion after that would get 404. */
const WAIT_MS_MAX = 5_000;
/** Alignments that go on after their answer. Each uses a connection to the database, so further changes wait for their own. */
const LATE_MAX = 2;

type Align = typeof alignNotifications;
/** Named in the log, of a list or a set. */
const IDS_LOGGED_MAX = 10;

/**
 * `alignNotifications` that logs a Fault. The change is committed, so a client that saw it fail would repeat it, and create records once
 * more or get 404.
 */
export function createAlignment({ log }: Pick<ApiOptions, 'log'>): Align {
  return async (database, watcherId, recordIds, now) => {
    try {
      await alignNotifications(database, watcherId, recordIds, now);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      logFailure(log, watcherId, recordIds, error);
    }
  };
}

/** The same, but it returns after WAIT_MS_MAX and goes on, unless LATE_MAX others do. */
export function createLateAlignment({ clock, log }: Pick<ApiOptions, 'clock' | 'log'>): Align {
  const align = createAlignment({ log });
  let lateCount = 0;
  return async (database, watcherId, recordIds, now) => {
    const aligned = align(database, watcherId, recordIds, now);
    if ((await firstOrLate({ clock, signal: never }, [aligned], WAIT_MS_MAX)) !== 'late') return;
    if (lateCount >= LATE_MAX) return aligned;
    lateCount += 1;
    aligned
      .catch((error: unknown) => logFailure(log, watcherId, recordIds, error))
      .finally(() => {
        lateCount -= 1;
      });
  };
}

function logFailure(log: Log, watcher: number, recordIds: readonly string[], error: unknown): void {
  const watchedAddresses = recordIds.slice(0, IDS_LOGGED_MAX);
  log.warn({ watcher, watchedAddresses, error: messageOf(error) }, 'delivery.align_failed');
}
