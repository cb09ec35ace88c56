/**
 * A block as it is committed: its transfers, and the data that block processors derive from it. The bundle, which is much
 * larger, is garbage once it is read.
 */
import type { Bundle } from '../chain/blocks/bundle.ts';
import type { SenderEvidence } from '../chain/proof/block-checks.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockHeader, Transfer } from '../domain/block.ts';
import type { PairEvents } from '../domain/pair.ts';
import type { Activity } from '../domain/points/activity.ts';
import { extractTransfers } from './extract.ts';

export type ReadBlock = {
  header: BlockHeader;
  proved: boolean;
  traced: boolean;
  transfers: Transfer[];
  /** The transactions that succeeded, in order, if the block came without traces. */
  untraced?: readonly Hash[] | undefined;
  pairEvents: PairEvents[];
  /** Decoded logs that points rules listen to. */
  activities: Activity[];
  /** The evidence for the senders of native transfers and of `needsSenders`; undefined if proof is off. */
  senders?: SenderEvidence | undefined;
  /** Its transactions, if only one node has confirmed its internal transfers so far; otherwise undefined. */
  unconfirmed?: readonly Hash[] | undefined;
  /** The node that gave it, if it was not checked in full; otherwise undefined. */
  believed?: string | undefined;
  /** By the steady clock: when it must be read again, because a reorg may have orphaned it; undefined if it was final. */
  staleMs?: number;
};

/** What the block processors need from a block. */
export type Extract = {
  pairEvents(bundle: Bundle): PairEvents[];
  activities(bundle: Bundle): Activity[];
  /** The transactions whose senders the activities use. They are proved before the block is stored. */
  needsSenders(bundle: Bundle): Hash[];
};

/** Leaves only the transfers. */
export const extractNothing: Extract = {
  pairEvents: () => [],
  activities: () => [],
  needsSenders: () => [],
};

export function readBlock(bundle: Bundle, extract: Extract, isCheckedInFull: boolean): ReadBlock {
  return {
    header: bundle.header,
    proved: bundle.proved,
    traced: bundle.traced,
    transfers: extractTransfers(bundle),
    pairEvents: extract.pairEvents(bundle),
    activities: extract.activities(bundle),
    senders: bundle.senders,
    ...(!bundle.traced && { untraced: succeededIn(bundle) }),
    ...(!isCheckedInFull && { unconfirmed: unconfirmedOf(bundle), believed: bundle.node }),
  };
}

const succeededIn = ({ transactions }: Bundle): Hash[] =>
  transactions.filter(({ succeeded }) => succeeded).map(({ hash }) => hash);

/** Only where there is an internal transfer to confirm, because the hashes of a mainnet block take 16 KB. */
const unconfirmedOf = ({ transactions }: Bundle): Hash[] | undefined =>
  transactions.some(({ calls }) => calls.length > 0) ? transactions.map(({ hash }) => hash) : undefined;
