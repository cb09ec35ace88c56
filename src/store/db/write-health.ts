/**
 * Checks whether the database accepts writes. With a full disk, or once it is read-only, it still answers all queries.
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { type Database, DENIED, databaseError, READ_ONLY_ADVICE, sqlStateOf, type Tx } from './db.ts';
import { type Sql, sql } from './sql.ts';

/** A part of the process whose last write failed. */
export type WriteFailure = { part: string; message: string; since: Date };

export type WriteHealth = {
  /** The database for one part of the process. After a failed write the part is failing until one of its writes changes something. */
  watch(part: string, view?: Database): Database;
  /** The parts whose last write failed. First probes on behalf of parts that have not tried to write for a while. */
  failures(): Promise<readonly WriteFailure[]>;
};

/**
 * A part that has not tried again for this long may have nothing to write, such as a follower that stands by, so only a probe can clear
 * its failure. Blocks and outcomes are tried again within 2 s.
 */
const QUIET_MS = 5_000;
/** The same for a part that failed again after a probe had cleared it, so that its state doesn't alternate. All loops retry within 15 s. */
const QUIET_AGAIN_MS = 20_000;
const PROBE_PAUSE_MS = 1_000;
/** Callers of `failures` wait no longer for a probe. */
const PROBE_MS_MAX = 1_000;
/** SQLSTATEs that a retry resolves and that say nothing about disk or server: serialization, locks, cancel. */
const PASSING = /^(40|55P03|57014)/;
/** Access denied, resources, limits, operator intervention, system errors, internal errors, read-only. */
const LASTING = /^(08|28|53|54|57|58|XX|25006)/;

const ADVICE: readonly [pattern: RegExp, advice: string][] = [
  [/^(53100|ENOSPC)/, 'The disk is full. Free space on the volume of the database.'],
  [/^25006/, `${READ_ONLY_ADVICE}.`],
  [/^53200/, 'The server is out of memory.'],
  [/^(57P|08|E)/, 'The server is stopping, starting or cannot be reached. Check that it runs.'],
];
const OTHER_ADVICE = "See the database server's log.";

/** `isTried`: a statement writes. `hasChanged`: a part that failed before has changed something. */
type Write = { isTried: boolean; hasChanged: boolean };
type Failing = { error: Error; since: Date; lastMs: number; quietMs: number };

export function createWriteHealth(database: Database, clock: Clock): WriteHealth {
  const parts = createFailingParts(clock);
  let probing: Promise<void> | undefined;
  let probedMs = Number.NEGATIVE_INFINITY;

  /** Records whether the writes of a piece of work failed, or ended a failure. */
  async function record<T>(part: string, work: (write: Write) => Promise<T>): Promise<T> {
    const write = { isTried: false, hasChanged: false };
    try {
      const result = await work(write);
      if (write.hasChanged) parts.noteSuccess(part);
      return result;
    } catch (error) {
      if (write.isTried && isLasting(error)) parts.noteFailure(part, error);
      throw error;
    }
  }

  function watch(part: string, view: Database = database): Database {
    const transaction: Database['transaction'] = (work) =>
      record(part, (write) =>
        view.transaction(async (tx) => {
          const result = await work({
            ...tx,
            query(statement) {
              write.isTried ||= isWrite(statement);
              return tx.query(statement);
            },
          });
          write.hasChanged = write.isTried && parts.needsWrite(part) && (await hasChanged(tx));
          return result;
        }),
      );
    return {
      ...view,
      query(statement) {
        const isTried = isWrite(statement);
        if (isTried && parts.needsWrite(part)) return transaction((tx) => tx.query(statement));
        return record(part, (write) => {
          write.isTried = isTried;
          return view.query(statement);
        });
      },
      transaction,
    };
  }

  /** Writes on behalf of each quiet part, because otherwise its failure would stay after the cause is gone. */
  async function probe(): Promise<void> {
    const quiet = parts.quiet();
    if (quiet.length === 0 || clock.steadyMs() - probedMs < PROBE_PAUSE_MS) return;
    probedMs = clock.steadyMs();
    try {
      await probeWrite(database, clock.now());
    } catch (error) {
      if (databaseError(error) instanceof Fault || isLasting(error)) return;
      throw error;
    }
    parts.clear(quiet);
  }

  return {
    watch,
    async failures() {
      probing ??= probe().finally(() => {
        probing = undefined;
      });
      // A probe that waits for a lock says nothing about the writes.
      await firstOrLate({ clock, signal: never }, [probing], PROBE_MS_MAX);
      return Array.from(parts.failing, ([part, { error, since }]) => ({
        part,
        message: describe(error),
        since,
      }));
    },
  };
}

/** The parts whose last write failed, and which of them are quiet. */
function createFailingParts(clock: Clock) {
  const failing = new Map<string, Failing>();
  /** Parts whose last failure a probe cleared, without a write of theirs since then. */
  const cleared = new Set<string>();
  return {
    failing,
    /** Whether it failed, and none of its writes has changed something since then. */
    needsWrite: (part: string) => failing.has(part) || cleared.has(part),
    noteSuccess(part: string): void {
      failing.delete(part);
      cleared.delete(part);
    },
    noteFailure(part: string, error: Error): void {
      const first = { since: clock.now(), quietMs: cleared.has(part) ? QUIET_AGAIN_MS : QUIET_MS };
      const { since, quietMs } = failing.get(part) ?? first;
      failing.set(part, { error, since, quietMs, lastMs: clock.steadyMs() });
    },
    /** Those that have not tried again for their time. */
    quiet: () => Array.from(failing).filter(([, one]) => clock.steadyMs() - one.lastMs >= one.quietMs),
    /** Clears those that have not failed since then. */
    clear(quiet: readonly [string, Failing][]): void {
      for (const [part, { lastMs }] of quiet) {
        if (failing.get(part)?.lastMs !== lastMs) continue;
        failing.delete(part);
        cleared.add(part);
      }
    },
  };
}

/** Writes a row, and uses as much new space as a commit of some blocks, because a small row fits into an existing page. */
async function probeWrite(database: Database, now: Date): Promise<void> {
  // A read-only database accepts temporary tables, so both statements are needed.
  const row = sql`update clock_state set probed_at = ${now}`;
  try {
    await database.transaction(async (tx: Tx) => {
      await tx.query(row);
      await tx.query(sql`
        create temporary table write_probe on commit drop as
        select repeat(md5(random()::text), 30) as filler from generate_series(1, 1000)`);
    });
  } catch (error) {
    if (sqlStateOf(error) !== DENIED) throw error;
    await database.query(row);
  }
}

/**
 * A full disk doesn't keep an update of no rows from succeeding, and work such as the release of held notifications makes one each second.
 * On Citus the coordinator doesn't know, because the workers write.
 */
async function hasChanged(tx: Tx): Promise<boolean> {
  if (tx.isDistributed === true) return true;
  const [row] = await tx.query<{ has_changed: boolean }>(
    sql`select pg_current_xact_id_if_assigned() is not null as has_changed`,
  );
  return row?.has_changed === true;
}

const isWrite = ({ text }: Sql) =>
  /\b(insert into|update|delete from)\b/.test(text.replace(/\bfor (no key )?update\b/g, ''));

function isLasting(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  const code = sqlStateOf(error);
  if (PASSING.test(code)) return false;
  // An error without a code is a broken connection, which databaseError recognizes by its text.
  return LASTING.test(code) || (error instanceof Fault && databaseError(error.cause) instanceof Fault);
}

function describe(error: Error): string {
  const advice = ADVICE.find(([pattern]) => pattern.test(sqlStateOf(error)))?.[1] ?? OTHER_ADVICE;
  const message = messageOf(error);
  // databaseError has added what to do to some messages.
  return /database\.(url|connections)/.test(message) ? `${message}.` : `${message}. ${advice}`;
}
