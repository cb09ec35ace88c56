/**
 * Lets a quorum of nodes decide data that no hash covers: contract calls, traces, and senders without a usable
 * signature.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { Quorum, QuorumStatus } from '../../domain/quorum.ts';
import type { Bundle } from '../blocks/bundle.ts';
import { digestOf, type InternalTransfer, type ListedBlock } from '../blocks/internal-transfers.ts';
import { createGasCheck, type GasCheck } from '../blocks/traced-gas.ts';
import { LieFault } from '../proof/false-answer.ts';
import { gather } from './ask-several.ts';
import { type Agree, createAgree } from './call-votes.ts';
import type { BundleOptions } from './fetch.ts';
import type { Node } from './node.ts';
import type { NodeReader } from './node-reader.ts';
import { createOutvotedAnswers, type OutvotedAnswer } from './poll-report.ts';
import { createTraceVotes, type EarlyTraces } from './trace-votes.ts';

export type AgreementStatus = {
  quorum: number;
  /** Nodes that can trace. If there are several, their internal transfers are compared. */
  tracingNodes: number;
  /** With two of them, the silent one while the other one is believed alone. */
  silentTracer: QuorumStatus['silent'];
  /** The last time that each node was outvoted since the start. */
  outvoted: OutvotedAnswer[];
};

type Voting = {
  agree: Agree;
  /**
   * The blocks that `fetch` reads from this node. With full scrutiny, other tracing nodes confirm their internal
   * transfers.
   * @throws Fault `inconsistent` if the other nodes have different ones
   */
  confirmed(
    node: Node,
    asked: Omit<BundleOptions, 'onBytes'> & { references: readonly BlockReference[] },
    signal: AbortSignal,
    fetch: () => Promise<Bundle[]>,
  ): Promise<Bundle[]>;
  /**
   * Whether the tracing nodes agree on these internal transfers of a block. Always true if fewer than two nodes
   * can trace.
   */
  areConfirmed(
    block: ListedBlock,
    transfers: readonly InternalTransfer[],
    signal: AbortSignal,
  ): Promise<boolean>;
  status(): AgreementStatus;
};

/** The decisions that several nodes make by equal answers. */
export type Voters = Pick<Voting, 'agree' | 'areConfirmed'> & { agreement: Voting['status'] };

type VotingOptions = {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  log: Log;
  read: NodeReader['read'];
};

/** Spent once for each node. Enough for a probe of several requests over an ocean. */
const PROBE_MS_MAX = 5_000;

export function createVoting({ nodes, quorum, clock, log, read }: VotingOptions): Voting {
  const outvoted = createOutvotedAnswers({ clock, log });
  const traces = createTraceVotes({ nodes, quorum, clock, read, outvoted });
  const gasChecks = new Map<Node, GasCheck>();
  const probed = new Set<Node>();

  function checkGas(node: Node, bundle: Bundle, confirmedBy: number): void {
    const check = gasChecks.get(node) ?? createGasCheck();
    gasChecks.set(node, check);
    check.check(bundle, { name: node.rpc.name, isConfirmed: confirmedBy > 1 });
  }

  /**
   * After a start, only the first node is probed. The others must be probed too before Chainbell believes the
   * traces of that node alone.
   */
  async function probeOthers(signal: AbortSignal): Promise<void> {
    const unprobed = nodes.filter((node) => node.traceMethod === undefined && !probed.has(node));
    if (nodes.length === 1 || unprobed.length === 0) return;
    const ask = (node: Node, abort: AbortSignal) => read(node, abort, async () => undefined);
    await gather({ clock, signal, voters: unprobed, ask, ms: PROBE_MS_MAX });
    for (const node of unprobed) probed.add(node);
  }

  const confirm: Voting['confirmed'] = async (node, asked, signal, fetch) => {
    const { references, parts, scrutiny, onUnconfirmed } = asked;
    if (scrutiny !== 'full' || parts !== undefined) return fetch();
    await probeOthers(signal);
    const early = traces.startEarly(node, references.find(isHash), signal);
    try {
      const bundles = await fetch();
      for (const bundle of bundles) {
        try {
          checkGas(node, bundle, await confirmTransfers({ traces, early }, node, bundle, signal));
        } catch (error) {
          if (error instanceof Fault && !signal.aborted) onUnconfirmed?.(bundle.header.number, error);
          throw error;
        }
      }
      return bundles;
    } finally {
      early.end();
    }
  };

  return {
    agree: createAgree({ nodes, quorum, clock, read, outvoted }),
    async confirmed(node, asked, signal, fetch) {
      try {
        return await confirm(node, asked, signal, fetch);
      } catch (error) {
        if (error instanceof LieFault) asked.onLie?.({ node: node.rpc.name, block: error.block });
        throw error;
      }
    },
    async areConfirmed(block, transfers, signal) {
      if (traces.tracers().length < 2) return true;
      const { key } = await traces.decide(block, {}, signal);
      return key === digestOf(transfers);
    },
    status: () => ({
      quorum: quorum.needed(),
      tracingNodes: traces.tracers().length,
      silentTracer: traces.silent(),
      outvoted: outvoted.list(),
    }),
  };
}

/** Returns how many nodes, including this one, have these internal transfers. @throws Fault */
async function confirmTransfers(
  { traces, early }: { traces: ReturnType<typeof createTraceVotes>; early: EarlyTraces },
  node: Node,
  bundle: Bundle,
  signal: AbortSignal,
): Promise<number> {
  const { header, traced, transactions } = bundle;
  if (!traced || transactions.length === 0 || traces.tracers().length < 2) return 1;
  const block = { ...header, transactionHashes: transactions.map(({ hash }) => hash) };
  const own = digestOf(internalTransfersOf(bundle));
  const cast = [{ voter: node, key: own, answer: undefined }];
  const { key, names, count } = await traces.decide(block, { cast, early }, signal);
  if (key === own) return count;
  throw new LieFault(
    header.number,
    `${node.rpc.name}: ${names} have other internal transfers in block ${header.number} (${header.hash})`,
  );
}

const isHash = (reference: BlockReference): reference is Hash => typeof reference === 'string';

const internalTransfersOf = ({ transactions }: Bundle): InternalTransfer[] =>
  transactions.flatMap(({ hash: txHash, calls }) => calls.map((call) => ({ txHash, ...call })));
