/**
 * Compares blocks with the stored ones, and lists the notifications that the stored records would get for them. Pure.
 */
import { createOccurrences, sidesOf, type Transfer } from '../domain/block.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { Repair } from '../store/audit/apply-repairs.ts';
import type { NotificationKey, StoredBlock, StoredWatch } from '../store/audit/comparison.ts';

/** docs/how-to/verify-and-repair.md explains each kind. */
export type Difference = {
  kind:
    | 'hash'
    | 'not_stored'
    | 'not_proved'
    | 'proved'
    | 'missing'
    | 'unexpected'
    | 'changed'
    | 'delivery'
    | 'sum';
  block: number;
  /** One line for people. */
  message: string;
  /** The swap, state, award or figure that it concerns, if it doesn't concern a notification. */
  subject?: string;
  notification?: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'> & {
    watchedAddressId: string;
    /** Undefined if the notification is not stored. */
    id: number | undefined;
  };
  /** The repairs that `chainbell repair` applies; none if it can't repair the difference. */
  repairs?: readonly Repair[];
  /** The wrong notification that a receiver may have seen, or that is withdrawn before one can. */
  told?: WrongNotification;
  /** The amount of the right notification, if the repair sends one. */
  amount?: bigint;
  /** A receiver that credits each `id` once could credit the transfer twice, so the repair needs an explicit flag. */
  mayCreditTwice?: boolean;
};

export type WrongNotification = {
  id: number;
  /** The stored amount. The amount that was sent may differ, because it isn't stored separately. */
  amount: bigint;
  state: string;
  acknowledgedAt: Date | undefined;
  /** The revision of the removal notice. */
  noticeRevision: number;
  /** unseen: no receiver can have seen it. taken_back: the repair sends a removal notice. kept: it can't be taken back. */
  fate: 'unseen' | 'taken_back' | 'kept';
};

/**
 * Reasons why a block or a stored row can't be compared, each with a count of 0 (docs/how-to/verify-and-repair.md).
 */
export const nothingUndecided = {
  before_start: 0,
  after_tip: 0,
  not_served: 0,
  too_many: 0,
  proof_off: 0,
  not_traced: 0,
  pruned: 0,
  record_new: 0,
  record_changed: 0,
  record_deleted: 0,
  orphaned: 0,
  price_new: 0,
  valued_otherwise: 0,
  state_read: 0,
  rule_new: 0,
  unconfirmed: 0,
};
export type UndecidedReason = keyof typeof nothingUndecided;

export type ComparisonOutcome = Difference | UndecidedReason | 'equal';

/** A transfer on the chain, with its stored block. `position` among the transfers of the block, from 1. */
export type Event = { transfer: Transfer; position: number; stored: StoredBlock };

/** Transfers by position. Like a commit, takes each from the first block that has its transaction. */
export type Events = ReadonlyMap<string, Event>;

/** A notification that a record, as it is stored now, would get. */
export type ExpectedNotification = {
  watch: StoredWatch;
  event: Event;
  /** Counts equal transfers of its transaction. */
  occurrence: number;
};

/** Compares parent, time and proof of a block that is stored under its hash. */
export function compareBlock(
  { header, proved }: ReadBlock,
  stored: StoredBlock,
  isProofOn: boolean,
): ComparisonOutcome[] {
  const { number, parentHash, minedAt } = header;
  const parent = `its parent is stored as ${stored.parentHash}, on the chain it is ${parentHash}`;
  const time = `changed: time of the block: ${stored.minedAt.toISOString()} is stored, ${minedAt.toISOString()} is on the chain`;
  const proof = `stored as ${proofText(stored.proved)}, now it is ${proofText(proved)}`;
  return [
    ...(stored.parentHash === parentHash ? [] : [differenceOf('hash', number, parent, 'parent')]),
    ...(stored.minedAt.getTime() === minedAt.getTime()
      ? []
      : [differenceOf('changed', number, time, 'time of the block')]),
    ...(isProofOn && stored.proved !== proved ? [differenceOf('proved', number, proof)] : []),
    ...(isProofOn ? [] : (['proof_off'] as const)),
  ];
}

const proofText = (proved: boolean) => (proved ? 'proved' : 'not proved');

export function differenceOf(
  kind: Difference['kind'],
  block: number,
  message: string,
  subject?: string,
): Difference {
  return { kind, block, message: `block ${block}: ${message}`, ...(subject !== undefined && { subject }) };
}

/** The transfers of blocks that are stored under the same hash. */
export function eventsOf(blocks: readonly { read: ReadBlock; stored: StoredBlock }[]): Events {
  const events = new Map<string, Event>();
  for (const { read, stored } of blocks) {
    for (const [index, transfer] of read.transfers.entries()) {
      const key = keyOf(transfer);
      if (!events.has(key)) events.set(key, { transfer, position: index + 1, stored });
    }
  }
  return events;
}

/** The notifications that the records, as they are stored now, would get; at most one more than `limit`. */
export function listExpected(
  events: Events,
  watches: readonly StoredWatch[],
  limit: number,
): ExpectedNotification[] {
  const byAddress = Map.groupBy(watches, ({ address }) => address);
  const expected: ExpectedNotification[] = [];
  const occurrenceOf = createOccurrences();
  for (const event of events.values()) {
    const { transfer } = event;
    for (const watch of sidesOf(transfer).flatMap((side) => byAddress.get(side) ?? [])) {
      if (expected.length > limit) return expected;
      if (!isWanted(watch, transfer)) continue;
      expected.push({ watch, event, occurrence: occurrenceOf(watch.id, transfer) });
    }
  }
  return expected;
}

/** Whether the record's flags and settings ask for this transfer (store/matching/matching.ts does the same in SQL). */
function isWanted({ address, watchCoin, watchToken, settings }: StoredWatch, transfer: Transfer): boolean {
  const { kind, sender, receiver, amount, token } = transfer;
  const { direction, minAmount, tokens } = settings;
  if (direction === 'in' && receiver !== address) return false;
  if (direction === 'out' && sender !== address) return false;
  if (kind !== 'token') return watchCoin && amount >= minAmount;
  const leastAmount = token === undefined || tokens.size === 0 ? 0n : tokens.get(token);
  return watchToken && leastAmount !== undefined && amount >= leastAmount;
}

/** The records and transactions whose notifications to read. */
export function notificationKeysOf(expected: readonly ExpectedNotification[]): NotificationKey[] {
  const places = new Map<string, NotificationKey>();
  for (const { watch, event } of expected) {
    const { txHash } = event.transfer;
    places.set(`${watch.id} ${txHash}`, { shardId: watch.shardId, watchedAddressId: watch.id, txHash });
  }
  return [...places.values()];
}

/** A position in a transaction. */
export const keyOf = ({ txHash, kind, ordinal }: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'>) =>
  `${txHash} ${kind} ${ordinal}`;
