/**
 * Lets a quorum of the nodes decide the genesis block and which blocks are final.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import type { Quorum } from '../../domain/quorum.ts';
import { gather } from './ask-several.ts';
import { mostNamed } from './head-votes.ts';
import { isOverdue, type Node } from './node.ts';
import type { ChainIdentity } from './probe.ts';

/**
 * The newest height that a quorum calls final. It has a hash if the quorum names the same block. `byFew`: too few nodes support the
 * tag for a quorum, and this is the lowest height that one of them calls final.
 */
export type Finalized = { number: number; hash: Hash | undefined; byFew?: true };

const silence = new Fault('unavailable', 'no answer');

type Options<Answer> = {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  ask(node: Node, signal: AbortSignal): Promise<Answer>;
};

/** Enough for two calls. A node that takes longer has no vote. */
const IDENTITY_MS_MAX = 5_000;
const FINALIZED_MS_MAX = 1_000;
/** Only while fewer than a quorum have answered, so that slow nodes don't hold up blocks for long. */
const FINALIZED_PATIENCE_MS = 3_000;

/**
 * The genesis hash that a quorum names. Undefined if a quorum has pruned that block, so nothing can be pinned.
 * @throws Fault `conflict` if all nodes are on another chain, `unavailable` if no node answers, `inconsistent`
 * if no quorum names the same block
 */
export async function agreeOnGenesis(
  { nodes, quorum, clock, ask }: Options<ChainIdentity>,
  signal: AbortSignal,
): Promise<Hash | undefined> {
  const genesisOf = (answers: ReadonlyMap<Node, ChainIdentity | Fault>) =>
    [...answers.values()].flatMap((answer) => (answer instanceof Fault ? [] : (answer.genesisHash ?? [])));
  const answers = await gather({
    ...{ clock, signal, voters: nodes, ms: IDENTITY_MS_MAX },
    async ask(node, abort) {
      const identity = await ask(node, abort);
      quorum.noteAnswer(node);
      return identity;
    },
    isEnough: (some) => mostNamed(genesisOf(some), quorum.needed()) !== undefined,
  });
  const named = genesisOf(answers);
  const faults = [...answers.values()].filter((answer) => answer instanceof Fault);
  const isDecided = mostNamed(named, quorum.needed()) !== undefined;
  const isSilent = answers.size === faults.length;
  for (const node of isDecided || isSilent ? [] : nodes)
    if ((answers.get(node) ?? silence) instanceof Fault) quorum.noteMiss(node);
  const genesisHash = mostNamed(named, quorum.needed());
  const prunedCount = answers.size - faults.length - named.length;
  if (genesisHash !== undefined || prunedCount >= quorum.needed()) return genesisHash;
  const answered = nodes.map((node) => {
    const answer = answers.get(node);
    if (answer instanceof Fault) return messageOf(answer);
    return `${node.rpc.name} ${answer === undefined ? 'does not answer' : `has ${answer.genesisHash ?? 'none'}`}`;
  });
  const isForeign = faults.length === nodes.length && faults.every(({ code }) => code === 'conflict');
  throw new Fault(
    isForeign ? 'conflict' : isSilent ? 'unavailable' : 'inconsistent',
    isSilent
      ? answered.join('; ')
      : `no ${quorum.needed()} of ${nodes.length} nodes name the same genesis block: ${answered.join('; ')}`,
  );
}

/**
 * The newest block that a quorum calls final, or the lowest one that a node names if too few nodes support the `finalized`
 * tag. Undefined if none names one; `ask` returns undefined for a node that doesn't support the tag. `patienceMs`: how long it
 * waits for a quorum.
 * @throws Fault `unavailable` if too few nodes answer
 */
export async function agreeOnFinalized(
  { nodes, quorum, clock, ask }: Options<BlockHeader | undefined>,
  signal: AbortSignal,
  patienceMs = FINALIZED_PATIENCE_MS,
): Promise<Finalized | undefined> {
  const needed = quorum.needed();
  const prompt = nodes.filter((node) => !isOverdue(node, clock.now().getTime()));
  const known = prompt.filter(({ capabilities }) => capabilities !== undefined);
  // If the other nodes suffice, don't wait for a node that has not answered yet.
  const voters = known.length >= needed ? known : prompt;
  const readAnswers = (given: ReadonlyMap<Node, BlockHeader | undefined | Fault>) => {
    const answers = [...given.values()];
    const faults = answers.filter((answer) => answer instanceof Fault);
    const headers = answers.flatMap((answer) => (answer instanceof Fault ? [] : (answer ?? [])));
    const lackingCount = answers.length - faults.length - headers.length;
    // As many must answer as blocks need, because a single node may lack the tag for a moment.
    const isLacking = voters.length - lackingCount < needed && headers.length + lackingCount >= needed;
    return { faults, headers, isLacking };
  };
  const atLeast = {
    ms: patienceMs,
    isMet(some: Parameters<typeof readAnswers>[0]) {
      const { headers, isLacking } = readAnswers(some);
      return headers.length >= needed || isLacking;
    },
  };
  const { faults, headers, isLacking } = readAnswers(
    await gather({ clock, signal, voters, ask, ms: FINALIZED_MS_MAX, atLeast }),
  );
  headers.sort((one, other) => other.number - one.number);
  const agreed = headers[needed - 1];
  if (agreed !== undefined) {
    const sameCount = headers.filter(({ hash }) => hash === agreed.hash).length;
    return { number: agreed.number, hash: sameCount >= needed ? agreed.hash : undefined };
  }
  const lowest = headers.at(-1);
  if (isLacking) return lowest && { number: lowest.number, hash: undefined, byFew: true };
  const why = faults.length === 0 ? 'no answer in time' : faults.map(messageOf).join('; ');
  throw new Fault('unavailable', `too few nodes say what is final: ${why}`);
}
