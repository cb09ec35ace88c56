/**
 * Reads delivery attempts: those of one notification, and all of a watcher in the order in which they become visible.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { isInShards, listShards, pageOfShards } from './shards.ts';

export type Attempt = {
  id: number;
  notificationId: number;
  /** The revision that was sent. */
  revision: number;
  startedAt: Date;
  durationMs: number;
  /** 0: nothing was sent. 2: repeated at once because the receiver closed the reused connection of the first request. */
  requestCount: number;
  outcome: string;
  status: number | undefined;
  /** The beginning of the response, without keys. */
  response: string | undefined;
};

/** A page of a notification's attempts with ids below `before`, newest first. */
export async function listAttempts(
  db: Db,
  watcherId: number,
  notificationId: number,
  { before, limit }: { before: number | undefined; limit: number },
): Promise<Attempt[]> {
  const shards = await listShards(db, watcherId);
  const rows = await db.query<AttemptRow>(sql`
    select ${attemptColumns} from delivery_attempt
    where notification_id = ${notificationId} and ${isInShards(sql`shard_id`, shards)}
      and ${before === undefined ? sql`true` : sql`id < ${before}`}
    order by id desc
    limit ${limit}`);
  return rows.map(toAttempt);
}

/** The watcher's attempts with ids above `after`, up to `upTo`, oldest first. */
export async function listAttemptsBetween(
  db: Db,
  watcherId: number,
  { after, upTo, limit }: { after: number; upTo: number; limit: number },
): Promise<Attempt[]> {
  const rows = await db.query<AttemptRow>(
    pageOfShards(
      db,
      await listShards(db, watcherId),
      (shardId) => sql`
    select ${attemptColumns} from delivery_attempt where shard_id = ${shardId} and id > ${after} and id <= ${upTo}`,
      sql`order by id limit ${limit}`,
    ),
  );
  return rows.map(toAttempt);
}

/** The highest id up to which no further attempt can become visible; undefined until it is known. */
type SafeWatermark = (() => Promise<number | undefined>) & {
  /** Whether a higher id is known, and will be safe as soon as open transactions have ended. */
  isPending(): boolean;
  /** When the last id that is safe now had been assigned, by the given clock. */
  reachedAt(): Date | undefined;
};

/**
 * A safe watermark that advances when it is called. Concurrent transactions become visible in any order, so the newest visible
 * id is not a safe cursor. A transaction that has been assigned an id holds a RowExclusiveLock on the table until its rows
 * are visible. So the watermark reads the last assigned id, then the transactions that hold that lock, and waits until all of
 * these have ended. Then every id up to the last one is visible or never will be. Other transactions don't matter, however
 * long they run. A promoted standby, or a server that has crashed, may assign ids again, also some below the watermark. So if the
 * server has started or recovered since the last look, or its last id has gone back, the watermark is unknown until it has looked again.
 */
export function createSafeWatermark(db: Db, now?: () => Date): SafeWatermark {
  let reached: number | undefined;
  let reachedAt: Date | undefined;
  let mark: { lastId: number; at: Date | undefined; writers: readonly string[] } | undefined;
  let before: LastId | undefined;
  let looking: Promise<void> | undefined;

  async function look(): Promise<void> {
    const at = now?.();
    const last = await readLastId(db);
    if (last.server !== before?.server || last.id < before.id) reached = reachedAt = mark = undefined;
    before = last;
    if (mark === undefined && last.id === reached) {
      reachedAt = at;
      return;
    }
    const { server, writers: current } = await readWriters(db);
    if (server !== last.server) {
      reached = reachedAt = mark = before = undefined;
      return;
    }
    const writers = mark?.writers.filter((one) => current.includes(one)) ?? current;
    mark = { ...(mark ?? { lastId: last.id, at }), writers };
    if (writers.length === 0) [reached, reachedAt, mark] = [mark.lastId, mark.at, undefined];
  }

  async function read(): Promise<number | undefined> {
    looking ??= look().finally(() => {
      looking = undefined;
    });
    await looking;
    return reached;
  }
  return Object.assign(read, { isPending: () => mark !== undefined, reachedAt: () => reachedAt });
}

/** `server` differs between servers, and after each restart and crash recovery of one. */
type LastId = { id: number; server: string };

/** If a process of PostgreSQL crashes, the server recovers without a restart, and resets the statistics that it keeps. */
const SERVER = sql`concat(extract(epoch from pg_postmaster_start_time()), ' ', extract(epoch from stats_reset))`;

/** The last id that the sequence has assigned to any transaction, and the server that did. */
export async function readLastId(db: Db): Promise<LastId> {
  const [row] = await db.query<LastId>(sql`
    select case when is_called then last_value else 0 end as id, ${SERVER} as server from delivery_attempt_id_seq, pg_stat_archiver`);
  if (row === undefined) throw new Error('the statement returned no row');
  return row;
}

type Writers = { server: string; writers: string[] };

/** The transactions that are writing attempts, by virtual transaction ids, which are reused only after a restart or a crash recovery. */
async function readWriters(db: Db): Promise<Writers> {
  const [row] = await db.query<Writers>(sql`
    select ${SERVER} as server, array(
      select virtualtransaction from pg_locks
      where locktype = 'relation' and relation = 'delivery_attempt'::regclass and mode = 'RowExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database())) as writers
    from pg_stat_archiver`);
  if (row === undefined) throw new Error('the statement returned no row');
  return row;
}

export type AttemptRow = {
  id: number;
  notification_id: number;
  revision: number;
  started_at: Date;
  duration_ms: number;
  request_count: number;
  outcome: string;
  status: number | null;
  response: string | null;
};

export const attemptColumns = sql`id, notification_id, revision, started_at, duration_ms, request_count, outcome, status, response`;

export function toAttempt(row: AttemptRow): Attempt {
  return {
    id: row.id,
    notificationId: row.notification_id,
    revision: row.revision,
    startedAt: row.started_at,
    durationMs: row.duration_ms,
    requestCount: row.request_count,
    outcome: row.outcome,
    status: row.status ?? undefined,
    response: row.response ?? undefined,
  };
}
