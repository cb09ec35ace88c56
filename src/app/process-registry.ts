/**
 * This process in its deployment: it writes its heartbeat, and knows from those of the others who follows, delivers and reads
 * prices.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';
import type { Database, Db } from '../store/db/db.ts';
import {
  endProcess,
  type FollowerReport,
  listProcesses,
  type ProcessIdentity,
  type ReportedFailure,
  removeFormerProcesses,
  writeHeartbeat,
} from '../store/deployment/processes.ts';
import { createProcessWatch, HEARTBEAT_MS, LOST_MS, type SeenProcess } from './process-watch.ts';

export type Absence = { since: Date; last: SeenProcess | undefined; standby: SeenProcess | undefined };

export type ProcessRegistry = {
  readonly id: string;
  /** Whether this process leads the following. */
  leads(): boolean;
  /** Looks at the others and writes the heartbeat; to be run every `idleMs`. */
  beat: Step;
  idleMs(): number;
  /** Looks at the others. */
  look(db: Db): Promise<void>;
  /** As of the last look: this process first, then the one seen last. */
  processes(): readonly SeenProcess[];
  /** What other processes that run can't store. */
  writeFailures(): readonly ReportedFailure[];
  /** The process that leads the following, this one included; undefined where none did for LOST_MS. */
  leader(): SeenProcess | undefined;
  /** Since when no process has had the role, who had it last, and who could have it; undefined while one has it. */
  missing(role: string): Absence | undefined;
  /** Since when the heartbeat can't be stored; undefined while it can. */
  silentSince(): Date | undefined;
  /** Notes that this process ended as asked. Gives up when the database doesn't answer. */
  end(): Promise<void>;
};

/** The embedded database has no other process that could read it, and its log grows with each write. */
const EMBEDDED_HEARTBEAT_MS = 30_000;
/** Heartbeats between two removals of former processes. */
const REMOVE_BEATS = 30;
const END_MS_MAX = 1_000;
const ID_CHARACTERS = 8;
const HOST_CHARACTERS_MAX = 255;

export function createProcessRegistry({
  database,
  clock,
  roles,
  version,
  leads,
  report,
  failures = async () => [],
}: {
  database: Database;
  clock: Clock;
  roles: readonly string[];
  version: string;
  /** Whether this process leads the following. */
  leads(): boolean;
  /** The chain as this process reports it; undefined without the role `follower`. */
  report(): Promise<Omit<FollowerReport, 'leads'> | undefined>;
  /** What this process can't store. */
  failures?(): Promise<readonly ReportedFailure[]>;
}): ProcessRegistry {
  const identity: ProcessIdentity = {
    id: randomUUID().slice(0, ID_CHARACTERS),
    ...{ roles: [...roles].sort(), version, pid: process.pid, startedAt: clock.now() },
    host: hostname().slice(0, HOST_CHARACTERS_MAX),
  };
  const watch = createProcessWatch(clock);
  let beats = 0;
  let didLead = false;
  let silentSince: Date | undefined;
  /** By role: what is missing goes on being missing since the same moment. */
  const missingSince = new Map<string, Date>();
  let own: Omit<FollowerReport, 'leads'> | undefined;
  const ownReport = () => own && { ...own, leads: leads() };

  async function look(db: Db): Promise<void> {
    own = await report();
    watch.note(await listProcesses(db));
  }

  function processes(): readonly SeenProcess[] {
    const seen = watch.seen();
    const stored = seen.find(({ id }) => id === identity.id);
    const self: SeenProcess = {
      ...{ seenAt: clock.now(), ageMs: 0, beat: beats, isStopped: false, writeFailures: [] },
      ...{ ...stored, ...identity },
      ...{ follower: ownReport(), state: 'running', silentMs: 0 },
      leadMs: leads() ? 0 : (stored?.leadMs ?? Infinity),
      leadingMs: leads() ? (stored?.follower?.leads === true ? stored.leadingMs : 0) : Infinity,
    };
    return [self, ...seen.filter(({ id }) => id !== identity.id)];
  }

  /** For how long no process has had the role, and which one had it last. */
  function absence(role: string): { ms: number; last: SeenProcess | undefined } {
    const holders = processes().filter((one) => one.roles.includes(role));
    const sinceMs = (one: SeenProcess) => (role === 'follower' ? one.leadMs : one.silentMs);
    const ms = Math.min(...holders.map(sinceMs));
    const last = holders.find((one) => sinceMs(one) === ms);
    return { ms: Number.isFinite(ms) ? ms : watch.watchedMs(), last };
  }

  return {
    id: identity.id,
    leads,
    async beat() {
      try {
        await look(database);
        await writeHeartbeat(database, identity, ownReport(), await failures());
        const beginsToLead = leads() && !didLead;
        if (beats % REMOVE_BEATS === 0 || beginsToLead)
          await removeFormerProcesses(database, identity, LOST_MS);
        didLead = leads();
      } catch (error) {
        silentSince ??= clock.now();
        throw error;
      }
      silentSince = undefined;
      beats += 1;
      return 'idle';
    },
    silentSince: () => silentSince,
    idleMs: () => (database.kind === 'embedded' ? EMBEDDED_HEARTBEAT_MS : HEARTBEAT_MS),
    look,
    processes,
    writeFailures: () =>
      watch
        .seen()
        .filter(({ id, state }) => id !== identity.id && state === 'running')
        .flatMap((one) =>
          one.writeFailures.map((failure) => ({
            ...failure,
            message: `process ${one.id}: ${failure.message}`,
          })),
        ),
    leader() {
      const [leader] = processes()
        .filter(({ leadMs }) => leadMs < LOST_MS)
        // After a hand-over the former one may still say that it leads: the one that began last has the lock.
        .sort((a, b) => (a.leadingMs === b.leadingMs ? a.leadMs - b.leadMs : a.leadingMs - b.leadingMs));
      return leader;
    },
    missing(role) {
      const { ms, last } = absence(role);
      if (ms < LOST_MS) {
        missingSince.delete(role);
        return undefined;
      }
      const since = missingSince.get(role) ?? new Date(clock.now().getTime() - ms);
      missingSince.set(role, since);
      const standby = processes().find((one) => one.state === 'running' && one.roles.includes(role));
      return { since, last, standby };
    },
    async end() {
      try {
        await firstOrLate({ clock, signal: never }, [endProcess(database, identity.id)], END_MS_MAX);
      } catch (error) {
        // The others will call it lost.
        if (!(error instanceof Fault)) throw error;
      }
    },
  };
}
