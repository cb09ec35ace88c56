/**
 * Attempts as the text of server-sent events, from an id on and for as long as the client stays. A bell wakes the stream when
 * attempts are settled.
 */
import { type Static, Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import { createWake } from '../../core/loop.ts';
import { deliveryStatuses } from '../../domain/delivery-status.ts';
import type { Db } from '../../store/db/db.ts';
import { type AttemptEvent, listAttemptEvents } from '../../store/delivery/attempt-events.ts';
import { createSafeWatermark, readLastId } from '../../store/delivery/attempts.ts';
import type { ApiOptions } from '../context.ts';
import { AttemptJson, attemptJson, textOrNull } from './log-json.ts';

/** Finds attempts of which no notice came. */
const POLL_MS = 500;
/** How soon to look again for attempts that wait for other transactions, which take milliseconds. */
const PENDING_MS = 20;
/** The least time between two looks of a stream. Attempts that are settled meanwhile are sent together. */
const LOOK_MS_MIN = 40;
/** With many open streams each looks less often, so that all together look at most a hundred times a second. */
const LOOK_MS_PER_STREAM = 10;
/** Attempts in one read: about 1 MiB at most, because each has up to 1 KiB of the receiver's answer. */
const PAGE_ATTEMPTS = 500;
/**
 * Written at once, or one event. JSON takes six characters for a control character, so the events of a read can be several MiB, of
 * which a client that reads slowly holds up only this much.
 */
const WRITTEN_CHARACTERS_MAX = 256 * 1024;
/** Common load balancers close a connection that is silent for a minute. */
const HEARTBEAT_MS = 15_000;
/** How long a stream goes on after its key was revoked, or its watcher deleted. */
const CHECK_MS = 2_500;
const RECONNECT_MS = 2_000;

const AttemptedJson = Type.Object(
  {
    status: Type.Enum([...deliveryStatuses]),
    type: Type.String(),
    sender: Type.String(),
    receiver: Type.String(),
    amount: Type.String(),
    asset: Type.String(),
    hash: Type.String(),
    block_number: Type.Integer(),
    origin: textOrNull,
    watched_address_id: Type.String(),
    watched_address: textOrNull,
    created_at: Type.String(),
    retry_count: Type.Integer(),
    next_retry_at: textOrNull,
  },
  { title: 'AttemptedNotification' },
);
/** The data of an event. */
export const EventJson = Type.Object(
  {
    ...AttemptJson.properties,
    notification: Type.Union([AttemptedJson, Type.Null()], {
      description: 'The notification after the attempt. Null if retention has deleted it.',
    }),
  },
  { title: 'AttemptEvent' },
);

export type Following = {
  /** All watchers if undefined. */
  watcherId: number | undefined;
  /** The id of the last event that the client has; undefined to begin with new attempts. */
  after: number | undefined;
  onlyFailures: boolean;
  /** The data of an event. */
  toJson(event: AttemptEvent): object;
  /** Whether the client may still read the stream. */
  isAllowed(): Promise<boolean>;
  signal: AbortSignal;
};

/** Creates streams that share one reader of the safe watermark. */
export function createAttemptEvents({
  database,
  clock,
  attemptBell,
}: Pick<ApiOptions, 'database' | 'clock' | 'attemptBell'>) {
  const safeWatermark = createSafeWatermark(database);
  let openCount = 0;
  const lookMs = () => Math.min(Math.max(LOOK_MS_MIN, openCount * LOOK_MS_PER_STREAM), POLL_MS);

  /** The id with which a stream begins: once every outcome that is stored later is certain to appear. */
  async function findStart(signal: AbortSignal): Promise<number | undefined> {
    // A separate reader of the safe watermark, because the shared reader may hold an old value.
    const ownWatermark = createSafeWatermark(database);
    let start = await ownWatermark();
    while (start === undefined && !signal.aborted) {
      await clock.wait(PENDING_MS, signal);
      start = await ownWatermark();
    }
    return start;
  }

  return async function* follow(following: Following): AsyncGenerator<string> {
    const { watcherId, onlyFailures, signal } = following;
    const wake = createWake(clock);
    const leave = attemptBell.listen(watcherId, wake.ring);
    openCount += 1;
    try {
      let last = following.after ?? (await findStart(signal));
      let spokeMs = clock.steadyMs();
      let checkedMs = spokeMs;
      yield `retry: ${RECONNECT_MS}\n\n`;
      while (last !== undefined && !signal.aborted) {
        const lookedMs = clock.steadyMs();
        const upTo: number = Math.max(last, (await safeWatermark()) ?? last);
        const page: { events: AttemptEvent[]; last: number } =
          upTo === last
            ? { events: [], last }
            : await listAttemptEvents(database, watcherId, {
                ...{ after: last, upTo, onlyFailures, limit: PAGE_ATTEMPTS },
              });
        last = page.last;
        const nowMs = clock.steadyMs();
        if (page.events.length > 0 || nowMs - spokeMs >= HEARTBEAT_MS) {
          spokeMs = nowMs;
          if (page.events.length === 0) yield ': heartbeat\n\n';
          else yield* textOf(page.events, following.toJson);
        }
        if (nowMs - checkedMs >= CHECK_MS) {
          checkedMs = nowMs;
          if (!(await following.isAllowed())) return;
        }
        if (last < upTo) continue;
        await wake.wait(safeWatermark.isPending() ? PENDING_MS : POLL_MS, signal);
        await clock.wait(Math.max(0, lookedMs + lookMs() - clock.steadyMs()), signal);
      }
    } finally {
      openCount -= 1;
      leave();
    }
  };
}

/** @throws Fault `invalid` */
export function parseLastEventId(id: string | string[] | undefined): number | undefined {
  if (id === undefined) return undefined;
  if (typeof id === 'string' && /^\d{1,15}$/.test(id)) return Number(id);
  throw invalidId('must be the id of an event of this stream');
}

/** @throws Fault `invalid` for an id above every assigned one: a stream that waited for it would leave out all attempts until then. */
export async function requireAssigned(db: Db, id: number): Promise<void> {
  if (id > (await readLastId(db)).id)
    throw invalidId(
      'is above the id of every event, so the database was replaced or restored. Connect without it to begin with new attempts',
    );
}

const invalidId = (message: string): Fault =>
  new Fault('invalid', 'Invalid request', { problems: [{ path: '/last-event-id', message }] });

/** Whole events, in parts of at most `WRITTEN_CHARACTERS_MAX`. */
function* textOf(events: readonly AttemptEvent[], toJson: Following['toJson']): Generator<string> {
  let part = '';
  for (const event of events) {
    const text = `id: ${event.attempt.id}\nevent: attempt\ndata: ${JSON.stringify(toJson(event))}\n\n`;
    if (part !== '' && part.length + text.length > WRITTEN_CHARACTERS_MAX) {
      yield part;
      part = '';
    }
    part += text;
  }
  yield part;
}

export function eventJson(
  { attempt, notification }: AttemptEvent,
  nativeSymbol: string,
): Static<typeof EventJson> {
  return {
    ...attemptJson(attempt),
    notification:
      notification === undefined
        ? null
        : {
            ...{ status: notification.status, type: notification.type },
            ...{ sender: notification.sender, receiver: notification.receiver ?? '' },
            ...{ amount: notification.amount.toString(), asset: notification.token ?? nativeSymbol },
            ...{ hash: notification.hash, block_number: notification.blockNumber },
            origin: notification.origin ?? null,
            watched_address_id: notification.watchedAddressId,
            watched_address: notification.watchedAddress ?? null,
            created_at: notification.createdAt.toISOString(),
            retry_count: notification.retryCount,
            next_retry_at: notification.nextRetryAt?.toISOString() ?? null,
          },
  };
}
