/**
 * The body of /status: what is stored and what this process knows, in its words.
 */
import type { StatusBody } from '../api/ops/status-body.ts';
import { ageSeconds } from '../core/age.ts';
import type { QuorumStatus } from '../domain/quorum.ts';
import type { ReplicaState } from '../store/db/replica.ts';
import type { WriteFailure } from '../store/db/write-health.ts';
import type { QueueStatistics } from '../store/delivery/pending.ts';
import type { CommonClock } from './common-clock.ts';
import { type Trouble, unknownDeployment } from './deployment-status.ts';
import { describeNode, describeSocket } from './node-status.ts';
import { unknownNotifications } from './notification-status.ts';
import type { StatusOptions, Stored } from './stored-status.ts';

export function bodyOf(
  options: StatusOptions,
  { stored, trouble, now }: { stored: Stored; trouble: Trouble | undefined; now: Date },
): StatusBody {
  const { version, config, database, nodes, proof } = options;
  const { tip, chain, lostShards, queue, prices, pairs, writeFailures, deployment, notifications } = stored;
  const reportedHead = deployment?.leader?.head;
  // The leader's report may be older than the newest stored block.
  const leaderHead = reportedHead === undefined ? undefined : Math.max(reportedHead, tip?.number ?? 0);
  const head = nodes?.headNumber() ?? leaderHead ?? deployment?.standbyHead;
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
    write_failures:
      stored.hasUnknownFailures && writeFailures.length === 0
        ? null
        : writeFailures.map(({ part, message, since }) => ({ part, message, since: since.toISOString() })),
    clock_step: describeStep(options.recentStep()),
    lost_shards:
      lostShards?.map(({ worker, since, blockNumber, blocks, transfers }) => {
        return { worker, since: since.toISOString(), block: blockNumber, blocks, transfers };
      }) ?? null,
    replica: describeReplica(options.replica?.()),
    queue: queue === undefined ? null : describeQueue(queue, now),
    ...(deployment?.body ?? unknownDeployment),
    ...(notifications ?? unknownNotifications),
    prices: prices ?? null,
    pairs: pairs ?? null,
    quorum: quorum === undefined ? null : describeQuorum(quorum, proof),
    nodes: (nodes?.status() ?? []).map(describeNode),
    web_sockets: (nodes?.sockets() ?? []).map(describeSocket),
    proof: describeProof(proof),
    agreement: describeAgreement(options.agreement),
    pushed_heads: nodes?.isPushed() ?? false,
    database: database.kind,
  };
}

function describeTip({ number, minedAt, storedAt }: NonNullable<Stored['tip']>) {
  return { number, mined_at: minedAt.toISOString(), stored_at: storedAt.toISOString() };
}

/** The age of the newest stored block while the head is ahead of it; null where one of them is unknown. */
function lagSeconds(lagBlocks: number | null, tip: Stored['tip'], now: Date): number | null {
  if (lagBlocks === null || tip === undefined) return null;
  return lagBlocks === 0 ? 0 : ageSeconds(tip.minedAt, now);
}

function describeQueue({ oldestDueAt, isComplete, ...counts }: QueueStatistics, now: Date) {
  const age = oldestDueAt === undefined ? 0 : ageSeconds(oldestDueAt, now);
  return { ...counts, oldest_due_age_seconds: age, is_complete: isComplete };
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
  const { quorum, tracingNodes, silentTracer, outvoted } = agreement();
  return {
    quorum,
    internal_transfers: {
      nodes: tracingNodes,
      compared: Math.min(quorum, tracingNodes) > 1 && silentTracer === undefined,
    },
    outvoted: outvoted.map(({ node, message, at }) => ({ node, message, at: at.toISOString() })),
  };
}

/** The most important problem. For a failed write, the message of the failure is shown, because it has the advice. */
export function describeProblem(trouble: Trouble | undefined, failures: readonly WriteFailure[]) {
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
