/**
 * Defines activities: decoded logs that point rules use.
 */
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../block.ts';
import type { AbiValue } from '../event-signature.ts';
import type { Listener } from './rules.ts';

/** A log for one of the listeners that match it. */
export type Activity<Listening extends Listener = Listener> = {
  listener: Listening;
  txHash: Hash;
  /** The sender of the transaction. */
  sender: Address;
  contract: Address;
  /** Index of the log within its receipt. It stays the same if another block includes the transaction. */
  ordinal: number;
  /** Index of the log within its block. Activities are processed in this order. */
  logIndex: number;
  /** In the order of the signature. */
  values: readonly (AbiValue | undefined)[];
};

/** An activity with its block. */
export type BlockActivity<Listening extends Listener = Listener> = {
  activity: Activity<Listening>;
  block: BlockHeader;
};

/** The activities whose listener has this kind. */
export function ofKind<Kind extends Listener['kind']>(
  placed: readonly BlockActivity[],
  kind: Kind,
): BlockActivity<Extract<Listener, { kind: Kind }>>[] {
  return placed.filter(
    (one): one is BlockActivity<Extract<Listener, { kind: Kind }>> => one.activity.listener.kind === kind,
  );
}
