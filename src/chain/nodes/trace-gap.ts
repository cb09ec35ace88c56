/**
 * Notes which blocks came without traces although earlier blocks had them, so that the operator learns of it.
 */
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Bundle } from '../blocks/bundle.ts';
import type { HeadProblem } from './head-problems.ts';

type TraceGap = {
  note(bundles: readonly Pick<Bundle, 'header' | 'traced' | 'transactions'>[]): void;
  /** Undefined while blocks come with traces, and if none ever did. */
  problem(): HeadProblem | undefined;
};

export function createTraceGap({
  clock,
  log,
  hasTraced: hadTraced = false,
}: {
  clock: Clock;
  log: Log;
  hasTraced?: boolean;
}): TraceGap {
  let hasTraced = hadTraced;
  let gap: { from: number; to: number; since: Date } | undefined;

  return {
    note(bundles) {
      for (const { header, traced, transactions } of bundles) {
        const { number } = header;
        if (transactions.length === 0 && gap === undefined) continue;
        // Requests for older blocks may end later.
        if (traced && gap !== undefined && number < gap.to) continue;
        if (!traced && hasTraced) {
          const { from, to, since } = gap ?? { from: number, to: number, since: clock.now() };
          gap = { from: Math.min(from, number), to: Math.max(to, number), since };
        } else if (traced) {
          if (gap !== undefined) log.warn({ from: gap.from, to: gap.to }, 'traces.back');
          gap = undefined;
          hasTraced = true;
        }
      }
    },
    problem: () =>
      gap && {
        message: `no node can trace anymore, so blocks from ${gap.from} on are stored without internal transfers. Repair a node, or add one that can trace, and then run chainbell repair over these blocks. With chain.internalTransfers: required, Chainbell holds instead`,
        since: gap.since,
      },
  };
}
