/**
 * Which background work fails on this process, for /status.
 */
import type { Clock } from '../core/clock.ts';
import type { FailingWork } from '../store/deployment/processes.ts';

export type WorkWatch = {
  /** A step of the work begins. Leave it out for work whose steps may wait for long. */
  begin(work: string): void;
  fault(work: string): void;
  bug(work: string): void;
  success(work: string): void;
  /** Bugs at once, and work that has had no success for long since a step began or failed: it fails with Faults, or waits. */
  failing(): FailingWork[];
};

type Bug = { since: Date; lastMs: number; isOver: boolean };
type Instant = { since: Date; sinceMs: number };

/** Most Faults and waits are over sooner, and others, such as a database that is away, show elsewhere. */
export const LASTING_MS = 300_000;
/** A bug counts until its work has gone on without it for this long. It may come with every second item only. */
export const CALM_MS = 60_000;

export function createWorkWatch(clock: Pick<Clock, 'now' | 'steadyMs'>): WorkWatch {
  const bugs = new Map<string, Bug>();
  /** When the first step began or failed that has had no success since. */
  const pending = new Map<string, Instant>();
  const isPresent = ({ isOver, lastMs }: Bug) => !isOver || clock.steadyMs() - lastMs < CALM_MS;
  const begin = (work: string) => {
    if (!pending.has(work)) pending.set(work, { since: clock.now(), sinceMs: clock.steadyMs() });
  };
  return {
    begin,
    fault: begin,
    bug(work) {
      pending.delete(work);
      const known = bugs.get(work);
      const since = known !== undefined && isPresent(known) ? known.since : clock.now();
      bugs.set(work, { since, lastMs: clock.steadyMs(), isOver: false });
    },
    success(work) {
      pending.delete(work);
      const bug = bugs.get(work);
      if (bug !== undefined) bugs.set(work, { ...bug, isOver: true });
    },
    failing() {
      const present = [...bugs].filter(([, bug]) => isPresent(bug));
      const lasting = [...pending].filter(
        ([work, { sinceMs }]) =>
          clock.steadyMs() - sinceMs >= LASTING_MS && !present.some(([other]) => other === work),
      );
      return [
        ...present.map(([work, { since }]) => ({ work, since, isBug: true })),
        ...lasting.map(([work, { since }]) => ({ work, since, isBug: false })),
      ];
    },
  };
}
