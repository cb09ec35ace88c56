/**
 * The newest attempts as rows, for the live tail of the overview. One row for each notification, newest attempt first.
 */
import { type Signal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { scope } from '../state/session.ts';
import { call, loadSurely } from './client.ts';
import { followAttempts } from './stream.ts';
import type { AttemptEvent, Delivery } from './types.ts';

export type TailRow = { delivery: TailDelivery; at: string };
type TailDelivery = Omit<
  Delivery,
  | 'state'
  | 'revision'
  | 'orphaned'
  | 'orphaned_at'
  | 'orphaned_block'
  | 'replaces'
  | 'replaced_by'
  | 'redelivery_count'
  | 'processed_at'
  | 'failures'
  | 'url'
> & { watcher_id?: number };

/** The rows of a live list. With 100 of them, more frames were longer than 50 ms at 10,000 attempts a minute (bench/console.ts). */
export const ROWS_MAX = 60;

/** The newest attempts are not those of the newest deliveries, so more of these are loaded than rows are shown. */
const LOADED_MIN = 50;
/** A reorg makes no attempt, so rows are loaded again this often. */
const REFRESH_MS = 30_000;

/** Follows the attempts of everything that the visitor sees. The rows are undefined until the first page has arrived. */
export const useTail = (count: number): Signal<TailRow[] | undefined> => useTailOf(undefined, count);

/** Follows the attempts of one watched address. */
export function useTailOf(recordId: string | undefined, count: number): Signal<TailRow[] | undefined> {
  const rows = useMemo(() => signal<TailRow[] | undefined>(undefined), []);
  const { value: whose } = scope;
  useEffect(() => {
    rows.value = undefined;
    const abort = new AbortController();
    let loading = 0;
    const load = async () => {
      loading += 1;
      try {
        await loadRows();
      } finally {
        loading -= 1;
      }
    };
    const loadRows = async () => {
      const { signal: own } = abort;
      const query = { limit: String(Math.max(count, LOADED_MIN)), watched_address_id: recordId };
      const page = await loadSurely(() => call('GET /api/notifications/log', { query, signal: own }), own);
      const loaded = page.map((delivery) => ({
        delivery,
        at: delivery.last_attempt?.started_at ?? delivery.created_at,
      }));
      rows.value = merge(rows.value ?? [], loaded, count);
    };
    const end = followAttempts({
      onAttempts(attempts) {
        const own = attempts.filter(
          (one) => recordId === undefined || one.notification.watched_address_id === recordId,
        );
        if (own.length > 0) rows.value = merge(rows.value ?? [], own.map(rowOf).reverse(), count);
      },
      onFresh(why) {
        if (why !== 'start') rows.value = undefined;
        void load().catch(() => {});
      },
    });
    void load().catch(() => {});
    const endRefresh = whileShown(() => {
      // A load goes on until the service answers.
      if (loading === 0) void load().catch(() => {});
    });
    return () => {
      endRefresh();
      abort.abort();
      end();
    };
  }, [rows, whose, recordId, count]);
  return rows;
}

/** Calls this from time to time unless the tab is hidden, and when it is shown again. Returns what ends that. */
export function whileShown(refresh: () => void, everyMs = REFRESH_MS): () => void {
  const refreshShown = () => {
    if (!document.hidden) refresh();
  };
  const timer = setInterval(refreshShown, everyMs);
  document.addEventListener('visibilitychange', refreshShown);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', refreshShown);
  };
}

/** An attempt as a row. */
export function rowOf(attempt: AttemptEvent): TailRow {
  const { notification, id, started_at, duration_ms, outcome, status, watcher_id } = attempt;
  return {
    at: started_at,
    delivery: {
      ...notification,
      ...(watcher_id !== undefined && { watcher_id }),
      id: attempt.notification_id,
      confirmations: null,
      confirmations_needed: null,
      last_attempt: { id, started_at, duration_ms, outcome, status },
    },
  };
}

/** Newer rows replace older ones of the same notification. */
function merge(old: readonly TailRow[], fresh: readonly TailRow[], count: number): TailRow[] {
  const byId = new Map<number, TailRow>();
  for (const row of [...old, ...fresh]) {
    const known = byId.get(row.delivery.id);
    if (known === undefined || attemptOf(row) >= attemptOf(known)) byId.set(row.delivery.id, row);
  }
  return [...byId.values()]
    .sort((one, other) => attemptOf(other) - attemptOf(one) || Date.parse(other.at) - Date.parse(one.at))
    .slice(0, count);
}

/** Attempts have rising ids. Deliveries without one come last. */
const attemptOf = ({ delivery }: TailRow): number => delivery.last_attempt?.id ?? 0;
