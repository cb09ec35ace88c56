/**
 * All configured nodes behind one interface: the head that a quorum names, and blocks from any node that can
 * provide them.
 */
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { disproof, Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { BlockHeader, BlockId, BlockReference } from '../../domain/block.ts';
import { isOneEndpoint } from '../../domain/endpoint.ts';
import { createQuorum, type Quorum, type QuorumSetting, type QuorumStatus } from '../../domain/quorum.ts';
import { askAll, type Bundle } from '../blocks/bundle.ts';
import type { Lie } from '../proof/false-answer.ts';
import type { Verifier } from '../proof/verifier.ts';
import type { RpcAnswer, RpcCall } from '../rpc/rpc.ts';
import { agreeOnFinalized, agreeOnGenesis, type Finalized } from './agreement.ts';
import { createAnchors } from './anchor.ts';
import { createBlockFetcher } from './block-fetcher.ts';
import { compareNode, isComparable, type StoredChain } from './dissent.ts';
import type { BundleOptions } from './fetch.ts';
import { createFirstNode } from './first-node.ts';
import type { HeadProblem } from './head-problems.ts';
import { openSockets, type PushedHead, type SocketStatus } from './head-subscription.ts';
import { countVotes, isLinked, isNamedBy } from './head-votes.ts';
import { createNode, isSound, type Node, type NodeStatus, statusOf } from './node.ts';
import { createNodeReader, type NodeReader } from './node-reader.ts';
import { type ChainIdentity, readIdentity } from './probe.ts';
import { createHeadReader, type HeadReader } from './quorum-head.ts';
import { createVoting, type Voters } from './unhashed-data.ts';

export type NodesOptions = {
  urls: readonly string[];
  chainId: number;
  /** How many nodes must agree on blocks and on data that no hash covers; `auto` by default. */
  quorum?: QuorumSetting;
  internalTransfers: 'auto' | 'off' | 'required';
  /** Whether earlier blocks came with traces. */
  hasTraced?: boolean;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Proves each block; without it, blocks are not proved. */
  verifier?: Verifier;
  /** Called when a WebSocket announces a new head. */
  onHead(): void;
};

export type ChainNodes = {
  /**
   * Chain id and genesis hash. Before `pin` a quorum must name them; afterwards the first node on this chain is
   * enough.
   * @throws Fault `conflict` if all nodes are on another chain, `inconsistent` without a quorum
   */
  identify(signal: AbortSignal): Promise<ChainIdentity>;
  /** Refuses nodes with another genesis block from now on. */
  pin(identity: ChainIdentity): void;
  /** Makes each node's next request probe its identity and capabilities again. */
  doubt(): void;
  /** The highest block whose hash a quorum names. @throws Fault without a quorum */
  head(signal: AbortSignal): Promise<BlockId>;
  /**
   * Blocks with receipts and traces, all from the same node. May be called concurrently.
   * @throws Fault if no node can provide them
   */
  bundles(
    references: readonly BlockReference[],
    signal: AbortSignal,
    options?: BundleOptions,
  ): Promise<Bundle[]>;
  /**
   * Like `bundles`, for consecutive blocks. A quorum must name the last block, and `parentHash` links the others
   * to it. Blocks that are not proved in full are compared with those of a quorum.
   * @throws Fault if no node can provide such blocks
   */
  anchored(
    references: readonly BlockReference[],
    signal: AbortSignal,
    options?: BundleOptions,
  ): Promise<Bundle[]>;
  /** The header at a height that a quorum names. Undefined without a quorum. */
  corroborated(number: number, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /** The parent of a corroborated block. @throws Fault `unavailable` if no node has it */
  parentOf(child: BlockHeader, signal: AbortSignal): Promise<BlockHeader>;
  /**
   * Compares nodes that vote against the quorum, or all voting nodes, with the stored blocks. Ignores Faults of
   * nodes. Doesn't wait for a node that takes long; its comparison goes on.
   */
  compareWith(
    readStored: () => Promise<StoredChain | undefined>,
    signal: AbortSignal,
    which?: 'doubtful' | 'all',
  ): Promise<void>;
  /** A header by hash or number. Undefined if no node knows it. */
  findHeader(reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /**
   * Sends any calls to one node. `read` gets the answers, including errors of single calls. If it throws a Fault,
   * the next node is asked.
   * @throws Fault if no node can answer
   */
  ask<T>(
    calls: readonly RpcCall[],
    read: (answers: readonly RpcAnswer[], nodeName: string) => T,
    signal: AbortSignal,
  ): Promise<T>;
  /**
   * The newest height that a quorum reports as finalized, with the hash if its nodes name the same block. `byFew` if too few
   * nodes support the `finalized` tag; undefined if none does. `patienceMs`: how long it waits for a quorum; 3 s unless given.
   */
  finalized(signal: AbortSignal, patienceMs?: number): Promise<Finalized | undefined>;
  /** Whether a WebSocket delivers heads at the moment. */
  isPushed(): boolean;
  /** Counts a false sender or internal transfer that the node with this name gave, as was found later. */
  noteLie(lie: Lie): void;
  /** The number of the last head. Undefined before the first one. */
  headNumber(): number | undefined;
  /** Since when every head has been below this height. Undefined unless that has lasted for half a minute. */
  belowSince(number: number): Date | undefined;
  /** Set while blocks come without traces although earlier ones had them. */
  untraced(): HeadProblem | undefined;
  quorum(): QuorumStatus;
  status(): NodeStatus[];
  sockets(): SocketStatus[];
  close(): Promise<void>;
};

/** Following goes on without a node that takes longer to be compared. A comparison of 20 headers over an ocean takes longer, too. */
const COMPARISON_WAIT_MS = 250;

/** The URLs of nodes that are queried. WebSocket URLs only announce new heads. */
export const httpUrls = (urls: readonly string[]): string[] => urls.filter((url) => url.startsWith('http'));

export function createNodes(options: NodesOptions): ChainNodes & Voters {
  const { clock, log, metrics } = options;
  const nodes = httpUrls(options.urls).map((url) => createNode(url, options));
  const quorum = createQuorum(nodes, options.quorum ?? 'auto', clock);
  const sockets = openSockets({ ...options, headNumber: () => heads.served()?.number });
  const reader = createNodeReader({ ...options, nodes });
  const { prepare, rpcFor, header: headerOf } = reader;
  const firstNode = createFirstNode({ nodes, clock, metrics, rpcFor });
  const heads = createHeadReader({
    ...{ nodes, quorum, clock, ask: reader.head },
    askAt: async (node, number, signal) => (await headerOf(node, number, signal))?.hash,
  });
  const voting = createVoting({ nodes, quorum, clock, log, read: reader.read });
  const blocks = createBlockFetcher({ ...options, nodes, reader, firstNode, confirmed: voting.confirmed });
  const { fetchPlain } = blocks;
  const anchors = createAnchors({ nodes, quorum, clock, headerOf, headVotes: heads.votes, fetchPlain });
  const findHeader: ChainNodes['findHeader'] = (reference, signal) =>
    firstNode(signal, (node, _rpc, abort) => headerOf(node, reference, abort), { hedgeBy: 'headTimes' });

  return {
    identify: (signal) => identifyChain({ nodes, quorum, clock, reader, firstNode }, signal),
    pin: reader.pin,
    doubt() {
      for (const node of nodes) node.capabilities = undefined;
    },
    async head(signal) {
      const pushed = countPushedHeads({ nodes, heads, reader }, sockets.takeHeads());
      return pushed?.newHead ?? heads.read(signal, pushed?.highest);
    },
    ...{ bundles: blocks.bundles, untraced: blocks.untraced },
    anchored: blocks.anchoredBy(anchors.anchor),
    corroborated: anchors.corroborated,
    async parentOf({ number, parentHash }, signal) {
      const parent = reader.isHashBinding()
        ? await findHeader(parentHash, signal)
        : await anchors.corroborated(number - 1, signal);
      if (parent?.hash === parentHash && parent.number === number - 1) return parent;
      throw new Fault('unavailable', `the nodes do not have block ${parentHash} of the new branch yet`);
    },
    async compareWith(readStored, signal, which = 'doubtful') {
      const compared = nodesToCompare(nodes, heads, which).filter((node) => isComparable(node, clock));
      const stored = compared.length === 0 ? undefined : await readStored();
      if (stored === undefined) return;
      const comparisons = compared.map((node) => compareNode({ clock, log, headerOf }, stored, node, signal));
      const all = Promise.all(comparisons).then(() => {});
      if ((await firstOrLate({ clock, signal }, [all], COMPARISON_WAIT_MS)) === 'late')
        all.catch((error: unknown) => log.error({ loop: 'comparison of nodes', err: error }, 'loop.bug'));
    },
    findHeader,
    ask: (calls, read, signal) =>
      firstNode(signal, async (node, rpc, abort) => {
        const { batch } = await prepare(node, rpc, abort);
        return read(await askAll(rpc, calls, batch, abort), rpc.name);
      }),
    agree: voting.agree,
    areConfirmed: voting.areConfirmed,
    agreement: voting.status,
    finalized: (...asked) => agreeOnFinalized({ nodes, quorum, clock, ask: reader.finalized }, ...asked),
    // An unsound node would push heads that are not followed, and hide that the others must be polled.
    isPushed: () =>
      sockets.isConnected((url) => nodes.every((node) => isSound(node) || !isOneEndpoint(node.url, url))),
    noteLie: (lie) => countLie(nodes, lie),
    ...{ headNumber: () => heads.served()?.number, belowSince: heads.belowSince },
    quorum: () => quorumStatusOf(nodes, quorum, heads),
    status: () => nodes.map((node) => statusOf(node, clock.now().getTime())),
    sockets: () => sockets.status(),
    async close() {
      await sockets.close();
      await Promise.all(nodes.map((node) => node.rpc.close()));
    },
  };
}

/**
 * The identity that a quorum names, if none is pinned. Otherwise the identity of the first node that is on the
 * pinned chain.
 */
async function identifyChain(
  {
    reader,
    firstNode,
    ...electorate
  }: {
    nodes: readonly Node[];
    quorum: Quorum<Node>;
    clock: Clock;
    reader: NodeReader;
    firstNode: ReturnType<typeof createFirstNode>;
  },
  signal: AbortSignal,
): Promise<ChainIdentity> {
  const pinned = reader.pinned();
  if (pinned.genesisHash === undefined) {
    const genesisHash = await agreeOnGenesis({ ...electorate, ask: reader.identity }, signal);
    return { ...pinned, genesisHash };
  }
  return firstNode(signal, (_node, rpc, abort) => readIdentity(rpc, pinned, abort), { hedgeBy: 'headTimes' });
}

/**
 * Counts heads that WebSockets pushed as votes. Returns the head on which the votes now agree, if it is new, and
 * the highest number that a sound node pushed. Undefined without pushed heads.
 */
function countPushedHeads(
  { nodes, heads, reader }: { nodes: readonly Node[]; heads: HeadReader; reader: Pick<NodeReader, 'parse'> },
  pushed: readonly PushedHead[],
): { newHead: BlockId | undefined; highest: number | undefined } | undefined {
  if (pushed.length === 0) return undefined;
  const numbers: number[] = [];
  for (const { url, number, json } of pushed) {
    const node = nodes.find((one) => isOneEndpoint(one.url, url));
    if (node === undefined || isSound(node)) numbers.push(number);
    if (node?.capabilities === undefined) continue;
    try {
      const head = reader.parse(node.rpc.name, json);
      // A head that does not link to the previous one needs a request, and perhaps an identity check.
      if (isLinked(node.vote, head)) heads.notePushed(node, head);
    } catch (error) {
      // Some nodes push headers without all fields. Such a header causes a request but counts as no vote.
      if (!(error instanceof Fault)) throw error;
    }
  }
  return { newHead: heads.newHead(), highest: numbers.length > 0 ? Math.max(...numbers) : undefined };
}

function countLie(nodes: readonly Node[], { node: name, block }: Lie): void {
  const fault = disproof(`${name} gave block ${block} with a false sender or internal transfer`);
  nodes.find(({ rpc }) => rpc.name === name)?.disproved.note(fault);
}

/** The voting nodes to compare with the stored blocks: all, or those that contradict the quorum or once did. */
function nodesToCompare(nodes: readonly Node[], heads: HeadReader, which: 'doubtful' | 'all'): Node[] {
  const head = heads.served();
  const votes = heads.votes();
  return nodes.filter(({ vote, disagreement, suspectNumber }) => {
    if (vote === undefined || !votes.includes(vote)) return false;
    if (which === 'all' || disagreement !== undefined || suspectNumber !== undefined) return true;
    return head === undefined || !isNamedBy(vote, head);
  });
}

function quorumStatusOf(nodes: readonly Node[], quorum: Quorum<Node>, heads: HeadReader): QuorumStatus {
  const head = heads.served();
  const silent = quorum.silent();
  return {
    nodes: nodes.length,
    needed: quorum.needed(),
    dispute: heads.dispute(),
    isHeld: heads.isHeld(),
    stalled: heads.stalled(),
    ahead: heads.ahead(),
    votes: head === undefined ? 0 : countVotes(heads.votes(), head),
    silent: silent && { name: silent.voter.rpc.name, since: silent.since },
  };
}
