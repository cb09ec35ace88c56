/**
 * Compares stored notifications with those that follow from the chain. Each must be stored exactly once and with the right
 * fields, and no others may be stored. Pure.
 */
import { contentOf, type Transfer } from '../domain/block.ts';
import { messageKind } from '../domain/message-kind.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { Repair } from '../store/audit/apply-repairs.ts';
import type { SentOrphan, StoredBlock, StoredNotification, StoredWatch } from '../store/audit/comparison.ts';
import {
  type ComparisonOutcome,
  type Difference,
  differenceOf,
  type Event,
  type Events,
  type ExpectedNotification,
  keyOf,
  type WrongNotification,
} from './compare.ts';
import {
  type DeliverySide,
  findDeliveryFault,
  mayHaveChangedSince,
  ORDER_MS_MIN,
} from './compare-delivery.ts';

export type StoredSide = {
  /** The blocks that are compared. */
  blocks: ReadonlyMap<number, { read: ReadBlock; stored: StoredBlock }>;
  events: Events;
  expected: readonly ExpectedNotification[];
  /** The existing records that notifications of these blocks belong to. */
  watches: ReadonlyMap<string, StoredWatch>;
  notifications: readonly StoredNotification[];
  /** Orphaned notifications that receivers may have seen. */
  told: readonly SentOrphan[];
  /** Notifications of blocks that were stored before this may have been deleted. */
  keptSince: Date;
  /** The last step of the database's clock; undefined if there was none. */
  lastStep?: ClockStep | undefined;
  delivery: DeliverySide;
};

/** How far the clock moved, and the time after it. */
type ClockStep = { ms: number; at: Date };

/** One outcome for each notification that is stored or must be stored. */
export function* compareNotifications(side: StoredSide): Generator<ComparisonOutcome> {
  const { pairs, absent } = pairUp(side.notifications, side.expected);
  const events = new Map<string, Event>();
  for (const event of [...side.events.values()].reverse()) events.set(contentOf(event.transfer), event);
  const wanted = new Set(side.expected.map(({ watch, event }) => `${watch.id} ${contentOf(event.transfer)}`));
  /** Stored notifications whose content is not on the chain. */
  const strays = new Set<StoredNotification>();
  for (const one of side.notifications) {
    const expected = pairs.get(one);
    const event = side.events.get(keyOf(one)) ?? events.get(contentOf(one));
    if (expected !== undefined) yield judgeExpected(one, expected, side);
    else if (event === undefined || !events.has(contentOf(one))) strays.add(one);
    else {
      const isSurplus = wanted.has(`${one.watchedAddressId} ${contentOf(one)}`);
      yield judgeUnwanted(side, one, { event, isSurplus });
    }
  }
  const missing: ExpectedNotification[] = [];
  const straysAt = Map.groupBy(strays, placeOf);
  for (const expected of absent) {
    const place = placeOf({ ...expected.event.transfer, watchedAddressId: expected.watch.id });
    const stray = straysAt.get(place)?.shift();
    if (stray === undefined) missing.push(expected);
    else yield judgeReplaced(side, stray, expected.event, expected);
    if (stray !== undefined) strays.delete(stray);
  }
  /** Strays in whose place a receiver would credit a missing notification once more. */
  const creditedBefore = new Set<number>();
  const straysOf = Map.groupBy(strays, ({ watchedAddressId }) => watchedAddressId);
  const toldOf = Map.groupBy(side.told, ({ watchedAddressId }) => watchedAddressId);
  for (const expected of missing) {
    const { id } = expected.watch;
    const before = findTold(side, { strays: straysOf.get(id) ?? [], told: toldOf.get(id) ?? [] }, expected);
    if (before !== undefined) creditedBefore.add(before.id);
    const outcome = judgeMissing(expected, before, side);
    if (outcome !== undefined) yield outcome;
  }
  for (const stray of strays) {
    const outcome = judgeStray(side, stray);
    if (outcome === undefined) continue;
    const isCreditedBefore = typeof outcome !== 'string' && creditedBefore.has(stray.id);
    yield isCreditedBefore ? { ...outcome, mayCreditTwice: true } : outcome;
  }
}

/**
 * Pairs stored notifications with expected ones of the same identity (docs/explanation/reorgs.md). If the stored occurrence is wrong,
 * pairs those with the same ordinal, and then those in the same order.
 */
function pairUp(
  stored: readonly StoredNotification[],
  expected: readonly ExpectedNotification[],
): { pairs: Map<StoredNotification, ExpectedNotification>; absent: ExpectedNotification[] } {
  const pairs = new Map<StoredNotification, ExpectedNotification>();
  const open = Map.groupBy(expected, ({ watch, event }) => `${watch.id} ${contentOf(event.transfer)}`);
  const take = (one: StoredNotification, fits: (expected: ExpectedNotification) => boolean) => {
    const equal = open.get(`${one.watchedAddressId} ${contentOf(one)}`) ?? [];
    const found = equal.findIndex(fits);
    const [taken] = found === -1 ? [] : equal.splice(found, 1);
    if (taken !== undefined) pairs.set(one, taken);
  };
  for (const one of stored) take(one, ({ occurrence }) => occurrence === one.occurrence);
  for (const one of stored)
    if (!pairs.has(one)) take(one, ({ event }) => event.transfer.ordinal === one.ordinal);
  for (const one of stored) if (!pairs.has(one)) take(one, () => true);
  return { pairs, absent: [...open.values()].flat() };
}

/** Judges a stored notification that its record must get. */
function judgeExpected(
  one: StoredNotification,
  { watch, event: { stored } }: ExpectedNotification,
  { delivery, lastStep }: Pick<StoredSide, 'delivery' | 'lastStep'>,
): ComparisonOutcome {
  const isOlder = one.createdAt < stored.storedAt;
  const isLater = isAfter(watch.createdAt, stored) && !mayPrecedeStep(watch.createdAt, stored, lastStep);
  if (!isOlder && isLater)
    return difference('unexpected', one, stored.number, 'its watched address was created after the block');
  return judgeState(one, watch, { stored, delivery }) ?? 'equal';
}

/** Judges its block and its delivery; undefined if both are right. */
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
  const kind = isElsewhere ? 'changed' : 'delivery';
  return { ...difference(kind, one, stored.number, reasons.join(', ')), repairs: [repair] };
}

const rowOf = ({ shardId, id, version }: StoredNotification) => ({ shardId, id, version });

/** Judges a notification whose content is on the chain, but that its record, as it is stored now, would not get. */
function judgeUnwanted(
  side: StoredSide,
  one: StoredNotification,
  { event: { stored }, isSurplus }: { event: Event; isSurplus: boolean },
): ComparisonOutcome {
  const watch = side.watches.get(one.watchedAddressId);
  if (watch === undefined) return 'record_deleted';
  if (isSurplus) {
    const why = 'it is stored more often than it happened';
    return { ...difference('unexpected', one, stored.number, why), ...withdrawalOf(side, one, stored) };
  }
  if (!mayHaveChanged(watch, stored))
    return difference('unexpected', one, stored.number, 'its watched address does not ask for it');
  return judgeState(one, watch, { stored, delivery: side.delivery }) ?? 'record_changed';
}

/**
 * Judges a notification in whose position the chain has other content: it was changed, or its transaction was mined again
 * with another result. `expected` is given if the other content is not stored.
 */
function judgeReplaced(
  side: StoredSide,
  one: StoredNotification,
  event: Event,
  expected?: ExpectedNotification,
): Difference {
  const { stored } = event;
  const withdrawal = withdrawalOf(side, one, stored);
  const changed = difference('changed', one, stored.number, changesOf(one, event).join(', '));
  if (expected === undefined) return { ...changed, ...withdrawal };
  const mayCreditTwice = withdrawal.told?.fate === 'kept';
  const creation = creationOf(expected, { mayCreditTwice, insteadOf: one.id });
  return {
    ...{ ...changed, ...withdrawal, ...creation },
    repairs: [...withdrawal.repairs, ...creation.repairs],
  };
}

function creationOf(
  { watch, event: { transfer, position, stored }, occurrence }: ExpectedNotification,
  { mayCreditTwice, insteadOf }: { mayCreditTwice: boolean; insteadOf?: number },
) {
  const repair: Repair = {
    ...{ action: 'create', watchedAddressId: watch.id, shardId: watch.shardId, address: watch.address },
    ...{ transfer, occurrence, position },
    ...{ block: { number: stored.number, hash: stored.hash }, mayCreditTwice, insteadOf },
  };
  return { repairs: [repair], amount: transfer.amount, ...(mayCreditTwice && { mayCreditTwice }) };
}

/** Judges a notification whose content is not on the chain; undefined if another block's comparison counts it. */
function judgeStray(side: StoredSide, one: StoredNotification): ComparisonOutcome | undefined {
  const event = side.events.get(keyOf(one));
  const own = side.blocks.get(one.blockNumber);
  const stored = event?.stored ?? own?.stored;
  if (stored === undefined) return undefined;
  if (event === undefined && one.kind === 'internal' && own?.read.traced === false) return 'not_traced';
  if (isOfOrphan(one, stored)) {
    // Count it only once, with the block that it names.
    if (own === undefined) return undefined;
    const withdrawal = withdrawalOf(side, one, own.stored);
    const isOpen = (one.state === 'held' || one.state === 'waiting') && messageKind(one) === 'transfer';
    if (!isOpen && withdrawal.told?.fate !== 'taken_back') return 'orphaned';
    const message = isOpen ? 'it is still to be delivered' : 'its receiver got no removal notice';
    return {
      ...difference('unexpected', one, own.stored.number, `its block was orphaned, and ${message}`),
      ...withdrawal,
    };
  }
  if (event !== undefined) return judgeReplaced(side, one, event);
  const message = 'there is no such transfer on the chain';
  return { ...difference('unexpected', one, one.blockNumber, message), ...withdrawalOf(side, one, stored) };
}

/** Whether it was made before its block was stored, so for an orphaned block of the same height. */
const isOfOrphan = (one: StoredNotification, { number, storedAt }: StoredBlock) =>
  one.createdAt < storedAt || (one.blockNumber !== number && one.createdAt <= storedAt);

/** Ends the wrong notification as a reorg would. */
function withdrawalOf(side: StoredSide, one: StoredNotification, { number, hash }: StoredBlock) {
  const { id, amount, state, revision, mayBeSeen, processedAt } = one;
  const hasRemoved = side.watches.get(one.watchedAddressId)?.settings.removed === true;
  const fate: WrongNotification['fate'] = !mayBeSeen ? 'unseen' : hasRemoved ? 'taken_back' : 'kept';
  const told: WrongNotification = {
    ...{ id, amount, state, fate, noticeRevision: revision + 1 },
    acknowledgedAt: state === 'processed' ? processedAt : undefined,
  };
  const repair: Repair = { action: 'orphan', ...rowOf(one), block: { number, hash } };
  return { repairs: [repair], ...(messageKind({ revision }) === 'transfer' && { told }) };
}

/**
 * Finds a notification that the receiver of a missing one may have seen instead, without a removal notice: other content of
 * the transaction, or of the block, because the stored transaction hash may be wrong. `strays` and `told` are of its watched address.
 */
function findTold(
  side: StoredSide,
  { strays, told: others }: { strays: readonly StoredNotification[]; told: readonly SentOrphan[] },
  { watch, event: { transfer, stored } }: ExpectedNotification,
): WrongNotification | undefined {
  if (watch.settings.removed) return undefined;
  const fits = (one: Pick<SentOrphan, 'txHash' | 'kind' | 'blockNumber'>, isOfBlock: boolean) =>
    (one.txHash === transfer.txHash && one.kind === transfer.kind) ||
    (isOfBlock && one.blockNumber === stored.number);
  const stray = strays.find(
    (one) => one.mayBeSeen && messageKind(one) === 'transfer' && fits(one, !isOfOrphan(one, stored)),
  );
  if (stray !== undefined) return withdrawalOf(side, stray, stored).told;
  const told = others.find((one) => fits(one, one.isOfBlock));
  if (told === undefined) return undefined;
  const { id, amount, state, processedAt } = told;
  return { id, amount, state, acknowledgedAt: processedAt, noticeRevision: 1, fate: 'kept' };
}

/** Judges a notification that is not stored; undefined if the record was created after the block. */
function judgeMissing(
  expected: ExpectedNotification,
  before: WrongNotification | undefined,
  { keptSince, lastStep }: Pick<StoredSide, 'keptSince' | 'lastStep'>,
): ComparisonOutcome | undefined {
  const { watch, event } = expected;
  const { transfer, stored } = event;
  if (isAfter(watch.createdAt, stored))
    return mayPrecedeStep(watch.createdAt, stored, lastStep) ? 'record_new' : undefined;
  if (!isBefore(watch.createdAt, stored)) return 'record_new';
  if (mayHaveChanged(watch, stored)) return 'record_changed';
  if (stored.storedAt < keptSince) return 'pruned';
  const { sender, receiver, amount, token } = transfer;
  const what = `${amount} from ${sender} to ${receiver ?? 'a new contract'}`;
  const place = { ...transfer, watchedAddressId: watch.id };
  return {
    ...difference('missing', place, stored.number, token === undefined ? what : `${what} of token ${token}`),
    ...creationOf(expected, { mayCreditTwice: before !== undefined }),
    ...(before !== undefined && { told: before }),
  };
}

const isBefore = (time: Date, { storedAt }: StoredBlock) =>
  time.getTime() < storedAt.getTime() - ORDER_MS_MIN;
const isAfter = (time: Date, { storedAt }: StoredBlock) => time.getTime() > storedAt.getTime() + ORDER_MS_MIN;

/**
 * Whether the clock was set back between this time and the storage of the block, so that the earlier one has the later time.
 * Only the last step is known.
 */
function mayPrecedeStep(time: Date, { storedAt }: StoredBlock, step: ClockStep | undefined): boolean {
  if (step === undefined || step.ms >= 0) return false;
  const atMs = step.at.getTime();
  return (
    storedAt.getTime() >= atMs - ORDER_MS_MIN &&
    time.getTime() > atMs - ORDER_MS_MIN &&
    time.getTime() <= atMs - step.ms + ORDER_MS_MIN
  );
}

const mayHaveChanged = (watch: StoredWatch, { storedAt }: StoredBlock) =>
  mayHaveChangedSince(watch, storedAt);

/** Describes each field that differs from the chain. */
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

function difference(kind: Difference['kind'], place: Place, number: number, why: string): Difference {
  const { watchedAddressId, txHash, ordinal, id } = place;
  const subject = `${nameOf(place)}, watched address ${watchedAddressId}`;
  const message = `${kind}: ${id === undefined ? '' : `notification ${id}, `}${subject}: ${why}`;
  return {
    ...differenceOf(kind, number, message),
    notification: { watchedAddressId, txHash, kind: place.kind, ordinal, id },
  };
}

function nameOf({ kind, ordinal, txHash }: Place): string {
  switch (kind) {
    case 'transaction':
      return `value of transaction ${txHash}`;
    case 'internal':
      return `internal transfer ${ordinal} of transaction ${txHash}`;
    case 'token':
      return `token transfer in log ${ordinal} of transaction ${txHash}`;
  }
}

/** The key of a record and a position in a transaction. */
const placeOf = (place: Place) => `${place.watchedAddressId} ${keyOf(place)}`;
