/**
 * Which work beside blocks and webhooks fails on this process, for /status.
 */
import type { Clock } from '../core/clock.ts';
import type { FailingWork } from '../store/deployment/processes.ts';

export type WorkWatch = {
  bug(work: string): void;
  fault(work: string): void;
  success(work: string): void;
  /** Bugs at once, and Faults that last. */
  failing(): FailingWork[];
};

type Bug = { since: Date; lastMs: number; isOver: boolean };
type Faults = { since: Date; sinceMs: number };

/** Most Faults are over sooner, and others, such as a database that is away, show elsewhere. */
export const FAULT_MS = 300_000;
/** A bug counts until its work has gone on without it for this long. It may come with every second item only. */
export const CALM_MS = 60_000;

export function createWorkWatch(clock: Pick<Clock, 'now' | 'steadyMs'>): WorkWatch {
  const bugs = new Map<string, Bug>();
  const faults = new Map<string, Faults>();
  const isPresent = ({ isOver, lastMs }: Bug) => !isOver || clock.steadyMs() - lastMs < CALM_MS;
  return {
    bug(work) {
      const known = bugs.get(work);
      const since = known !== undefined && isPresent(known) ? known.since : clock.now();
      bugs.set(work, { since, lastMs: clock.steadyMs(), isOver: false });
    },
    fault(work) {
      if (!faults.has(work)) faults.set(work, { since: clock.now(), sinceMs: clock.steadyMs() });
    },
    success(work) {
      faults.delete(work);
      const bug = bugs.get(work);
      if (bug !== undefined) bugs.set(work, { ...bug, isOver: true });
    },
    failing() {
      const present = [...bugs].filter(([, bug]) => isPresent(bug));
      const lasting = [...faults].filter(
        ([work, { sinceMs }]) =>
          clock.steadyMs() - sinceMs >= FAULT_MS && !present.some(([other]) => other === work),
      );
      return [
        ...present.map(([work, { since }]) => ({ work, since, isBug: true })),
        ...lasting.map(([work, { since }]) => ({ work, since, isBug: false })),
      ];
    },
  };
}
