/**
 * The three nodes of a follower. Two of them sometimes don't answer or lag behind, and the preferred one always lies.
 * The program's code counts the votes (src/chain/nodes/head-votes.ts).
 */

import { addHead, corroborate, type HeadVote, mostNamed } from '../../src/chain/nodes/head-votes.ts';
import type { ChainNodes } from '../../src/chain/nodes/nodes.ts';
import { Fault } from '../../src/core/fault.ts';
import type { BlockReference } from '../../src/domain/block.ts';
import { bundleOf, type SimBlock, type SimChain } from './chain.ts';
import type { Actor, Scheduler } from './scheduler.ts';

export const CHAIN_ID = 1;

type SimNodesOptions = {
  actor: Actor;
  scheduler: Scheduler;
  chain: SimChain;
  hasFinalTag: boolean;
  /** The head that the next node reports; undefined if it doesn't answer. */
  view(): SimBlock | undefined;
  /** How many nodes must agree: two of three, or one in a story about a follower that believes any single node. */
  quorum: number;
  tell(text: string): void;
};

export function createSimNodes(options: SimNodesOptions): ChainNodes {
  const { actor, scheduler, chain, tell, quorum } = options;

  /** Asks all nodes, of which the first one lies, and returns the heads of those that answer. */
  const askEach = <T>(what: string, answer: (tips: readonly SimBlock[]) => T): Promise<T> =>
    scheduler.turn(actor, 'call', async () => {
      const honest = [options.view(), options.view()].flatMap((tip) => tip ?? []);
      const tips = [chain.lie(), ...honest];
      tell(`asks the nodes ${what}: as of ${tips.map(nameOf).join(', ')}`);
      return answer(tips);
    });

  /** The block that enough nodes name at a height; undefined if there is none. */
  function agreed(tips: readonly SimBlock[], number: number): SimBlock | undefined {
    const blocks = tips.flatMap((tip) => chain.at(tip, number) ?? []);
    const hash = mostNamed(
      blocks.map(({ header }) => header.hash),
      quorum,
    );
    return blocks.find(({ header }) => header.hash === hash);
  }

  function find(tip: SimBlock, reference: BlockReference): SimBlock | undefined {
    const number =
      typeof reference === 'number' ? reference : (chain.find(reference)?.header.number ?? Infinity);
    const block = chain.at(tip, number);
    return typeof reference === 'number' || block?.header.hash === reference ? block : undefined;
  }

  /** Returns blocks of one node, anchored in the last block as in src/chain/nodes/anchor.ts. The liar is asked first. */
  const bundles: ChainNodes['bundles'] = (references) =>
    askEach(`for ${references.map(shortOf).join(', ')}`, (tips) => {
      const last = references.at(-1);
      for (const tip of tips) {
        const blocks = references.map((reference) => find(tip, reference));
        const newest = blocks.at(-1)?.header;
        if (newest === undefined || blocks.includes(undefined)) continue;
        const votes = tips.filter((one) => chain.at(one, newest.number)?.header.hash === newest.hash).length;
        if (typeof last === 'string' || votes >= quorum)
          return blocks.flatMap((block) => (block ? [bundleOf(block)] : []));
      }
      throw new Fault('unavailable', 'no node has these blocks in a way that enough others do');
    });

  return {
    identify: () =>
      askEach('who they are', (tips) => {
        const genesis = agreed(tips, 0);
        if (genesis === undefined) throw new Fault('inconsistent', `no ${quorum} nodes name a genesis block`);
        return { chainId: CHAIN_ID, genesisHash: genesis.header.hash };
      }),
    pin() {},
    doubt() {},
    head: () =>
      askEach('for the head', (tips) => {
        const votes = tips.map((tip) => voteOf(chain, tip));
        const head = corroborate(votes, quorum);
        if (head === undefined) throw new Fault('inconsistent', `no ${quorum} nodes name the same block`);
        return head;
      }),
    bundles,
    anchored: bundles,
    corroborated: (number) => askEach(`for the header ${number}`, (tips) => agreed(tips, number)?.header),
    // A request by hash needs only one node, because the hash binds the header.
    parentOf: (child) =>
      askEach(`for the header ${shortOf(child.parentHash)}`, () => {
        const parent = chain.find(child.parentHash);
        if (parent === undefined) throw new Fault('unavailable', 'no node has the parent');
        return parent.header;
      }),
    compareWith: async () => {},
    quorum: () => ({
      ...{ nodes: 3, needed: quorum, votes: quorum, isHeld: false },
      ...{
        dispute: undefined,
        ...{ stalled: undefined, ahead: undefined },
        silent: undefined,
      },
    }),
    findHeader: (reference) =>
      askEach(`for the header ${shortOf(reference)}`, (tips) => {
        const found = tips.map((tip) => find(tip, reference)?.header);
        return found.find((header) => header !== undefined);
      }),
    ask: () => Promise.reject(new Error('the story reads no contracts')),
    // The liar reports the head of its false branch.
    finalized: () =>
      askEach('what is final', (tips) => {
        if (!options.hasFinalTag) return undefined;
        const numbers = tips.map((tip) =>
          chain.isLie(tip.header.hash) ? tip.header.number : chain.finalNumber(),
        );
        const number = numbers.sort((one, other) => other - one)[quorum - 1];
        if (number === undefined) throw new Fault('unavailable', 'too few nodes say what is final');
        return { number, hash: undefined };
      }),
    noteLie: () => {},
    isPushed: () => false,
    status: () => [],
    headNumber: () => undefined,
    ...{ belowSince: () => undefined, untraced: () => undefined },
    sockets: () => [],
    close: async () => {},
  };
}

/** A node's chain as its polls showed it: the head, and the blocks linked below it. */
function voteOf(chain: SimChain, tip: SimBlock): HeadVote {
  let vote: HeadVote | undefined;
  for (let number = Math.max(0, tip.header.number - LINKED); number <= tip.header.number; number += 1) {
    const block = chain.at(tip, number);
    if (block !== undefined) vote = addHead(vote, block.header, 0);
  }
  return vote ?? addHead(undefined, tip.header, 0);
}

/** Blocks that the polls have linked. */
const LINKED = 12;

/** The name of a block in the story: its height and the end of its hash. */
export const nameOf = ({ header }: Pick<SimBlock, 'header'>): string =>
  `${header.number} (${header.hash.slice(-4)})`;

const shortOf = (reference: BlockReference) =>
  typeof reference === 'number' ? String(reference) : `(${reference.slice(-4)})`;
