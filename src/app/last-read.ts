/**
 * Reads for reports that must not wait for them: a lock on a table must not hold up the heartbeat.
 */
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';

const READ_MS_MAX = 500;

/**
 * Reads, one at a time. If that fails or takes READ_MS_MAX, returns what was read last; undefined before the first reading. `onBug` gets
 * unexpected errors, because they must not end the heartbeat.
 */
export function createLastRead<T>(
  clock: Clock,
  read: () => Promise<T>,
  onBug: (error: unknown) => void,
): () => Promise<T | undefined> {
  let last: T | undefined;
  let reading: Promise<void> | undefined;

  async function refresh(): Promise<void> {
    try {
      last = await read();
    } catch (error) {
      if (!(error instanceof Fault)) onBug(error);
    } finally {
      reading = undefined;
    }
  }

  return async () => {
    reading ??= refresh();
    await firstOrLate({ clock, signal: never }, [reading], READ_MS_MAX);
    return last;
  };
}
