/**
 * Lets a quorum of nodes decide data that no hash covers: contract calls, traces, and senders without a usable
 * signature.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { Quorum } from '../../domain/quorum.ts';
import { askAll, type Bundle, quantityOf, traceCall } from '../blocks/bundle.ts';
import {
  digestOf,
  type InternalTransfer,
  type ListedBlock,
  readDigest,
} from '../blocks/internal-transfers.ts';
import { createGasCheck, type GasCheck } from '../blocks/traced-gas.ts';
import { DisputeFault, LieFault } from '../proof/false-answer.ts';
import type { LearningRpc, RpcAnswer, RpcCall } from '../rpc/rpc.ts';
import { gather } from './ask-several.ts';
import { type Poll, poll, type Vote } from './equal-answers.ts';
import type { BundleOptions } from './fetch.ts';
import { byReadiness, type Node } from './node.ts';
import type { NodeReader } from './node-reader.ts';

/**
 * Like `ChainNodes.ask`, but all nodes of a quorum must give equal answers. Two answers are equal if their
 * `keyOf` is equal.
 */
type Agree = <T>(
  calls: readonly RpcCall[],
  read: (answers: readonly RpcAnswer[], nodeName: string) => T,
  signal: AbortSignal,
  keyOf?: (value: T) => string,
) => Promise<T>;

/** A node whose answer a quorum contradicted. */
export type Outvoted = { node: string; message: string; at: Date };

export type AgreementStatus = {
  quorum: number;
  /** Nodes that can trace. If there are several, their internal transfers are compared. */
  tracingNodes: number;
  /** The last time that each node was outvoted since the start. */
  outvoted: Outvoted[];
};

type Voting = {
  /** @throws Fault `unavailable` with the votes of each node if fewer than the quorum agree */
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

/**
 * If one of two tracing nodes has been silent for this long, Chainbell follows the other one. With three or more
 * tracing nodes it never follows one alone.
 */
const SILENCE_MS = 30_000;
/** After that time, the silent node gets only this long for each block. */
const SILENT_PATIENCE_MS = 100;
/** Spent once for each node. Enough for a probe of several requests over an ocean. */
const MEET_MS = 5_000;
/** Pauses before a node that is a moment behind the others is asked again. */
const BEHIND_MS = [25, 50, 100, 200];

// oxlint-disable-next-line max-lines-per-function -- votes about traces and calls share the record of who was outvoted
export function createVoting({ nodes, quorum, clock, log, read: exchange }: VotingOptions): Voting {
  const outvoted = new Map<Node, Outvoted>();
  const gasChecks = new Map<Node, GasCheck>();
  const met = new Set<Node>();
  /** Since when one of two tracing nodes has not answered. Undefined while both answer. */
  let silentSince: number | undefined;
  const nowMs = () => clock.now().getTime();
  const tracers = () => nodes.filter(({ canTrace }) => canTrace === true);

  function noteOutvoted<T>({ agreed, votes }: Poll<Node, T>, what: string): void {
    if (agreed === undefined) return;
    for (const { voter } of votes.filter(({ key }) => key !== agreed[0]?.key)) {
      const message = `${what}: ${namesOf(agreed)} agree on another answer`;
      outvoted.set(voter, { node: voter.rpc.name, message, at: clock.now() });
      log.warn(
        { node: voter.rpc.name, what, agreeing: agreed.map((vote) => vote.voter.rpc.name) },
        'node.outvoted',
      );
    }
  }

  const agree: Agree = async (calls, read, signal, keyOf) => {
    const outcome = await poll(
      { clock, signal, quorum: quorum.needed() },
      byReadiness(nodes, nowMs()),
      async (node, abort) => {
        const answers = await exchange(node, abort, (rpc, { batch }) => askAll(rpc, calls, batch, abort));
        const answer = read(answers, node.rpc.name);
        return { answer, key: keyOf?.(answer) ?? keyOfAnswers(answers) };
      },
    );
    const what = describeCalls(calls);
    noteOutvoted(outcome, what);
    const [first] = outcome.agreed ?? [];
    if (first !== undefined) return first.answer;
    // A single node needs no agreement, so its Fault is passed on as it is.
    const [fault] = outcome.faults;
    if (nodes.length === 1 && fault !== undefined) throw fault;
    throw new Fault('unavailable', `${what}: ${disagreement(outcome, quorum.needed())}`);
  };

  /** Smaller than the quorum if fewer nodes can trace. */
  const tracingQuorum = () => Math.min(quorum.needed(), tracers().length);

  function pollTraces(
    block: ListedBlock,
    cast: readonly Vote<Node, undefined>[],
    early: Early,
    signal: AbortSignal,
  ): Promise<Poll<Node, undefined>> {
    const voters = byReadiness(tracers(), nowMs());
    const isSilent = silentSince !== undefined && nowMs() - silentSince >= SILENCE_MS;
    const patienceMs = isSilent ? SILENT_PATIENCE_MS : undefined;
    return poll(
      { clock, signal, quorum: tracingQuorum(), cast, patienceMs },
      voters,
      async (voter, abort) => {
        const given = block.hash === early.hash ? early.answers.get(voter) : undefined;
        return { key: await askDigest(voter, block, given, abort), answer: undefined };
      },
    );
  }

  /**
   * The vote of one node. An answer about other transactions than this block's counts as no vote, and the node is
   * asked again.
   */
  async function askDigest(
    node: Node,
    block: ListedBlock,
    given: Promise<RpcAnswer | undefined> | undefined,
    signal: AbortSignal,
  ): Promise<string> {
    let answer = await given;
    for (const waitMs of [...BEHIND_MS, undefined]) {
      const read = await exchange(node, signal, async (rpc, { traces: method }) => {
        if (method === 'none') throw new Fault('unavailable', `${rpc.name} cannot trace`);
        answer ??= await ask(
          rpc,
          traceCall(method, method === BY_HASH ? block.hash : quantityOf(block.number)),
          signal,
        );
        const outcome = await readDigest(rpc, method, answer, block, signal);
        // Tracing other transactions for this long counts as an error. Lacking a block for a moment doesn't.
        if ('fault' in outcome && waitMs === undefined && outcome.fault.code === 'inconsistent')
          throw outcome.fault;
        return outcome;
      });
      if ('digest' in read) return read.digest;
      if (waitMs === undefined) throw read.fault;
      await clock.wait(waitMs, signal);
      answer = undefined;
    }
    throw new Error('the last round returns or throws');
  }

  /**
   * Whether one vote suffices because the other of two tracing nodes has been silent for `SILENCE_MS`. Never if
   * `chain.quorum` is set.
   */
  function isOtherGone({ votes }: Poll<Node, unknown>): boolean {
    if (quorum.isFixed || votes.length > 1 || tracers().length !== 2) {
      silentSince = undefined;
      return false;
    }
    silentSince ??= nowMs();
    return votes.length === 1 && nowMs() - silentSince >= SILENCE_MS;
  }

  /**
   * The digest on which the tracing nodes agree.
   * @throws Fault that names the block and the nodes if they don't agree
   */
  async function decideTraces(
    block: ListedBlock,
    cast: readonly Vote<Node, undefined>[],
    early: Early,
    signal: AbortSignal,
  ): Promise<{ key: string; names: string }> {
    const what = `the internal transfers of block ${block.number} (${block.hash})`;
    const outcome = await pollTraces(block, cast, early, signal);
    noteOutvoted(outcome, what);
    const isLone = isOtherGone(outcome);
    const decided = outcome.agreed ?? (isLone ? outcome.votes : undefined);
    const [first] = decided ?? [];
    if (decided !== undefined && first !== undefined) return { key: first.key, names: namesOf(decided) };
    const message = `${what}: ${disagreement(outcome, tracingQuorum())}`;
    if (outcome.votes.length > 1) throw new DisputeFault(block.number, message);
    throw new Fault('unavailable', message);
  }

  /**
   * Lets other nodes trace the block while this node delivers it, because a trace may take as long as everything
   * else together.
   */
  function startEarly(node: Node, hash: Hash | undefined, signal: AbortSignal): Early {
    const answers: Early['answers'] = new Map();
    if (hash === undefined) return noneEarly;
    const others = byReadiness(tracers(), nowMs()).filter((other) => other !== node);
    for (const other of others.slice(0, tracingQuorum() - 1)) {
      if (other.capabilities?.traces !== BY_HASH) continue;
      const answer = exchange(other, signal, (rpc) => ask(rpc, traceCall(BY_HASH, hash), signal));
      // The poll reports its Fault.
      answer.catch(() => {});
      answers.set(other, answer);
    }
    return { hash, answers };
  }

  function checkGas(node: Node, bundle: Bundle): void {
    const check = gasChecks.get(node) ?? createGasCheck();
    gasChecks.set(node, check);
    check.check(bundle, node.rpc.name);
  }

  /**
   * After a start, only the first node is probed. The others must be probed too before Chainbell believes the
   * traces of that node alone.
   */
  async function meetOthers(signal: AbortSignal): Promise<void> {
    const strangers = nodes.filter((node) => node.canTrace === undefined && !met.has(node));
    if (nodes.length === 1 || strangers.length === 0) return;
    const ask = (node: Node, abort: AbortSignal) => exchange(node, abort, async () => undefined);
    await gather({ clock, signal, voters: strangers, ask, ms: MEET_MS });
    for (const node of strangers) met.add(node);
  }

  const confirm: Voting['confirmed'] = async (node, { references, parts, scrutiny }, signal, fetch) => {
    if (scrutiny !== 'full' || parts !== undefined) return fetch();
    await meetOthers(signal);
    const early = startEarly(node, references.find(isHash), signal);
    const bundles = await fetch();
    for (const bundle of bundles) {
      checkGas(node, bundle);
      const { header, traced, transactions } = bundle;
      if (!traced || transactions.length === 0 || tracers().length < 2) continue;
      const block = { ...header, transactionHashes: transactions.map(({ hash }) => hash) };
      const own = digestOf(internalTransfersOf(bundle));
      const cast = [{ voter: node, key: own, answer: undefined }];
      const { key, names } = await decideTraces(block, cast, early, signal);
      if (key !== own)
        throw new LieFault(
          header.number,
          `${node.rpc.name}: ${names} have other internal transfers in block ${header.number} (${header.hash})`,
        );
    }
    return bundles;
  };

  return {
    agree,
    async confirmed(node, asked, signal, fetch) {
      try {
        return await confirm(node, asked, signal, fetch);
      } catch (error) {
        if (error instanceof LieFault) asked.onLie?.({ node: node.rpc.name, block: error.block });
        if (error instanceof DisputeFault) asked.onDispute?.(error.block);
        throw error;
      }
    },
    async areConfirmed(block, transfers, signal) {
      if (tracers().length < 2) return true;
      const { key } = await decideTraces(block, [], noneEarly, signal);
      return key === digestOf(transfers);
    },
    status: () => ({
      quorum: quorum.needed(),
      tracingNodes: tracers().length,
      outvoted: [...outvoted.values()],
    }),
  };
}

/** Traces of one block that were requested before its transactions were known. */
type Early = { hash: Hash | undefined; answers: Map<Node, Promise<RpcAnswer | undefined>> };
const noneEarly: Early = { hash: undefined, answers: new Map() };
const BY_HASH = 'debug_traceBlockByHash';

const ask = async (rpc: LearningRpc, call: RpcCall, signal: AbortSignal) =>
  (await rpc.batch([call], signal))[0];

const isHash = (reference: BlockReference): reference is Hash => typeof reference === 'string';

const internalTransfersOf = ({ transactions }: Bundle): InternalTransfer[] =>
  transactions.flatMap(({ hash: txHash, calls }) => calls.map((call) => ({ txHash, ...call })));

/** All errors are equal, because a revert is an answer and its text differs between clients. */
const keyOfAnswers = (answers: readonly RpcAnswer[]) =>
  JSON.stringify(answers.map((answer) => (answer.ok ? answer.result : 'error'))).toLowerCase();

const namesOf = (votes: readonly Vote<Node, unknown>[]) =>
  votes.map(({ voter }) => voter.rpc.name).join(', ');

const describeCalls = (calls: readonly RpcCall[]) =>
  `${[...new Set(calls.map(({ method }) => method))].join(', ')} at ${JSON.stringify(calls[0]?.params.at(-1))}`;

/** Describes which nodes gave equal answers, and why others gave none. */
function disagreement({ votes, faults }: Poll<Node, unknown>, wanted: number): string {
  const groups = [...Map.groupBy(votes, ({ key }) => key).values()].map((group) => namesOf(group));
  const silent = faults.map((fault) => messageOf(fault));
  const told =
    groups.length > 1
      ? [`these answer differently: ${groups.join(' | ')}`]
      : groups.map((names) => `only ${names} answered`);
  return [`${wanted} nodes must give the same answer`, ...told, ...silent].join('; ');
}
