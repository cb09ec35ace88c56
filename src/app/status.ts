/**
 * The operator's view of the service: the body of /status, the checks of /readyz, and the gauges that are set when metrics are read.
 */
import type { OpsSources } from '../api/context.ts';
import type { StatusBody } from '../api/ops/status-body.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Config } from '../config/schema.ts';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import type { QuorumStatus } from '../domain/quorum.ts';
import { findChain, findTipTimes } from '../store/blocks/blocks.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import type { Database } from '../store/db/db.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import type { ReplicaState } from '../store/db/replica.ts';
import type { WriteFailure, WriteHealth } from '../store/db/write-health.ts';
import { type QueueStatistics, queueStatistics } from '../store/delivery/pending.ts';
import type { FollowerReport } from '../store/deployment/processes.ts';
import type { CommonClock } from './common-clock.ts';
import {
  type DeploymentReading,
  type DeploymentStatus,
  noDeployment,
  type Trouble,
} from './deployment-status.ts';
import { createFollowingTrouble } from './following-trouble.ts';
import { describeNode, describeSocket } from './node-status.ts';
import {
  describeNotifications,
  refreshNotificationMetrics,
  removeNotificationMetrics,
  unknownNotifications,
} from './notification-status.ts';
import { describePairs, refreshPairMetrics } from './pair-status.ts';
import { describePrices, refreshPriceMetrics } from './price-status.ts';
import { createOperatorView, createPublicView } from './public-view.ts';
import { checkReadiness, DATABASE_MS_MAX } from './readiness.ts';

type StatusOptions = {
  version: string;
  config: Config;
  database: Database;
  /** The connections of the heartbeat, so that a busy API or its pooler doesn't make this process seem lost. */
  reports?: Database;
  /** Undefined where this process doesn't follow the chain. */
  nodes: ChainNodes | undefined;
  /** Undefined where this process doesn't follow the chain. */
  proof: Pick<Verifier, 'status'> | undefined;
  writes: Pick<WriteHealth, 'failures'>;
  recentStep: CommonClock['recentStep'];
  agreement?: Voters['agreement'] | undefined;
  /** Undefined if no replica is configured for this process. */
  replica?: (() => ReplicaState) | undefined;
  /** Without it, the status covers only this process. */
  deployment?: DeploymentStatus | undefined;
  /** Called with an unexpected error of a statement of /status. */
  onBug(error: unknown): void;
  clock: Clock;
  metrics: Metrics;
};

export type Status = OpsSources & {
  /** Wraps the follower's step: its last Fault is shown until the step works again. */
  watch(step: Step): Step;
  /** The state of following that this process reports to the others; undefined where it doesn't follow. */
  follower(): Promise<Omit<FollowerReport, 'leads'> | undefined>;
  refreshMetrics(): Promise<void>;
};

export function createStatus(options: StatusOptions): Status {
  const { config, database, reports = database, nodes, clock } = options;
  const view = createPublicView(config);
  const hideSecrets = createOperatorView(config);
  const following = createFollowingTrouble(nodes);
  /** Since when the database can't be read. */
  let unreadSince: Date | undefined;

  /** The stored data, or the reason why it can't be read. */
  async function readStored(now: Date): Promise<Stored | { fault: Trouble }> {
    try {
      const stored = await readAll(options, now);
      unreadSince = undefined;
      return stored;
    } catch (error) {
      if (!(error instanceof Fault)) options.onBug(error);
      unreadSince ??= options.deployment?.silentSince() ?? now;
      return { fault: { state: 'degraded', message: describeUnread(error), since: unreadSince } };
    }
  }

  async function readBody(): Promise<StatusBody> {
    const now = clock.now();
    const read = await readStored(now);
    const stored = 'fault' in read ? unread : read;
    const { tip, deployment } = stored;
    const chainTrouble =
      deployment?.leader === undefined ? following.find(tip?.number) : deployment.leader.trouble;
    const sideTrouble = stored.writeFailures.length === 0 ? deployment?.sideTrouble : undefined;
    const trouble = chainTrouble ?? ('fault' in read ? read.fault : (deployment?.trouble ?? sideTrouble));
    return bodyOf(options, { stored, trouble, now });
  }

  return {
    watch: (step) => async (signal) => {
      try {
        const outcome = await step(signal);
        following.noteStep(undefined, clock.now());
        return outcome;
      } catch (error) {
        if (error instanceof Fault && !signal.aborted) following.noteStep(error, clock.now());
        throw error;
      }
    },
    async follower() {
      if (nodes === undefined) return undefined;
      const tip = await findTipTimes(reports);
      const trouble = following.find(tip?.number);
      const problem = trouble && { message: view.text(trouble.message), since: trouble.since };
      return { state: trouble?.state ?? 'ok', head: nodes.headNumber(), problem };
    },
    checks: async () => view.checks(await checkReadiness(options)),
    async details() {
      const reading = await options.deployment?.read(clock.now());
      return reading?.details ?? { processes: [], late_watchers: [] };
    },
    async deployment() {
      const reading = options.deployment?.read(clock.now()).catch(() => undefined);
      const read = reading && (await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX));
      if (read === undefined || read === 'late') return undefined;
      const { state, message } = summaryOf(read, following);
      return { state, message: message === undefined ? null : view.text(message) };
    },
    status: async () => view.status(await readBody()),
    fullStatus: async () => hideSecrets(await readBody()),
    refreshMetrics: createRefresh(options, following),
  };
}

const describeUnread = (error: unknown): string =>
  error instanceof Fault
    ? `${messageOf(error)}. /status can't show what is stored: check that the database runs, and check database.url`
    : "a bug: /status can't show what is stored. The log of this process has the error (status.bug); please report it";

/** The deployment's state in /readyz: the most important problem decides it. */
function summaryOf(
  read: DeploymentReading,
  following: ReturnType<typeof createFollowingTrouble>,
): { state: 'ok' | Trouble['state']; message: string | undefined } {
  const trouble =
    (read.leader === undefined ? following.find(undefined) : read.leader.trouble) ?? read.trouble;
  if (trouble !== undefined) return trouble;
  const [failure] = read.writeFailures;
  const problem = failure && describeProblem(undefined, [failure]);
  if (problem) return { state: 'degraded', message: problem.message };
  return read.sideTrouble ?? { state: 'ok', message: undefined };
}

function bodyOf(
  options: StatusOptions,
  { stored, trouble, now }: { stored: Stored; trouble: Trouble | undefined; now: Date },
): StatusBody {
  const { version, config, database, nodes, proof } = options;
  const { tip, chain, queue, prices, pairs, writeFailures, deployment, notifications } = stored;
  const reportedHead = deployment?.leader?.head;
  // The leader's report may be older than the newest stored block.
  const leaderHead = reportedHead === undefined ? undefined : Math.max(reportedHead, tip?.number ?? 0);
  const head = nodes?.headNumber() ?? leaderHead;
  const lagBlocks = head === undefined || tip === undefined ? null : Math.max(0, head - tip.number);
  const quorum = nodes?.quorum();
  return {
    version,
    time: now.toISOString(),
    state: trouble?.state ?? (writeFailures.length === 0 ? 'ok' : 'degraded'),
    chain: {
      id: config.chain.id,
      genesis_hash: chain?.genesisHash ?? null,
      head: head ?? null,
      finalized: chain?.finalizedNumber ?? null,
      corroborated: chain?.corroboratedNumber ?? null,
    },
    cursor: tip === undefined ? null : describeTip(tip),
    lag_blocks: lagBlocks,
    lag_seconds: lagSeconds(lagBlocks, tip, now),
    problem: describeProblem(trouble, writeFailures),
    write_failures: writeFailures.map(({ part, message, since }) => {
      return { part, message, since: since.toISOString() };
    }),
    clock_step: describeStep(options.recentStep()),
    lost_shards: stored.lostShards.map(({ worker, since, blockNumber, blocks, transfers }) => {
      return { worker, since: since.toISOString(), block: blockNumber, blocks, transfers };
    }),
    replica: describeReplica(options.replica?.()),
    queue: queue === undefined ? null : describeQueue(queue, now),
    ...(deployment?.body ?? noDeployment),
    ...notifications,
    prices,
    pairs,
    quorum: quorum === undefined ? null : describeQuorum(quorum, proof),
    nodes: (nodes?.status() ?? []).map(describeNode),
    web_sockets: (nodes?.sockets() ?? []).map(describeSocket),
    proof: describeProof(proof),
    agreement: describeAgreement(options.agreement),
    pushed_heads: nodes?.isPushed() ?? false,
    database: database.kind,
  };
}

/** Sets the gauges, in a limited time. Without the database, the nodes still give their part. */
function createRefresh(
  options: StatusOptions,
  following: ReturnType<typeof createFollowingTrouble>,
): () => Promise<void> {
  const { database, nodes, clock, metrics, deployment } = options;
  /** Scrapes share it, so that those that a slow database holds up don't take all connections. */
  let refreshing: Promise<void> | undefined;

  async function refresh(): Promise<void> {
    const now = clock.now();
    const tip = nodes && (await findTipTimes(database).catch(() => undefined));
    await refreshGauges(options, nodes && following.find(tip?.number), now);
  }

  return async () => {
    refreshing ??= refresh().finally(() => {
      refreshing = undefined;
    });
    const outcome = await firstOrLate({ clock, signal: never }, [refreshing], DATABASE_MS_MAX);
    if (outcome !== 'late') return;
    removeStoredGauges(metrics);
    deployment?.removeMetrics();
  };
}

/** Sets the gauges. When the database can't be read, removes those whose values would be old, and rejects. */
async function refreshGauges(options: StatusOptions, own: Trouble | undefined, now: Date): Promise<void> {
  const { config, database, nodes, metrics, deployment } = options;
  for (const { name, throttle } of nodes?.status() ?? [])
    metrics.rpcConcurrencyMax.set({ node: name }, throttle.concurrency);
  await deployment?.refreshMetrics(now, own);
  if (deployment === undefined) metrics.chainHeld.set(own?.state === 'holding' ? 1 : 0);
  const lost = await countMissed(database);
  metrics.lostWorkers.set(lost.length);
  metrics.missedBlocks.set(Math.max(0, ...lost.map(({ blocks }) => blocks)));
  const present = await withoutLost(withLimit(database, DATABASE_MS_MAX), lost);
  const queue = await queueStatistics(present, now).catch((error: unknown) => {
    removeStoredGauges(metrics);
    throw error;
  });
  metrics.webhookWaiting.set(queue.waiting + queue.held + queue.deferred);
  metrics.webhookDue.set(queue.due);
  metrics.webhookOldestDueSeconds.set(
    queue.oldestDueAt === undefined ? 0 : ageSeconds(queue.oldestDueAt, now),
  );
  await refreshNotificationMetrics(config, { database: present, metrics });
  await refreshPriceMetrics(config, { database, metrics }, now);
  await refreshPairMetrics(config, { database, metrics }, now);
}

/** Removes the gauges that are read from the database. */
function removeStoredGauges(metrics: Metrics): void {
  for (const gauge of [metrics.webhookWaiting, metrics.webhookDue, metrics.webhookOldestDueSeconds])
    gauge.remove();
  removeNotificationMetrics(metrics);
  metrics.priceAgeSeconds.reset();
  metrics.priceStale.reset();
}

/** Everything that /status shows from the database. @throws Fault when the database doesn't answer in time. */
async function readAll(options: StatusOptions, now: Date): Promise<Stored> {
  const { config, database, clock } = options;
  const lost = countMissed(database);
  const present = lost.then(async (some) => withoutLost(withLimit(database, DATABASE_MS_MAX), some));
  const reading = Promise.all([
    findTipTimes(database),
    findChain(database),
    lost,
    present.then((shards) => queueStatistics(shards, now)),
    describePrices(config, database, now),
    describePairs(config, database, now),
    options.writes.failures(),
    options.deployment?.read(now),
    present.then((shards) => describeNotifications(config, shards)),
  ]);
  const read = await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX);
  if (read === 'late')
    throw new Fault('unavailable', `database: no answer within ${DATABASE_MS_MAX / 1000} s`);
  const [tip, chain, lostShards, queue, prices, pairs, own, deployment, notifications] = read;
  const writeFailures = [...own, ...(deployment?.writeFailures ?? [])];
  return { tip, chain, lostShards, queue, prices, pairs, writeFailures, deployment, notifications };
}

type Stored = {
  tip: Awaited<ReturnType<typeof findTipTimes>>;
  chain: Awaited<ReturnType<typeof findChain>>;
  lostShards: Awaited<ReturnType<typeof countMissed>>;
  queue: QueueStatistics | undefined;
  prices: Awaited<ReturnType<typeof describePrices>>;
  pairs: Awaited<ReturnType<typeof describePairs>>;
  writeFailures: readonly WriteFailure[];
  deployment: DeploymentReading | undefined;
  notifications: Awaited<ReturnType<typeof describeNotifications>> | typeof unknownNotifications;
};
const unread: Stored = {
  ...{ tip: undefined, chain: undefined, queue: undefined, deployment: undefined },
  ...{ lostShards: [], prices: [], pairs: [], writeFailures: [], notifications: unknownNotifications },
};

function describeTip({ number, minedAt, storedAt }: NonNullable<Stored['tip']>) {
  return { number, mined_at: minedAt.toISOString(), stored_at: storedAt.toISOString() };
}

/** The age of the newest stored block while the head is ahead of it; null where one of them is unknown. */
function lagSeconds(lagBlocks: number | null, tip: Stored['tip'], now: Date): number | null {
  if (lagBlocks === null || tip === undefined) return null;
  return lagBlocks === 0 ? 0 : ageSeconds(tip.minedAt, now);
}

function describeQueue({ oldestDueAt, ...counts }: QueueStatistics, now: Date) {
  const age = oldestDueAt === undefined ? 0 : ageSeconds(oldestDueAt, now);
  return { ...counts, oldest_due_age_seconds: age };
}

function describeStep(step: ReturnType<CommonClock['recentStep']>) {
  if (step === undefined) return null;
  const { ms, at, pruneFrom } = step;
  return { seconds: ms / 1000, at: at.toISOString(), pruning_resumes_at: pruneFrom.toISOString() };
}

const describeReplica = (state: ReplicaState | undefined): StatusBody['replica'] =>
  state === undefined
    ? null
    : {
        in_use: state.isUsed,
        lag_seconds: state.lagMs === undefined ? null : state.lagMs / 1_000,
        message: state.problem ?? null,
      };

/** The most important problem. For a failed write, the message of the failure is shown, because it has the advice. */
function describeProblem(trouble: Trouble | undefined, failures: readonly WriteFailure[]) {
  const failure = trouble === undefined ? failures[0] : failureBehind(trouble, failures);
  const [first] = [trouble, failure]
    .flatMap((one) => one?.since ?? [])
    .sort((one, other) => one.getTime() - other.getTime());
  const message = failure?.message ?? trouble?.message;
  if (message === undefined || first === undefined) return null;
  const subject = failure === undefined ? '' : `${failure.part} has stored nothing: `;
  return { message: `${subject}${message}`, since: first.toISOString() };
}

/** The failed write that caused the trouble. The follower reports it as its trouble too, maybe with the message of another statement. */
function failureBehind({ message: words }: Trouble, failures: readonly WriteFailure[]) {
  const same = failures.find(({ message }) => message.startsWith(words));
  return (
    same ?? (words.startsWith('database: ') ? failures.find(({ part }) => part === 'follower') : undefined)
  );
}

/** Where a block check is off, a hash doesn't prove the contents, so the nodes' contents are compared too. */
function describeQuorum({ nodes, needed, votes }: QuorumStatus, proof: StatusOptions['proof']) {
  const checks = proof?.status().checks;
  const isOff = [checks?.headerHash, checks?.transactionsRoot, checks?.receiptsRoot].includes('off');
  return { nodes, needed, votes, compares: isOff ? ('contents' as const) : ('hashes' as const) };
}

function describeProof(proof: StatusOptions['proof']) {
  if (proof === undefined) return null;
  const { mode, checks, unprovedTypes } = proof.status();
  return {
    mode,
    checks: {
      header_hash: checks.headerHash,
      transactions_root: checks.transactionsRoot,
      transaction_hashes: checks.transactionHashes,
      withdrawals_root: checks.withdrawalsRoot,
      receipts_root: checks.receiptsRoot,
    },
    unproved_types: unprovedTypes,
  };
}

function describeAgreement(agreement: StatusOptions['agreement']) {
  if (agreement === undefined) return null;
  const { quorum, tracingNodes, outvoted } = agreement();
  return {
    quorum,
    internal_transfers: { nodes: tracingNodes, compared: tracingNodes > 1 },
    outvoted: outvoted.map(({ node, message, at }) => ({ node, message, at: at.toISOString() })),
  };
}

const ageSeconds = (then: Date, now: Date) => Math.max(0, (now.getTime() - then.getTime()) / 1000);
