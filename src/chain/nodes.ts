/**
 * All configured nodes as one: the corroborated head, and blocks from whichever node can give them.
 */
import type { BlockHeader, BlockId } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import { quorumOf } from './agreement.ts';
import { askAll, type BlockReference, type Bundle, fetchBundles, quantityOf } from './bundle.ts';
import { createHeadReader } from './head.ts';
import { openSockets, type SocketStatus } from './heads.ts';
import { createBudget, firstAnswer, type Hedging } from './hedge.ts';
import {
  attempt,
  byReadiness,
  createNode,
  hasLostMethod,
  isHopeful,
  isOverdue,
  isReady,
  type Node,
  type NodeStatus,
  noteBundleTime,
  noteLost,
  overdueMs,
  readFinalized,
  statusOf,
} from './node.ts';
import { parseHeader } from './parse.ts';
import { type Capabilities, type ChainIdentity, probe, readIdentity } from './probe.ts';
import type { RawBlock } from './proof.ts';
import type { LearningRpc, OnBytes, RpcAnswer, RpcCall } from './rpc.ts';
import type { Sampling, Verifier } from './verifier.ts';
import { createVoting, type Voting } from './voting.ts';

export type NodesOptions = {
  urls: readonly string[];
  chainId: number;
  internalTransfers: 'auto' | 'off' | 'required';
  /** How many nodes must give equal answers where no hash decides; by default `quorumOf` their number. */
  quorum?: number;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Proves each block; without it none is. */
  verifier?: Verifier;
  /** Rung when a WebSocket tells of a new head. */
  onHead(): void;
};

/**
 * Without traces where nobody needs them; `onBytes` counts the answers, of whichever node. With `scrutiny`, everything that
 * no hash covers is checked now and not only where it matches: all senders, and internal transfers by other nodes.
 */
export type BundleOptions = { parts?: 'without traces'; scrutiny?: 'full'; onBytes?: OnBytes };

export type ChainNodes = {
  /** Chain id and genesis hash by the first node that answers. @throws Fault `conflict` for a wrong chain. */
  identify(signal: AbortSignal): Promise<ChainIdentity>;
  /** From now on nodes with another genesis are refused. */
  pin(identity: ChainIdentity): void;
  /** Has each node say anew who it is and what it can do, before it is asked anything else. */
  doubt(): void;
  /** The newest block that a second node has too; of a single node, its own; never lower than the last one. @throws Fault when none answers. */
  head(signal: AbortSignal): Promise<BlockHeader>;
  /**
   * Blocks with receipts and traces, each wholly from one node. May be called concurrently.
   * @throws Fault when no node can give them.
   */
  bundles(
    references: readonly BlockReference[],
    signal: AbortSignal,
    options?: BundleOptions,
  ): Promise<Bundle[]>;
  /** A header by hash or number; undefined when the nodes do not know it. */
  findHeader(reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /**
   * Any calls, all answered by one node; errors of single calls are for `read`, whose Fault has the next node asked.
   * @throws Fault when no node can answer.
   */
  ask<T>(
    calls: readonly RpcCall[],
    read: (answers: readonly RpcAnswer[], nodeName: string) => T,
    signal: AbortSignal,
  ): Promise<T>;
  /** The newest final block by the nodes' own tag; undefined where they have none. */
  finalized(signal: AbortSignal): Promise<number | undefined>;
  /** Whether a WebSocket delivers heads at the moment. */
  isPushed(): boolean;
  /** The number of the last head; undefined before the first. */
  headNumber(): number | undefined;
  status(): NodeStatus[];
  sockets(): SocketStatus[];
  close(): Promise<void>;
};

/** What several nodes decide by equal answers. */
export type Voters = Pick<Voting, 'agree' | 'areConfirmed'> & { agreement: Voting['status'] };

/** Recent blocks from which is learned what the chain honours. */
const SAMPLE_BLOCKS_MAX = 20;
/** Of those at once: what they bring is in memory together. */
const SAMPLE_REQUESTS_MAX = 4;
/** After this no more are asked for: a node that answers slowly has shown enough, or nothing. */
const SAMPLE_MS_MAX = 5_000;
/** As many blocks as one follows live; what fetches more is not in a hurry. */
const HEDGED_BLOCKS_MAX = 3;

/** The nodes that are asked; the others only tell of new heads. */
export const httpUrls = (urls: readonly string[]): string[] => urls.filter((url) => url.startsWith('http'));

export function createNodes(options: NodesOptions): ChainNodes & Voters {
  const { clock, log, metrics, verifier } = options;
  const nodes = httpUrls(options.urls).map((url) => createNode(url, metrics, clock));
  const wantTraces = options.internalTransfers !== 'off';
  let pinned: ChainIdentity = { chainId: options.chainId, genesisHash: undefined };
  const sockets = openSockets(options);
  const budget = createBudget();
  const nowMs = () => clock.now().getTime();
  const hedgingBy = (times: 'headTimes' | 'bundleTimes'): Hedging<Node> => ({
    // One that has not been measured is asked early: else a node that is always slow would never be found out.
    afterMs: (slow, next) => overdueMs(next[times].count() === 0 ? undefined : slow[times]),
    start(next) {
      const isAffordable = isReady(next, nowMs()) && budget.take();
      if (!isAffordable) return false;
      metrics.rpcHedges.inc({ node: next.rpc.name });
      next.hedges += 1;
      return true;
    },
    lost: (slow) => noteLost(slow, nowMs()),
  });
  const [hedgedBundles, hedgedHeaders] = [hedgingBy('bundleTimes'), hedgingBy('headTimes')];
  const heads = createHeadReader(nodes, clock, (node, signal) =>
    attempt(node, clock, signal, async () => {
      const rpc = rpcFor(node);
      await prepare(node, rpc, signal);
      const startedAt = nowMs();
      const head = parseHeader(await rpc.call('eth_getBlockByNumber', ['latest', false], signal));
      node.headTimes.add(nowMs() - startedAt);
      return head;
    }),
  );

  /** The node's capabilities, asked for when they are not known. */
  async function prepare(node: Node, rpc: LearningRpc, signal: AbortSignal): Promise<Capabilities> {
    const known = node.capabilities;
    const { capabilities, isCertain } =
      known === undefined
        ? await probe(rpc, pinned, wantTraces, signal)
        : { capabilities: known, isCertain: true };
    if (isCertain) node.capabilities = capabilities;
    node.canTrace = capabilities.traces !== 'none';
    if (options.internalTransfers === 'required' && capabilities.traces === 'none') {
      throw new Fault(
        'unavailable',
        `${node.rpc.name} cannot trace, and chain.internalTransfers is required`,
      );
    }
    if (known === undefined) log.info({ node: node.rpc.name, ...capabilities }, 'node.probed');
    return capabilities;
  }

  /** Who is asked for blocks: a node that cannot trace would drop internal transfers in silence where another one can. */
  function blockNodes(): readonly Node[] {
    const isTraced = nodes.some(({ canTrace }) => canTrace === true);
    return isTraced ? nodes.filter(({ canTrace }) => canTrace !== false) : nodes;
  }

  /** Who is limited waits when nobody else would do; otherwise the others are asked. */
  function rpcFor(node: Node): LearningRpc {
    return nodes.some((other) => other !== node && isHopeful(other)) ? node.rpc : node.rpc.patient;
  }

  /** The first answer that is not undefined, of the nodes in the order of their readiness. @throws Fault. */
  async function first<T>(
    signal: AbortSignal,
    hedging: Hedging<Node> | undefined,
    work: (node: Node, rpc: LearningRpc, signal: AbortSignal) => Promise<T>,
    candidates: readonly Node[] = nodes,
  ): Promise<T> {
    budget.earn();
    const found = await firstAnswer(
      { clock, signal, hedging },
      byReadiness(candidates, nowMs()),
      (node, abort) => attempt(node, clock, abort, () => work(node, rpcFor(node), abort)),
    );
    if ('answer' in found) return found.answer;
    const { faults } = found;
    const code = (['inconsistent', 'unavailable'] as const).find((one) =>
      faults.some((fault) => fault.code === one),
    );
    throw new Fault(code ?? faults[0]?.code ?? 'unavailable', faults.map(messageOf).join('; '));
  }

  const quorum = options.quorum ?? quorumOf(nodes.length);
  const voting = createVoting({ nodes, quorum, clock, log, prepare, rpcFor });

  async function fetchFrom(
    node: Node,
    rpc: LearningRpc,
    references: readonly BlockReference[],
    signal: AbortSignal,
    { parts, scrutiny, onBytes }: BundleOptions,
  ): Promise<Bundle[]> {
    const scope = scrutiny === 'full' ? 'all' : 'matched';
    const verify = verifier && ((block: BlockId, raw: RawBlock) => verifier.verify(block, raw, scope));
    const counted = onBytes === undefined ? rpc : rpc.counted(onBytes);
    const planOf = (known: Capabilities): Capabilities =>
      parts === undefined ? known : { ...known, traces: 'none' };
    const plan = planOf(await prepare(node, rpc, signal));
    const isAble = () => parts !== undefined || blockNodes().includes(node);
    if (!isAble()) throw new Fault('unavailable', `${node.rpc.name} cannot trace, which another node can`);
    const startedAt = nowMs();
    try {
      const bundles = await fetchBundles(counted, references, plan, signal, verify);
      if (parts === undefined && references.length <= HEDGED_BLOCKS_MAX)
        noteBundleTime(nodes, node, nowMs() - startedAt, nowMs());
      return bundles;
    } catch (error) {
      if (!(error instanceof Fault) || signal.aborted || !hasLostMethod(node)) throw error;
      log.warn({ node: node.rpc.name, error: messageOf(error) }, 'node.lost_method');
      node.capabilities = undefined;
      const next = planOf(await prepare(node, rpc, signal));
      if (!isAble()) throw error;
      return fetchBundles(counted, references, next, signal, verify);
    }
  }

  /**
   * The node's newest blocks, as many as it gives, and the first that is asked for; not the genesis block, which is made
   * otherwise.
   */
  function sampleOf(node: Node, references: readonly BlockReference[], signal: AbortSignal): Sampling {
    return async (verify) => {
      const plan: Capabilities = { ...(await prepare(node, node.rpc.patient, signal)), traces: 'none' };
      const head = parseHeader(await node.rpc.call('eth_getBlockByNumber', ['latest', false], signal));
      const from = Math.max(1, head.number - SAMPLE_BLOCKS_MAX + 1);
      const newest = Array.from({ length: head.number - from + 1 }, (_, index) => from + index);
      const [asked] = references;
      const isOlder = typeof asked === 'number' && asked > 0 && asked < from;
      const wanted = [...(isOlder ? [asked] : []), ...newest].values();
      const endsAt = nowMs() + SAMPLE_MS_MAX;
      // One by one: a node that lacks or spoils one of them can still show the others.
      const fetchEach = async () => {
        for (const number of wanted) {
          if (nowMs() > endsAt) return;
          try {
            await fetchBundles(node.rpc, [number], plan, signal, verify);
          } catch (error) {
            if (!(error instanceof Fault)) throw error;
          }
        }
      };
      await Promise.all(Array.from({ length: SAMPLE_REQUESTS_MAX }, fetchEach));
    };
  }

  /** By the nodes that are known to answer, when there are any. */
  async function calibrate(references: readonly BlockReference[], signal: AbortSignal): Promise<void> {
    const now = nowMs();
    const ordered = byReadiness(nodes, now);
    const known = ordered.filter((node) => node.capabilities !== undefined && !isOverdue(node, now));
    const samplings = (known.length > 0 ? known : ordered).map((node) => sampleOf(node, references, signal));
    await verifier?.calibrate(samplings);
  }

  return {
    identify: (signal) =>
      first(signal, hedgedHeaders, (_node, rpc, abort) => readIdentity(rpc, options.chainId, abort)),
    pin(identity) {
      pinned = identity;
    },
    doubt() {
      for (const node of nodes) node.capabilities = undefined;
    },
    async head(signal) {
      const pushed = sockets.takeHead();
      // One node needs no second opinion: what it pushed is what it would say.
      const [only] = nodes;
      if (pushed === undefined || only === undefined || nodes.length > 1) return heads.read(signal);
      only.head = pushed;
      return heads.serve(pushed);
    },
    async bundles(references, signal, bundleOptions = {}) {
      await calibrate(references, signal);
      const { parts } = bundleOptions;
      const isUrgent = parts === undefined && references.length <= HEDGED_BLOCKS_MAX;
      const hedging = isUrgent ? hedgedBundles : undefined;
      try {
        return await first(
          signal,
          hedging,
          (node, rpc, abort) => {
            const fetch = () => fetchFrom(node, rpc, references, abort, bundleOptions);
            if (bundleOptions.scrutiny !== 'full' || parts !== undefined) return fetch();
            return voting.confirmed(node, references.find(isHash), fetch, abort);
          },
          parts === undefined ? blockNodes() : nodes,
        );
      } catch (error) {
        for (const reference of references) if (typeof reference === 'string') heads.forget(reference);
        throw error;
      }
    },
    findHeader: (reference, signal) =>
      first(signal, hedgedHeaders, async (node, rpc, abort) => {
        await prepare(node, rpc, abort);
        const json = await (typeof reference === 'number'
          ? rpc.call('eth_getBlockByNumber', [quantityOf(reference), false], abort)
          : rpc.call('eth_getBlockByHash', [reference, false], abort));
        return json === null ? undefined : parseHeader(json);
      }),
    ask: (calls, read, signal) =>
      first(signal, undefined, async (node, rpc, abort) => {
        const { batch } = await prepare(node, rpc, abort);
        return read(await askAll(rpc, calls, batch, abort), rpc.name);
      }),
    agree: voting.agree,
    areConfirmed: voting.areConfirmed,
    agreement: voting.status,
    async finalized(signal) {
      const known = nodes.filter(({ capabilities }) => capabilities !== undefined);
      const able = known.filter(({ capabilities }) => capabilities?.finalizedTag === true);
      if (known.length > 0 && able.length === 0) return undefined;
      const read = async (node: Node, rpc: LearningRpc, abort: AbortSignal) =>
        readFinalized(rpc, await prepare(node, rpc, abort), abort);
      return first(signal, hedgedHeaders, read, able.length > 0 ? able : nodes);
    },
    isPushed: () => sockets.isConnected(),
    headNumber: () => heads.served()?.number,
    status: () => nodes.map((node) => statusOf(node, nowMs())),
    sockets: () => sockets.status(),
    async close() {
      await sockets.close();
      await Promise.all(nodes.map((node) => node.rpc.close()));
    },
  };
}

const isHash = (reference: BlockReference): reference is Hash => typeof reference === 'string';
