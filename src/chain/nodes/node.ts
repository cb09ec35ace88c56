/**
 * One node: its connection, what it can do, how it fares, and what follows from that for the order in which
 * nodes are asked.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import { createWindow, type MethodHealth, type Window } from '../rpc/health.ts';
import { createRpc, type NodeRpc } from '../rpc/rpc.ts';
import type { ThrottleStatus } from '../rpc/throttle.ts';
import { createDisproved, type Disproved } from './disproved.ts';
import { isLinked, LINKED_MAX, VOTE_MS_MAX, type Voice } from './head-votes.ts';
import type { Capabilities } from './probe.ts';

export type Node = {
  readonly url: string;
  readonly rpc: NodeRpc;
  /** Undefined until the first successful probe and after an error that puts them in doubt. */
  capabilities: Capabilities | undefined;
  /**
   * Whether it could trace when it was last probed, also while its capabilities are in doubt; undefined
   * before.
   */
  canTrace: boolean | undefined;
  /** The head that it named last, also while that is no vote. */
  head: BlockHeader | undefined;
  /** What it votes for; undefined after an error. */
  voice: Voice | undefined;
  /** Set while its chain differs from stored blocks: it is polled and nothing else. */
  disagreement: Disagreement | undefined;
  /** A block that it gave against a quorum: compared with the stored one once it lies deep enough. */
  suspectNumber: number | undefined;
  /** How often its head was another block than the one that a quorum named at that height. */
  outvotedCount: number;
  /** The newest of those. */
  outvoted: Outvoted | undefined;
  readonly disproved: Disproved;
  /** Set while its head stays below those of the others. */
  blocksBehind: number | undefined;
  /**
   * When its identity was last checked because its head did not link to the previous one, by the steady
   * clock.
   */
  identifiedMs: number;
  /** Its head did not link to the previous one, and its identity was not checked. */
  isUnsure: boolean;
  /** When it was asked for its head, while it has not answered. */
  headAskedAt: number | undefined;
  /** How long the head, and a bundle of few blocks, took lately. */
  readonly headTimes: Window;
  readonly bundleTimes: Window;
  /** Bundles in a row that another node, asked later, gave first. */
  lostCount: number;
  /** How often it was asked beside a slow one, and how often one that was asked beside it was faster. */
  hedges: number;
  overtaken: number;
  failures: number;
  fault: Fault | undefined;
  /** Until then it is asked only when no other node is left. */
  retryAt: number;
  /** Until then faster nodes are asked before it. */
  slowUntil: number;
};

/** The first block at which a node's chain differs from the stored one. */
type Disagreement = { number: number; hash: Hash; storedHash: Hash; since: Date };

/** What a node named, and what a quorum named instead. */
export type Outvoted = { number: number; hash: Hash; corroboratedHash: Hash; at: Date };

/**
 * disagrees: its chain differs from stored blocks, so it is only polled. limited: it asked for a pause.
 * behind: others passed its head half a minute ago. slow: others are asked before it, or its head is overdue.
 */
type NodeState = 'ok' | 'slow' | 'behind' | 'limited' | 'failing' | 'disagrees' | 'wrong_chain' | 'unknown';

export type NodeStatus = {
  name: string;
  state: NodeState;
  head: number | undefined;
  /** How far its head is below those of the others, while it stays there. */
  blocksBehind: number | undefined;
  /** The head that counts as its vote. */
  vote: BlockId | undefined;
  disagreement: Disagreement | undefined;
  outvotedCount: number;
  outvoted: Outvoted | undefined;
  /** Answers of this node that a proof or other nodes contradicted. */
  disproved: ReturnType<Disproved['status']>;
  error: string | undefined;
  capabilities: Capabilities | undefined;
  throttle: ThrottleStatus;
  /** Undefined unless it rests after a failure, or others are asked before it. */
  retryAt: Date | undefined;
  slowUntil: Date | undefined;
  /** Since the start: requests beside a slow node's, and own ones that another node answered before it. */
  hedges: number;
  overtaken: number;
  methods: MethodHealth[];
};

const BACK_OFF_MS_MAX = 30_000;
/** Failures in a row after which it may be another node behind the same address: ask again what it can do. */
const FAILURES_OF_ONE_MAX = 2;
/** What is overdue: never before this, which a connection over the ocean needs. */
const OVERDUE_MS_MIN = 100;
const OVERDUE_MS_MAX = 1_000;
/**
 * Slow is who loses so many times in a row, or has a median so many times the best one's, of so many and
 * above this.
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
    canTrace: undefined,
    head: undefined,
    voice: undefined,
    disagreement: undefined,
    suspectNumber: undefined,
    blocksBehind: undefined,
    identifiedMs: Number.NEGATIVE_INFINITY,
    isUnsure: false,
    outvotedCount: 0,
    outvoted: undefined,
    headAskedAt: undefined,
    headTimes: createWindow(clock),
    bundleTimes: createWindow(clock),
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
 * Runs `work` against the node and keeps its record: success clears it, a Fault adds a doubling back-off,
 * unless the work was no longer wanted or the node only asks to be left alone.
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
      node.failures += 1;
      node.fault = error;
      node.retryAt = clock.now().getTime() + Math.min(100 * 2 ** node.failures, BACK_OFF_MS_MAX);
      if (node.failures > FAILURES_OF_ONE_MAX) node.capabilities = undefined;
    }
    throw error;
  }
}

/** Whether it would do, now or after a short rest. */
export function isHopeful(node: Node): boolean {
  return node.failures <= FAILURES_OF_ONE_MAX && !node.rpc.throttle.isLimited();
}

/** Whether it is on the chain that is followed, as far as is known. */
export function isSound({ disagreement, fault }: Node): boolean {
  return disagreement === undefined && fault?.code !== 'conflict';
}

/**
 * A node on a fast chain names a block after a gap at every poll, so its identity is checked only this often.
 */
const IDENTIFY_MS_MIN = 60_000;

/**
 * Whether this head may be of another chain, for example because another node now answers at the same
 * address: it does not link to the previous one. Notes that the identity is being checked, or should be.
 */
export function needsIdentity(node: Node, head: BlockHeader, clock: Clock): boolean {
  const { head: last, voice } = node;
  if (last === undefined) return false;
  const isKnown = clock.steadyMs() - node.identifiedMs < IDENTIFY_MS_MIN;
  const isNext = last.hash === head.hash || last.hash === head.parentHash || isLinked(voice, head);
  if (isNext && (isKnown || !node.isUnsure)) return false;
  const isAhead = head.number > last.number && head.number - last.number <= LINKED_MAX;
  node.isUnsure = isAhead && isKnown && node.fault?.code !== 'conflict';
  if (!node.isUnsure) node.identifiedMs = clock.steadyMs();
  return !node.isUnsure;
}

/** Whether nothing speaks against asking it: it neither rests after a failure nor asked to be left alone. */
export function isReady(node: Node, now: number): boolean {
  return node.retryAt <= now && !node.rpc.throttle.isLimited();
}

/**
 * The order in which to ask: as configured, but slow nodes and nodes that are behind after the others, then
 * limited, failing and disagreeing ones.
 */
export function byReadiness(nodes: readonly Node[], now: number): Node[] {
  const rank = (node: Node) =>
    node.disagreement !== undefined
      ? 4
      : node.retryAt > now
        ? 3
        : node.rpc.throttle.isLimited()
          ? 2
          : node.blocksBehind !== undefined || isSlow(node, now)
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

/** How long an answer may take before it is worth asking another node. */
export function overdueMs(times: Window | undefined): number {
  return Math.max(OVERDUE_MS_MIN, 2 * (times?.percentile(95) ?? 0));
}

/**
 * How long the others' heads wait for this node's. One that has not been heard yet may need to be probed
 * first.
 */
export function headPatienceMs({ headTimes, failures }: Node): number {
  if (headTimes.count() === 0 && failures === 0) return OVERDUE_MS_MAX;
  return Math.min(overdueMs(headTimes), OVERDUE_MS_MAX);
}

/** Whether it was asked for its head so long ago that the others no longer wait for it. */
export function isOverdue(node: Node, now: number): boolean {
  return node.headAskedAt !== undefined && now - node.headAskedAt >= headPatienceMs(node);
}

/**
 * Notes how long a bundle of few blocks took; a node that is much slower than the best comes later for a
 * while.
 */
export function noteBundleTime(nodes: readonly Node[], node: Node, tookMs: number, now: number): void {
  node.lostCount = 0;
  node.bundleTimes.add(tookMs);
  if (nodes.length === 1) return;
  const medians = nodes
    .filter(({ bundleTimes }) => bundleTimes.count() >= SLOW_SAMPLES_MIN)
    .map((one) => ({ one, median: one.bundleTimes.percentile(50) ?? 0 }));
  const best = Math.min(...medians.map(({ median }) => median));
  for (const { one, median } of medians)
    if (median > SLOW_FACTOR * best && median > SLOW_MS_MIN) comeLater(one, now);
}

/** Notes that another node, asked later, gave a bundle first. */
export function noteLost(node: Node, now: number): void {
  node.lostCount += 1;
  node.overtaken += 1;
  if (node.lostCount >= LOST_MAX) comeLater(node, now);
}

function comeLater(node: Node, now: number): void {
  node.slowUntil = now + SLOW_REST_MS;
  // When it comes first again, what it was counts no more.
  node.bundleTimes.clear();
  node.lostCount = 0;
}

/** Whether a method that the node was asked by its plan is gone. */
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
      node.voice === undefined || now - node.voice.atMs > VOTE_MS_MAX
        ? undefined
        : { number: node.voice.head.number, hash: node.voice.head.hash },
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
