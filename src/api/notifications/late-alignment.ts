/**
 * Answers a change of one watched address in bounded time, however many of its notifications wait: what is left then is moved
 * or cancelled after the answer. Meanwhile workers send none of it to the former URL, because they read the watched address with
 * each notification (store/delivery/due.ts).
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { messageOf } from '../../core/fault.ts';
import { alignNotifications } from '../../store/delivery/record-changes.ts';
import type { ApiOptions } from '../context.ts';

/** Common clients give up after 10 s or later. A client that repeats a deletion after that would get 404. */
const WAIT_MS_MAX = 5_000;
/** Alignments that go on after their answer. Each uses a connection to the database, so further changes wait for their own. */
const LATE_MAX = 2;

/** `alignNotifications` that returns after WAIT_MS_MAX and goes on, unless LATE_MAX others do. */
export function createLateAlignment({
  clock,
  log,
}: Pick<ApiOptions, 'clock' | 'log'>): typeof alignNotifications {
  let lateCount = 0;
  return async (database, watcherId, recordIds, now) => {
    const aligned = alignNotifications(database, watcherId, recordIds, now);
    if ((await firstOrLate({ clock, signal: never }, [aligned], WAIT_MS_MAX)) !== 'late') return;
    if (lateCount >= LATE_MAX) return aligned;
    lateCount += 1;
    aligned
      .catch((error: unknown) => {
        log.warn(
          { watcher: watcherId, watchedAddresses: recordIds, error: messageOf(error) },
          'delivery.align_failed',
        );
      })
      .finally(() => {
        lateCount -= 1;
      });
  };
}
