/**
 * The processes of a deployment, as each reports itself. Ages are measured with the database's clock.
 */
import { storedText } from '../../core/stored-text.ts';
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

type FollowerState = 'ok' | 'degraded' | 'holding';

/** The chain as a process with the role `follower` reports it. */
export type FollowerReport = {
  /** Whether it is the leading follower. */
  leads: boolean;
  state: FollowerState;
  head: number | undefined;
  problem: { message: string; since: Date } | undefined;
};

/** A part of the process whose writes fail, and since when. */
export type ReportedFailure = { part: string; message: string; since: Date };

/** Background work that fails, and since when. `isBug`: no Fault of the database, a node or the network. */
export type FailingWork = { work: string; since: Date; isBug: boolean };

export type ProcessIdentity = {
  id: string;
  roles: readonly string[];
  version: string;
  host: string;
  pid: number;
  startedAt: Date;
  /** The key-encryption keys of its secrets. */
  kekIds: readonly string[];
};

export type StoredProcess = ProcessIdentity & {
  seenAt: Date;
  /** Time since `seenAt`. Negative after the database's clock was set back. */
  ageMs: number;
  /** Number of its heartbeats. */
  beat: number;
  /** Whether it shut down, as asked or not. */
  isStopped: boolean;
  /** Whether a bug ended it, or its start failed. */
  isFailed: boolean;
  /** Why its start failed. */
  error: string | undefined;
  /** Undefined without the role `follower`. */
  follower: FollowerReport | undefined;
  writeFailures: readonly ReportedFailure[];
  failingWork: readonly FailingWork[];
};

/** Longer messages are cut, because the row has to fit into half a page. */
const MESSAGE_CHARACTERS_MAX = 1_000;
/** Processes that are listed at most, far more than any deployment has. */
const LISTED_MAX = 200;

type Heartbeat = {
  writeFailures?: readonly ReportedFailure[];
  failingWork?: readonly FailingWork[];
  /** Counts the heartbeats of the process, so that the count goes on if another process removed the row meanwhile. */
  beat?: number;
};

/** Writes the heartbeat of a process. */
export async function writeHeartbeat(
  db: Db,
  { id, roles, version, host, pid, startedAt, kekIds }: ProcessIdentity,
  follower: FollowerReport | undefined,
  { writeFailures = [], failingWork = [], beat = 1 }: Heartbeat = {},
): Promise<void> {
  const problem = follower?.problem;
  const failures = writeFailures.map(({ part, message, since }) => ({
    ...{ part, message: storedText(message, MESSAGE_CHARACTERS_MAX), since: since.toISOString() },
  }));
  await db.query(sql`
    insert into process as p (id, roles, version, host, pid, started_at, kek_ids, seen_at, beat, leads, follower_state, head,
      problem, problem_since, write_failures, failing_work)
    values (${id}, ${[...roles]}::text[], ${version}, ${host}, ${pid}, ${startedAt},
      ${[...kekIds]}::text[], clock_timestamp(), ${beat},
      ${follower?.leads ?? false}, ${follower?.state ?? null}, ${follower?.head ?? null},
      ${problem === undefined ? null : storedText(problem.message, MESSAGE_CHARACTERS_MAX)}, ${problem?.since ?? null},
      ${JSON.stringify(failures)}::jsonb, ${JSON.stringify(failingWork)}::jsonb)
    on conflict (id) do update set seen_at = excluded.seen_at, beat = greatest(p.beat + 1, excluded.beat), leads = excluded.leads,
      follower_state = excluded.follower_state, head = excluded.head, problem = excluded.problem,
      problem_since = excluded.problem_since, write_failures = excluded.write_failures,
      failing_work = excluded.failing_work`);
}

/** How a process ended: as asked, because of a bug, or because its start failed with this error. */
export type Ending = Pick<StoredProcess, 'isFailed' | 'error'>;

export async function endProcess(db: Db, id: string, { isFailed, error }: Ending): Promise<void> {
  const stored = error === undefined ? null : storedText(error, MESSAGE_CHARACTERS_MAX);
  await db.query(sql`
    update process set stopped = true, failed = ${isFailed}, error = ${stored}, beat = beat + 1, seen_at = clock_timestamp()
    where id = ${id}`);
}

/**
 * Deletes processes that were not seen for a day. Also deletes processes that were shut down or silent for `lostMs` and that this
 * process replaces, on the same host with the same roles. The last leading follower stays until another one leads, because a
 * suspended one may still hold the lock, and an ended one shows when following stopped.
 */
export async function removeFormerProcesses(
  db: Db,
  { id, host, roles }: ProcessIdentity,
  lostMs: number,
): Promise<void> {
  await db.query(sql`
    delete from process
    where id <> ${id} and (seen_at < clock_timestamp() - interval '1 day'
      or host = ${host} and roles = ${[...roles]}::text[]
        and (stopped or seen_at < clock_timestamp() - ${lostMs}::bigint * interval '1 ms')
        and (not leads or exists (
          select from process p where p.leads and p.seen_at > process.seen_at and not p.stopped)))`);
}

/** All known processes, by start time. If there are more than LISTED_MAX, the ones that were seen last. */
export async function listProcesses(db: Db): Promise<StoredProcess[]> {
  const rows = await db.query<ProcessRow>(sql`
    select id, roles, version, host, pid, started_at, kek_ids, seen_at, beat, stopped, failed, error, leads, follower_state, head,
      problem, problem_since, write_failures, failing_work, (extract(epoch from clock_timestamp() - seen_at) * 1000)::double precision as age_ms
    from process
    order by seen_at desc, id
    limit ${LISTED_MAX}`);
  return rows
    .map(toProcess)
    .toSorted(
      (one, other) => one.startedAt.getTime() - other.startedAt.getTime() || (one.id < other.id ? -1 : 1),
    );
}

type ProcessRow = {
  id: string;
  roles: string[];
  version: string;
  host: string;
  pid: number;
  started_at: Date;
  kek_ids: string[];
  seen_at: Date;
  beat: number;
  stopped: boolean;
  failed: boolean;
  error: string | null;
  leads: boolean;
  follower_state: FollowerState | null;
  head: number | null;
  problem: string | null;
  problem_since: Date | null;
  write_failures: unknown;
  failing_work: unknown;
  age_ms: number;
};

function toProcess(row: ProcessRow): StoredProcess {
  const { problem: message, problem_since: since, follower_state: state } = row;
  return {
    ...{ id: row.id, roles: row.roles, version: row.version, host: row.host, pid: row.pid },
    ...{ startedAt: row.started_at, kekIds: row.kek_ids },
    ...{ seenAt: row.seen_at, ageMs: row.age_ms, beat: row.beat },
    isStopped: row.stopped,
    isFailed: row.failed,
    error: row.error ?? undefined,
    writeFailures: entriesOf(row.write_failures, ['part', 'message']).map((one) => ({
      part: one.part,
      message: one.message,
      since: new Date(one.since),
    })),
    failingWork: entriesOf(row.failing_work, ['work']).map((one) => ({
      work: one.work,
      since: new Date(one.since),
      isBug: one.isBug !== false,
    })),
    follower:
      state === null
        ? undefined
        : {
            ...{ leads: row.leads, state, head: row.head ?? undefined },
            problem: message === null || since === null ? undefined : { message, since },
          },
  };
}

/** The entries that have these texts and a time. Another version may have written the list in another shape. */
function entriesOf<Name extends string>(
  list: unknown,
  names: readonly Name[],
): (Record<Name | 'since', string> & Record<string, unknown>)[] {
  if (!Array.isArray(list)) return [];
  const isComplete = (one: Record<string, unknown>) => names.every((name) => typeof one[name] === 'string');
  return list
    .map((one) => Object(one))
    .filter(
      (one) => isComplete(one) && typeof one.since === 'string' && !Number.isNaN(Date.parse(one.since)),
    );
}
