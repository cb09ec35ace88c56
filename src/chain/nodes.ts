/**
 * All configured nodes as one: the corroborated head, and blocks from whichever node can give them.
 */
import type { BlockHeader } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import { type BlockReference, type Bundle, fetchBundles, quantityOf } from './bundle.ts';
import { followHeads } from './heads.ts';
import {
  attempt,
  type Capabilities,
  type ChainIdentity,
  createNode,
  type Node,
  readFinalized,
  readIdentity,
  ready,
} from './node.ts';
import { parseHeader } from './parse.ts';
import type { Sampling, Verifier } from './verifier.ts';

export type NodesOptions = {
  urls: readonly string[];
  chainId: number;
  internalTransfers: 'auto' | 'off' | 'required';
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Proves each block; without it none is. */
  verifier?: Verifier;
  /** Rung when a WebSocket tells of a new head. */
  onHead(): void;
};

export type NodeStatus = {
  name: string;
  state: 'ok' | 'failing' | 'unknown';
  head: number | undefined;
  error: string | undefined;
  capabilities: Capabilities | undefined;
};

export type ChainNodes = {
  /** Chain id and genesis hash by the first node that answers. @throws Fault `conflict` for a wrong chain. */
  identify(signal: AbortSignal): Promise<ChainIdentity>;
  /** From now on nodes with another genesis are refused. */
  pin(identity: ChainIdentity): void;
  /** Has each node say anew who it is and what it can do, before it is asked anything else. */
  doubt(): void;
  /** The newest block that a second node has too; of a single node, its own. @throws Fault when none answers. */
  head(signal: AbortSignal): Promise<BlockHeader>;
  /** Blocks with receipts and traces, each wholly from one node. @throws Fault when no node can give them. */
  bundles(references: readonly BlockReference[], signal: AbortSignal): Promise<Bundle[]>;
  /** A header by hash or number; undefined when the nodes do not know it. */
  findHeader(reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /** The newest final block by the nodes' own tag; undefined where they have none. */
  finalized(signal: AbortSignal): Promise<number | undefined>;
  /** Whether a WebSocket delivers heads at the moment. */
  isPushed(): boolean;
  status(): NodeStatus[];
  close(): Promise<void>;
};

/** Heads arrive at least this often, or a socket counts as silent (DESIGN §4). */
const SILENCE_MS_MIN = 5_000;
const BLOCK_TIMES_KEPT = 15;
/** Recent blocks from which is learned what the chain honours. */
const SAMPLE_BLOCKS_MAX = 20;

export function createNodes(options: NodesOptions): ChainNodes {
  const { clock, log, verifier } = options;
  const nodes = options.urls
    .filter((url) => url.startsWith('http'))
    .map((url) => createNode(url, options.metrics));
  const wantTraces = options.internalTransfers !== 'off';
  let pinned: ChainIdentity = { chainId: options.chainId, genesisHash: undefined };
  const sockets = openSockets(options);

  async function prepare(node: Node, signal: AbortSignal): Promise<Capabilities> {
    const isNew = node.capabilities === undefined;
    const capabilities = await ready(node, pinned, wantTraces, signal);
    if (options.internalTransfers === 'required' && capabilities.traces === 'none') {
      throw new Fault(
        'unavailable',
        `${node.rpc.name} cannot trace, and chain.internalTransfers is required`,
      );
    }
    if (isNew) log.info({ node: node.rpc.name, ...capabilities }, 'node.probed');
    return capabilities;
  }

  /** The first node, by preference, that does it; resting ones come last. One that answers undefined leaves it to the next. */
  async function first<T>(signal: AbortSignal, work: (node: Node) => Promise<T>): Promise<T> {
    const now = clock.now().getTime();
    const byReadiness = [...nodes].sort(
      (one, other) => Number(one.retryAt > now) - Number(other.retryAt > now),
    );
    const faults: Fault[] = [];
    let unknown: { answer: T } | undefined;
    for (const node of byReadiness) {
      try {
        const answer = await attempt(node, clock, work);
        if (answer !== undefined) return answer;
        unknown = { answer };
      } catch (error) {
        if (!(error instanceof Fault) || signal.aborted) throw error;
        faults.push(error);
      }
    }
    if (unknown !== undefined) return unknown.answer;
    const wrongChain = faults.length === 1 && faults[0]?.code === 'conflict';
    throw new Fault(
      wrongChain ? 'conflict' : faults.some(isInconsistent) ? 'inconsistent' : 'unavailable',
      faults.map(messageOf).join('; '),
    );
  }

  /** The node's newest blocks, as many as it gives; not the genesis block, which is made otherwise. */
  function sampleOf(node: Node, signal: AbortSignal): Sampling {
    return async (verify) => {
      const plan: Capabilities = { ...(await prepare(node, signal)), traces: 'none' };
      const head = parseHeader(await node.rpc.call('eth_getBlockByNumber', ['latest', false], signal));
      const from = Math.max(1, head.number - SAMPLE_BLOCKS_MAX + 1);
      const numbers = Array.from({ length: head.number - from + 1 }, (_, index) => from + index);
      // One by one: a node that lacks or spoils one of them can still show the others.
      const outcomes = await Promise.allSettled(
        numbers.map((number) => fetchBundles(node.rpc, [number], plan, signal, verify)),
      );
      const failed = outcomes.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
      const bug = failed.find((reason) => !(reason instanceof Fault));
      if (bug !== undefined) throw bug;
    };
  }

  return {
    identify: (signal) => first(signal, (node) => readIdentity(node.rpc, options.chainId, signal)),
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
      if (pushed !== undefined && nodes.length === 1 && only !== undefined) {
        only.head = pushed;
        return pushed;
      }
      const heads = await Promise.allSettled(
        nodes.map((node) => attempt(node, clock, (one) => readHead(one, signal))),
      );
      const known = heads.flatMap((head) => (head.status === 'fulfilled' ? [head.value] : []));
      const corroborated = known.sort((one, other) => other.number - one.number)[
        Math.min(1, known.length - 1)
      ];
      if (corroborated !== undefined) return corroborated;
      const reasons = heads.flatMap((head) => (head.status === 'rejected' ? [head.reason] : []));
      const bug = reasons.find((reason) => !(reason instanceof Fault));
      if (bug !== undefined) throw bug;
      const code = reasons.every((reason) => reason.code === 'conflict') ? 'conflict' : 'unavailable';
      throw new Fault(code, reasons.map(messageOf).join('; '));

      async function readHead(node: Node, abort: AbortSignal): Promise<BlockHeader> {
        await prepare(node, abort);
        node.head = parseHeader(await node.rpc.call('eth_getBlockByNumber', ['latest', false], abort));
        return node.head;
      }
    },
    bundles: (references, signal) =>
      first(signal, async (node) => {
        const plan = await prepare(node, signal);
        const others = nodes.filter((other) => other !== node);
        await verifier?.calibrate([node, ...others].map((one) => sampleOf(one, signal)));
        return fetchBundles(node.rpc, references, plan, signal, verifier?.verify);
      }),
    findHeader: (reference, signal) =>
      first(signal, async (node) => {
        await prepare(node, signal);
        const json = await (typeof reference === 'number'
          ? node.rpc.call('eth_getBlockByNumber', [quantityOf(reference), false], signal)
          : node.rpc.call('eth_getBlockByHash', [reference, false], signal));
        return json === null ? undefined : parseHeader(json);
      }),
    finalized: (signal) =>
      first(signal, async (node) => {
        await prepare(node, signal);
        return readFinalized(node, signal);
      }),
    isPushed: () => sockets.isConnected(),
    status: () =>
      nodes.map((node) => ({
        name: node.rpc.name,
        state: node.lastError !== undefined ? 'failing' : node.capabilities === undefined ? 'unknown' : 'ok',
        head: node.head?.number,
        error: node.lastError,
        capabilities: node.capabilities,
      })),
    async close() {
      await sockets.close();
      await Promise.all(nodes.map((node) => node.rpc.close()));
    },
  };
}

const isInconsistent = (fault: Fault) => fault.code === 'inconsistent';

/** The WebSocket subscriptions of all ws URLs; the newest head that any of them brought. */
function openSockets(options: NodesOptions) {
  const { clock, log } = options;
  const closing = new AbortController();
  const connected = new Set<string>();
  const arrivals: number[] = [];
  let pushed: BlockHeader | undefined;
  let lastHash: Hash | undefined;
  const silenceMsMax = () => {
    const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? at));
    const median = gaps.sort((one, other) => one - other)[Math.floor(gaps.length / 2)] ?? 0;
    return Math.max(3 * median, SILENCE_MS_MIN);
  };
  const running = options.urls
    .filter((url) => url.startsWith('ws'))
    .map((url) => {
      const name = new URL(url).origin;
      return followHeads({
        url,
        chainId: options.chainId,
        clock,
        signal: closing.signal,
        silenceMsMax,
        onHead(head) {
          if (head.hash !== lastHash) arrivals.push(clock.now().getTime());
          if (arrivals.length > BLOCK_TIMES_KEPT) arrivals.shift();
          lastHash = head.hash;
          pushed = head;
          options.onHead();
        },
        onState(state, reason) {
          if (state === 'connected') connected.add(name);
          else connected.delete(name);
          log.debug({ node: name, state, reason }, 'node.websocket');
          // While it was away heads may have passed: ask at once.
          options.onHead();
        },
      });
    });
  return {
    isConnected: () => connected.size > 0,
    takeHead() {
      const head = pushed;
      pushed = undefined;
      return head;
    },
    async close() {
      closing.abort();
      await Promise.all(running);
    },
  };
}
