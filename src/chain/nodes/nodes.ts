/**
 * All configured nodes as one: the corroborated head, and blocks from whichever node can give them.
 */
import type { Clock } from '../../core/clock.ts';
import { disproof, Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { BlockHeader, BlockId, BlockReference } from '../../domain/block.ts';
import { isOneEndpoint } from '../../domain/endpoint.ts';
import { createQuorum, type QuorumSetting, type QuorumStatus } from '../../domain/quorum.ts';
import { askAll, type Bundle, quantityOf } from '../blocks/bundle.ts';
import { readProvedHeader } from '../proof/prove-header.ts';
import type { Verifier } from '../proof/verifier.ts';
import { parseHeader } from '../rpc/parse.ts';
import { type LearningRpc, type RpcAnswer, type RpcCall, resultOf } from '../rpc/rpc.ts';
import { agreeOnFinalized, agreeOnGenesis, type Finalized } from './agreement.ts';
import { createAnchors } from './anchor.ts';
import { compareNode, type StoredChain } from './dissent.ts';
import { type BundleOptions, createFetch, HEDGED_BLOCKS_MAX } from './fetch.ts';
import { openSockets, type SocketStatus } from './head-subscription.ts';
import { countVotes, isLinked, isNamedBy } from './head-votes.ts';
import { createBudget, firstAnswer, type Hedging } from './hedge.ts';
import {
  attempt,
  byReadiness,
  createNode,
  isHopeful,
  isOverdue,
  isReady,
  isSound,
  type Node,
  type NodeStatus,
  needsIdentity,
  noteLost,
  overdueMs,
  statusOf,
} from './node.ts';
import { type Capabilities, type ChainIdentity, probe, readIdentity } from './probe.ts';
import { createHeadReader } from './quorum-head.ts';
import { sampleOf } from './sampling.ts';
import { createVoting, type Voters } from './unhashed-data.ts';

export type NodesOptions = {
  urls: readonly string[];
  chainId: number;
  /** How many nodes must agree on blocks and on data that no hash covers; `auto` by default. */
  quorum?: QuorumSetting;
  internalTransfers: 'auto' | 'off' | 'required';
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Proves each block; without it none is. */
  verifier?: Verifier;
  /** Rung when a WebSocket announces a new head. */
  onHead(): void;
};

export type ChainNodes = {
  /**
   * Chain id and genesis hash: before `pin` as a quorum names them, afterwards as the first node on this
   * chain names them.
   * @throws Fault `conflict` when all nodes are on another chain, `inconsistent` without a quorum.
   */
  identify(signal: AbortSignal): Promise<ChainIdentity>;
  /** From now on nodes with another genesis are refused. */
  pin(identity: ChainIdentity): void;
  /** Probes the identity and abilities of each node again, before it is asked anything else. */
  doubt(): void;
  /** The highest block whose hash a quorum names. @throws Fault without one. */
  head(signal: AbortSignal): Promise<BlockId>;
  /**
   * Blocks with receipts and traces, each wholly from one node. May be called concurrently.
   * @throws Fault when no node can give them.
   */
  bundles(
    references: readonly BlockReference[],
    signal: AbortSignal,
    options?: BundleOptions,
  ): Promise<Bundle[]>;
  /**
   * Like `bundles`, for consecutive blocks of which a quorum names the last one, so that `parentHash` anchors
   * the others. Blocks that are not proved in full are compared with those of a quorum.
   * @throws Fault when no node can give such blocks.
   */
  anchored(
    references: readonly BlockReference[],
    signal: AbortSignal,
    options?: BundleOptions,
  ): Promise<Bundle[]>;
  /** The header at a height that a quorum names; undefined when none does. */
  corroborated(number: number, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /** The parent of a corroborated block. @throws Fault `unavailable` when no node has it. */
  parentOf(child: BlockHeader, signal: AbortSignal): Promise<BlockHeader>;
  /**
   * Compares nodes that vote against the quorum, or all nodes, with the stored blocks. Never throws a node's
   * Fault.
   */
  compareWith(
    readStored: () => Promise<StoredChain | undefined>,
    signal: AbortSignal,
    which?: 'doubtful' | 'all',
  ): Promise<void>;
  /** A header by hash or number; undefined when the nodes do not know it. */
  findHeader(reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /**
   * Any calls, all answered by one node; errors of single calls are for `read`, whose Fault has the next node
   * asked.
   * @throws Fault when no node can answer.
   */
  ask<T>(
    calls: readonly RpcCall[],
    read: (answers: readonly RpcAnswer[], nodeName: string) => T,
    signal: AbortSignal,
  ): Promise<T>;
  /**
   * The newest height that a quorum calls final by its tag, with the hash where they name the same; undefined
   * where fewer nodes have the tag.
   */
  finalized(signal: AbortSignal): Promise<Finalized | undefined>;
  /** Whether a WebSocket delivers heads at the moment. */
  isPushed(): boolean;
  /** The number of the last head; undefined before the first. */
  headNumber(): number | undefined;
  /** Since when each head has been below this height; undefined unless that lasts for half a minute. */
  belowSince(number: number): Date | undefined;
  quorum(): QuorumStatus;
  status(): NodeStatus[];
  sockets(): SocketStatus[];
  close(): Promise<void>;
};

/** The nodes that are asked; the others only tell of new heads. */
export const httpUrls = (urls: readonly string[]): string[] => urls.filter((url) => url.startsWith('http'));

export function createNodes(options: NodesOptions): ChainNodes & Voters {
  const { clock, log, metrics, verifier } = options;
  const nodes = httpUrls(options.urls).map((url) => createNode(url, options));
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
  const quorum = createQuorum(nodes, options.quorum ?? 'auto', clock);
  const heads = createHeadReader({
    ...{ nodes, quorum, clock },
    ask: (node, signal) =>
      attempt(node, clock, signal, async () => {
        const rpc = rpcFor(node);
        await prepare(node, rpc, signal);
        const startedAt = nowMs();
        const head = readHeader(rpc.name, await rpc.call('eth_getBlockByNumber', ['latest', false], signal));
        node.headTimes.add(nowMs() - startedAt);
        if (needsIdentity(node, head, clock)) await readIdentity(rpc, pinned, signal);
        return head;
      }),
    askAt: async (node, number, signal) => (await headerOf(node, number, signal))?.hash,
  });

  /** Whether a header that hashes to its hash commits to its parent and contents on this chain. */
  const isHashBinding = () => verifier?.status().checks.headerHash === 'enforced';

  const readHeader = (name: string, json: unknown) =>
    isHashBinding() ? readProvedHeader(name, json) : parseHeader(json);

  /** One node's header; undefined when it does not know the block. */
  function headerOf(
    node: Node,
    reference: BlockReference,
    signal: AbortSignal,
  ): Promise<BlockHeader | undefined> {
    return attempt(node, clock, signal, async () => {
      const rpc = rpcFor(node);
      await prepare(node, rpc, signal);
      const method = typeof reference === 'number' ? 'eth_getBlockByNumber' : 'eth_getBlockByHash';
      const id = typeof reference === 'number' ? quantityOf(reference) : reference;
      const json = await rpc.call(method, [id, false], signal);
      if (json === null) return undefined;
      const header = readHeader(rpc.name, json);
      if (header.hash === reference || header.number === reference) return header;
      throw disproof(`${rpc.name} gave block ${header.number} (${header.hash}) for ${reference}`);
    });
  }

  const anchors = createAnchors({
    ...{ nodes, quorum, clock, headerOf },
    voices: heads.voices,
    fetchPlain: (node, references, signal) =>
      attempt(node, clock, signal, () =>
        fetchFrom(node, rpcFor(node), references, signal, { parts: 'without traces' }),
      ),
  });
  const voting = createVoting({ nodes, quorum, clock, log, prepare, rpcFor });
  const fetchFrom = createFetch({ ...options, nodes, prepare, blockNodes });

  /** The node's capabilities, asked for when they are not known. */
  async function prepare(node: Node, rpc: LearningRpc, signal: AbortSignal): Promise<Capabilities> {
    const known = node.capabilities;
    const { capabilities, isCertain } =
      known === undefined
        ? await probe(rpc, pinned, wantTraces, signal)
        : { capabilities: known, isCertain: true };
    if (isCertain) node.capabilities = capabilities;
    node.canTrace = capabilities.traces !== 'none';
    if (known === undefined) log.info({ node: node.rpc.name, ...capabilities }, 'node.probed');
    return capabilities;
  }

  /**
   * Who is asked for blocks: a node that cannot trace would drop internal transfers in silence where another
   * one can.
   */
  function blockNodes(): readonly Node[] {
    const isTraced = nodes.some(({ canTrace }) => canTrace === true);
    return isTraced ? nodes.filter(({ canTrace }) => canTrace !== false) : nodes;
  }

  /** Waits for a limited node only if no other node would do; otherwise the others are asked. */
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

  /** By the nodes that are known to answer, when there are any. */
  async function calibrate(references: readonly BlockReference[], signal: AbortSignal): Promise<void> {
    const now = nowMs();
    const ordered = byReadiness(nodes, now);
    const known = ordered.filter((node) => node.capabilities !== undefined && !isOverdue(node, now));
    const samplings = (known.length > 0 ? known : ordered).map((node) =>
      sampleOf({ clock, prepare }, node, references, signal),
    );
    await verifier?.calibrate(samplings);
  }

  /** Bundles of the first node that can give them, as `fetch` gets them. */
  async function firstBundles(
    references: readonly BlockReference[],
    signal: AbortSignal,
    { parts }: BundleOptions,
    fetch: (node: Node, rpc: LearningRpc, signal: AbortSignal) => Promise<Bundle[]>,
  ): Promise<Bundle[]> {
    await calibrate(references, signal);
    const isUrgent = parts === undefined && references.length <= HEDGED_BLOCKS_MAX;
    const candidates = parts === undefined ? blockNodes() : nodes;
    return first(signal, isUrgent ? hedgedBundles : undefined, fetch, candidates);
  }

  /** The block that the node calls final; undefined where it has no such tag. */
  function finalizedOf(node: Node, signal: AbortSignal): Promise<BlockHeader | undefined> {
    return attempt(node, clock, signal, async () => {
      const rpc = rpcFor(node);
      if (!(await prepare(node, rpc, signal)).finalizedTag) return undefined;
      const call = { method: 'eth_getBlockByNumber', params: ['finalized', false] };
      const json = resultOf(rpc, call.method, (await rpc.batch([call], signal))[0]);
      return json === null ? undefined : readHeader(rpc.name, json);
    });
  }

  return {
    identify: async (signal) => {
      const ask = (node: Node, abort: AbortSignal) =>
        attempt(node, clock, abort, () => readIdentity(rpcFor(node), pinned, abort));
      if (pinned.genesisHash !== undefined)
        return first(signal, hedgedHeaders, (_node, rpc, abort) => readIdentity(rpc, pinned, abort));
      return { ...pinned, genesisHash: await agreeOnGenesis({ nodes, quorum, clock, ask }, signal) };
    },
    pin(identity) {
      pinned = identity;
    },
    doubt() {
      for (const node of nodes) node.capabilities = undefined;
    },
    async head(signal) {
      const announced = sockets.takeHeads();
      const numbers: number[] = [];
      for (const { url, number, json } of announced) {
        const node = nodes.find((one) => isOneEndpoint(one.url, url));
        if (node === undefined || isSound(node)) numbers.push(number);
        if (node?.capabilities === undefined) continue;
        try {
          const head = readHeader(node.rpc.name, json);
          // Otherwise it is asked for its head, and perhaps for its identity.
          if (isLinked(node.voice, head)) heads.hear(node, head);
        } catch (error) {
          // Some nodes push headers without all fields: such a header is a hint, not a vote.
          if (!(error instanceof Fault)) throw error;
        }
      }
      const news = announced.length > 0 ? heads.news() : undefined;
      if (news !== undefined) return news;
      return heads.read(signal, numbers.length > 0 ? Math.max(...numbers) : undefined);
    },
    bundles: (references, signal, bundleOptions = {}) =>
      firstBundles(references, signal, bundleOptions, (node, rpc, abort) =>
        voting.confirmed(node, { references, ...bundleOptions }, abort, () =>
          fetchFrom(node, rpc, references, abort, bundleOptions),
        ),
      ),
    anchored: (references, signal, bundleOptions = {}) =>
      firstBundles(references, signal, bundleOptions, (node, rpc, abort) =>
        voting.confirmed(node, { references, ...bundleOptions }, abort, () =>
          anchors.anchor(node, references, abort, () =>
            fetchFrom(node, rpc, references, abort, bundleOptions),
          ),
        ),
      ),
    corroborated: anchors.corroborated,
    async parentOf(child, signal) {
      const parent = isHashBinding()
        ? await first(signal, hedgedHeaders, (node, _rpc, abort) => headerOf(node, child.parentHash, abort))
        : await anchors.corroborated(child.number - 1, signal);
      if (parent?.hash === child.parentHash && parent.number === child.number - 1) return parent;
      throw new Fault('unavailable', `the nodes do not have block ${child.parentHash} of the new branch yet`);
    },
    async compareWith(readStored, signal, which = 'doubtful') {
      const head = heads.served();
      const voices = heads.voices();
      const doubtful = nodes.filter(({ voice, disagreement, suspectNumber }) => {
        if (voice === undefined || !voices.includes(voice)) return false;
        if (which === 'all' || disagreement !== undefined || suspectNumber !== undefined) return true;
        return head === undefined || !isNamedBy(voice, head);
      });
      const stored = doubtful.length === 0 ? undefined : await readStored();
      if (stored === undefined) return;
      for (const node of doubtful) await compareNode({ clock, log, headerOf }, stored, node, signal);
    },
    findHeader: (reference, signal) =>
      first(signal, hedgedHeaders, (node, _rpc, abort) => headerOf(node, reference, abort)),
    ask: (calls, read, signal) =>
      first(signal, undefined, async (node, rpc, abort) => {
        const { batch } = await prepare(node, rpc, abort);
        return read(await askAll(rpc, calls, batch, abort), rpc.name);
      }),
    agree: voting.agree,
    areConfirmed: voting.areConfirmed,
    agreement: voting.status,
    finalized: (signal) => agreeOnFinalized({ nodes, quorum, clock, ask: finalizedOf }, signal),
    // A wrong node would push heads that are not followed, and hide that the others must be polled.
    isPushed: () =>
      sockets.isConnected((url) => nodes.every((node) => isSound(node) || !isOneEndpoint(node.url, url))),
    headNumber: () => heads.served()?.number,
    belowSince: heads.belowSince,
    quorum() {
      const head = heads.served();
      const silent = quorum.silent();
      return {
        ...{ nodes: nodes.length, needed: quorum.needed(), dispute: heads.dispute() },
        ...{ isHeld: heads.isHeld(), stalled: heads.stalled() },
        ahead: heads.ahead(),
        votes: head === undefined ? 0 : countVotes(heads.voices(), head),
        silent: silent && { name: silent.voter.rpc.name, since: silent.since },
      };
    },
    status: () => nodes.map((node) => statusOf(node, nowMs())),
    sockets: () => sockets.status(),
    async close() {
      await sockets.close();
      await Promise.all(nodes.map((node) => node.rpc.close()));
    },
  };
}
