/**
 * Lets the nodes that can trace decide the internal transfers of a block.
 */
import { never, startAbort } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Quorum, QuorumStatus } from '../../domain/quorum.ts';
import { createSilences } from '../../domain/silence.ts';
import { quantityOf, traceCall } from '../blocks/bundle.ts';
import { type ListedBlock, readDigest } from '../blocks/internal-transfers.ts';
import { DisputeFault } from '../proof/false-answer.ts';
import type { ObservedRpc, RpcAnswer, RpcCall } from '../rpc/rpc.ts';
import { LATE_MS, type Poll, poll, type Vote } from './equal-answers.ts';
import { byTraceReadiness, canTrace, type Node } from './node.ts';
import type { NodeReader } from './node-reader.ts';
import { describeDisagreement, namesOf, type OutvotedAnswers } from './poll-report.ts';

/** Traces of one block that were requested before its transactions were known. */
export type EarlyTraces = {
  hash: Hash | undefined;
  answers: Map<Node, Promise<RpcAnswer | undefined>>;
  /** Aborts the requests that are still under way. */
  end(): void;
};

type TraceVote = Vote<Node, undefined>;

type TraceVotes = {
  /** The nodes that can trace. */
  tracers(): Node[];
  /** With two tracing nodes, the silent one while the other one is believed alone. */
  silent(): QuorumStatus['silent'];
  /**
   * Lets other nodes trace the block while this node delivers it, because a trace may take as long as everything
   * else together. Call `end` once the block is decided.
   */
  startEarly(node: Node, hash: Hash | undefined, signal: AbortSignal): EarlyTraces;
  /**
   * The digest on which the tracing nodes agree, their names, and how many they are. `cast` holds votes that are already known.
   * @throws Fault that names the block and the nodes if they don't agree
   */
  decide(
    block: ListedBlock,
    known: { cast?: readonly TraceVote[]; early?: EarlyTraces },
    signal: AbortSignal,
  ): Promise<{ key: string; names: string; count: number }>;
};

type TraceVotesOptions = {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  read: NodeReader['read'];
  outvoted: OutvotedAnswers;
};

/** How long after its last miss a silent node is reported. */
const REPORTED_MS = 120_000;
/** Pauses before a node that is a moment behind the others is asked again. */
const BEHIND_MS = [25, 50, 100, 200];

export function createTraceVotes({ nodes, quorum, clock, read, outvoted }: TraceVotesOptions): TraceVotes {
  const nowMs = () => clock.now().getTime();
  const tracers = () => nodes.filter(canTrace);
  const inOrder = () => byTraceReadiness(tracers(), nowMs());
  const ask = createAsk(clock);
  const silences = createTraceSilences({ quorum, clock, tracers });
  /** Smaller than the quorum if fewer nodes can trace. */
  const needed = () => Math.min(quorum.needed(), tracers().length);

  return {
    tracers,
    silent: silences.find,
    startEarly(node, hash, signal) {
      const answers: EarlyTraces['answers'] = new Map();
      const work = startAbort(signal);
      const end = () => {
        work.abort();
        work.release();
      };
      if (hash === undefined) return { hash, answers, end };
      const others = inOrder().filter((other) => other !== node && !silences.isSilent(other));
      for (const other of others.slice(0, needed() - 1)) {
        if (other.capabilities?.traces !== BY_HASH) continue;
        const answer = read(other, work.signal, (rpc) =>
          ask({ node: other, rpc, call: traceCall(BY_HASH, hash) }, work.signal),
        );
        // The poll reports its Fault.
        answer.catch(() => {});
        answers.set(other, answer);
      }
      return { hash, answers, end };
    },
    async decide(block, { cast = [], early }, signal) {
      const what = `the internal transfers of block ${block.number} (${block.hash})`;
      const outcome = await poll(
        { clock, signal, quorum: needed(), cast, isSilent: silences.isSilent },
        inOrder(),
        async (node, abort) => {
          const given = block.hash === early?.hash ? early.answers.get(node) : undefined;
          const key = await silences.watch(node, abort, (signal) =>
            askDigest({ clock, read, ask, node, block, given }, signal),
          );
          return { key, answer: undefined };
        },
      );
      outvoted.note(outcome, what);
      const isLone = silences.isOtherGone(outcome);
      const decided = outcome.agreed ?? (isLone ? outcome.votes : undefined);
      const [first] = decided ?? [];
      if (decided !== undefined && first !== undefined)
        return { key: first.key, names: namesOf(decided), count: decided.length };
      const message = `${what}: ${describeDisagreement(outcome, needed())}`;
      if (outcome.votes.length > 1) throw new DisputeFault(message);
      throw new Fault('unavailable', message);
    },
  };
}

/** Which of two tracing nodes gives no traces. With three or more tracing nodes, Chainbell never follows one alone. */
function createTraceSilences({
  quorum,
  clock,
  tracers,
}: Pick<TraceVotesOptions, 'quorum' | 'clock'> & { tracers: TraceVotes['tracers'] }) {
  const silences = createSilences<Node>(clock);
  /** Silent nodes with a trace under way that outlasts its poll. */
  const outlasting = new Set<Node>();

  /** Whether the other node may be followed alone. Never if `chain.quorum` is set. */
  const mayFollowOne = () => !quorum.isFixed && tracers().length === 2;
  const isSilent = (node: Node) => mayFollowOne() && silences.since(node) !== undefined;

  return {
    isSilent,
    find(): QuorumStatus['silent'] {
      const [silent] = tracers().filter(isSilent);
      // While no block has transactions, the silent one isn't asked, and may be back.
      const since = silent && silences.missedWithin(silent, REPORTED_MS) ? silences.since(silent) : undefined;
      return silent && since && { name: silent.rpc.name, since };
    },
    /**
     * The node's trace, which ends its silence. One trace of a silent node goes on after the poll, so that a node that takes
     * longer than the poll waits is noticed too.
     */
    async watch<T>(node: Node, abort: AbortSignal, trace: (signal: AbortSignal) => Promise<T>): Promise<T> {
      const outlasts = isSilent(node) && !outlasting.has(node);
      if (outlasts) outlasting.add(node);
      try {
        const answer = await trace(outlasts ? never : abort);
        silences.end(node);
        return answer;
      } finally {
        if (outlasts) outlasting.delete(node);
      }
    },
    /** Whether the only vote suffices, because the other node is silent. Notes which nodes voted. */
    isOtherGone({ agreed, votes }: Poll<Node, undefined>): boolean {
      for (const { voter } of votes) silences.end(voter);
      if (tracers().length !== 2) silences.clear();
      // With an agreement, the other node may not have been asked. Without any vote, Chainbell itself may be cut off.
      if (agreed !== undefined || tracers().length !== 2 || votes.length !== 1) return false;
      const others = tracers().filter((node) => votes.every(({ voter }) => voter !== node));
      for (const node of others) silences.noteMiss(node);
      return others.every(isSilent);
    },
  };
}

/**
 * The vote of one node. An answer about other transactions than this block's counts as no vote, and the node is
 * asked again. `given` is an answer that was requested before.
 */
async function askDigest(
  {
    clock,
    read,
    ask,
    node,
    block,
    given,
  }: Pick<TraceVotesOptions, 'clock' | 'read'> & {
    ask: Ask;
    node: Node;
    block: ListedBlock;
    given: Promise<RpcAnswer | undefined> | undefined;
  },
  signal: AbortSignal,
): Promise<string> {
  let answer = await given;
  for (const waitMs of [...BEHIND_MS, undefined]) {
    const outcome = await read(node, signal, async (rpc, { traces: method }) => {
      if (method === 'none') throw new Fault('unavailable', `${rpc.name} cannot trace`);
      const id = method === BY_HASH ? block.hash : quantityOf(block.number);
      answer ??= await ask({ node, rpc, call: traceCall(method, id) }, signal);
      const digest = await readDigest(rpc, method, answer, block, signal);
      // Tracing other transactions for this long counts as an error. Lacking a block for a moment doesn't.
      if ('fault' in digest && waitMs === undefined && digest.fault.code === 'inconsistent')
        throw digest.fault;
      return digest;
    });
    if ('digest' in outcome) return outcome.digest;
    if (waitMs === undefined) throw outcome.fault;
    await clock.wait(waitMs, signal);
    answer = undefined;
  }
  throw new Error('the last round returns or throws');
}

const BY_HASH = 'debug_traceBlockByHash';

type Ask = ReturnType<typeof createAsk>;

/** The returned function asks a node for a trace and notes how long it took. */
const createAsk =
  (clock: Clock) =>
  async (
    { node, rpc, call }: { node: Node; rpc: ObservedRpc; call: RpcCall },
    signal: AbortSignal,
  ): Promise<RpcAnswer | undefined> => {
    const startedAt = clock.now().getTime();
    let isTraced = false;
    try {
      const [answer] = await rpc.batch([call], signal);
      isTraced = answer?.ok === true;
      return answer;
    } finally {
      const tookMs = clock.now().getTime() - startedAt;
      // An error, or the end of a request that is no longer needed, says only that a trace takes at least this long.
      if (isTraced || tookMs >= LATE_MS) node.traceTimes.add(tookMs);
    }
  };
