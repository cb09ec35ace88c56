/**
 * The state of the whole deployment, read from the database: the same on every process.
 */
import type { DeploymentDetails } from '../api/ops/deployment-body.ts';
import type { StatusBody } from '../api/ops/status-body.ts';
import type { Config } from '../config/schema.ts';
import { ageSeconds } from '../core/age.ts';
import type { Clock } from '../core/clock.ts';
import type { Metrics } from '../core/metrics.ts';
import { shareReading } from '../core/shared-reading.ts';
import { lacksKek } from '../domain/key-ring.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import type { Database } from '../store/db/db.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import { findLateWatchers, hasWaiting, type Lateness } from '../store/delivery/lateness.ts';
import { countFailures, type FailureCounts } from '../store/delivery/receivers.ts';
import type { FailingWork, ReportedFailure } from '../store/deployment/processes.ts';
import { listKekIds } from '../store/watchers/api-keys.ts';
import { createPartReader } from './part-reader.ts';
import { findNewestRound, type NewestRound } from './price-status.ts';
import type { Absence, ProcessRegistry, Silence } from './process-registry.ts';
import { LOST_MS, type SeenProcess } from './process-watch.ts';
import { DATABASE_MS_MAX, SECRET_ADVICE } from './readiness.ts';

/** A problem that operators should act on. `holding`: no block is stored until it is solved. */
export type Trouble = { state: 'degraded' | 'holding'; message: string; since: Date };

type Body = Pick<StatusBody, 'processes' | 'missing' | 'receivers' | 'late' | 'failing_work'>;

export type DeploymentReading = {
  body: Body;
  /** The report of the leading follower; undefined where this process leads, or none does. */
  leader: { head: number | undefined; trouble: Trouble | undefined } | undefined;
  /** The newest head that a running follower names. */
  standbyHead: number | undefined;
  trouble: Trouble | undefined;
  /** Work that fails. Everything else is more important. */
  sideTrouble: Trouble | undefined;
  /** Failing writes of other processes. */
  writeFailures: readonly ReportedFailure[];
  /** Undefined while the processes can't be read. */
  details: DeploymentDetails | undefined;
  /** Why parts can't be read. */
  errors: readonly unknown[];
};

export type DeploymentStatus = {
  /** Takes at most DATABASE_MS_MAX. */
  read(now: Date): Promise<DeploymentReading>;
  /** Since when this process can't store its heartbeat; undefined while it can. */
  silentSince(): Date | undefined;
  /** Sets the gauges of the deployment, and removes those whose value is unknown. `own` is the trouble of following here. */
  refreshMetrics(now: Date, own: Trouble | undefined): Promise<void>;
};

/** The fields of /status without a reading. */
export const unknownDeployment: Body = {
  ...{ processes: null, missing: null, receivers: null, late: null, failing_work: null },
};

/** A webhook that has been due for longer counts as late. */
export const LATE_MS = 60_000;
const LATE_LISTED_MAX = 100;
/** How long requests share a reading. It changes slowly. */
const KEEP_MS = 1_000;
/** When receivers of this many watchers fail at once and no webhook is accepted, the cause is probably on this side. */
const OUTAGE_WATCHERS_MIN = 3;
const rolesNeeded = ['follower', 'delivery', 'prices'] as const;

type Options = {
  config: Config;
  database: Database;
  deployment: ProcessRegistry;
  clock: Clock;
  metrics: Metrics;
};

/** As last read: whether something waits for delivery, and since when a process lacks a secret. */
type Known = { isWaiting: boolean; lackingSince: Date | undefined };

export function createDeploymentStatus(options: Options): DeploymentStatus {
  const { deployment, clock, metrics } = options;
  const known: Known = { isWaiting: false, lackingSince: undefined };
  const read = shareReading((now) => readDeployment(options, { now, known }), { clock, keepMs: KEEP_MS });

  return {
    read,
    silentSince: () => deployment.silence()?.since,
    async refreshMetrics(now, own) {
      const { body, leader } = await read(now);
      const leads = deployment.leads();
      if (!leads) {
        metrics.chainLagSeconds.remove();
        metrics.chainBlockNumber.reset();
      }
      const trouble = leads ? own : leader?.trouble;
      if (deployment.leader() === undefined || body.processes === null) metrics.chainHeld.remove();
      else metrics.chainHeld.set(trouble?.state === 'holding' ? 1 : 0);
      setGauges(metrics, body);
      // While it can't store its heartbeat, it can't know.
      if (deployment.silence() !== undefined) metrics.roleMissing.reset();
    },
  };
}

async function readDeployment(
  { config, database, deployment, clock }: Options,
  { now, known }: { now: Date; known: Known },
): Promise<DeploymentReading> {
  const parts = createPartReader(clock);
  const missed = countMissed(database);
  const present = missed.then((lost) => withoutLost(withLimit(database, DATABASE_MS_MAX), lost));
  const [lost = [], isWaiting = known.isWaiting, failures, lateness, overdue, kekIds, processes] =
    await Promise.all([
      parts.read(missed),
      parts.read(present.then(hasWaiting)),
      parts.read(countFailures(database, now)),
      parts.read(
        present.then((shards) => findLateWatchers(shards, now, { lateMs: LATE_MS, limit: LATE_LISTED_MAX })),
      ),
      parts.read(findNewestRound(config, database, now)),
      parts.read(listKekIds(database)),
      parts.read(deployment.look().then(deployment.processes)),
    ]);
  known.isWaiting = isWaiting;
  const hasFeeds = config.prices.native !== undefined || Object.keys(config.prices.tokens).length > 0;
  const isNeeded = { follower: true, delivery: isWaiting, prices: hasFeeds };
  const missing = rolesNeeded
    .filter((role) => processes !== undefined && isNeeded[role])
    .flatMap((role) => {
      const absence = deployment.missing(role, role === 'prices' ? overdue : undefined);
      if (absence === undefined) return [];
      return [{ role, message: describeAbsence(role, absence, overdue), since: absence.since }];
    });
  const failingWork = (processes === undefined ? [] : deployment.failingWork()).map((one) => ({
    ...one,
    message: describeFailing(one),
  }));
  const [
    first = troubleOfSilence(deployment.silence(), now) ??
      troubleOfSecrets(kekIds, processes, { now, known }) ??
      troubleOfShards(lost) ??
      (failures && outageOf(failures)),
  ] = missing;
  const leader = processes && deployment.leader();
  return {
    body: {
      ...unknownDeployment,
      ...(processes && {
        processes: processes.map((one) => describeProcess(one, leader)),
        missing: missing.map(({ since, ...rest }) => ({ ...rest, since: since.toISOString() })),
        failing_work: failingWork.map(({ work, process, message, since }) => ({
          ...{ work, process, message, since: since.toISOString() },
        })),
      }),
      ...(failures && { receivers: describeReceivers(failures) }),
      ...(lateness && { late: describeLateness(lateness, now) }),
    },
    leader: leader === undefined || leader.id === deployment.id ? undefined : reportOf(leader),
    standbyHead: newestHead(processes ?? []),
    trouble: first && degradedBy(first),
    sideTrouble: failingWork[0] && degradedBy(failingWork[0]),
    writeFailures: processes === undefined ? [] : deployment.writeFailures(),
    details: processes && {
      processes: processes.map((one) => ({ ...describeProcess(one, leader), host: one.host, pid: one.pid })),
      late_watchers: lateness === undefined ? null : describeLatest(lateness, now),
    },
    errors: parts.errors,
  };
}

const describeReceivers = ({ receivers, watchers, oldestSince }: FailureCounts) => ({
  ...{ failing: receivers, watchers, since: oldestSince?.toISOString() ?? null },
});

const describeLateness = ({ watchers, oldestDueAt }: Lateness, now: Date) => ({
  ...{ watchers, seconds: oldestDueAt === undefined ? 0 : ageSeconds(oldestDueAt, now) },
});

const describeLatest = ({ latest }: Lateness, now: Date) =>
  latest.map(({ watcherId, watcherName, oldestDueAt }) => ({
    ...{ watcher_id: watcherId, watcher: watcherName, oldest_due_at: oldestDueAt.toISOString() },
    seconds: ageSeconds(oldestDueAt, now),
  }));

/** Removes the gauges whose value is unknown, rather than leaving them at old ones. */
function setGauges(metrics: Metrics, { processes, missing, receivers, late }: Body): void {
  metrics.processes.reset();
  metrics.roleMissing.reset();
  metrics.receiversFailing.remove();
  metrics.watchersFailing.remove();
  metrics.watchersLate.remove();
  metrics.webhookLateSeconds.remove();
  for (const { roles, state } of processes ?? [])
    for (const role of roles) metrics.processes.inc({ role, state });
  for (const role of missing === null ? [] : rolesNeeded)
    metrics.roleMissing.set({ role }, missing?.some((one) => one.role === role) ? 1 : 0);
  if (receivers !== null) {
    metrics.receiversFailing.set(receivers.failing);
    metrics.watchersFailing.set(receivers.watchers);
  }
  if (late !== null) {
    metrics.watchersLate.set(late.watchers);
    metrics.webhookLateSeconds.set(late.seconds);
  }
}

const verbs = { follower: 'follows the chain', delivery: 'delivers webhooks', prices: 'reads prices' };

function describeAbsence(
  role: keyof typeof verbs,
  { last, standby, unstarted }: Absence,
  overdue: NewestRound | undefined,
): string {
  const nothing = `no process ${verbs[role]}`;
  if (standby !== undefined && (last?.state === 'stopped' || last?.state === 'failed'))
    return `${nothing}: ${describeEnd(last)}, and process ${standby.id} doesn't lead yet. If this lasts, read its log`;
  if (standby !== undefined && last?.state === 'lost')
    return `${nothing}: process ${last.id} is lost (no heartbeat), and process ${standby.id} can't lead while PostgreSQL keeps the lock of the lost one. Continue or end the lost process. If it is cut off from the database, end its connection`;
  if (standby === undefined && unstarted !== undefined)
    return `${nothing}: ${describeEnd(unstarted)}. Correct that, and start one with the role ${role}`;
  if (last === undefined)
    return `${nothing}: none with the role ${role} has run since this one started. Start one`;
  if (last.state === 'stopped')
    return `${nothing}: process ${last.id} was stopped. Start one with the role ${role}`;
  if (last.state === 'failed')
    return `${nothing}: a bug ended process ${last.id}. Its log has the error (service.failed); please report it. Start one with the role ${role}`;
  if (last.state === 'lost')
    return `${nothing}: process ${last.id} is lost (no heartbeat). Check that it runs, and read its log`;
  const instead = role === 'prices' ? `the price of ${overdue?.asset} is overdue` : "doesn't lead";
  return `${nothing}: process ${last.id} runs, but ${instead}. Read its log. If another process that led was cut off, PostgreSQL keeps its lock until that connection ends`;
}

function describeEnd({ id, state, error }: Pick<SeenProcess, 'id' | 'state' | 'error'>): string {
  if (error !== undefined) return `the start of process ${id} failed: ${error}`;
  return `process ${id} ${state === 'failed' ? 'was ended by a bug' : 'was stopped'}`;
}

function troubleOfSilence(silence: Silence | undefined, now: Date) {
  if (silence === undefined || now.getTime() - silence.since.getTime() < LOST_MS) return undefined;
  const message = `a process can't store its heartbeat, so it doesn't know whether the others run: ${silence.reason}`;
  return { message, since: silence.since };
}

/** Its secret was replaced (`chainbell keys rekey`), or others use a new one already. */
function troubleOfSecrets(
  kekIds: readonly string[] | undefined,
  processes: readonly SeenProcess[] | undefined,
  { now, known }: { now: Date; known: Known },
) {
  if (kekIds === undefined || processes === undefined) return undefined;
  const lacking = processes.filter((one) => one.state === 'running' && lacksKek(one.kekIds, kekIds));
  known.lackingSince = lacking.length === 0 ? undefined : (known.lackingSince ?? now);
  if (known.lackingSince === undefined) return undefined;
  const names = lacking.map(({ id, roles }) => `${id} (${roles.join(', ')})`).join(', ');
  const message = `API keys or signing secrets are stored under a secret that a process doesn't have, so it can neither check these keys nor send these watchers' webhooks: ${names}. ${SECRET_ADVICE}`;
  return { message, since: known.lackingSince };
}

/** On Citus. */
function troubleOfShards([first, ...others]: Awaited<ReturnType<typeof countMissed>>): Trouble | undefined {
  if (first === undefined) return undefined;
  const { worker, since, blocks, transfers } = first;
  const also = others.map((one) => `, and the same for worker ${one.worker}`).join('');
  return {
    state: 'degraded',
    message: `worker ${worker} did not answer, so its shards wait for blocks (${blocks} so far, with up to ${transfers} transfers), and its watchers get no webhooks of them yet${also}. Check that its server runs; the shards catch up when it does`,
    since,
  };
}

const degradedBy = ({ message, since }: { message: string; since: Date }): Trouble => ({
  state: 'degraded',
  message,
  since,
});

const describeFailing = ({ work, process: id, isBug }: FailingWork & { process: string }) =>
  isBug
    ? `a bug stops the work "${work}" of process ${id}. It is tried again, and blocks and webhooks go on. The log of that process has the error (loop.bug); please report it`
    : `the work "${work}" of process ${id} fails each time, or waits for an answer, for example because of a lock. It is tried again. The log of that process has each error (loop.fault)`;

/** One failing receiver is its watcher's problem. When those of several watchers fail at once and no webhook is accepted, the deployment's network may be down. */
function outageOf({ watchersSinceSuccess, lastSuccessAt, oldestSince }: FailureCounts) {
  const since = lastSuccessAt ?? oldestSince;
  if (watchersSinceSuccess < OUTAGE_WATCHERS_MIN || since === undefined) return undefined;
  const message = `no webhook is accepted, and receivers of ${watchersSinceSuccess} watchers began to fail: check the network and the DNS of the delivery processes`;
  return { message, since };
}

export function describeProcess(
  { id, roles, version, state, error, startedAt, seenAt, follower }: SeenProcess,
  leader: SeenProcess | undefined,
) {
  const problem = follower?.problem;
  return {
    ...{ id, roles: [...roles], version, state, error: error ?? null },
    started_at: startedAt.toISOString(),
    seen_at: seenAt.toISOString(),
    follower:
      follower === undefined
        ? null
        : {
            ...{
              leads: follower.leads && state === 'running' && id === leader?.id,
              state: follower.state,
              head: follower.head ?? null,
            },
            problem:
              problem === undefined ? null : { message: problem.message, since: problem.since.toISOString() },
          },
  };
}

function newestHead(processes: readonly SeenProcess[]): number | undefined {
  const heads = processes.flatMap(({ state, follower }) =>
    state === 'running' ? (follower?.head ?? []) : [],
  );
  return heads.length === 0 ? undefined : Math.max(...heads);
}

function reportOf({ follower }: SeenProcess): DeploymentReading['leader'] {
  const { head, state = 'ok', problem } = follower ?? {};
  return {
    head,
    trouble: state === 'ok' || problem === undefined ? undefined : { state, ...problem },
  };
}
