/**
 * Reads the parts of a status, each by itself: a part that fails or takes too long is unknown, and hides no other one.
 */
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { DATABASE_MS_MAX } from './readiness.ts';

type PartReader = {
  /** Undefined if the part can't be read within DATABASE_MS_MAX. */
  read<Part>(part: Promise<Part>): Promise<Part | undefined>;
  /** Why parts are unknown. */
  errors: readonly unknown[];
};

export function createPartReader(clock: Clock): PartReader {
  const errors: unknown[] = [];
  return {
    errors,
    async read(part) {
      try {
        const outcome = await firstOrLate({ clock, signal: never }, [part], DATABASE_MS_MAX);
        if (outcome !== 'late') return outcome;
        errors.push(new Fault('unavailable', `database: no answer within ${DATABASE_MS_MAX / 1000} s`));
      } catch (error) {
        errors.push(error);
      }
      return undefined;
    },
  };
}
