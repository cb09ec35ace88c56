/**
 * The record of one node: its connection, capabilities, votes, response times and failures. The order in which
 * nodes are asked follows from it.
 */
import { backOffMs } from '../../core/back-off.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import { createDurationWindow, type DurationWindow, type MethodHealth } from '../rpc/health.ts';
import { createRpc, type NodeRpc } from '../rpc/rpc.ts';
import type { ThrottleStatus } from '../rpc/throttle.ts';
import { createDisproved, type Disproved } from './disproved.ts';
import { type HeadVote, isLinked, LINKED_MAX, VOTE_MS_MAX } from './head-votes.ts';
import type { Capabilities } from './probe.ts';

export type Node = {
  readonly url: string;
  readonly rpc: NodeRpc;
  /** Undefined until the first successful probe, and after an error that puts them in doubt. */
  capabilities: Capabilities | undefined;
  /** When it is probed again although its capabilities are known. */
  probeAt: number;
  /** The trace method that the last probe without an error found. It stays while `capabilities` are in doubt. */
  traceMethod: Capabilities['traces'] | undefined;
  /** Methods whose traces can't be used, as a block with transactions has shown. Empty blocks don't show it again. */
  unfitTraces: Set<Capabilities['traces']>;
  /** The head that it named last, even if that no longer counts as a vote. */
  head: BlockHeader | undefined;
  /** The blocks that it votes for. Undefined after an error. */
  vote: HeadVote | undefined;
  /** Set while its chain differs from stored blocks. Other nodes are then asked before it. */
  disagreement: Disagreement | undefined;
  /** A block that it gave against a quorum. It is compared with the stored block once it is deep enough. */
  suspectNumber: number | undefined;
  /** From then on it may be compared with the stored blocks. */
  compareAt: number;
  /** How often a quorum named another block at the height of its head. */
  outvotedCount: number;
  /** The newest block for which that happened. */
  outvoted: OutvotedHead | undefined;
  readonly disproved: Disproved;
  /** Set while its head stays below the heads of the others. */
  blocksBehind: number | undefined;
  /** When its identity was last checked because its head did not link to the previous one. Steady clock. */
  identifiedMs: number;
  /** Its head did not link to the previous one, and its identity was not checked. */
  isUnsure: boolean;
  /** When it was asked for its head. Undefined after it has answered. */
  headAskedAt: number | undefined;
  /** How long the head, and a bundle of up to three blocks, took lately. */
  readonly headTimes: DurationWindow;
  readonly bundleTimes: DurationWindow;
  /** How long the trace of a block took lately, or at least took when it was no longer needed. */
  readonly traceTimes: DurationWindow;
  /** Bundles in a row that another node gave first although it was asked later. */
  lostCount: number;
  /** How often it was asked in addition to a slow node, and how often an additional node was faster than it. */
  hedges: number;
  overtaken: number;
  failures: number;
  fault: Fault | undefined;
  /** Until then it is asked only if no other node is left. */
  retryAt: number;
  /** Until then faster nodes are asked before it. */
  slowUntil: number;
};

/** Whether the node was seen to trace a block. */
export const canTrace = ({ traceMethod }: Pick<Node, 'traceMethod'>): boolean =>
  traceMethod !== undefined && traceMethod !== 'none';

/** The first block at which a node's chain differs from the stored one. */
type Disagreement = { number: number; hash: Hash; storedHash: Hash; since: Date };

/** The block that a node named, and the block that a quorum named instead. */
type OutvotedHead = { number: number; hash: Hash; corroboratedHash: Hash; at: Date };

/**
 * - `disagrees`: its chain differs from stored blocks.
 * - `limited`: it requested a pause.
 * - `behind`: other nodes passed its head at least half a minute ago.
 * - `slow`: other nodes are asked before it, or its head is overdue.
 */
type NodeState = 'ok' | 'slow' | 'behind' | 'limited' | 'failing' | 'disagrees' | 'wrong_chain' | 'unknown';

export type NodeStatus = {
  name: string;
  state: NodeState;
  head: number | undefined;
  /** How far its head is below the heads of the others, while it stays there. */
  blocksBehind: number | undefined;
  /** The head that counts as its vote. */
  vote: BlockId | undefined;
  disagreement: Disagreement | undefined;
  outvotedCount: number;
  outvoted: OutvotedHead | undefined;
  /** Answers of this node that a proof or other nodes contradicted. */
  disproved: ReturnType<Disproved['status']>;
  error: string | undefined;
  capabilities: Capabilities | undefined;
  throttle: ThrottleStatus;
  /** Set while it rests after a failure (`retryAt`), or others are asked before it (`slowUntil`). */
  retryAt: Date | undefined;
  slowUntil: Date | undefined;
  /** Since the start: requests in addition to a slow node's, and requests that another node answered first. */
  hedges: number;
  overtaken: number;
  methods: MethodHealth[];
};

/** How long a node rests after failures. */
const REST_MS = { min: 200, max: 30_000 };
/** After more failures in a row, another node may answer at the same address, so it is probed again. */
const FAILURES_OF_ONE_MAX = 2;
/** Bounds of the time after which an answer is overdue. A connection over an ocean needs the lower one. */
const OVERDUE_MS_MIN = 100;
const OVERDUE_MS_MAX = 1_000;
/**
 * A node is slow if it loses `LOST_MAX` times in a row. It is also slow if its median is above `SLOW_MS_MIN` and
 * above `SLOW_FACTOR` times the best median, each from at least `SLOW_SAMPLES_MIN` samples.
 */
const LOST_MAX = 3;
const SLOW_FACTOR = 4;
const SLOW_SAMPLES_MIN = 5;
const SLOW_MS_MIN = 50;
const SLOW_REST_MS = 300_000;

export function createNode(url: string, options: { metrics: Metrics; clock: Clock; log: Log }): Node {
  const { metrics, clock } = options;
  const rpc = createRpc(url, metrics, clock);
  return {
    ...{ url, rpc, disproved: createDisproved(rpc.name, options) },
    capabilities: undefined,
    probeAt: Number.POSITIVE_INFINITY,
    traceMethod: undefined,
    unfitTraces: new Set(),
    head: undefined,
    vote: undefined,
    disagreement: undefined,
    suspectNumber: undefined,
    compareAt: 0,
    blocksBehind: undefined,
    identifiedMs: Number.NEGATIVE_INFINITY,
    isUnsure: false,
    outvotedCount: 0,
    outvoted: undefined,
    headAskedAt: undefined,
    headTimes: createDurationWindow(clock),
    bundleTimes: createDurationWindow(clock),
    traceTimes: createDurationWindow(clock),
    lostCount: 0,
    hedges: 0,
    overtaken: 0,
    failures: 0,
    fault: undefined,
    retryAt: 0,
    slowUntil: 0,
  };
}

/**
 * Runs `work` against the node and updates its record. Success clears the failures. A Fault adds a failure with a
 * doubling back-off, unless the work was aborted or the node only limits requests.
 */
export async function attempt<T>(
  node: Node,
  clock: Clock,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  try {
    const result = await work();
    node.failures = 0;
    node.fault = undefined;
    node.retryAt = 0;
    return result;
  } catch (error) {
    if (error instanceof Fault && error.isDisproof) node.disproved.note(error);
    if (error instanceof Fault && !signal.aborted && !node.rpc.throttle.isLimited()) {
      node.fault = error;
      node.retryAt = clock.now().getTime() + backOffMs(REST_MS, node.failures);
      node.failures += 1;
      if (node.failures > FAILURES_OF_ONE_MAX) node.capabilities = undefined;
    }
    throw error;
  }
}

/** Whether it is expected to answer, now or after a short rest. */
export function isHopeful(node: Node): boolean {
  return node.failures <= FAILURES_OF_ONE_MAX && !node.rpc.throttle.isLimited();
}

/** Whether it is on the followed chain, as far as is known. */
export function isSound({ disagreement, fault }: Node): boolean {
  return disagreement === undefined && fault?.code !== 'conflict';
}

/**
 * The least time between two checks of a node's identity. On a fast chain each poll skips blocks, so heads don't
 * link to one another.
 */
const IDENTIFY_MS_MIN = 60_000;

/**
 * Whether this head may be of another chain because it does not link to the previous one. Another node may now
 * answer at the same address. Records that the identity is being checked, or should be.
 */
export function needsIdentity(node: Node, head: BlockHeader, clock: Clock): boolean {
  const { head: last, vote } = node;
  if (last === undefined) return false;
  const isKnown = clock.steadyMs() - node.identifiedMs < IDENTIFY_MS_MIN;
  const isNext = last.hash === head.hash || last.hash === head.parentHash || isLinked(vote, head);
  if (isNext && (isKnown || !node.isUnsure)) return false;
  const isAhead = head.number > last.number && head.number - last.number <= LINKED_MAX;
  node.isUnsure = isAhead && isKnown && node.fault?.code !== 'conflict';
  if (!node.isUnsure) node.identifiedMs = clock.steadyMs();
  return !node.isUnsure;
}

/** Whether it can be asked now: it doesn't rest after a failure, and it has requested no pause. */
export function isReady(node: Node, now: number): boolean {
  return node.retryAt <= now && !node.rpc.throttle.isLimited();
}

/**
 * The order in which to ask the nodes: first those without a problem, as configured. Then nodes that are slow or
 * behind, then limited ones, then failing ones, and last nodes that disagree with stored blocks. `alsoSlow` are slow for this
 * request.
 */
export function byReadiness(nodes: readonly Node[], now: number, alsoSlow: readonly Node[] = []): Node[] {
  const rank = (node: Node) =>
    node.disagreement !== undefined
      ? 4
      : node.retryAt > now
        ? 3
        : node.rpc.throttle.isLimited()
          ? 2
          : node.blocksBehind !== undefined || isSlow(node, now) || alsoSlow.includes(node)
            ? 1
            : 0;
  const freeAt = (node: Node) =>
    node.retryAt > now
      ? node.retryAt
      : node.rpc.throttle.isLimited()
        ? node.rpc.throttle.limitedUntilMs()
        : 0;
  return [...nodes].sort((one, other) => rank(one) - rank(other) || freeAt(one) - freeAt(other));
}

const isSlow = (node: Node, now: number) => node.slowUntil > now || isOverdue(node, now);

/** How long an answer may take before another node is worth asking. */
export function overdueMs(times: DurationWindow | undefined): number {
  return Math.max(OVERDUE_MS_MIN, 2 * (times?.percentile(95) ?? 0));
}

/**
 * How long to wait for this node's head after the others have answered. A node that has never answered gets more
 * time, because it may have to be probed first.
 */
export function headPatienceMs({ headTimes, failures }: Node): number {
  if (headTimes.count() === 0 && failures === 0) return OVERDUE_MS_MAX;
  return Math.min(overdueMs(headTimes), OVERDUE_MS_MAX);
}

/** Whether it was asked for its head so long ago that the others' heads no longer wait for it. */
export function isOverdue(node: Node, now: number): boolean {
  return node.headAskedAt !== undefined && now - node.headAskedAt >= headPatienceMs(node);
}

/**
 * Records how long a bundle of up to three blocks took. A node that is much slower than the best is asked after
 * the others for five minutes.
 */
export function noteBundleTime(nodes: readonly Node[], node: Node, tookMs: number, now: number): void {
  node.lostCount = 0;
  node.bundleTimes.add(tookMs);
  if (nodes.length === 1) return;
  for (const one of muchSlower(nodes, 'bundleTimes')) comeLater(one, now);
}

/** The nodes that are much slower than the best one. */
function muchSlower(nodes: readonly Node[], times: 'bundleTimes' | 'traceTimes'): Node[] {
  const medians = nodes
    .filter((one) => one[times].count() >= SLOW_SAMPLES_MIN)
    .map((one) => ({ one, median: one[times].percentile(50) ?? 0 }));
  const best = Math.min(...medians.map(({ median }) => median));
  return medians
    .filter(({ median }) => median > SLOW_FACTOR * best && median > SLOW_MS_MIN)
    .map(({ one }) => one);
}

/** The order in which to ask the nodes for traces: as `byReadiness`, except that nodes which trace slowly count as slow. */
export function byTraceReadiness(tracers: readonly Node[], now: number): Node[] {
  return byReadiness(tracers, now, muchSlower(tracers, 'traceTimes'));
}

/** Records that another node gave a bundle first although it was asked later. */
export function noteLost(node: Node, now: number): void {
  node.lostCount += 1;
  node.overtaken += 1;
  if (node.lostCount >= LOST_MAX) comeLater(node, now);
}

function comeLater(node: Node, now: number): void {
  node.slowUntil = now + SLOW_REST_MS;
  // Old times must not count when the node is asked first again.
  node.bundleTimes.clear();
  node.lostCount = 0;
}

/** Whether the node now lacks a method that its capabilities include. */
export function hasLostMethod({ capabilities, rpc }: Node): boolean {
  if (capabilities === undefined) return false;
  const { blockReceipts, traces } = capabilities;
  return (
    (blockReceipts && rpc.health.lacks('eth_getBlockReceipts')) ||
    (traces !== 'none' && rpc.health.lacks(traces))
  );
}

export function statusOf(node: Node, now: number): NodeStatus {
  const { rpc, capabilities, fault } = node;
  return {
    name: rpc.name,
    state: stateOf(node, now),
    head: node.head?.number,
    blocksBehind: node.blocksBehind,
    vote:
      node.vote === undefined || now - node.vote.atMs > VOTE_MS_MAX
        ? undefined
        : { number: node.vote.head.number, hash: node.vote.head.hash },
    disagreement: node.disagreement,
    outvotedCount: node.outvotedCount,
    outvoted: node.outvoted,
    disproved: node.disproved.status(),
    error: fault === undefined ? undefined : messageOf(fault),
    capabilities,
    throttle: rpc.throttle.status(),
    retryAt: node.retryAt > now ? new Date(node.retryAt) : undefined,
    slowUntil: node.slowUntil > now ? new Date(node.slowUntil) : undefined,
    hedges: node.hedges,
    overtaken: node.overtaken,
    methods: rpc.health.list(),
  };
}

function stateOf(node: Node, now: number): NodeState {
  if (node.fault?.code === 'conflict') return 'wrong_chain';
  if (node.disagreement !== undefined) return 'disagrees';
  if (node.rpc.throttle.isLimited()) return 'limited';
  if (node.fault !== undefined) return 'failing';
  if (node.blocksBehind !== undefined) return 'behind';
  if (isSlow(node, now)) return 'slow';
  return node.capabilities === undefined ? 'unknown' : 'ok';
}
