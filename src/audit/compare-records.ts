/**
 * Compares the notifications of blocks with those that watched addresses must have got: all of them at once, or those of one block in
 * parts, each of some watched addresses, because one watcher can have a million of them with the same address.
 */
import { sidesOf } from '../domain/block.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import {
  hasReorgs,
  listNotificationsOf,
  listSentOrphans,
  listWatchesById,
  listWatchesOf,
  type RecordKey,
  type RecordRange,
  type SentOrphan,
  type StoredBlock,
  type StoredNotification,
  type StoredWatch,
} from '../store/audit/comparison.ts';
import { listFirstInSequence, listLanesById } from '../store/audit/delivery-state.ts';
import { findStoredBefore } from '../store/blocks/blocks.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Db } from '../store/db/db.ts';
import { readClockState } from '../store/deployment/clock-steps.ts';
import { REINCLUSION_MS } from '../store/matching/earlier.ts';
import {
  type ComparisonOutcome,
  type Events,
  type ExpectedNotification,
  eventsOf,
  listExpected,
  notificationKeysOf,
} from './compare.ts';
import type { DeliverySide } from './compare-delivery.ts';
import { compareNotifications } from './compare-notifications.ts';

/**
 * Rows of one comparison. If there are more, blocks are compared one by one, and notifications of one block in parts. A block is not
 * compared if it has more of one watched address, more wrong ones, or more swaps or awards.
 */
export const ROWS_MAX = 100_000;
/** How long the release of notifications may take that have their confirmations, if a watcher has millions of them. */
const RELEASE_MS_MAX = 10 * 60_000;

export type RecordOptions = {
  /** The service's settings: when a notification may be sent, and the delay after failure number n (the first is 1). */
  confirmations: number;
  retryDelayMs(failureCount: number): number;
  /** Notifications from before this time may have been deleted. */
  keptSince: Date;
  /** The server that the service writes, if the stored data is read from a replica. Its clock and locks count. */
  primary?: Db | undefined;
  rowsMax: number;
};

type Blocks = {
  span: { from: number; to: number };
  /** The blocks of the span that are stored as they are on the chain. */
  blocks: ReadonlyMap<number, { read: ReadBlock; stored: StoredBlock }>;
};

export async function compareRecords(
  snapshot: Db,
  { span, blocks, ...options }: Blocks & RecordOptions,
): Promise<ComparisonOutcome[] | 'too many'> {
  const events = eventsOf([...blocks.values()]);
  const lastStep = (await readClockState(snapshot)).last;
  const keptSince = await findKeptSince(snapshot, blocks, options.keptSince);
  const outcomes: ComparisonOutcome[] = [];
  let differences = 0;
  let after: RecordKey | undefined;
  do {
    const part = await readPart(snapshot, { span, events, rowsMax: options.rowsMax }, { after });
    if (part === 'too many' || (part.upTo !== undefined && span.from < span.to)) return 'too many';
    const { expected, notifications, told } = part;
    const watches = await listWatchesById(snapshot, ownersOf(notifications));
    const compared = compareNotifications({
      ...{ blocks, events, expected, notifications, told, keptSince, lastStep },
      watches: new Map(watches.map((watch) => [watch.id, watch])),
      delivery: await readDelivery(snapshot, { notifications, watches }, options),
    });
    for (const outcome of compared) {
      outcomes.push(outcome);
      if (typeof outcome !== 'string') differences += 1;
    }
    if (differences > options.rowsMax) return 'too many';
    after = part.upTo;
  } while (after !== undefined);
  return outcomes;
}

/**
 * From when on blocks must have been stored for all of their notifications to be kept. These are deleted by the time of their creation,
 * which a reorg that moves them to another block doesn't change.
 */
async function findKeptSince(snapshot: Db, blocks: Blocks['blocks'], keptSince: Date): Promise<Date> {
  const movedUntil = new Date(keptSince.getTime() + REINCLUSION_MS);
  const times = Array.from(blocks.values(), ({ stored }) => stored.storedAt.getTime());
  const doubtful = times.filter((time) => time >= keptSince.getTime() && time < movedUntil.getTime());
  if (doubtful.length === 0) return keptSince;
  const from = new Date(Math.min(...doubtful) - REINCLUSION_MS);
  const isMoved = await hasReorgs(snapshot, { from, to: new Date(Math.max(...doubtful)) });
  return isMoved ? movedUntil : keptSince;
}

/** `upTo`: its last watched address, if others may follow. */
type Part = {
  expected: readonly ExpectedNotification[];
  notifications: readonly StoredNotification[];
  told: readonly SentOrphan[];
  upTo: RecordKey | undefined;
};

/** The first watched addresses of a range that have up to `rowsMax` rows of each kind; 'too many' if one has more. */
async function readPart(
  snapshot: Db,
  side: { span: Blocks['span']; events: Events; rowsMax: number },
  { after, upTo }: RecordRange,
): Promise<Part | 'too many'> {
  const { span, events, rowsMax } = side;
  const addresses = new Set([...events.values()].flatMap(({ transfer }) => sidesOf(transfer)));
  const watching = await listWatchesOf(snapshot, [...addresses], rowsMax, { after, upTo });
  let own = watching;
  let expected = listExpected(events, own, rowsMax);
  for (; expected.length > rowsMax; expected = listExpected(events, own, rowsMax)) {
    if (own.length === 1) return 'too many';
    own = own.slice(0, Math.ceil(own.length / 2));
  }
  const last = own.at(-1);
  const isCut = own.length < watching.length || own.length === rowsMax;
  const range = { after, upTo: isCut && last !== undefined ? recordOf(last.shardId, last.id) : upTo };
  const places = notificationKeysOf(expected);
  const notifications = await listNotificationsOf(snapshot, span, places, rowsMax, range);
  const told = await listSentOrphans(snapshot, span, places, rowsMax, range);
  const full = [notifications, told].find((rows) => rows.length === rowsMax);
  if (full === undefined) return { expected, notifications, told, upTo: range.upTo };
  const cutId = full.at(-1)?.watchedAddressId;
  const whole = full.findLast(({ watchedAddressId }) => watchedAddressId !== cutId);
  if (whole === undefined) return 'too many';
  return readPart(snapshot, side, { after, upTo: recordOf(whole.shardId, whole.watchedAddressId) });
}

const recordOf = (shardId: number, watchedAddressId: string): RecordKey => ({ shardId, watchedAddressId });

const ownersOf = (notifications: readonly StoredNotification[]): StoredNotification[] => [
  ...new Map(notifications.map((one) => [one.watchedAddressId, one])).values(),
];

/** The data that decides whether these notifications will be delivered. */
async function readDelivery(
  snapshot: Db,
  {
    notifications,
    watches,
  }: { notifications: readonly StoredNotification[]; watches: readonly StoredWatch[] },
  { confirmations, retryDelayMs, primary }: RecordOptions,
): Promise<DeliverySide> {
  const now = await readTime(primary ?? snapshot);
  const pending = notifications.filter(({ state }) => state === 'held' || state === 'waiting');
  const laneIds = new Set(pending.map(({ laneId }) => laneId));
  const pendingTurns = new Set(
    pending.flatMap(({ sequence, watchedAddressId }) => (sequence === undefined ? [] : [watchedAddressId])),
  );
  const ordered = watches.flatMap(({ shardId, id }) =>
    pendingTurns.has(id) ? [{ shardId, watchedAddressId: id }] : [],
  );
  const lanes = await listLanesById(snapshot, [...laneIds], { now, primary });
  return {
    ...{ now, confirmations, retryDelayMs },
    releasedNumber: await findStoredBefore(snapshot, new Date(now.getTime() - RELEASE_MS_MAX)),
    lanes: new Map(lanes.map((lane) => [lane.id, lane])),
    firstInSequence: await listFirstInSequence(snapshot, ordered),
  };
}
