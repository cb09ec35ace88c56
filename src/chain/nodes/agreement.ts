/**
 * What a quorum of the nodes says about the whole chain: its genesis block, and which blocks are final.
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

/** The newest height that a quorum calls final; its hash, where the quorum names the same block. */
export type Finalized = { number: number; hash: Hash | undefined };

const silence = new Fault('unavailable', 'no answer');

type Options<Answer> = {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  ask(node: Node, signal: AbortSignal): Promise<Answer>;
};

/** Two calls; nodes that take longer have no vote. */
const IDENTITY_MS_MAX = 5_000;
const FINALIZED_MS_MAX = 1_000;

/**
 * The genesis hash that a quorum names; undefined where a quorum has pruned that block, so that nothing can
 * be pinned.
 * @throws Fault `conflict` when all nodes are on another chain, `inconsistent` without a quorum, else
 * `unavailable`.
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
      quorum.heard(node);
      return identity;
    },
    isEnough: (some) => mostNamed(genesisOf(some), quorum.needed()) !== undefined,
  });
  const named = genesisOf(answers);
  const isDecided = mostNamed(named, quorum.needed()) !== undefined;
  for (const node of isDecided ? [] : nodes)
    if ((answers.get(node) ?? silence) instanceof Fault) quorum.missed(node);
  const faults = [...answers.values()].filter((answer) => answer instanceof Fault);
  const genesisHash = mostNamed(named, quorum.needed());
  const prunedCount = answers.size - faults.length - named.length;
  if (genesisHash !== undefined || prunedCount >= quorum.needed()) return genesisHash;
  const said = nodes.map((node) => {
    const answer = answers.get(node);
    if (answer instanceof Fault) return messageOf(answer);
    return `${node.rpc.name} ${answer === undefined ? 'does not answer' : `has ${answer.genesisHash ?? 'none'}`}`;
  });
  const isSilent = answers.size === faults.length;
  const isForeign = faults.length === nodes.length && faults.every(({ code }) => code === 'conflict');
  throw new Fault(
    isForeign ? 'conflict' : isSilent ? 'unavailable' : 'inconsistent',
    isSilent
      ? said.join('; ')
      : `no ${quorum.needed()} of ${nodes.length} nodes name the same genesis block: ${said.join('; ')}`,
  );
}

/**
 * What a quorum calls final; undefined where too few nodes have the tag. `ask` returns undefined for one
 * without it.
 * @throws Fault `unavailable` when too few of those that may have it answer.
 */
export async function agreeOnFinalized(
  { nodes, quorum, clock, ask }: Options<BlockHeader | undefined>,
  signal: AbortSignal,
): Promise<Finalized | undefined> {
  const needed = quorum.needed();
  const prompt = nodes.filter((node) => !isOverdue(node, clock.now().getTime()));
  const known = prompt.filter(({ capabilities }) => capabilities !== undefined);
  // One that has not answered yet is not waited for where the others suffice.
  const voters = known.length >= needed ? known : prompt;
  const answers = [...(await gather({ clock, signal, voters, ask, ms: FINALIZED_MS_MAX })).values()];
  const faults = answers.filter((answer) => answer instanceof Fault);
  const headers = answers.flatMap((answer) => (answer instanceof Fault ? [] : (answer ?? [])));
  const lowest = headers.sort((one, other) => other.number - one.number)[needed - 1];
  if (lowest !== undefined) {
    const sameCount = headers.filter(({ hash }) => hash === lowest.hash).length;
    return { number: lowest.number, hash: sameCount >= needed ? lowest.hash : undefined };
  }
  const lackingCount = answers.length - faults.length - headers.length;
  if (voters.length - lackingCount < needed) return undefined;
  const why = faults.length === 0 ? 'no answer in time' : faults.map(messageOf).join('; ');
  throw new Fault('unavailable', `too few nodes say what is final: ${why}`);
}
