/**
 * What the chain says of some blocks against what is stored of them: each notification that must be there is there once,
 * as it should be, and no other is. Pure.
 */
import { sidesOf, type Transfer } from '../core/block.ts';
import type { Hash } from '../core/hex.ts';
import type { NotificationPlace, StoredBlock, StoredNotification, StoredWatch } from '../store/comparison.ts';
import type { ReadBlock } from './read-ahead.ts';

/** `hash`, `proved`, `missing` and so on: docs/operations.md says what each means. */
export type Difference = {
  what: 'hash' | 'not_stored' | 'not_proved' | 'proved' | 'missing' | 'unexpected' | 'changed';
  block: number;
  /** One line for people. */
  message: string;
  notification?: Pick<StoredNotification, 'watchedAddressId' | 'txHash' | 'kind' | 'ordinal'>;
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
};
export type UndecidedReason = keyof typeof nothingUndecided;

export type Verdict = Difference | UndecidedReason | 'equal';

/** A transfer with the block in which it happened, on the chain and as stored. */
type Event = { transfer: Transfer; stored: StoredBlock };

/** Transfers by their place, each in the first block that has its transaction, as the commit does it. */
export type Events = ReadonlyMap<string, Event>;

/** A notification that a record as it is now would get. */
export type Due = { watch: StoredWatch; event: Event };

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
    ...(stored.parentHash === parentHash ? [] : [differenceOf('hash', number, parent)]),
    ...(isProofOn && stored.proved !== proved ? [differenceOf('proved', number, proof)] : []),
    ...(isProofOn ? [] : (['proof_off'] as const)),
  ];
}

const told = (proved: boolean) => (proved ? 'proved' : 'not proved');

export function differenceOf(what: Difference['what'], block: number, message: string): Difference {
  return { what, block, message: `block ${block}: ${message}` };
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

/** Who must be told of what, by notification, if the records were always as they are now; one too many at most. */
export function dueOf(events: Events, watches: readonly StoredWatch[], limit: number): Map<string, Due> {
  const byAddress = Map.groupBy(watches, ({ address }) => address);
  const due = new Map<string, Due>();
  for (const event of events.values()) {
    const { transfer } = event;
    for (const watch of sidesOf(transfer).flatMap((side) => byAddress.get(side) ?? [])) {
      if (due.size > limit) return due;
      if (isWanted(watch, transfer))
        due.set(notificationKey({ ...transfer, watchedAddressId: watch.id }), { watch, event });
    }
  }
  return due;
}

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
export function placesOf(due: ReadonlyMap<string, Due>): NotificationPlace[] {
  const places = new Map<string, NotificationPlace>();
  for (const { watch, event } of due.values()) {
    const { txHash } = event.transfer;
    places.set(`${watch.id} ${txHash}`, { shardId: watch.shardId, watchedAddressId: watch.id, txHash });
  }
  return [...places.values()];
}

export type StoredSide = {
  /** The blocks that are compared. */
  blocks: ReadonlyMap<number, { read: ReadBlock; stored: StoredBlock }>;
  events: Events;
  due: ReadonlyMap<string, Due>;
  /** Every record that a notification of these blocks belongs to, and that still exists. */
  watches: ReadonlyMap<string, StoredWatch>;
  notifications: readonly StoredNotification[];
  /** What was done before this may have been deleted. */
  keptSince: Date;
};

/** One verdict for each notification that is stored or must be. */
export function* compareNotifications(side: StoredSide): Generator<Verdict> {
  const met = new Set<string>();
  for (const one of side.notifications) {
    const key = notificationKey(one);
    met.add(key);
    const verdict = judgeStored(side, one, side.due.get(key));
    if (verdict !== undefined) yield verdict;
  }
  for (const [key, due] of side.due) {
    const verdict = met.has(key) ? undefined : judgeMissing(due, side.keptSince);
    if (verdict !== undefined) yield verdict;
  }
}

/** A stored notification: did it happen so, and was the record to be told? undefined when it counts elsewhere. */
function judgeStored(side: StoredSide, one: StoredNotification, due: Due | undefined): Verdict | undefined {
  const event = side.events.get(keyOf(one));
  const own = side.blocks.get(one.blockNumber);
  const stored = event?.stored ?? own?.stored;
  if (stored === undefined) return undefined;
  // It was made before its block was stored: for another block of that height, and tried before that one died.
  const isOlder = one.createdAt < stored.storedAt;
  if (event === undefined) {
    if (one.kind === 'internal' && own?.read.traced === false) return 'not_traced';
    return isOlder
      ? 'dead_fork'
      : difference('unexpected', one, one.blockNumber, 'there is no such transfer on the chain');
  }
  const changes = changesOf(one, event);
  if (changes.length > 0) {
    const isOfAnother = isOlder || (one.blockNumber !== stored.number && one.createdAt <= stored.storedAt);
    if (!isOfAnother) return difference('changed', one, stored.number, changes.join(', '));
    // It counts once, with the block that it names.
    return own === undefined ? undefined : 'dead_fork';
  }
  const watch = side.watches.get(one.watchedAddressId);
  if (watch === undefined) return 'record_deleted';
  if (due === undefined)
    return mayHaveChanged(watch, stored)
      ? 'record_changed'
      : difference('unexpected', one, stored.number, 'its record does not watch this');
  if (!isOlder && isAfter(watch.createdAt, stored))
    return difference('unexpected', one, stored.number, 'its record was made after the block');
  return 'equal';
}

/** A notification that is not stored; undefined when the record was made after the block. */
function judgeMissing({ watch, event }: Due, keptSince: Date): Verdict | undefined {
  const { transfer, stored } = event;
  if (isAfter(watch.createdAt, stored)) return undefined;
  if (!isBefore(watch.createdAt, stored)) return 'record_new';
  if (mayHaveChanged(watch, stored)) return 'record_changed';
  if (stored.storedAt < keptSince) return 'pruned';
  const { sender, receiver, amount, token } = transfer;
  const what = `${amount} from ${sender} to ${receiver ?? 'a new contract'}`;
  const place = { ...transfer, watchedAddressId: watch.id };
  return difference(
    'missing',
    place,
    stored.number,
    token === undefined ? what : `${what} of token ${token}`,
  );
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

type Place = { watchedAddressId: string; txHash: Hash; kind: Transfer['kind']; ordinal: number };

function difference(what: Difference['what'], place: Place, number: number, why: string): Difference {
  const { watchedAddressId, txHash, kind, ordinal } = place;
  const message = `${what}: ${kind} ${ordinal} of ${txHash} for ${watchedAddressId}: ${why}`;
  return {
    ...differenceOf(what, number, message),
    notification: { watchedAddressId, txHash, kind, ordinal },
  };
}

const keyOf = ({ txHash, kind, ordinal }: Pick<Transfer, 'txHash' | 'kind' | 'ordinal'>) =>
  `${txHash} ${kind} ${ordinal}`;

const notificationKey = (place: Place) => `${place.watchedAddressId} ${keyOf(place)}`;
