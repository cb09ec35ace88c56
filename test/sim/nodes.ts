/**
 * The chain as a follower's nodes tell it: sometimes not at all, sometimes as it was a while ago.
 */
import type { BlockReference } from '../../src/chain/bundle.ts';
import type { ChainNodes } from '../../src/chain/nodes.ts';
import type { BlockHeader } from '../../src/core/block.ts';
import { Fault } from '../../src/core/fault.ts';
import { bundleOf, type SimBlock, type SimChain } from './chain.ts';
import type { Actor, Scheduler } from './scheduler.ts';

export const CHAIN_ID = 1;

export type SimNodesOptions = {
  actor: Actor;
  scheduler: Scheduler;
  chain: SimChain;
  hasFinalTag: boolean;
  /** What the node that is asked next takes for the head; undefined: it does not answer. */
  view(): SimBlock | undefined;
  tell(text: string): void;
};

export function createSimNodes(options: SimNodesOptions): ChainNodes {
  const { actor, scheduler, chain, tell } = options;
  let served: BlockHeader | undefined;

  const ask = <T>(what: string, answer: (tip: SimBlock) => T): Promise<T> =>
    scheduler.turn(actor, 'call', async () => {
      const tip = options.view();
      const isLate = tip !== undefined && tip !== chain.head();
      tell(`asks a node ${what}${tip === undefined ? ': silence' : isLate ? `: as of ${nameOf(tip)}` : ''}`);
      if (tip === undefined) throw new Fault('unavailable', 'the node does not answer');
      return answer(tip);
    });

  function find(tip: SimBlock, reference: BlockReference): SimBlock | undefined {
    const number =
      typeof reference === 'number' ? reference : (chain.find(reference)?.header.number ?? Infinity);
    const block = chain.at(tip, number);
    return typeof reference === 'number' || block?.header.hash === reference ? block : undefined;
  }

  const bundles: ChainNodes['bundles'] = (references) =>
    ask(`for ${references.map(shortOf).join(', ')}`, (tip) =>
      references.map((reference) => {
        const block = find(tip, reference);
        if (block !== undefined) return bundleOf(block);
        served = undefined;
        throw new Fault('unavailable', `the node does not have block ${reference} yet`);
      }),
    );

  return {
    identify: () =>
      ask('who it is', (tip) => ({ chainId: CHAIN_ID, genesisHash: chain.at(tip, 0)?.header.hash })),
    pin() {},
    doubt() {},
    head: () =>
      ask('for the head', ({ header }) => {
        // As the reader of several heads does: never lower than the last one.
        if (served === undefined || header.number >= served.number) served = header;
        return served;
      }),
    bundles,
    anchored: bundles,
    corroborated: (number) => ask(`for the header ${number}`, (tip) => find(tip, number)?.header),
    parentOf: (child) =>
      ask(`for the header ${shortOf(child.parentHash)}`, (tip) => {
        const parent = find(tip, child.parentHash);
        if (parent === undefined) throw new Fault('unavailable', 'the node does not have the parent yet');
        return parent.header;
      }),
    compareWith: async () => {},
    quorum: () => ({ nodes: 1, needed: 1, votes: 1, dispute: undefined, silent: undefined }),
    findHeader: (reference) =>
      ask(`for the header ${shortOf(reference)}`, (tip) => find(tip, reference)?.header),
    ask: () => Promise.reject(new Error('the story reads no contracts')),
    finalized: () =>
      ask('what is final', () =>
        options.hasFinalTag ? { number: chain.finalNumber(), hash: undefined } : undefined,
      ),
    isPushed: () => false,
    status: () => [],
    headNumber: () => undefined,
    sockets: () => [],
    close: async () => {},
  };
}

/** A block in the story: its height and the end of its hash. */
export const nameOf = ({ header }: Pick<SimBlock, 'header'>): string =>
  `${header.number} (${header.hash.slice(-4)})`;

const shortOf = (reference: BlockReference) =>
  typeof reference === 'number' ? String(reference) : `(${reference.slice(-4)})`;
