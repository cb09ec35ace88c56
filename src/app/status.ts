/**
 * What operators see: the checks of /readyz, the body of /status, and the gauges that are read on demand.
 */
import type { Check, OpsSources } from '../api/context.ts';
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
import { readTime } from '../store/db/database-time.ts';
import type { Database } from '../store/db/db.ts';
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
import { describeTold, nothingTold, refreshToldMetrics, removeToldMetrics } from './notification-status.ts';
import { describePairs, refreshPairMetrics } from './pair-status.ts';
import { describePrices, refreshPriceMetrics } from './price-status.ts';
import { createPublicView } from './public-view.ts';

type StatusOptions = {
  version: string;
  config: Config;
  database: Database;
  /** Undefined where this process does not follow the chain. */
  nodes: ChainNodes | undefined;
  /** Undefined there too. */
  proof: Pick<Verifier, 'status'> | undefined;
  writes: Pick<WriteHealth, 'failures'>;
  recentStep: CommonClock['recentStep'];
  agreement?: Voters['agreement'] | undefined;
  /** Without it this process stands for the whole deployment. */
  deployment?: DeploymentStatus | undefined;
  clock: Clock;
  metrics: Metrics;
};

export type Status = OpsSources & {
  /** The step, watched: what it last failed with is shown until it works again. */
  watch(step: Step): Step;
  /** The chain as this process reports it to the others; undefined where it doesn't follow. */
  follower(): Promise<Omit<FollowerReport, 'leads'> | undefined>;
  refreshMetrics(): Promise<void>;
};

/** A database that does not answer within this is not ready. */
const DATABASE_MS_MAX = 2_000;

export function createStatus(options: StatusOptions): Status {
  const { version, config, database, nodes, clock, metrics } = options;
  const view = createPublicView(config);
  const following = createFollowingTrouble(nodes);
  /** Since when the database cannot be read. */
  let unreadSince: Date | undefined;

  async function checkDatabase(): Promise<Check> {
    try {
      const answer = await firstOrLate({ clock, signal: never }, [readTime(database)], DATABASE_MS_MAX);
      return answer === 'late' ? { ok: false, message: 'no answer' } : { ok: true, message: database.kind };
    } catch (error) {
      return { ok: false, message: error instanceof Fault ? 'cannot be reached' : messageOf(error) };
    }
  }

  function checkNodes(chain: ChainNodes): Check {
    const all = chain.status();
    const working = all.filter(({ state }) => state === 'ok' || state === 'slow' || state === 'limited');
    const errors = all.flatMap(({ name, error, blocksBehind }) => {
      if (error !== undefined) return [error];
      return blocksBehind === undefined ? [] : [`${name} is ${blocksBehind} blocks behind`];
    });
    return {
      ok: working.length > 0,
      message: `${working.length} of ${all.length} work${errors.length > 0 ? `: ${errors.join('; ')}` : ''}`,
    };
  }

  async function checkWrites(): Promise<Check> {
    const failures = await options.writes.failures();
    const message = failures.map(({ part, since, message: why }) => {
      return `${part} has stored nothing since ${since.toISOString()}: ${why}`;
    });
    return failures.length === 0 ? { ok: true, message: 'ok' } : { ok: false, message: message.join(' ') };
  }

  async function checkCursor(): Promise<Check> {
    const tip = await findTipTimes(database).catch(() => undefined);
    return tip === undefined
      ? { ok: false, message: 'no block stored yet' }
      : { ok: true, message: `block ${tip.number}` };
  }

  /** The stored data, or the reason why it can't be read. */
  async function readStored(now: Date): Promise<Stored | { fault: Trouble }> {
    try {
      const reading = Promise.all([
        findTipTimes(database),
        findChain(database),
        queueStatistics(database, now),
        describePrices(config, database, now),
        describePairs(config, database, now),
        options.writes.failures(),
        options.deployment?.read(now),
        describeTold(config, database),
      ]);
      const read = await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX);
      if (read === 'late')
        throw new Fault('unavailable', `database: no answer within ${DATABASE_MS_MAX / 1000} s`);
      const [tip, chain, queue, prices, pairs, own, deployment, told] = read;
      const writeFailures = [...own, ...(deployment?.writeFailures ?? [])];
      unreadSince = undefined;
      return { tip, chain, queue, prices, pairs, writeFailures, deployment, told };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      unreadSince ??= options.deployment?.silentSince() ?? now;
      const message = `${messageOf(error)}. /status can't show what is stored: check that the database runs, and check database.url`;
      return { fault: { state: 'degraded', message, since: unreadSince } };
    }
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
      const tip = await findTipTimes(database);
      const trouble = following.find(tip?.number);
      const problem = trouble && { message: view.text(trouble.message), since: trouble.since };
      return { state: trouble?.state ?? 'ok', head: nodes.headNumber(), problem };
    },
    async checks() {
      const checks: Record<string, Check> = { database: await checkDatabase() };
      if (nodes !== undefined) checks.nodes = checkNodes(nodes);
      if (checks.database?.ok === true) checks.blocks = await checkCursor();
      checks.writes = await checkWrites();
      return view.checks(checks);
    },
    async details() {
      const reading = await options.deployment?.read(clock.now());
      return reading?.details ?? { processes: [], late_watchers: [] };
    },
    async deployment() {
      const reading = options.deployment?.read(clock.now()).catch(() => undefined);
      const read = reading && (await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX));
      if (read === undefined || read === 'late') return undefined;
      const trouble = read.leader === undefined ? following.find(undefined) : read.leader.trouble;
      const [failure] = read.writeFailures;
      const unwritten = failure && describeProblem(undefined, [failure]);
      const { state, message } = trouble ??
        read.trouble ??
        (unwritten && { ...unwritten, state: 'degraded' as const }) ?? {
          state: 'ok' as const,
          message: undefined,
        };
      return { state, message: message === undefined ? null : view.text(message) };
    },
    async status() {
      const now = clock.now();
      const stored = await readStored(now);
      const { tip, chain, queue, prices, pairs, writeFailures, deployment, told } =
        'fault' in stored ? unread : stored;
      const leader = deployment?.leader;
      // What another process said a moment ago may be older than the newest block.
      const toldHead = leader?.head === undefined ? undefined : Math.max(leader.head, tip?.number ?? 0);
      const head = nodes?.headNumber() ?? toldHead;
      const quorum = nodes?.quorum();
      const chainTrouble = leader === undefined ? following.find(tip?.number) : leader.trouble;
      const trouble = chainTrouble ?? ('fault' in stored ? stored.fault : deployment?.trouble);
      const lagBlocks = head === undefined || tip === undefined ? null : Math.max(0, head - tip.number);
      return view.status({
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
        cursor:
          tip === undefined
            ? null
            : {
                number: tip.number,
                mined_at: tip.minedAt.toISOString(),
                stored_at: tip.storedAt.toISOString(),
              },
        lag_blocks: lagBlocks,
        lag_seconds: lagSeconds(lagBlocks, tip, now),
        problem: describeProblem(trouble, writeFailures),
        write_failures: writeFailures.map(({ part, message, since }) => {
          return { part, message, since: since.toISOString() };
        }),
        clock_step: describeStep(options.recentStep()),
        queue: queue === undefined ? null : describeQueue(queue, now),
        ...(deployment?.body ?? noDeployment),
        ...told,
        prices,
        pairs,
        quorum: quorum === undefined ? null : describeQuorum(quorum, options.proof),
        nodes: (nodes?.status() ?? []).map(describeNode),
        web_sockets: (nodes?.sockets() ?? []).map(describeSocket),
        proof: describeProof(options.proof),
        agreement: describeAgreement(options.agreement),
        pushed_heads: nodes?.isPushed() ?? false,
        database: database.kind,
      });
    },
    async refreshMetrics() {
      for (const { name, throttle } of nodes?.status() ?? [])
        metrics.rpcConcurrencyMax.set({ node: name }, throttle.concurrency);
      const now = clock.now();
      // Without the database, the nodes still give their part of the status.
      const tip = nodes && (await findTipTimes(database).catch(() => undefined));
      const own = nodes && following.find(tip?.number);
      await options.deployment?.refreshMetrics(now, own);
      if (options.deployment === undefined) metrics.chainHeld.set(own?.state === 'holding' ? 1 : 0);
      const queue = await queueStatistics(database, now).catch((error: unknown) => {
        // They would be of the past.
        for (const gauge of [metrics.webhookWaiting, metrics.webhookDue, metrics.webhookOldestDueSeconds])
          gauge.remove();
        removeToldMetrics(metrics);
        metrics.priceAgeSeconds.reset();
        metrics.priceStale.reset();
        throw error;
      });
      metrics.webhookWaiting.set(queue.waiting + queue.held + queue.deferred);
      metrics.webhookDue.set(queue.due);
      metrics.webhookOldestDueSeconds.set(
        queue.oldestDueAt === undefined ? 0 : ageSeconds(queue.oldestDueAt, now),
      );
      await refreshToldMetrics(config, { database, metrics });
      await refreshPriceMetrics(config, { database, metrics }, now);
      await refreshPairMetrics(config, { database, metrics }, now);
    },
  };
}

type Stored = {
  tip: Awaited<ReturnType<typeof findTipTimes>>;
  chain: Awaited<ReturnType<typeof findChain>>;
  queue: QueueStatistics | undefined;
  prices: Awaited<ReturnType<typeof describePrices>>;
  pairs: Awaited<ReturnType<typeof describePairs>>;
  writeFailures: readonly WriteFailure[];
  deployment: DeploymentReading | undefined;
  told: Awaited<ReturnType<typeof describeTold>> | typeof nothingTold;
};
const unread: Stored = {
  ...{ tip: undefined, chain: undefined, queue: undefined, deployment: undefined },
  ...{ prices: [], pairs: [], writeFailures: [], told: nothingTold },
};

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

/** The most important problem. If it is a failed write, the failure's message has the advice. */
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

/** A failed write of the follower is its trouble too; the words of both may be of different statements. */
function failureBehind({ message: words }: Trouble, failures: readonly WriteFailure[]) {
  const same = failures.find(({ message }) => message.startsWith(words));
  return (
    same ?? (words.startsWith('database: ') ? failures.find(({ part }) => part === 'follower') : undefined)
  );
}

/** Where a check of blocks is off, hashes do not bind the contents, and the contents are compared too. */
function describeQuorum({ nodes, needed, votes }: QuorumStatus, proof: StatusOptions['proof']) {
  const checks = proof?.status().checks;
  const isOff = [checks?.headerHash, checks?.transactionsRoot, checks?.receiptsRoot].includes('off');
  return { nodes, needed, votes, compares: isOff ? ('contents' as const) : ('hashes' as const) };
}

function describeProof(proof: StatusOptions['proof']) {
  if (proof === undefined) return null;
  const { mode, checks } = proof.status();
  return {
    mode,
    checks: {
      header_hash: checks.headerHash,
      transactions_root: checks.transactionsRoot,
      withdrawals_root: checks.withdrawalsRoot,
      receipts_root: checks.receiptsRoot,
    },
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
