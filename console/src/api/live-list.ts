/**
 * A page of the delivery log that lives: attempts change its rows in place, and new deliveries are added or counted. It reads
 * the stream first and the page second, so that nothing falls between them.
 */
import { type Signal, signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { announceSoon } from '../state/announce.ts';
import { scope } from '../state/session.ts';
import { texts } from '../texts.ts';
import { ApiError, callPage, loadSurely } from './client.ts';
import { type DeliveryFilter, matches, queryOf } from './filter.ts';
import { type Beginning, followAttempts, isBusy } from './stream.ts';
import { ROWS_MAX, rowOf, type TailRow, whileShown } from './tail.ts';
import type { AttemptEvent } from './types.ts';

type RowDelivery = TailRow['delivery'];

export type LiveList = {
  rows: Signal<RowDelivery[] | undefined>;
  next: Signal<string | undefined>;
  error: Signal<ApiError | undefined>;
  /** Deliveries that arrived while the list stood still. */
  fresh: Signal<number>;
  /** The search for this page ended before it was full. */
  isShort: Signal<boolean>;
  /** More than a thousand attempts were missed, and the newest page was loaded instead. */
  hasMissed: Signal<boolean>;
  /** Shows the page as it is now. */
  reload(): Promise<void>;
  /** The same, but rows that must not move only change in place, and new ones are counted. */
  renew(): Promise<void>;
};

const PAGE_ROWS = 50;
/** The rows of a list that changes faster than anyone can read. All of them change each time, so half as many take half the time. */
const BUSY_ROWS_MAX = 30;
/** A list that has fewer rows left, because they no longer match, loads its page again. */
const ROWS_MIN = PAGE_ROWS / 2;
/** States that a delivery enters or leaves without an attempt. A list of one of them is loaded this often. */
const SILENT_STATES = ['waiting', 'sending', 'held'];
const SILENT_MS = 4_000;
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
  const followed = useRef<typeof list | undefined>(undefined);
  useEffect(() => {
    if (!isLive || cursor !== undefined) return undefined;
    const end = followAttempts({ onAttempts: list.apply, onFresh: list.begin });
    // The stream may have been open all the time, for another part of the page.
    if (followed.current === list) void list.reload();
    followed.current = list;
    const endRefresh = whileShown(
      list.refresh,
      SILENT_STATES.includes(filter.status ?? '') ? SILENT_MS : undefined,
    );
    return () => {
      end();
      endRefresh();
    };
  }, [list, isLive, cursor]);
  return list;
}

function createList(filter: DeliveryFilter, cursor: string | undefined, isStill: () => boolean) {
  const rows = signal<RowDelivery[] | undefined>(undefined);
  const next = signal<string | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  const hasMissed = signal(false);
  const fresh = signal(0);
  const isShort = signal(false);
  const seen = new Set<number>();
  /** Attempts that ended while a page was on its way. */
  let early: AttemptEvent[] = [];
  /** Rows added since the page was loaded or would have been. */
  let recent = 0;
  let abort: AbortController | undefined;

  async function load(show: (page: RowDelivery[], next: string | undefined) => void): Promise<void> {
    abort?.abort();
    const own = new AbortController();
    abort = own;
    early = [];
    try {
      const query = { ...queryOf(filter), limit: String(PAGE_ROWS), cursor };
      const page = await loadSurely(
        () => callPage('GET /api/notifications/log', { query, signal: own.signal }),
        own.signal,
        (failure) => {
          error.value = failure;
        },
      );
      if (own.signal.aborted) return;
      error.value = undefined;
      abort = undefined;
      show(page.data, page.next);
      apply(early);
    } catch (failure) {
      if (own.signal.aborted) return;
      abort = undefined;
      early = [];
      if (!(failure instanceof ApiError)) throw failure;
      error.value = failure;
    }
  }

  function replace(page: RowDelivery[], older: string | undefined): void {
    rows.value = page;
    next.value = older;
    isShort.value = older !== undefined && page.length < PAGE_ROWS;
    fresh.value = 0;
    seen.clear();
    recent = 0;
  }

  /** The pointer may have come to a row while the page was on its way. */
  function change(page: RowDelivery[], older: string | undefined): void {
    const present = rows.peek() ?? [];
    if (present.length === 0 || !isStill()) {
      replace(page, older);
      return;
    }
    const byId = new Map(page.map((row) => [row.id, row]));
    rows.value = present.map((row) => byId.get(row.id) ?? row);
    for (const { id } of present) byId.delete(id);
    count([...byId.keys()].filter((id) => id > oldestOf(present) && !seen.has(id)));
  }

  /** Attempts end in another order than that in which their notifications were created. Older ones belong to the next page. */
  const oldestOf = (present: readonly RowDelivery[]): number =>
    next.peek() === undefined ? 0 : (present.at(-1)?.id ?? 0);

  /** Those that are not shown yet. */
  function count(added: readonly number[]): void {
    for (const id of added) {
      if (seen.size >= SEEN_MAX) seen.clear();
      seen.add(id);
    }
    fresh.value += added.length;
    announceSoon(() => (fresh.value === 0 ? '' : texts.deliveries.announce(fresh.value)));
  }

  const reload = () => load(replace);
  const renew = () => load(change);

  function apply(attempts: readonly AttemptEvent[]): void {
    const { value: present } = rows;
    if (abort !== undefined) early.push(...attempts);
    if (present === undefined) return;
    const byId = new Map(present.map((row) => [row.id, row]));
    const added = new Set<number>();
    for (const attempt of attempts) {
      const { delivery } = rowOf(attempt);
      const { id } = delivery;
      const row = byId.get(id);
      if (row !== undefined) {
        if ((row.last_attempt?.id ?? 0) > attempt.id) continue;
        // A failing delivery that arrives leaves the list of failing ones.
        if (matches(attempt, filter) || isStill()) byId.set(id, { ...row, ...delivery });
        else byId.delete(id);
      } else if (id > oldestOf(present) && matches(attempt, filter)) {
        if (seen.has(id)) continue;
        byId.set(id, delivery);
        added.add(id);
      } else if (seen.delete(id)) {
        fresh.value -= 1;
      }
    }
    recent += added.size;
    const kept = present.flatMap((row) => byId.get(row.id) ?? []);
    if (added.size === 0) {
      rows.value = kept;
    } else if (isStill()) {
      rows.value = kept;
      count([...added]);
    } else if (fresh.peek() > 0) {
      // Those that were only counted belong below these.
      rows.value = kept;
      if (abort === undefined) void renew();
    } else {
      const all = [...byId.values()].sort(newestFirst);
      const shown = all.slice(0, isBusy() ? BUSY_ROWS_MAX : ROWS_MAX);
      rows.value = shown;
      seen.clear();
      // The rows that don't fit belong to the older page. The log's cursor is the id of the row before it.
      if (all.length > shown.length) next.value = String(shown.at(-1)?.id);
    }
    const hasLost = kept.length < present.length && next.peek() !== undefined;
    if (hasLost && kept.length < ROWS_MIN && abort === undefined) void renew();
  }

  /** A reorg and confirmations change rows without an attempt. A list in which rows soon make place for others needs no refresh. */
  function refresh(): void {
    if (abort === undefined && rows.peek() !== undefined && recent < PAGE_ROWS && !isStill()) void renew();
    recent = 0;
  }

  return {
    ...{ rows, next, error, fresh, isShort, hasMissed, reload, renew, apply, refresh },
    begin(why: Beginning): void {
      if (why === 'missed') hasMissed.value = true;
      void (why === 'start' ? renew() : reload());
    },
    stop: () => abort?.abort(),
  };
}

const newestFirst = (one: RowDelivery, other: RowDelivery): number => other.id - one.id;
