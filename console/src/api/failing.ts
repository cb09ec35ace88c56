/**
 * The receivers in trouble, whatever page of the list they are on.
 */
import { session } from '../state/session.ts';
import { call } from './client.ts';
import { type Resource, useResource } from './resource.ts';
import type { Receiver } from './types.ts';

const REFRESH_MS = 15_000;
export const FAILING_MAX = 100;

export function useFailing(): Resource<Receiver[]> {
  return useResource(
    'failing receivers',
    (signal) =>
      call('GET /api/notifications/receivers', {
        query: { failing: 'true', limit: String(FAILING_MAX) },
        signal,
      }),
    { everyMs: REFRESH_MS, when: session.value.kind !== 'visitor' },
  );
}

/** Messages whose attempts have all failed so far. `isPart`: there may be more. */
export function unsettledOf(failing: readonly Receiver[]): { count: number; isPart: boolean } {
  return {
    count: failing.reduce((sum, { pending }) => sum + (pending ?? 0), 0),
    isPart:
      failing.length === FAILING_MAX ||
      failing.some(({ pending_is_complete: isComplete }) => isComplete === false),
  };
}
