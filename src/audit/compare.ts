/**
 * Compares blocks of the chain with the stored ones, and with the notifications that follow from them. Pure.
 */
import { createOccurrences, sidesOf, type Transfer } from '../domain/block.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { NotificationKey, StoredBlock, StoredWatch } from '../store/audit/comparison.ts';
import type { Repair } from '../store/audit/repair.ts';

/** `hash`, `proved`, `missing` and so on: docs/how-to/verify-and-repair.md says what each means. */
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
  /** Which of several things in the block it is about, where that is no notification. */
  subject?: string;
  notification?: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'> & {
    watchedAddressId: string;
    /** Undefined when it is not stored. */
    id: number | undefined;
  };
  /** The repairs that `chainbell repair` applies; none if it can't repair the difference. */
  repairs?: readonly Repair[];
  /** The wrong notification that a receiver may have seen, or that is withdrawn before one can. */
  told?: Told;
  /** The amount that the right notification carries, where it is sent. */
  amount?: bigint;
  /** A receiver that credits each `id` once may be credited twice by the repair: it is done only on request. */
  mayCreditTwice?: boolean;
};

export type Told = {
  id: number;
  /** As it is stored now; the content that was sent is not stored. */
  amount: bigint;
  state: string;
  acknowledgedAt: Date | undefined;
  /** The revision of the removal notice. */
  noticeRevision: number;
  /** unseen: no receiver can have seen it. taken_back: a removal notice takes it back. kept: it can't be taken back. */
  fate: 'unseen' | 'taken_back' | 'kept';
};

/**
 * Why something cannot be compared, none of it met so far: the first five count blocks, the others notifications
 * (docs/how-to/verify-and-repair.md).
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
  dead_fork: 0,
  price_new: 0,
  valued_otherwise: 0,
  state_read: 0,
  rule_new: 0,
  unconfirmed: 0,
};
export type UndecidedReason = keyof typeof nothingUndecided;

export type Verdict = Difference | UndecidedReason | 'equal';

/** A transfer with the block in which it happened, on the chain and as stored. */
export type Event = { transfer: Transfer; stored: StoredBlock };

/** Transfers by their place, each in the first block that has its transaction, as the commit does it. */
export type Events = ReadonlyMap<string, Event>;

/** A notification that a record as it is now would get. */
export type Due = {
  watch: StoredWatch;
  event: Event;
  /** Which of several equal transfers of its transaction it is. */
  occurrence: number;
};

/** Parent and proof of a block that is stored under its hash. */
export function compareBlock(
  { header, proved }: ReadBlock,
  stored: StoredBlock,
  isProofOn: boolean,
): Verdict[] {
  const { number, parentHash } = header;
  const parent = `its parent is stored as ${stored.parentHash}, on the chain it is ${parentHash}`;
  const proof = `stored as ${told(stored.proved)}, now it is ${told(proved)}`;
  return [
    ...(stored.parentHash === parentHash ? [] : [differenceOf('hash', number, parent, 'parent')]),
    ...(isProofOn && stored.proved !== proved ? [differenceOf('proved', number, proof)] : []),
    ...(isProofOn ? [] : (['proof_off'] as const)),
  ];
}

const told = (proved: boolean) => (proved ? 'proved' : 'not proved');

export function differenceOf(
  kind: Difference['kind'],
  block: number,
  message: string,
  subject?: string,
): Difference {
  return { kind, block, message: `block ${block}: ${message}`, ...(subject !== undefined && { subject }) };
}

/** The transfers of these blocks, which are stored under the same hash. */
export function eventsOf(blocks: readonly { read: ReadBlock; stored: StoredBlock }[]): Events {
  const events = new Map<string, Event>();
  for (const { read, stored } of blocks) {
    for (const transfer of read.transfers) {
      const key = keyOf(transfer);
      if (!events.has(key)) events.set(key, { transfer, stored });
    }
  }
  return events;
}

/** The notifications that the records as they are now would get, one more than `limit` at most. */
export function dueOf(events: Events, watches: readonly StoredWatch[], limit: number): Due[] {
  const byAddress = Map.groupBy(watches, ({ address }) => address);
  const due: Due[] = [];
  const occurrenceOf = createOccurrences();
  for (const event of events.values()) {
    const { transfer } = event;
    for (const watch of sidesOf(transfer).flatMap((side) => byAddress.get(side) ?? [])) {
      if (due.length > limit) return due;
      if (!isWanted(watch, transfer)) continue;
      due.push({ watch, event, occurrence: occurrenceOf(watch.id, transfer) });
    }
  }
  return due;
}

/** What the record's flags and settings say of a transfer (store/blocks/blocks.ts says it in SQL). */
function isWanted({ address, watchCoin, watchToken, settings }: StoredWatch, transfer: Transfer): boolean {
  const { kind, sender, receiver, amount, token } = transfer;
  const { direction, minAmount, tokens } = settings;
  if (direction === 'in' && receiver !== address) return false;
  if (direction === 'out' && sender !== address) return false;
  if (kind !== 'token') return watchCoin && amount >= minAmount;
  const leastAmount = token === undefined || tokens.size === 0 ? 0n : tokens.get(token);
  return watchToken && leastAmount !== undefined && amount >= leastAmount;
}

/** Where the notifications of `due` are, if they are there. */
export function placesOf(due: readonly Due[]): NotificationKey[] {
  const places = new Map<string, NotificationKey>();
  for (const { watch, event } of due) {
    const { txHash } = event.transfer;
    places.set(`${watch.id} ${txHash}`, { shardId: watch.shardId, watchedAddressId: watch.id, txHash });
  }
  return [...places.values()];
}

/** A position in a transaction. */
export const keyOf = ({ txHash, kind, ordinal }: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'>) =>
  `${txHash} ${kind} ${ordinal}`;
