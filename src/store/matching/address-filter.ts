/**
 * The address filter of the leading follower. It holds a set in memory that denies most addresses that are not watched, so a
 * commit asks the database only for the others. docs/explanation/address-filter.md says why no watched address is denied.
 *
 * A filter is built page by page while commits ask the database for all addresses. Afterwards each commit takes the changes
 * since the last one, in its own transaction.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { StepOutcome } from '../../core/loop.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { Database, Tx } from '../db/db.ts';
import {
  announceFilter,
  countRecords,
  endFilters,
  type FilterMark,
  hasChanges,
  type Moved,
  moveMark,
  pruneChanges,
  readAddressPage,
} from './address-changes.ts';
import { ADDRESS_BYTES, type AddressSet, createAddressSet } from './address-set.ts';
import type { Narrow } from './matching.ts';

/** Like `Database.transaction`, but `work` also gets the filter if there is one. */
export type FilteredTransaction = <T>(work: (tx: Tx, narrow?: Narrow) => Promise<T>) => Promise<T>;

export type AddressFilter = {
  /** Begins, builds and tends the filter in the process that leads, and forgets it in others. */
  step(): Promise<StepOutcome>;
  transaction: FilteredTransaction;
  isReady(): boolean;
};

type AddressFilterOptions = {
  database: Database;
  clock: Pick<Clock, 'steadyMs'>;
  log: Log;
  metrics: Metrics;
  /** Watched addresses from which on there is a filter; undefined for none. */
  minRecords: number | undefined;
  /** Whether this process is the leading follower. */
  leads(): boolean;
  /** Addresses per page of the build. */
  pageSize?: number;
};

type Filter = {
  mark: FilterMark;
  set: AddressSet;
  /** Addresses that lost a record since the build. Some may still have another. */
  removedCount: number;
  startedMs: number;
  /** The last address of the build so far; undefined when it is complete. */
  after: Uint8Array | undefined;
};

/** A page takes the database a few milliseconds. */
const PAGE_SIZE = 10_000;
/** How often records are counted without a filter: at most for a hundredth of the time. */
const COUNT_MS_MIN = 60_000;
const COUNT_PAUSE_FACTOR = 100;
/** Changes that a commit takes. If there are more, it asks the database for all addresses. */
const COMMIT_CHANGES_MAX = 100_000;
/** Changes that are taken between commits: 20 MB of addresses. If there are more, the filter is built again. */
const CATCH_UP_CHANGES_MAX = 1_000_000;
const PRUNE_ROWS = 10_000;
const STALE_SHARE = 0.2;

// oxlint-disable-next-line max-lines-per-function -- One state machine; its short functions share the filter.
export function createAddressFilter(options: AddressFilterOptions): AddressFilter {
  const { database, clock, log, metrics, minRecords, leads, pageSize = PAGE_SIZE } = options;
  let filter: Filter | undefined;
  let countNextMs = Number.NEGATIVE_INFINITY;
  /** Whether a transaction may be moving the mark. A second one at the same time would find another mark than its own. */
  let isMoving = false;

  async function step(): Promise<StepOutcome> {
    if (!leads()) {
      forget();
      return 'idle';
    }
    if (filter === undefined) return (await begin()) ? 'worked' : prune();
    if (filter.after !== undefined) return build(filter, filter.after);
    return tend(filter);
  }

  /** Returns whether a filter has begun. */
  async function begin(): Promise<boolean> {
    const startedMs = clock.steadyMs();
    if (startedMs < countNextMs) return false;
    if (minRecords !== undefined && (await countRecords(database, minRecords)) >= minRecords) {
      const set = createAddressSet(await countRecords(database));
      const mark = await announceFilter(database, randomUUID());
      filter = { mark, set, removedCount: 0, startedMs, after: new Uint8Array() };
      return true;
    }
    const tookMs = clock.steadyMs() - startedMs;
    await endFilters(database);
    countNextMs = startedMs + Math.max(COUNT_MS_MIN, COUNT_PAUSE_FACTOR * tookMs);
    return false;
  }

  async function build(building: Filter, after: Uint8Array): Promise<StepOutcome> {
    const page = await readAddressPage(database, building.mark, { after, limit: pageSize });
    if (page === undefined) return lose(building, 'lost');
    await building.set.add(page);
    // A page that is not full is the last one. Addresses that come later are noted as changes.
    const isLast = page.length < pageSize * ADDRESS_BYTES;
    building.after = isLast ? undefined : Uint8Array.from(page.subarray(-ADDRESS_BYTES));
    if (isLast) {
      const { set, startedMs } = building;
      const durationMs = Math.round(clock.steadyMs() - startedMs);
      log.info({ entries: set.entries(), bytes: set.bytes, durationMs }, 'filter.built');
      show();
    }
    return 'worked';
  }

  async function tend(ready: Filter): Promise<StepOutcome> {
    const { set, removedCount, mark } = ready;
    if (set.isOverfull()) return lose(ready, 'too small');
    if (removedCount > set.entries() * STALE_SHARE) return lose(ready, 'stale');
    // A chain may be slow, and changes many.
    if (!isMoving && (await hasChanges(database, mark)) && !isMoving)
      await move(ready, CATCH_UP_CHANGES_MAX, (tx, narrow) => narrow(tx, []));
    return prune();
  }

  async function prune(): Promise<StepOutcome> {
    return (await pruneChanges(database, PRUNE_ROWS)) === PRUNE_ROWS ? 'worked' : 'idle';
  }

  const isReady = () => filter !== undefined && filter.after === undefined;

  const transaction: FilteredTransaction = (work) =>
    filter === undefined || !isReady() || isMoving
      ? database.transaction((tx) => work(tx))
      : move(filter, COMMIT_CHANGES_MAX, work);

  /** Runs a transaction that moves the mark. The new mark counts only when the transaction has succeeded. */
  async function move<T>(
    moving: Filter,
    changesMax: number,
    work: (tx: Tx, narrow: Narrow) => Promise<T>,
  ): Promise<T> {
    isMoving = true;
    let moved: Moved | undefined;
    const narrow: Narrow = async (tx, addresses) => {
      moved = await moveMark(tx, moving.mark, changesMax);
      if (moved.outcome !== 'moved') return addresses;
      // Entries too many are harmless if the transaction fails.
      await moving.set.add(moved.addresses);
      const passed = moving.set.select(addresses);
      metrics.addressFilterProbes.inc(addresses.length);
      metrics.addressFilterPassed.inc(passed.length);
      return passed;
    };
    try {
      const result = await database.transaction((tx) => {
        // An earlier run, which ended in a conflict, moved nothing.
        moved = undefined;
        return work(tx, narrow);
      });
      accept(moving, moved, changesMax);
      return result;
    } finally {
      isMoving = false;
    }
  }

  function accept(moving: Filter, moved: Moved | undefined, changesMax: number): void {
    if (moved?.outcome === 'moved') {
      moving.mark = moved.mark;
      moving.removedCount += moved.removedCount;
      show();
    }
    if (moved?.outcome === 'lost') lose(moving, 'lost');
    if (moved?.outcome === 'behind' && changesMax === CATCH_UP_CHANGES_MAX) lose(moving, 'behind');
  }

  /** The next step begins another filter. */
  function lose(lost: Filter, reason: 'lost' | 'behind' | 'too small' | 'stale'): StepOutcome {
    if (filter !== lost) return 'worked';
    log.info({ reason }, 'filter.dropped');
    forget();
    return 'worked';
  }

  function forget(): void {
    filter = undefined;
    countNextMs = Number.NEGATIVE_INFINITY;
    show();
  }

  function show(): void {
    const set = isReady() ? filter?.set : undefined;
    metrics.addressFilterBytes.set(set?.bytes ?? 0);
    metrics.addressFilterEntries.set(set?.entries() ?? 0);
  }

  return { step, transaction, isReady };
}
