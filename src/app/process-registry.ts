/**
 * The processes of this deployment: this process writes its heartbeat, and learns from the heartbeats of the others which
 * of them follows the chain, delivers webhooks and reads prices.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';
import type { Database } from '../store/db/db.ts';
import {
  type Ending,
  endProcess,
  type FailingWork,
  type FollowerReport,
  listProcesses,
  type ProcessIdentity,
  type ReportedFailure,
  removeFormerProcesses,
  writeHeartbeat,
} from '../store/deployment/processes.ts';
import {
  createProcessWatch,
  EMBEDDED_HEARTBEAT_MS,
  HEARTBEAT_MS,
  LOST_MS,
  type SeenProcess,
} from './process-watch.ts';

/**
 * `last` had the role most recently; `standby` runs with the role but doesn't lead. `unstarted` was to take the role since then, and
 * its start failed.
 */
export type Absence = {
  since: Date;
  last: SeenProcess | undefined;
  standby: SeenProcess | undefined;
  unstarted: SeenProcess | undefined;
};

type OwnReport = Omit<FollowerReport, 'leads'>;

type ProcessRegistryOptions = {
  /** Its connections, which nothing else must hold up, or this process would seem lost. */
  database: Database;
  clock: Clock;
  roles: readonly string[];
  version: string;
  kekIds: readonly string[];
  /** Whether this process is the leading follower. */
  leads(): boolean;
  /** The state of following on this process; undefined without the role `follower`. */
  report(): Promise<OwnReport | undefined>;
  /** Writes of this process that fail. */
  failures?(): Promise<readonly ReportedFailure[]>;
  /** Side work of this process that fails. */
  failingWork?(): readonly FailingWork[];
};

/** How old the newest result of a role's work is, and how long ago the next one was due: negative before. */
export type NewestWork = { ageMs: number; overdueMs: number };

/** Why this process can't store its heartbeat, and since when. */
export type Silence = { since: Date; reason: string };

export type ProcessRegistry = {
  readonly id: string;
  /** Whether this process is the leading follower. */
  leads(): boolean;
  /** Reads the other processes and writes the heartbeat. Run it every `idleMs`. */
  beat: Step;
  idleMs(): number;
  /** Reads the other processes. */
  look(): Promise<void>;
  /** All processes as of the last look, this one first. */
  processes(): readonly SeenProcess[];
  /** Failing writes of the other processes that run. */
  writeFailures(): readonly ReportedFailure[];
  /** Failing side work of all processes that run. */
  failingWork(): readonly (FailingWork & { process: string })[];
  /** The leading follower, which may be this process; undefined after LOST_MS without one. */
  leader(): SeenProcess | undefined;
  /**
   * Undefined while a process has the role. If `work` of the role is overdue, the process that did it may have been cut off with its
   * lock, so the role is missing although another process runs with it.
   */
  missing(role: string, work?: NewestWork): Absence | undefined;
  /** Since when this process can't store its heartbeat; undefined while it can. */
  silence(): Silence | undefined;
  /** Records that this process ended. Gives up when the database doesn't answer. */
  end(how: Ending): Promise<void>;
};

/** Heartbeats at the start of a process with the embedded database, in which it begins to lead and reads its first head. */
const FIRST_BEATS = 5;
/** Heartbeats between two removals of former processes. */
const REMOVE_BEATS = 30;
/** A round of prices takes up to 10 s, one that fails is tried again within 15 s, and another process may take over meanwhile. */
const OVERDUE_MS_MAX = 35_000;
const END_MS_MAX = 1_000;
const ID_CHARACTERS = 8;
const HOST_CHARACTERS_MAX = 255;

export function createProcessRegistry(options: ProcessRegistryOptions): ProcessRegistry {
  const { database, clock, leads, report, failures = async () => [], failingWork = () => [] } = options;
  const identity = identify(options);
  const watch = createProcessWatch(clock);
  let beats = 0;
  let didLead = false;
  let silence: Silence | undefined;
  /** By role, so that `since` stays the same for as long as the role is missing. */
  const missingSince = new Map<string, Date>();
  let own: OwnReport | undefined;
  const ownReport = () => own && { ...own, leads: leads() };

  async function look(): Promise<void> {
    own = await report();
    watch.note(await listProcesses(database), { isSilent: silence !== undefined });
  }

  function processes(): readonly SeenProcess[] {
    const others = watch.seen().filter(({ id }) => id !== identity.id);
    const stored = watch.seen().find(({ id }) => id === identity.id);
    const current = {
      ...{ beat: beats, follower: ownReport(), leads: leads() },
      ...{ failingWork: failingWork(), now: clock.now() },
    };
    return [seenNow(identity, stored, current), ...others];
  }

  return {
    id: identity.id,
    leads,
    async beat() {
      try {
        await look();
        const heartbeat = { writeFailures: await failures(), failingWork: failingWork(), beat: beats + 1 };
        await writeHeartbeat(database, identity, ownReport(), heartbeat);
        const beginsToLead = leads() && !didLead;
        if (beats % REMOVE_BEATS === 0 || beginsToLead)
          await removeFormerProcesses(database, identity, LOST_MS);
        didLead = leads();
      } catch (error) {
        silence = { since: silence?.since ?? clock.now(), reason: messageOf(error) };
        throw error;
      }
      silence = undefined;
      beats += 1;
      return 'idle';
    },
    silence: () => silence,
    // Commands read the first heartbeats, so they follow each other quickly until they say who leads.
    idleMs: () =>
      database.kind === 'embedded' && beats > FIRST_BEATS ? EMBEDDED_HEARTBEAT_MS : HEARTBEAT_MS,
    look,
    processes,
    writeFailures: () => failuresOf(watch.seen().filter(({ id }) => id !== identity.id)),
    failingWork: () => failingWorkOf(processes()),
    leader: () => leaderOf(processes()),
    missing(role, work) {
      const holders = processes().filter(({ roles }) => roles.includes(role));
      const { last, agoMs } = lastHolder(holders, role);
      const heldMs = Number.isFinite(agoMs) ? agoMs : watch.watchedMs();
      const absentMs = Math.max(heldMs, overdueMsOf(work, watch.unbrokenMs()));
      if (absentMs < LOST_MS) {
        missingSince.delete(role);
        return undefined;
      }
      const since = missingSince.get(role) ?? new Date(clock.now().getTime() - absentMs);
      missingSince.set(role, since);
      const standby = holders.find(({ state }) => state === 'running');
      const unstarted = holders.findLast(({ error, silentMs }) => error !== undefined && silentMs <= agoMs);
      return { since, last: cutOff(last, { holders, work }) ?? last, standby, unstarted };
    },
    end: (how) => recordEnd(options, identity.id, how),
  };
}

async function recordEnd(
  { database, clock }: Pick<ProcessRegistryOptions, 'database' | 'clock'>,
  id: string,
  how: Ending,
): Promise<void> {
  try {
    await firstOrLate({ clock, signal: never }, [endProcess(database, id, how)], END_MS_MAX);
  } catch (error) {
    // Without this record, the other processes report this one as lost.
    if (!(error instanceof Fault)) throw error;
  }
}

function identify({
  clock,
  roles,
  version,
  kekIds,
}: Pick<ProcessRegistryOptions, 'clock' | 'roles' | 'version' | 'kekIds'>): ProcessIdentity {
  return {
    id: randomUUID().slice(0, ID_CHARACTERS),
    ...{ roles: [...roles].sort(), version, pid: process.pid, startedAt: clock.now(), kekIds },
    host: hostname().slice(0, HOST_CHARACTERS_MAX),
  };
}

/** This process as it is now, which its stored row may lag behind. */
function seenNow(
  identity: ProcessIdentity,
  stored: SeenProcess | undefined,
  current: Pick<SeenProcess, 'beat' | 'follower' | 'failingWork'> & { leads: boolean; now: Date },
): SeenProcess {
  const { beat, follower, failingWork, leads, now } = current;
  return {
    ...{
      seenAt: now,
      ageMs: 0,
      beat,
      isStopped: false,
      isFailed: false,
      error: undefined,
      writeFailures: [],
    },
    ...{ ...stored, ...identity },
    ...{ follower, failingWork, state: 'running', silentMs: 0 },
    leadMs: leads ? 0 : (stored?.leadMs ?? Infinity),
    leadingMs: leads ? (stored?.follower?.leads === true ? stored.leadingMs : 0) : Infinity,
  };
}

function leaderOf(processes: readonly SeenProcess[]): SeenProcess | undefined {
  const [leader] = processes
    .filter(({ leadMs }) => leadMs < LOST_MS)
    // After a hand-over the former leader may still report that it leads. The one that began last has the lock.
    .sort((a, b) => (a.leadingMs === b.leadingMs ? a.leadMs - b.leadMs : a.leadingMs - b.leadingMs));
  return leader;
}

/** The process that had the role most recently, and how long ago: infinite if none was ever seen to have it. */
function lastHolder(
  holders: readonly SeenProcess[],
  role: string,
): { last: SeenProcess | undefined; agoMs: number } {
  // A process whose start failed may have worked for moments, again and again.
  const agoMsOf = ({ leadMs, silentMs, error }: SeenProcess) =>
    role === 'follower' ? leadMs : error === undefined ? silentMs : Infinity;
  const agoMs = Math.min(...holders.map(agoMsOf));
  return { last: holders.find((one) => agoMsOf(one) === agoMs), agoMs };
}

/** How long the work has been overdue; 0 while it may only be late. */
function overdueMsOf(work: NewestWork | undefined, unbrokenMs: number): number {
  const overdueMs = Math.min(work?.overdueMs ?? 0, unbrokenMs);
  return overdueMs < OVERDUE_MS_MAX ? 0 : overdueMs;
}

/** While another process runs with the role: the lost one that may have done the newest work, and may still have the lock. */
function cutOff(
  last: SeenProcess | undefined,
  { holders, work }: { holders: readonly SeenProcess[]; work: NewestWork | undefined },
): SeenProcess | undefined {
  if (last?.state !== 'running' || work === undefined) return undefined;
  const [lost] = holders
    .filter(({ state, silentMs }) => state === 'lost' && silentMs <= work.ageMs + HEARTBEAT_MS)
    .toSorted((one, other) => one.silentMs - other.silentMs);
  return lost;
}

function failuresOf(others: readonly SeenProcess[]): ReportedFailure[] {
  return runningOf(others).flatMap(({ id, writeFailures }) =>
    writeFailures.map((failure) => ({ ...failure, message: `process ${id}: ${failure.message}` })),
  );
}

const failingWorkOf = (processes: readonly SeenProcess[]) =>
  runningOf(processes).flatMap(({ id, failingWork }) => failingWork.map((one) => ({ ...one, process: id })));

const runningOf = (processes: readonly SeenProcess[]) => processes.filter(({ state }) => state === 'running');
