/**
 * Reads from a streaming replica while it is close enough behind the primary, and from the primary otherwise.
 *
 * The replica is trusted by this process's heartbeats: it is as far behind as the oldest heartbeat that the primary has and the
 * replica hasn't. After a fail-over it must first show a heartbeat from the new timeline, because a replica of the former primary may
 * have the same positions with other contents, and commits that the new primary lacks.
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { type Database, type Db, sqlStateOf, URL_SETTING } from './db.ts';
import { type Sql, sql } from './sql.ts';
import { TIMELINE } from './timeline.ts';

/** The connections to the replica. */
export type ReplicaConnections = Pick<Database, 'query' | 'each' | 'transaction' | 'close'> & {
  /** Asks over a further connection, because the reads may hold all others for a long time. */
  probe: Db['query'];
  /** Ends all of them at once. */
  cut(): void;
};

export type ReplicaState = {
  /** Whether reads go to the replica. */
  isUsed: boolean;
  /** Undefined while it is unknown. */
  lagMs: number | undefined;
  /** Why reads go to the primary, as what the replica does: `is not a standby`. */
  problem: string | undefined;
};

export type Replica = {
  /** For reads that may be behind by the maximum lag. */
  recent: Database;
  /** For reads that show everything that was committed before them, in any process. */
  current: Database;
  /** The same for work that reads in transactions. A transaction that fails on the replica runs again on the primary. */
  reading: Database;
  /** Compares replica and primary. Call it every PROBE_MS. Resolves in time even if the replica hangs. */
  probe(): Promise<void>;
  state(): ReplicaState;
  close(): Promise<void>;
};

type ReplicaOptions = {
  primary: Database;
  replica: ReplicaConnections;
  /** The process whose heartbeats are compared. */
  processId(): string;
  lagMsMax: number;
  clock: Clock;
  /** Called for each statement, with the server that answered. */
  onRead(server: 'replica' | 'primary'): void;
};

export const PROBE_MS = 1_000;
/** A replica that doesn't answer for this long is left at once, with the statements that wait for it. */
const ANSWER_MS_MAX = 2_000;
/** While the primary is away it commits nothing, so reads may go on for this and the maximum lag. */
const UNCOMPARED_MS_MAX = 2 * PROBE_MS;
/** How long a read that must be current waits for the replica. Streaming takes some milliseconds. */
const CURRENT_MS_MAX = 100;
const CURRENT_POLL_MS = 3;
/** A replica that replays nothing could otherwise fill the memory. */
const BEATS_MAX = 1_000;
const REPLICA_SETTING = 'database.replicaUrl (CHAINBELL_DATABASE_REPLICA_URL)';
/** Also where the role may not use the schema. */
const UNDEFINED_TABLE = '42P01';
const NO_TABLE_ADVICE = `. Check the database in ${REPLICA_SETTING}, and give its role the search_path of the role in ${URL_SETTING} and the privilege to read: grant pg_read_all_data to …`;

type Beat = { beat: number; timeline: string };

export function createReplica(options: ReplicaOptions): Replica {
  const { primary, replica, processId, clock, lagMsMax, onRead } = options;
  const lag = createLag(clock);
  let problem: string | undefined;
  /** When replica and primary last answered. While the primary is away, the lag is unknown. */
  let comparedMs = Number.NEGATIVE_INFINITY;

  const isCompared = (): boolean => clock.steadyMs() - comparedMs <= lagMsMax + UNCOMPARED_MS_MAX;
  const isUsed = (): boolean => problem === undefined && isCompared() && (lag.ms() ?? Infinity) <= lagMsMax;

  const inTime = <T>(answer: Promise<T>) => firstOrLate({ clock, signal: never }, [answer], ANSWER_MS_MAX);

  /** Returns why the replica can't be used. */
  async function compare(): Promise<string | undefined> {
    const other = await inTime(askReplica(replica, processId()));
    if (other === 'late') {
      // The statements that wait for the replica fail, and the primary answers them.
      replica.cut();
      return `has not answered for ${ANSWER_MS_MAX / 1_000} s`;
    }
    if (typeof other === 'string') return other;
    if (!other.isStandby)
      return 'is not a standby. Point database.replicaUrl to a streaming replica of the primary';
    const own = await inTime(findBeat(primary, processId()));
    if (own === undefined || own === 'late') return undefined;
    lag.note(own, other.beat);
    comparedMs = clock.steadyMs();
    return undefined;
  }

  /** Why it isn't used, although it answers. */
  function describe(): string {
    const lagMs = lag.ms();
    if (lagMs === undefined)
      return 'has shown no new heartbeat since the start or the last fail-over, so its lag is unknown';
    if (!isCompared())
      return 'could not be compared with the primary, which did not answer, so its lag is unknown';
    return `is ${Math.ceil(lagMs / 1_000)} s behind, and database.replicaLagMaxSeconds allows ${lagMsMax / 1_000} s`;
  }

  /** Whether the replica has everything that the primary has committed until now. */
  async function isCurrent(): Promise<boolean> {
    const [present] = await primary.query<{ position: string; timeline: string }>(sql`
      select pg_current_wal_insert_lsn()::text as position, ${TIMELINE} as timeline`);
    if (present === undefined || present.timeline !== lag.timeline()) return false;
    const reached = sql`select pg_last_wal_replay_lsn() >= ${present.position}::pg_lsn as reached`;
    const untilMs = clock.steadyMs() + CURRENT_MS_MAX;
    for (;;) {
      const [row] = await replica.query<{ reached: boolean | null }>(reached);
      if (row?.reached === true) return true;
      if (clock.steadyMs() >= untilMs || !isUsed()) return false;
      await clock.wait(CURRENT_POLL_MS, never);
    }
  }

  const reads = { primary, replica, onRead };
  const mayUseCurrent = async () => isUsed() && (await isCurrent().catch(() => false));
  const current = createReads(reads, mayUseCurrent);
  return {
    recent: createReads(reads, async () => isUsed()),
    current,
    reading: { ...current, transaction: readingTransactions(reads, mayUseCurrent) },
    async probe() {
      problem = await compare();
    },
    state() {
      const lagMs = lag.ms();
      const used = isUsed();
      // While the servers don't answer, heartbeats say nothing.
      const isKnown = problem === undefined && isCompared();
      return {
        isUsed: used,
        lagMs: isKnown ? lagMs : undefined,
        problem: used ? undefined : (problem ?? describe()),
      };
    },
    close: () => replica.close(),
  };
}

/** The newest heartbeat that the replica has, or why it can't be read. */
async function askReplica(
  replica: ReplicaConnections,
  processId: string,
): Promise<{ beat: number; isStandby: boolean } | string> {
  try {
    const [row] = await replica.probe<{ beat: number; isStandby: boolean }>(sql`
      select coalesce((select beat from process where id = ${processId}), 0) as beat, pg_is_in_recovery() as "isStandby"`);
    return row ?? 'has no answer';
  } catch (error) {
    const message = messageOf(error).replace(URL_SETTING, REPLICA_SETTING);
    return `can't be read: ${message}${sqlStateOf(error) === UNDEFINED_TABLE ? NO_TABLE_ADVICE : ''}`;
  }
}

/** The newest heartbeat on the primary. Undefined while it doesn't answer. */
async function findBeat(primary: Db, processId: string): Promise<Beat | undefined> {
  try {
    const [own] = await primary.query<Beat>(sql`
      select coalesce((select beat from process where id = ${processId}), 0) as beat, ${TIMELINE} as timeline`);
    return own;
  } catch {
    return undefined;
  }
}

/** How far the replica is behind, by the heartbeats that it and the primary have shown. */
function createLag(clock: Clock) {
  /** The newest heartbeat that the replica has shown, and those after it, with the time when the primary first showed them. */
  let beats: (Beat & { seenMs: number })[] = [];
  /** Only later ones than this can have been written on the primary's timeline. */
  let first: Beat | undefined;
  /** The first of these. Those in between may be from the former timeline: this process continues its count. */
  let from: number | undefined;
  let shown = 0;
  return {
    note(own: Beat, replicaBeat: number): void {
      if (first?.timeline !== own.timeline) {
        // The process may have written more to the former primary than the new one has received.
        first = { ...own, beat: Math.max(own.beat, beats.at(-1)?.beat ?? 0) };
        from = undefined;
        beats = [];
        shown = 0;
      }
      // A replica of the former primary may have, or still replay, more of that than this process has read.
      if (own.beat <= first.beat) first = { ...first, beat: Math.max(first.beat, replicaBeat) };
      else from ??= own.beat;
      if (beats.at(-1)?.beat !== own.beat) beats.push({ ...own, seenMs: clock.steadyMs() });
      shown = Math.max(shown, replicaBeat);
      beats = beats.filter(({ beat }, index) => beat > shown || index === beats.length - 1);
      const [, second, third] = beats;
      // The one after a dropped one counts as old as that, so the lag is never too small.
      if (beats.length > BEATS_MAX && second !== undefined && third !== undefined)
        beats.splice(1, 2, { ...third, seenMs: second.seenMs });
    },
    /** Undefined until the replica has shown a heartbeat from this timeline. */
    ms(): number | undefined {
      if (from === undefined || shown < from) return undefined;
      const oldest = beats.find(({ beat }) => beat > shown);
      return oldest === undefined ? 0 : clock.steadyMs() - oldest.seenMs;
    },
    timeline: () => first?.timeline,
  };
}

type Reads = Pick<ReplicaOptions, 'primary' | 'replica' | 'onRead'>;

/** Reads from the replica if `mayUse` says so, and from the primary otherwise or if the replica fails. */
function createReads({ primary, replica, onRead }: Reads, mayUse: () => Promise<boolean>): Database {
  return {
    ...primary,
    async query<Row>(statement: Sql) {
      if (await mayUse()) {
        try {
          const rows = await replica.query<Row>(statement);
          onRead('replica');
          return rows;
        } catch {
          // A replica cancels statements that conflict with what it replays, and may lack the newest schema.
        }
      }
      onRead('primary');
      return primary.query<Row>(statement);
    },
    async each<Row>(statement: Sql, onRow: (row: Row) => void) {
      let isBegun = false;
      const pass = (row: Row) => {
        isBegun = true;
        onRow(row);
      };
      if (await mayUse()) {
        try {
          await replica.each(statement, pass);
          onRead('replica');
          return;
        } catch (error) {
          if (isBegun) throw error;
        }
      }
      onRead('primary');
      await primary.each(statement, onRow);
    },
  };
}

function readingTransactions(
  { primary, replica, onRead }: Reads,
  mayUse: () => Promise<boolean>,
): Database['transaction'] {
  return async (work) => {
    if (await mayUse()) {
      try {
        const result = await replica.transaction(work);
        onRead('replica');
        return result;
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
      }
    }
    onRead('primary');
    return primary.transaction(work);
  };
}
