/**
 * A follower of a made-up chain of headers, without transactions, real nodes or real time.
 */
import type { ChainNodes } from '../../src/chain/nodes/nodes.ts';
import type { Clock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import type { BlockHeader } from '../../src/domain/block.ts';
import { createFollower, type Follower, type FollowerOptions } from '../../src/ingest/follow.ts';
import { extractNothing } from '../../src/ingest/read-block.ts';
import type { Database } from '../../src/store/db/db.ts';
import { headerOf } from './chain-story.ts';

type MadeUpChain = {
  head(): BlockHeader;
  /** The block at this height when it is fetched. */
  at(number: number): BlockHeader;
  /** The block at this height when only its header is checked; the same as `at` by default. */
  asked?(number: number): BlockHeader;
  finalized?: number | undefined;
  /** Whether the nodes that call a block final are too few for a quorum; false by default. */
  isByFew?: boolean;
  /** The number of nodes; 1 by default. */
  nodeCount?: number;
  /** 1 by default. */
  startBlock?: number;
};

/** For followers that prove nothing. */
export const noChecks: FollowerOptions['checks'] = {
  enforcedChecks: () => [],
  observedTypes: () => [],
  enforce() {},
};

export function followMadeUp(
  database: Database,
  chain: MadeUpChain,
  {
    clock,
    confirmations = 0,
    finalityDepth,
    checks = noChecks,
    isLeader = async () => true,
    term = () => undefined,
    unhashedProof,
    log = silentLog(),
  }: { clock: Clock; confirmations?: number; finalityDepth: number } & Partial<
    Pick<FollowerOptions, 'checks' | 'isLeader' | 'term' | 'unhashedProof' | 'log'>
  >,
): Follower {
  const bundles: ChainNodes['bundles'] = async (references) =>
    references.map((reference) => ({
      header: typeof reference === 'number' ? chain.at(reference) : chain.head(),
      ...{ transactions: [], proved: true, traced: true },
    }));
  const nodes: ChainNodes = {
    identify: async () => ({ chainId: 1, genesisHash: headerOf(0).hash }),
    pin() {},
    doubt() {},
    head: async () => chain.head(),
    bundles,
    anchored: bundles,
    corroborated: async (number) => (chain.asked ?? chain.at)(number),
    parentOf: async ({ number }) => (chain.asked ?? chain.at)(number - 1),
    compareWith: async () => {},
    quorum: () => ({
      nodes: chain.nodeCount ?? 1,
      needed: 1,
      votes: 1,
      ...{
        dispute: undefined,
        ...{ stalled: undefined, ahead: undefined },
        silent: undefined,
        isHeld: false,
      },
    }),
    findHeader: async (reference) =>
      typeof reference === 'number' ? (chain.asked ?? chain.at)(reference) : undefined,
    ask: () => Promise.reject(new Error('this follower reads no contracts')),
    finalized: async () =>
      chain.finalized === undefined
        ? undefined
        : { number: chain.finalized, hash: undefined, ...(chain.isByFew === true && { byFew: true }) },
    noteLie: () => {},
    isPushed: () => false,
    status: () => [],
    headNumber: () => undefined,
    ...{ belowSince: () => undefined, untraced: () => undefined },
    sockets: () => [],
    close: async () => {},
  };
  return createFollower({
    ...{ database, nodes, clock, log, metrics: createMetrics('test') },
    ...{ chainId: 1, startBlock: chain.startBlock ?? 1, confirmations, finalityDepth },
    ...{ processors: [], extract: extractNothing, backfill: { advance: () => false } },
    checks,
    ...{ isLeader, term },
    ...(unhashedProof !== undefined && { unhashedProof }),
  });
}
