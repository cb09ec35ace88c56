/**
 * Counts and logs the answers of one node that a proof or a quorum of the nodes contradicted.
 */
import type { Clock } from '../../core/clock.ts';
import { type Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';

export type Disproved = {
  /** Counts the answer. Logs it unless this node's last log line is less than a minute old. */
  note(fault: Fault): void;
  /** Since the start. */
  status(): { count: number; last: { message: string; at: Date } | undefined };
};

/** A node that lies about every block must not fill the log. */
const LOG_MS_MIN = 60_000;

export function createDisproved(
  node: string,
  { clock, log, metrics }: { clock: Clock; log: Log; metrics: Metrics },
): Disproved {
  let count = 0;
  let newest: Fault | undefined;
  let last: { message: string; at: Date } | undefined;
  let loggedMs = Number.NEGATIVE_INFINITY;
  return {
    note(fault) {
      // Attempts can be nested, so the same Fault can arrive more than once.
      if (fault === newest) return;
      newest = fault;
      count += 1;
      last = { message: messageOf(fault), at: clock.now() };
      metrics.rpcDisproved.inc({ node });
      if (clock.steadyMs() - loggedMs < LOG_MS_MIN) return;
      loggedMs = clock.steadyMs();
      log.warn({ node, error: last.message, count }, 'node.disproved');
    },
    status: () => ({ count, last }),
  };
}
