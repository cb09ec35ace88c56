/**
 * What the chain says of some blocks against what is stored of them: each notification that must be there is there once,
 * as it should be, and no other is. Pure.
 */
import { sidesOf, type Transfer } from '../core/block.ts';
import type { NotificationPlace, StoredBlock, StoredNotification, StoredWatch } from '../store/comparison.ts';
import type { Repair } from '../store/repair.ts';
import { type DeliverySide, findDeliveryFault } from './compare-delivery.ts';
import type { ReadBlock } from './read-ahead.ts';

/** `hash`, `proved`, `missing` and so on: docs/operations.md says what each means. */
export type Difference = {
  what:
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
  /** What `chainbell repair` does about it; none where it can do nothing. */
  repairs?: readonly Repair[];
};

/**
 * Why something cannot be compared, none of it met so far: the first five count blocks, the others notifications
 * (docs/operations.md).
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
type Event = { transfer: Transfer; stored: StoredBlock };

/** Transfers by their place, each in the first block that has its transaction, as the commit does it. */
export type Events = ReadonlyMap<string, Event>;

/** A notification that a record as it is now would get. */
export type Due = {
  watch: StoredWatch;
  event: Event;
  /** Which of several equal transfers of its transaction it is. */
  occurrence: number;
};

/**
 * Times are the database's, but taken before the commit and before the insert of a record: nearer than this it is not
 * known which of them saw the other.
 */
const ORDER_MS_MIN = 10_000;

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
  what: Difference['what'],
  block: number,
  message: string,
  subject?: string,
): Difference {
  return { what, block, message: `block ${block}: ${message}`, ...(subject !== undefined && { subject }) };
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
  const counts = new Map<string, number>();
  for (const event of events.values()) {
    const { transfer } = event;
    for (const watch of sidesOf(transfer).flatMap((side) => byAddress.get(side) ?? [])) {
      if (due.length > limit) return due;
      if (!isWanted(watch, transfer)) continue;
      const content = `${watch.id} ${contentOf(transfer)}`;
      const occurrence = counts.get(content) ?? 0;
      counts.set(content, occurrence + 1);
      due.push({ watch, event, occurrence });
    }
  }
  return due;
}

/**
 * What makes two notifications the same one: record, transaction, kind, parties, token and amount. The ordinal is not part
 * of it: a log that is inserted before a transfer moves the ordinal of that transfer and nothing else. Of several with
 * equal content those at the same ordinal are the same, then those in the same order.
 */
function pairUp(
  stored: readonly StoredNotification[],
  due: readonly Due[],
): { pairs: Map<StoredNotification, Due>; absent: Due[] } {
  const pairs = new Map<StoredNotification, Due>();
  const open = Map.groupBy(due, ({ watch, event }) => `${watch.id} ${contentOf(event.transfer)}`);
  const take = (one: StoredNotification, fits: (due: Due) => boolean) => {
    const equal = open.get(identityOf(one)) ?? [];
    const found = equal.findIndex(fits);
    const [taken] = found === -1 ? [] : equal.splice(found, 1);
    if (taken !== undefined) pairs.set(one, taken);
  };
  for (const one of stored) take(one, ({ event }) => event.transfer.ordinal === one.ordinal);
  for (const one of stored) if (!pairs.has(one)) take(one, () => true);
  return { pairs, absent: [...open.values()].flat() };
}

const identityOf = (one: StoredNotification) => `${one.watchedAddressId} ${contentOf(one)}`;

const contentOf = ({ txHash, kind, sender, receiver, amount, token }: Omit<Transfer, 'ordinal'>) =>
  `${txHash} ${kind} ${sender} ${receiver} ${token} ${amount}`;

/** What the record's flags and settings say of a transfer (store/blocks.ts says it in SQL). */
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
export function placesOf(due: readonly Due[]): NotificationPlace[] {
  const places = new Map<string, NotificationPlace>();
  for (const { watch, event } of due) {
    const { txHash } = event.transfer;
    places.set(`${watch.id} ${txHash}`, { shardId: watch.shardId, watchedAddressId: watch.id, txHash });
  }
  return [...places.values()];
}

export type StoredSide = {
  /** The blocks that are compared. */
  blocks: ReadonlyMap<number, { read: ReadBlock; stored: StoredBlock }>;
  events: Events;
  due: readonly Due[];
  /** Every record that a notification of these blocks belongs to, and that still exists. */
  watches: ReadonlyMap<string, StoredWatch>;
  notifications: readonly StoredNotification[];
  /** What was done before this may have been deleted. */
  keptSince: Date;
  delivery: DeliverySide;
};

/** One verdict for each notification that is stored or must be. */
export function* compareNotifications(side: StoredSide): Generator<Verdict> {
  const { pairs, absent } = pairUp(side.notifications, side.due);
  const contents = new Set(Array.from(side.events.values(), ({ transfer }) => contentOf(transfer)));
  /** Those whose content is not on the chain, by record and position. */
  const strays = new Map<string, StoredNotification>();
  for (const one of side.notifications) {
    const due = pairs.get(one);
    if (due !== undefined) yield judgeDue(one, due, side.delivery);
    else if (contents.has(contentOf(one))) yield judgeUnwanted(side, one);
    else strays.set(placeOf(one), one);
  }
  for (const due of absent) {
    const place = placeOf({ ...due.event.transfer, watchedAddressId: due.watch.id });
    const stray = strays.get(place);
    strays.delete(place);
    const verdict =
      stray === undefined ? judgeMissing(due, side.keptSince) : judgeReplaced(stray, due.event, due);
    if (verdict !== undefined) yield verdict;
  }
  for (const stray of strays.values()) {
    const verdict = judgeStray(side, stray);
    if (verdict !== undefined) yield verdict;
  }
}

/** A stored notification that its record must get. */
function judgeDue(
  one: StoredNotification,
  { watch, event: { stored } }: Due,
  delivery: DeliverySide,
): Verdict {
  const isOlder = one.createdAt < stored.storedAt;
  if (!isOlder && isAfter(watch.createdAt, stored))
    return difference('unexpected', one, stored.number, 'its record was made after the block');
  return judgeState(one, watch, { stored, delivery }) ?? 'equal';
}

/** Its block, and how it is delivered; undefined where both are right. */
function judgeState(
  one: StoredNotification,
  watch: StoredWatch,
  { stored, delivery }: { stored: StoredBlock; delivery: DeliverySide },
): Difference | undefined {
  const fault = findDeliveryFault(one, watch, delivery);
  const isElsewhere = one.blockNumber !== stored.number;
  if (fault === undefined && !isElsewhere) return undefined;
  const reasons = [
    ...(isElsewhere ? [`block ${one.blockNumber} is stored, ${stored.number} is on the chain`] : []),
    ...(fault === undefined ? [] : [fault.message]),
  ];
  const repair: Repair = {
    action: 'update',
    ...rowOf(one),
    block: { number: stored.number, hash: stored.hash },
    isRescheduled: fault !== undefined,
    isLate: fault?.isLate ?? false,
  };
  const what = isElsewhere ? 'changed' : 'delivery';
  return { ...difference(what, one, stored.number, reasons.join(', ')), repairs: [repair] };
}

const rowOf = ({ shardId, id, version }: StoredNotification) => ({ shardId, id, version });

/** One whose content is on the chain, but that its record as it is now would not get. */
function judgeUnwanted(side: StoredSide, one: StoredNotification): Verdict {
  const watch = side.watches.get(one.watchedAddressId);
  if (watch === undefined) return 'record_deleted';
  const event = side.events.get(keyOf(one)) ?? eventOf(side.events, one);
  const { stored } = event;
  if (!mayHaveChanged(watch, stored)) {
    const isWatched = side.due.some(
      (due) => due.watch.id === watch.id && contentOf(due.event.transfer) === contentOf(one),
    );
    const why = isWatched ? 'it is stored more often than it happened' : 'its record does not watch this';
    return difference('unexpected', one, stored.number, why);
  }
  return judgeState(one, watch, { stored, delivery: side.delivery }) ?? 'record_changed';
}

/** The event with this content. */
function eventOf(events: Events, one: StoredNotification): Event {
  const content = contentOf(one);
  const event = [...events.values()].find(({ transfer }) => contentOf(transfer) === content);
  if (event === undefined) throw new Error(`no transfer has the content of notification ${one.id}`);
  return event;
}

/**
 * One in whose place the chain has other content that is not stored: it was changed, or its transaction was mined again
 * with another outcome and the receiver was not told.
 */
function judgeReplaced(one: StoredNotification, event: Event, due: Due | undefined): Difference {
  const { stored } = event;
  const block = { number: stored.number, hash: stored.hash };
  const repairs: Repair[] = [];
  if (isToBeDelivered(one)) repairs.push({ action: 'withdraw', ...rowOf(one), block });
  if (due !== undefined) repairs.push(creationOf(due));
  return {
    ...difference('changed', one, stored.number, changesOf(one, event).join(', ')),
    ...(repairs.length > 0 && { repairs }),
  };
}

function creationOf({ watch, event: { transfer, stored }, occurrence }: Due): Repair {
  return {
    ...{ action: 'create', watchedAddressId: watch.id, shardId: watch.shardId, transfer, occurrence },
    block: { number: stored.number, hash: stored.hash },
  };
}

/** Sent again on request, it is delivered whatever became of its block. */
const isToBeDelivered = ({ state, revision, redeliveryCount }: StoredNotification) =>
  (state === 'held' || state === 'waiting') && revision % 2 === 0 && redeliveryCount === 0;

/** A stored notification whose content is not on the chain; undefined when it counts elsewhere. */
function judgeStray(side: StoredSide, one: StoredNotification): Verdict | undefined {
  const event = side.events.get(keyOf(one));
  const own = side.blocks.get(one.blockNumber);
  const stored = event?.stored ?? own?.stored;
  if (stored === undefined) return undefined;
  // It was made before its block was stored: for another block of that height that was orphaned.
  const isOlder = one.createdAt < stored.storedAt;
  const isOfAnother = one.blockNumber !== stored.number && one.createdAt <= stored.storedAt;
  if (isOlder || isOfAnother) {
    // It counts once, with the block that it names.
    if (own === undefined) return undefined;
    if (!isToBeDelivered(one)) return 'dead_fork';
    const message = 'its block was orphaned, and it is still to be delivered';
    return { ...difference('unexpected', one, own.stored.number, message), ...withdrawalOf(one, own.stored) };
  }
  if (event !== undefined) return judgeReplaced(one, event, undefined);
  if (one.kind === 'internal' && own?.read.traced === false) return 'not_traced';
  const message = 'there is no such transfer on the chain';
  return { ...difference('unexpected', one, one.blockNumber, message), ...withdrawalOf(one, stored) };
}

function withdrawalOf(one: StoredNotification, { number, hash }: StoredBlock): Pick<Difference, 'repairs'> {
  if (!isToBeDelivered(one)) return {};
  return { repairs: [{ action: 'withdraw', ...rowOf(one), block: { number, hash } }] };
}

/** A notification that is not stored; undefined when the record was made after the block. */
function judgeMissing(due: Due, keptSince: Date): Verdict | undefined {
  const { watch, event } = due;
  const { transfer, stored } = event;
  if (isAfter(watch.createdAt, stored)) return undefined;
  if (!isBefore(watch.createdAt, stored)) return 'record_new';
  if (mayHaveChanged(watch, stored)) return 'record_changed';
  if (stored.storedAt < keptSince) return 'pruned';
  const { sender, receiver, amount, token } = transfer;
  const what = `${amount} from ${sender} to ${receiver ?? 'a new contract'}`;
  const place = { ...transfer, watchedAddressId: watch.id };
  return {
    ...difference('missing', place, stored.number, token === undefined ? what : `${what} of token ${token}`),
    repairs: [creationOf(due)],
  };
}

const isBefore = (time: Date, { storedAt }: StoredBlock) =>
  time.getTime() < storedAt.getTime() - ORDER_MS_MIN;
const isAfter = (time: Date, { storedAt }: StoredBlock) => time.getTime() > storedAt.getTime() + ORDER_MS_MIN;

const mayHaveChanged = ({ createdAt, updatedAt }: StoredWatch, stored: StoredBlock) =>
  updatedAt > createdAt && !isBefore(updatedAt, stored);

/** In words, each field that is not stored as it is on the chain. */
function changesOf(one: StoredNotification, { transfer, stored }: Event): string[] {
  const pairs = {
    block: [one.blockNumber, stored.number],
    sender: [one.sender, transfer.sender],
    receiver: [one.receiver, transfer.receiver],
    amount: [one.amount, transfer.amount],
    token: [one.token, transfer.token],
  };
  return Object.entries(pairs).flatMap(([field, [is, should]]) =>
    is === should ? [] : [`${field} ${is ?? 'none'} is stored, ${should ?? 'none'} is on the chain`],
  );
}

type Place = Pick<Transfer, 'txHash' | 'kind' | 'ordinal'> & { watchedAddressId: string; id?: number };

function difference(what: Difference['what'], place: Place, number: number, why: string): Difference {
  const { watchedAddressId, txHash, kind, ordinal, id } = place;
  const message = `${what}: ${kind} ${ordinal} of ${txHash} for ${watchedAddressId}: ${why}`;
  return {
    ...differenceOf(what, number, message),
    notification: { watchedAddressId, txHash, kind, ordinal, id },
  };
}

const keyOf = ({ txHash, kind, ordinal }: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'>) =>
  `${txHash} ${kind} ${ordinal}`;

/** A position of a record in a transaction, at which contents can differ. */
const placeOf = (place: Place) => `${place.watchedAddressId} ${keyOf(place)}`;
