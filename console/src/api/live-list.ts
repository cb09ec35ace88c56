/**
 * A page of the delivery log that lives: attempts change its rows in place, and new deliveries are added or counted. It reads
 * the stream first and the page second, so that nothing falls between them.
 */
import { type Signal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { announceSoon } from '../state/announce.ts';
import { scope } from '../state/session.ts';
import { texts } from '../texts.ts';
import { ApiError, callPage } from './client.ts';
import { type DeliveryFilter, matches, queryOf } from './filter.ts';
import { type AttemptEvent, type Beginning, followAttempts } from './stream.ts';
import { ROWS_MAX, rowOf, type TailRow } from './tail.ts';

type RowDelivery = TailRow['delivery'];

export type LiveList = {
  rows: Signal<RowDelivery[] | undefined>;
  next: Signal<string | undefined>;
  error: Signal<ApiError | undefined>;
  /** Deliveries that arrived while the list stood still. */
  fresh: Signal<number>;
  /** More than a thousand attempts were missed, and the newest page was loaded instead. */
  hasMissed: Signal<boolean>;
  reload(): Promise<void>;
};

export const PAGE_ROWS = 50;
/** Deliveries that are counted while the list stands still. Beyond that, one may be counted twice. */
const SEEN_MAX = 10_000;

type Options = {
  filter: DeliveryFilter;
  cursor: string | undefined;
  isLive: boolean;
  /** Whether rows must not move now. */
  isStill(): boolean;
};

export function useLiveList({ filter, cursor, isLive, isStill }: Options): LiveList {
  const key = `${scope.value} ${JSON.stringify(filter)} ${cursor ?? ''}`;
  const list = useMemo(() => createList(filter, cursor, isStill), [key]);
  useEffect(() => {
    void list.reload();
    return list.stop;
  }, [list]);
  useEffect(() => {
    if (!isLive || cursor !== undefined) return undefined;
    return followAttempts({ onAttempts: list.apply, onFresh: list.begin });
  }, [list, isLive, cursor]);
  return list;
}

function createList(filter: DeliveryFilter, cursor: string | undefined, isStill: () => boolean) {
  const rows = signal<RowDelivery[] | undefined>(undefined);
  const next = signal<string | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  const hasMissed = signal(false);
  const fresh = signal(0);
  const seen = new Set<number>();
  /** Attempts that ended while a page was on its way. */
  let early: AttemptEvent[] = [];
  let abort: AbortController | undefined;

  async function reload(): Promise<void> {
    abort?.abort();
    const own = new AbortController();
    abort = own;
    early = [];
    try {
      const query = { ...queryOf(filter), limit: String(PAGE_ROWS), cursor };
      const page = await callPage('GET /api/notifications/log', { query, signal: own.signal });
      if (own.signal.aborted) return;
      rows.value = page.data;
      next.value = page.next;
      error.value = undefined;
      fresh.value = 0;
      seen.clear();
      abort = undefined;
      apply(early);
    } catch (failure) {
      if (own.signal.aborted) return;
      abort = undefined;
      if (!(failure instanceof ApiError)) throw failure;
      error.value = failure;
    }
  }

  function apply(attempts: readonly AttemptEvent[]): void {
    const { value: present } = rows;
    if (abort !== undefined || present === undefined) early.push(...attempts);
    if (present === undefined) return;
    // Attempts end in another order than that in which their notifications were created. Older ones belong to the next page.
    const oldest = next.peek() === undefined ? undefined : present.at(-1);
    const belongs = ({ id }: RowDelivery) => oldest === undefined || id > oldest.id;
    const byId = new Map(present.map((row) => [row.id, row]));
    const added: RowDelivery[] = [];
    for (const attempt of attempts) {
      const { delivery } = rowOf(attempt);
      const row = byId.get(delivery.id);
      if (row !== undefined) {
        if ((row.last_attempt?.id ?? 0) <= attempt.id) byId.set(delivery.id, { ...row, ...delivery });
      } else if (belongs(delivery) && matches(attempt, filter) && !seen.has(delivery.id)) {
        if (seen.size >= SEEN_MAX) seen.clear();
        seen.add(delivery.id);
        added.push(delivery);
      }
    }
    const kept = present.map((row) => byId.get(row.id) ?? row);
    if (added.length > 0 && isStill()) {
      fresh.value += added.length;
      announceSoon(() => texts.deliveries.announce(fresh.value));
      rows.value = kept;
    } else {
      const all = [...added, ...kept].sort(newestFirst);
      rows.value = all.slice(0, ROWS_MAX);
      seen.clear();
      // The rows that don't fit belong to an older page now, which has no link yet.
      if (all.length > ROWS_MAX && next.peek() === undefined) void reload();
    }
  }

  return {
    ...{ rows, next, error, fresh, hasMissed, reload, apply },
    begin(why: Beginning): void {
      if (why === 'missed') hasMissed.value = true;
      void reload();
    },
    stop: () => abort?.abort(),
  };
}

const newestFirst = (one: RowDelivery, other: RowDelivery): number => other.id - one.id;
