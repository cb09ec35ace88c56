/**
 * Counts of the delivery queue in `/status`, of which each stops at the same maximum.
 */
import { formatCount } from './number.ts';

type Queue = Record<'deferred' | 'held' | 'waiting' | 'due', number> & { is_complete: boolean };

/** Whether none of these counts stopped at the maximum. Those that did are the highest. */
export function areExact(queue: Queue, counts: readonly number[]): boolean {
  const most = Math.max(queue.deferred, queue.held, queue.waiting, queue.due);
  return queue.is_complete !== false || counts.every((count) => count < most);
}

/** Their sum, with a plus if there may be more. */
export function formatQueued(queue: Queue, counts: readonly number[]): string {
  const sum = counts.reduce((total, count) => total + count, 0);
  return `${formatCount(sum)}${areExact(queue, counts) ? '' : '+'}`;
}
