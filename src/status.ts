/**
 * What operators see: the checks of /readyz, the body of /status, and the gauges that are read on demand.
 */
import type { Check, OpsSources } from './api/ops.ts';
import type { SocketStatus } from './chain/heads.ts';
import type { NodeStatus } from './chain/node.ts';
import type { ChainNodes } from './chain/nodes.ts';
import type { QuorumStatus } from './chain/quorum.ts';
import type { Verifier } from './chain/verifier.ts';
import type { Voters } from './chain/voting.ts';
import type { CommonClock } from './common-clock.ts';
import type { Config } from './config/schema.ts';
import type { Clock } from './core/clock.ts';
import { Fault, messageOf } from './core/fault.ts';
import { firstOrLate } from './core/late.ts';
import type { Step } from './core/loop.ts';
import type { Metrics } from './core/metrics.ts';
import { describePairs, refreshPairMetrics } from './pair-status.ts';
import { describePrices, refreshPriceMetrics } from './price-status.ts';
import { findChain, findTipTimes } from './store/blocks.ts';
import type { Database } from './store/db.ts';
import { type QueueStatistics, queueStatistics } from './store/outbox.ts';
import { readTime } from './store/time.ts';
import type { WriteFailure, WriteHealth } from './store/write-health.ts';

export type StatusOptions = {
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
  clock: Clock;
  metrics: Metrics;
};

export type Status = OpsSources & {
  /** The step, watched: what it last failed with is shown until it works again. */
  watch(step: Step): Step;
  refreshMetrics(): Promise<void>;
};

/** A database that does not answer within this is not ready. */
const DATABASE_MS_MAX = 2_000;
/** Nothing else ends these waits. */
const never = new AbortController().signal;

export function createStatus(options: StatusOptions): Status {
  const { version, config, database, nodes, clock, metrics } = options;
  let followerFault: { fault: Fault; since: Date } | undefined;
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
      ]);
      const read = await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX);
      if (read === 'late')
        throw new Fault('unavailable', `database: no answer within ${DATABASE_MS_MAX / 1000} s`);
      const [tip, chain, queue, prices, pairs, writeFailures] = read;
      unreadSince = undefined;
      return { tip, chain, queue, prices, pairs, writeFailures };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      unreadSince ??= now;
      const message = `${messageOf(error)}. /status can't show what is stored: check that the database runs, and check database.url`;
      return { fault: { state: 'degraded', message, since: unreadSince } };
    }
  }

  function findTrouble(tipNumber: number | undefined): Trouble | undefined {
    const trouble = troubleOf(followerFault, nodes?.quorum());
    if (trouble !== undefined || nodes === undefined || tipNumber === undefined) return trouble;
    return rollbackOf(nodes, tipNumber);
  }

  return {
    watch: (step) => async (signal) => {
      try {
        const outcome = await step(signal);
        followerFault = undefined;
        return outcome;
      } catch (error) {
        if (error instanceof Fault && !signal.aborted) {
          followerFault = { fault: error, since: followerFault?.since ?? clock.now() };
        }
        throw error;
      }
    },
    async checks() {
      const checks: Record<string, Check> = { database: await checkDatabase() };
      if (nodes !== undefined) checks.nodes = checkNodes(nodes);
      if (checks.database?.ok === true) checks.blocks = await checkCursor();
      checks.writes = await checkWrites();
      return checks;
    },
    async status() {
      const now = clock.now();
      const stored = await readStored(now);
      const { tip, chain, queue, prices, pairs, writeFailures } = 'fault' in stored ? unread : stored;
      const head = nodes?.headNumber();
      const quorum = nodes?.quorum();
      const trouble = findTrouble(tip?.number) ?? ('fault' in stored ? stored.fault : undefined);
      const lagBlocks = head === undefined || tip === undefined ? null : Math.max(0, head - tip.number);
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
        cursor:
          tip === undefined
            ? null
            : {
                number: tip.number,
                mined_at: tip.minedAt.toISOString(),
                stored_at: tip.storedAt.toISOString(),
              },
        lag_blocks: lagBlocks,
        lag_seconds:
          lagBlocks === 0 || tip === undefined ? 0 : (now.getTime() - tip.minedAt.getTime()) / 1000,
        problem: describeProblem(trouble, writeFailures),
        write_failures: writeFailures.map(({ part, message, since }) => {
          return { part, message, since: since.toISOString() };
        }),
        clock_step: describeStep(options.recentStep()),
        queue: queue === undefined ? null : describeQueue(queue, now),
        prices,
        pairs,
        quorum: quorum === undefined ? null : describeQuorum(quorum, options.proof),
        nodes: (nodes?.status() ?? []).map(describeNode),
        web_sockets: (nodes?.sockets() ?? []).map(describeSocket),
        proof: describeProof(options.proof),
        agreement: describeAgreement(options.agreement),
        pushed_heads: nodes?.isPushed() ?? false,
        database: database.kind,
      };
    },
    async refreshMetrics() {
      for (const { name, throttle } of nodes?.status() ?? [])
        metrics.rpcConcurrencyMax.set({ node: name }, throttle.concurrency);
      const now = clock.now();
      // Without the database, the nodes still give their part of the status.
      const tip = nodes && (await findTipTimes(database).catch(() => undefined));
      metrics.chainHeld.set(findTrouble(tip?.number)?.state === 'holding' ? 1 : 0);
      const queue = await queueStatistics(database, now);
      metrics.webhookWaiting.set(queue.waiting + queue.held);
      metrics.webhookDue.set(queue.due);
      metrics.webhookOldestDueSeconds.set(
        queue.oldestDueAt === undefined ? 0 : ageSeconds(queue.oldestDueAt, now),
      );
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
};
const unread: Stored = {
  ...{ tip: undefined, chain: undefined, queue: undefined },
  ...{ prices: [], pairs: [], writeFailures: [] },
};

function describeQueue({ held, waiting, due, oldestDueAt }: QueueStatistics, now: Date) {
  const age = oldestDueAt === undefined ? 0 : ageSeconds(oldestDueAt, now);
  return { held, waiting, due, oldest_due_age_seconds: age };
}

function describeStep(step: ReturnType<CommonClock['recentStep']>) {
  if (step === undefined) return null;
  const { ms, at, pruneFrom } = step;
  return { seconds: ms / 1000, at: at.toISOString(), pruning_resumes_at: pruneFrom.toISOString() };
}

type Trouble = { state: 'degraded' | 'holding'; message: string; since: Date };

/** The reason why the follower doesn't follow, or follows with less certainty than configured. */
function troubleOf(
  failed: { fault: Fault; since: Date } | undefined,
  quorum: QuorumStatus | undefined,
): Trouble | undefined {
  if (failed !== undefined) {
    const isHolding = failed.fault.code === 'inconsistent' || quorum?.isHeld === true;
    const state = isHolding ? 'holding' : 'degraded';
    return { state, message: messageOf(failed.fault), since: failed.since };
  }
  const held = quorum?.dispute ?? quorum?.stalled;
  if (held !== undefined) return { state: 'holding', ...held };
  if (quorum?.ahead !== undefined) return { state: 'degraded', ...quorum.ahead };
  if (quorum?.silent === undefined) return undefined;
  const { name, since } = quorum.silent;
  return {
    state: 'degraded',
    message: `${name} gives no votes, so the other node is followed alone and could be wrong: repair it, add a third node, or set chain.quorum: 2 to hold instead`,
    since,
  };
}

/** The nodes have gone back on the stored chain, as after a restore from a backup. */
function rollbackOf(nodes: ChainNodes, tipNumber: number): Trouble | undefined {
  const [head, since] = [nodes.headNumber(), nodes.belowSince(tipNumber)];
  if (head === undefined || since === undefined) return undefined;
  const who = nodes.quorum().nodes === 1 ? 'the node is' : 'the nodes are';
  return {
    state: 'holding',
    message: `${who} at block ${head}, and block ${tipNumber} is stored: following resumes above block ${tipNumber}. Wait if they are catching up; otherwise check why they went back, or add a node to chain.rpc that has block ${tipNumber}`,
    since,
  };
}

/** The most important problem. If it is a failed write, the failure's message has the advice. */
function describeProblem(trouble: Trouble | undefined, failures: readonly WriteFailure[]) {
  const failure = failures.find(
    ({ message }) => trouble === undefined || message.startsWith(trouble.message),
  );
  const { message, since } = { ...trouble, ...failure };
  if (message === undefined || since === undefined) return null;
  const subject = failure === undefined ? '' : `${failure.part} has stored nothing: `;
  return { message: `${subject}${message}`, since: since.toISOString() };
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

function describeNode(node: NodeStatus) {
  const {
    name,
    state,
    head,
    blocksBehind,
    vote,
    disagreement,
    outvoted,
    error,
    capabilities,
    throttle,
    methods,
  } = node;
  const { last } = node.disproved;
  return {
    name,
    state,
    head: head ?? null,
    blocks_behind: blocksBehind ?? null,
    vote: vote === undefined ? null : { number: vote.number, hash: vote.hash },
    disagreement:
      disagreement === undefined
        ? null
        : {
            ...{ number: disagreement.number, hash: disagreement.hash },
            ...{ stored_hash: disagreement.storedHash, since: disagreement.since.toISOString() },
          },
    outvoted_count: node.outvotedCount,
    outvoted:
      outvoted === undefined
        ? null
        : {
            ...{ number: outvoted.number, hash: outvoted.hash },
            ...{ corroborated_hash: outvoted.corroboratedHash, at: outvoted.at.toISOString() },
          },
    disproved_count: node.disproved.count,
    disproved: last === undefined ? null : { message: last.message, at: last.at.toISOString() },
    error: error ?? null,
    capabilities:
      capabilities === undefined
        ? null
        : {
            batch: capabilities.batch,
            block_receipts: capabilities.blockReceipts,
            finalized_tag: capabilities.finalizedTag,
            traces: capabilities.traces,
          },
    retry_at: node.retryAt?.toISOString() ?? null,
    slow_until: node.slowUntil?.toISOString() ?? null,
    hedges: node.hedges,
    overtaken: node.overtaken,
    limited_until: throttle.limited?.until.toISOString() ?? null,
    limit_reason: throttle.limited?.reason ?? null,
    in_flight: throttle.inFlight,
    concurrency_max: throttle.concurrency,
    batch_calls_max: throttle.batchCallsMax ?? null,
    methods: methods.map(({ method, calls, errors, limited, p50Ms, p95Ms, lastError }) => ({
      ...{ method, calls, errors, limited, p50_ms: p50Ms ?? null, p95_ms: p95Ms ?? null },
      last_error:
        lastError === undefined ? null : { message: lastError.message, at: lastError.at.toISOString() },
    })),
  };
}

function describeSocket({ name, connectedSince, heads, lastReason }: SocketStatus) {
  return {
    name,
    connected_since: connectedSince?.toISOString() ?? null,
    heads,
    last_reason: lastReason ?? null,
  };
}

const ageSeconds = (then: Date, now: Date) => Math.max(0, (now.getTime() - then.getTime()) / 1000);
