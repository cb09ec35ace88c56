/**
 * All configured nodes as one: the corroborated head, and blocks from whichever node can give them.
 */
import { startAbort } from '../core/abort.ts';
import type { BlockHeader, BlockId } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import { openBallot } from './ballot.ts';
import { askAll, type BlockReference, type Bundle, fetchBundles, quantityOf } from './bundle.ts';
import { areLinked, digestOf } from './content.ts';
import { findDifference, type StoredChain } from './dissent.ts';
import { gather } from './gather.ts';
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
  statusOf,
} from './node.ts';
import { parseHeader, record } from './parse.ts';
import { type Capabilities, type ChainIdentity, probe, readIdentity } from './probe.ts';
import { createQuorum, type QuorumSetting } from './quorum.ts';
import { headerHash } from './roots.ts';
import { type LearningRpc, type OnBytes, type RpcAnswer, type RpcCall, resultOf } from './rpc.ts';
import type { Sampling, Verifier } from './verifier.ts';
import { countVotes, mostNamed } from './votes.ts';

export type NodesOptions = {
  urls: readonly string[];
  chainId: number;
  /** How many nodes must agree; `auto` unless given. */
  quorum?: QuorumSetting;
  internalTransfers: 'auto' | 'off' | 'required';
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Proves each block; without it none is. */
  verifier?: Verifier;
  /** Rung when a WebSocket tells of a new head. */
  onHead(): void;
};

/** Without traces where nobody needs them; `onBytes` counts the answers, of whichever node. */
export type BundleOptions = { parts?: 'without traces'; onBytes?: OnBytes };

export type ChainNodes = {
  /**
   * Chain id and genesis hash: before `pin` as a quorum names them, after it as the first node does that is on this chain.
   * @throws Fault `conflict` when all nodes are on another chain, `inconsistent` without a quorum.
   */
  identify(signal: AbortSignal): Promise<ChainIdentity>;
  /** From now on nodes with another genesis are refused. */
  pin(identity: ChainIdentity): void;
  /** Has each node say anew who it is and what it can do, before it is asked anything else. */
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
   * As `bundles`, of blocks in a row whose last one a quorum names as canonical, so that `parentHash` anchors the others.
   * Blocks that are not proved in full are compared with those of a quorum.
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
  /** Compares nodes that vote otherwise than the quorum with what is stored. Never throws a node's Fault. */
  compareWith(stored: StoredChain, signal: AbortSignal): Promise<void>;
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
  /**
   * The newest height that a quorum calls final by its tag, with the hash where they name the same; undefined where
   * fewer nodes have the tag.
   */
  finalized(signal: AbortSignal): Promise<Finalized | undefined>;
  /** Whether a WebSocket delivers heads at the moment. */
  isPushed(): boolean;
  /** The number of the last head; undefined before the first. */
  headNumber(): number | undefined;
  quorum(): QuorumStatus;
  status(): NodeStatus[];
  sockets(): SocketStatus[];
  close(): Promise<void>;
};

export type Finalized = { number: number; hash: Hash | undefined };

export type QuorumStatus = {
  nodes: number;
  /** Votes that corroborate a block at the moment. */
  needed: number;
  /** Nodes that name the last head. */
  votes: number;
  /** Why the nodes' newest blocks are not followed, while they disagree about them. */
  dispute: { message: string; since: Date } | undefined;
  /** Of two nodes, the one without which the other one is followed. */
  silent: { name: string; since: Date } | undefined;
};

/** Recent blocks from which is learned what the chain honours. */
const SAMPLE_BLOCKS_MAX = 20;
/** Of those at once: what they bring is in memory together. */
const SAMPLE_REQUESTS_MAX = 4;
/** After this no more are asked for: a node that answers slowly has shown enough, or nothing. */
const SAMPLE_MS_MAX = 5_000;
/** As many blocks as one follows live; what fetches more is not in a hurry. */
const HEDGED_BLOCKS_MAX = 3;
/** Comparing one node with what is stored takes 20 headers at most. */
const COMPARE_MS_MAX = 5_000;
/** Two calls; nodes that take longer have no vote about the genesis block or what is final. */
const IDENTITY_MS_MAX = 5_000;
const FINALIZED_MS_MAX = 1_000;

/** The nodes that are asked; the others only tell of new heads. */
export const httpUrls = (urls: readonly string[]): string[] => urls.filter((url) => url.startsWith('http'));

/** A ws URL with the host and port of an HTTP node speaks for that node. */
function hostOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  const isSecure = protocol === 'https:' || protocol === 'wss:';
  return `${hostname}:${port === '' ? (isSecure ? 443 : 80) : port}`;
}

export function createNodes(options: NodesOptions): ChainNodes {
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
        return head;
      }),
    askAt: async (node, number, signal) => (await headerOf(node, number, signal))?.hash,
  });

  /** Whether a header that hashes to its hash commits to its parent and contents on this chain. */
  const isHashBinding = () => verifier?.status().checks.headerHash === 'enforced';

  /** @throws Fault `inconsistent` for a header that is not what its hash commits to. */
  function readHeader(name: string, json: unknown): BlockHeader {
    const header = parseHeader(json);
    if (!isHashBinding() || headerHash(record(json, 'block')) === header.hash) return header;
    throw new Fault(
      'inconsistent',
      `${name} gave block ${header.number} (${header.hash}), whose header hash does not hold`,
    );
  }

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
      throw new Fault(
        'inconsistent',
        `${rpc.name} gave block ${header.number} (${header.hash}) for ${reference}`,
      );
    });
  }

  async function corroborated(number: number, signal: AbortSignal): Promise<BlockHeader | undefined> {
    const ballot = openBallot({
      ...{ clock, signal, voters: byReadiness(nodes, nowMs()) },
      vote: (node: Node, abort: AbortSignal) => headerOf(node, number, abort),
      lateMs: ({ headTimes }: Node) => overdueMs(headTimes),
    });
    try {
      const votes = [...(await ballot.settle(quorum.needed())).values()].flatMap((vote) => vote ?? []);
      const hash = mostNamed(
        votes.map((vote) => vote.hash),
        quorum.needed(),
      );
      return votes.find((vote) => vote.hash === hash);
    } finally {
      ballot.close();
    }
  }

  /**
   * Asks other nodes for the block at a height while this one fetches what ends there; nothing where their heads have
   * told it already.
   */
  function openAnchor(node: Node, number: number, signal: AbortSignal) {
    const others = byReadiness(nodes, nowMs()).filter((other) => other !== node);
    const voices = others.filter(({ voice }) => heads.voices().some((one) => one === voice));
    const knowing = voices.filter(({ voice }) => voice?.hashes.has(number) === true);
    const asking = others.filter((other) => !knowing.includes(other));
    const ballot = openBallot<Node, { hash: Hash }>({
      ...{ clock, signal, voters: asking },
      vote: (other, abort) => headerOf(other, number, abort),
      lateMs: ({ headTimes }) => overdueMs(headTimes),
    });
    for (const other of knowing) {
      const hash = other.voice?.hashes.get(number);
      ballot.add(other, hash && { hash });
    }
    ballot.ask(Math.max(0, quorum.needed() - 1 - knowing.length));
    return {
      close: ballot.close,
      /** @throws Fault `inconsistent` unless a quorum, this node among it, names this block. */
      async confirm({ hash }: BlockHeader): Promise<void> {
        ballot.add(node, { hash });
        const votes = await ballot.settle(quorum.needed(), hash);
        const named = [...votes.values()].flatMap((vote) => vote?.hash ?? []);
        if (mostNamed(named, quorum.needed(), hash) === hash) return;
        const each = Array.from(votes, ([voter, vote]) => `${voter.rpc.name} ${vote?.hash ?? 'no answer'}`);
        throw new Fault(
          'inconsistent',
          `${node.rpc.name} gave block ${number} as ${hash}, which no ${quorum.needed()} of ${nodes.length} nodes name: ${each.join(', ')}`,
        );
      },
    };
  }

  /** Blocks that their hash does not bind in full must be the same at a quorum of the nodes. @throws Fault. */
  async function compareContents(node: Node, bundles: readonly Bundle[], signal: AbortSignal): Promise<void> {
    if (quorum.needed() === 1 || bundles.every(({ proved }) => proved)) return;
    const references = bundles.map(({ header }) => header.hash);
    const ballot = openBallot<Node, { hash: Hash }>({
      ...{ clock, signal, voters: byReadiness(nodes, nowMs()).filter((other) => other !== node) },
      vote: (other, abort) =>
        attempt(other, clock, abort, async () => {
          const options = { parts: 'without traces' } as const;
          return { hash: digestOf(await fetchFrom(other, rpcFor(other), references, abort, options)) };
        }),
      lateMs: ({ bundleTimes }) => overdueMs(bundleTimes),
    });
    try {
      const hash = digestOf(bundles);
      ballot.add(node, { hash });
      const votes = await ballot.settle(quorum.needed(), hash);
      const equal = [...votes.values()].filter((vote) => vote?.hash === hash).length;
      if (equal >= quorum.needed()) return;
    } finally {
      ballot.close();
    }
    const [first, last] = [bundles[0]?.header.number, bundles.at(-1)?.header.number];
    throw new Fault(
      'inconsistent',
      `${node.rpc.name} gave blocks ${first} to ${last}, which no proof covers in full, with contents that no ${quorum.needed()} of ${nodes.length} nodes have`,
    );
  }

  /** Blocks in a row from one node, anchored in a block that a quorum names. */
  async function fetchAnchored(
    node: Node,
    rpc: LearningRpc,
    references: readonly BlockReference[],
    signal: AbortSignal,
    options: BundleOptions,
  ): Promise<Bundle[]> {
    const last = references.at(-1);
    // A hash was corroborated before it was asked for.
    const anchor = typeof last === 'number' ? openAnchor(node, last, signal) : undefined;
    try {
      const bundles = await fetchFrom(node, rpc, references, signal, options);
      const newest = bundles.at(-1)?.header;
      if (!areLinked(bundles.map(({ header }) => header)))
        throw new Fault(
          'inconsistent',
          `${rpc.name} gave blocks up to ${newest?.number} that do not follow one another`,
        );
      if (newest !== undefined) await anchor?.confirm(newest);
      await compareContents(node, bundles, signal);
      return bundles;
    } finally {
      anchor?.close();
    }
  }

  /** As a quorum of the nodes says. @throws Fault as `identify`. */
  async function identifyByVote(signal: AbortSignal): Promise<ChainIdentity> {
    const { chainId } = options;
    const genesisOf = (answers: ReadonlyMap<Node, ChainIdentity | Fault>) =>
      [...answers.values()].flatMap((answer) => (answer instanceof Fault ? [] : (answer.genesisHash ?? [])));
    const answers = await gather({
      ...{ clock, signal, voters: nodes, ms: IDENTITY_MS_MAX },
      async ask(node, abort) {
        const identity = await attempt(node, clock, abort, () => readIdentity(rpcFor(node), chainId, abort));
        quorum.heard(node);
        return identity;
      },
      isEnough: (some) => mostNamed(genesisOf(some), quorum.needed()) !== undefined,
    });
    const faults = [...answers.values()].filter((answer) => answer instanceof Fault);
    const genesisHash = mostNamed(genesisOf(answers), quorum.needed());
    // Nodes that no longer have the genesis block cannot name it: where a quorum has pruned it, nothing is pinned.
    const pruned = answers.size - faults.length - genesisOf(answers).length;
    if (genesisHash !== undefined || pruned >= quorum.needed()) return { chainId, genesisHash };
    const said = nodes.map((node) => {
      const answer = answers.get(node);
      if (answer instanceof Fault) return messageOf(answer);
      return `${node.rpc.name} ${answer === undefined ? 'does not answer' : `has ${answer.genesisHash ?? 'none'}`}`;
    });
    if (faults.length === nodes.length) {
      const isForeign = faults.every(({ code }) => code === 'conflict');
      throw new Fault(isForeign ? 'conflict' : 'unavailable', said.join('; '));
    }
    throw new Fault(
      answers.size === 0 ? 'unavailable' : 'inconsistent',
      `no ${quorum.needed()} of ${nodes.length} nodes name the same genesis block: ${said.join('; ')}`,
    );
  }

  /** As `first` finds it: a node with another genesis block than the pinned one is refused. */
  async function identifyPinned(rpc: LearningRpc, signal: AbortSignal): Promise<ChainIdentity> {
    const identity = await readIdentity(rpc, options.chainId, signal);
    const { genesisHash } = identity;
    if (genesisHash === undefined || genesisHash === pinned.genesisHash) return identity;
    throw new Fault(
      'conflict',
      `${rpc.name} has another genesis block (${genesisHash}) than ${pinned.genesisHash}`,
    );
  }

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

  async function fetchFrom(
    node: Node,
    rpc: LearningRpc,
    references: readonly BlockReference[],
    signal: AbortSignal,
    { parts, onBytes }: BundleOptions,
  ): Promise<Bundle[]> {
    const counted = onBytes === undefined ? rpc : rpc.counted(onBytes);
    const planOf = (known: Capabilities): Capabilities =>
      parts === undefined ? known : { ...known, traces: 'none' };
    const plan = planOf(await prepare(node, rpc, signal));
    const isAble = () => parts !== undefined || blockNodes().includes(node);
    if (!isAble()) throw new Fault('unavailable', `${node.rpc.name} cannot trace, which another node can`);
    const startedAt = nowMs();
    try {
      const bundles = await fetchBundles(counted, references, plan, signal, verifier?.verify);
      if (parts === undefined && references.length <= HEDGED_BLOCKS_MAX)
        noteBundleTime(nodes, node, nowMs() - startedAt, nowMs());
      return bundles;
    } catch (error) {
      if (!(error instanceof Fault) || signal.aborted || !hasLostMethod(node)) throw error;
      log.warn({ node: node.rpc.name, error: messageOf(error) }, 'node.lost_method');
      node.capabilities = undefined;
      const next = planOf(await prepare(node, rpc, signal));
      if (!isAble()) throw error;
      return fetchBundles(counted, references, next, signal, verifier?.verify);
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

  /** Bundles of the first node that can give them, as `fetch` gets them. */
  async function firstBundles(
    references: readonly BlockReference[],
    signal: AbortSignal,
    bundleOptions: BundleOptions,
    fetch: typeof fetchFrom,
  ): Promise<Bundle[]> {
    const { parts } = bundleOptions;
    const isUrgent = parts === undefined && references.length <= HEDGED_BLOCKS_MAX;
    return first(
      signal,
      isUrgent ? hedgedBundles : undefined,
      (node, rpc, abort) => fetch(node, rpc, references, abort, bundleOptions),
      parts === undefined ? blockNodes() : nodes,
    );
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
    identify: (signal) =>
      pinned.genesisHash === undefined
        ? identifyByVote(signal)
        : first(signal, hedgedHeaders, (_node, rpc, abort) => identifyPinned(rpc, abort)),
    pin(identity) {
      pinned = identity;
    },
    doubt() {
      for (const node of nodes) node.capabilities = undefined;
    },
    async head(signal) {
      const announced = sockets.takeHeads();
      for (const { url, json } of announced) {
        const node = nodes.find((one) => hostOf(one.url) === hostOf(url));
        if (node?.capabilities === undefined) continue;
        try {
          heads.hear(node, readHeader(node.rpc.name, json));
        } catch (error) {
          // Some nodes push headers without all fields: that is a hint, and no vote.
          if (!(error instanceof Fault)) throw error;
        }
      }
      const news = announced.length > 0 ? heads.news() : undefined;
      if (news !== undefined) return news;
      const numbers = announced.map(({ number }) => number);
      return heads.read(signal, numbers.length > 0 ? Math.max(...numbers) : undefined);
    },
    async bundles(references, signal, bundleOptions = {}) {
      await calibrate(references, signal);
      return firstBundles(references, signal, bundleOptions, fetchFrom);
    },
    async anchored(references, signal, bundleOptions = {}) {
      await calibrate(references, signal);
      return firstBundles(references, signal, bundleOptions, fetchAnchored);
    },
    corroborated,
    async parentOf(child, signal) {
      const parent = isHashBinding()
        ? await first(signal, hedgedHeaders, (node, _rpc, abort) => headerOf(node, child.parentHash, abort))
        : await corroborated(child.number - 1, signal);
      if (parent?.hash === child.parentHash && parent.number === child.number - 1) return parent;
      throw new Fault('unavailable', `the nodes do not have block ${child.parentHash} of the new branch yet`);
    },
    async compareWith(stored, signal) {
      const head = heads.served();
      const voices = heads.voices();
      for (const node of nodes) {
        const { voice } = node;
        const isVote = voice !== undefined && voices.includes(voice);
        const agrees = head !== undefined && voice?.hashes.get(head.number) === head.hash;
        if (!isVote || (agrees && node.disagreement === undefined)) continue;
        const work = startAbort(signal, COMPARE_MS_MAX);
        try {
          const hashAt = async (number: number) =>
            node.disagreement === undefined && voice.hashes.has(number)
              ? voice.hashes.get(number)
              : (await headerOf(node, number, work.signal))?.hash;
          const difference = await findDifference(stored, node, hashAt);
          const since = node.disagreement?.since ?? clock.now();
          if (difference !== undefined && node.disagreement === undefined)
            log.warn({ node: node.rpc.name, ...difference }, 'node.disagrees');
          node.disagreement = difference && { ...difference, since };
        } catch (error) {
          if (!(error instanceof Fault)) throw error;
        } finally {
          work.release();
        }
      }
    },
    findHeader: (reference, signal) =>
      first(signal, hedgedHeaders, (node, _rpc, abort) => headerOf(node, reference, abort)),
    ask: (calls, read, signal) =>
      first(signal, undefined, async (node, rpc, abort) => {
        const { batch } = await prepare(node, rpc, abort);
        return read(await askAll(rpc, calls, batch, abort), rpc.name);
      }),
    async finalized(signal) {
      const prompt = nodes.filter((node) => !isOverdue(node, nowMs()));
      const known = prompt.filter(({ capabilities }) => capabilities !== undefined);
      // One that has not answered yet is not waited for where the others suffice.
      const voters = known.length >= quorum.needed() ? known : prompt;
      const answers = [
        ...(await gather({ clock, signal, voters, ask: finalizedOf, ms: FINALIZED_MS_MAX })).values(),
      ];
      const faults = answers.filter((answer) => answer instanceof Fault);
      const headers = answers.flatMap((answer) => (answer instanceof Fault ? [] : (answer ?? [])));
      const lacking = answers.length - faults.length - headers.length;
      const needed = quorum.needed();
      headers.sort((one, other) => other.number - one.number);
      const lowest = headers[needed - 1];
      if (lowest !== undefined) {
        const same = headers.filter(({ hash }) => hash === lowest.hash).length;
        return { number: lowest.number, hash: same >= needed ? lowest.hash : undefined };
      }
      if (nodes.length - lacking < needed) return undefined;
      throw new Fault('unavailable', `too few nodes say what is final: ${faults.map(messageOf).join('; ')}`);
    },
    isPushed: () => sockets.isConnected(),
    headNumber: () => heads.served()?.number,
    quorum() {
      const head = heads.served();
      const silent = quorum.silent();
      return {
        ...{ nodes: nodes.length, needed: quorum.needed(), dispute: heads.dispute() },
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
