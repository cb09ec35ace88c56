/**
 * The receivers of a watcher, and which of them fail.
 */
import { type Static, Type } from 'typebox';
import type { Db } from '../../store/db/db.ts';
import { type ReceiverQueue, readReceiverQueues } from '../../store/delivery/receiver-queues.ts';
import { listReceivers, PENDING_MAX, type Receiver } from '../../store/delivery/receivers.ts';
import { type Period, type ReceiverSums, readSumsOf } from '../../store/delivery/statistics.ts';
import type { Api, ApiOptions, InFlight } from '../context.ts';
import { createShardGate } from '../http/auth.ts';
import { cursorParameter, nextLink } from '../http/paging.ts';
import { oneOf, parameter, querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf, textOrNull } from './log-json.ts';
import { LIMIT, LIMIT_DEFAULT, parseReceiver } from './log-query.ts';
import { PERIOD, ReceiverSumsJson, receiverSumsJson } from './statistics-json.ts';

const PATH = '/api/notifications/receivers';

export const FAILING = parameter(
  'true or false',
  oneOf(['true', 'false']),
  Type.String({ description: '`true`: only failing receivers.' }),
);
/** Without a default: statistics are read only if they are wanted. */
export const STATISTICS_PERIOD = parameter(
  PERIOD.form,
  PERIOD.parse,
  Type.String({
    description: 'Adds `statistics` of this period, as in `GET /api/notifications/statistics/receivers`.',
  }),
);
const parameters = {
  ...{ failing: FAILING, period: STATISTICS_PERIOD, limit: LIMIT, cursor: cursorParameter(parseReceiver) },
};

export const ReceiverJson = Type.Object(
  {
    origin: Type.String({ description: 'Scheme, host and port of the webhook URLs.' }),
    failing: Type.Boolean({
      description:
        'Whether a failed notification waits for its retry, even if others succeed. If not, the fields below are null.',
    }),
    failing_since: textOrNull,
    failed_attempts: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Failed attempts since then.',
    }),
    last_attempt_at: Type.Union([Type.String(), Type.Null()], { description: 'The last failed attempt.' }),
    last_outcome: Type.Union([Type.String(), Type.Null()], {
      description: 'Its outcome, as in the delivery log.',
    }),
    last_status: Type.Union([Type.Integer(), Type.Null()]),
    pending: Type.Union([Type.Integer(), Type.Null()], {
      description: `Failed notifications that wait for a retry, counted up to ${PENDING_MAX}.`,
    }),
    pending_is_complete: Type.Union([Type.Boolean(), Type.Null()], {
      description: 'False if there are more.',
    }),
    oldest_pending_at: Type.Union([Type.String(), Type.Null()], {
      description: 'When the oldest of these notifications was created.',
    }),
    next_attempt_at: textOrNull,
    state: Type.Enum(['ok', 'failing', 'hung', 'suspended'], {
      description:
        '`hung`: it is failing, and did not answer the last failed attempt in time. `suspended`: its watcher is suspended.',
    }),
    waiting: Type.Integer({
      description: `Notifications that wait for an attempt or a retry, counted up to ${PENDING_MAX}.`,
    }),
    waiting_is_complete: Type.Boolean({ description: 'False if there are more.' }),
    oldest_waiting_at: Type.Union([Type.String(), Type.Null()], {
      description:
        'Since when the oldest of them waits. First attempts count from when they are due, retries from the creation of the notification.',
    }),
    under_way: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Attempts under way. Null if another process makes them.',
    }),
    concurrency: Type.Union([Type.Integer(), Type.Null()], {
      description:
        'Attempts that Chainbell makes at once, as learned from the answers of the receiver. Null while nothing is sent to it, and if another process sends.',
    }),
    statistics: Type.Optional(
      Type.Union([ReceiverSumsJson, Type.Null()], {
        description: 'With the parameter `period`: attempts of that period. Null if there were none.',
      }),
    ),
  },
  { title: 'Receiver' },
);

/** A receiver with its queue. `statistics`: null without attempts in the period, undefined without a period. */
export type QueuedReceiver = { receiver: Receiver; queue: ReceiverQueue; statistics?: ReceiverSums | null };

/** Adds what waits for the receivers and, given a period, their statistics. */
export async function withQueues(
  db: Db,
  receivers: readonly Receiver[],
  period?: Period,
): Promise<QueuedReceiver[]> {
  const queues = await readReceiverQueues(db, receivers);
  const sums = period === undefined ? undefined : await readSumsOf(db, receivers, period);
  return receivers.flatMap((receiver, index) => {
    const queue = queues[index];
    if (queue === undefined) return [];
    return { receiver, queue, ...(sums === undefined ? {} : { statistics: sums[index] ?? null }) };
  });
}

/** `inFlight`: undefined if this process delivers nothing. */
export function receiverJson(
  { receiver, queue, statistics }: QueuedReceiver,
  inFlight: InFlight | undefined,
): Static<typeof ReceiverJson> {
  const { watcherId, origin, failure } = receiver;
  const here = inFlight?.receiver(watcherId, origin);
  return {
    origin,
    failing: failure !== undefined,
    failing_since: failure?.since.toISOString() ?? null,
    failed_attempts: failure?.attempts ?? null,
    last_attempt_at: failure?.lastAttemptAt.toISOString() ?? null,
    last_outcome: failure?.lastOutcome ?? null,
    last_status: failure?.lastStatus ?? null,
    pending: failure === undefined ? null : Math.min(failure.pending, PENDING_MAX),
    pending_is_complete: failure === undefined ? null : failure.pending <= PENDING_MAX,
    oldest_pending_at: failure?.oldestPendingAt.toISOString() ?? null,
    next_attempt_at: failure?.nextAttemptAt.toISOString() ?? null,
    state: stateOf(receiver),
    waiting: Math.min(queue.waiting, PENDING_MAX),
    waiting_is_complete: queue.waiting <= PENDING_MAX,
    oldest_waiting_at: queue.oldestWaitingAt?.toISOString() ?? null,
    under_way: here?.open ?? (queue.isLeased ? null : 0),
    concurrency: here?.limit ?? null,
    ...(statistics === undefined ? {} : { statistics: statistics && receiverSumsJson(statistics) }),
  };
}

function stateOf({ isSuspended, failure }: Receiver): 'ok' | 'failing' | 'hung' | 'suspended' {
  if (isSuspended) return 'suspended';
  if (failure === undefined) return 'ok';
  return failure.lastOutcome === 'timeout' ? 'hung' : 'failing';
}

const example = {
  ...{ origin: 'https://hooks.acme.example:443', failing: true, failing_since: '2026-01-31T12:00:00.000Z' },
  ...{ failed_attempts: 41, last_attempt_at: '2026-01-31T14:11:03.000Z' },
  ...{ last_outcome: 'http_5xx', last_status: 503, pending: 12, pending_is_complete: true },
  ...{ oldest_pending_at: '2026-01-31T11:59:58.000Z', next_attempt_at: '2026-01-31T14:12:00.000Z' },
  ...{ state: 'failing', waiting: 12, waiting_is_complete: true },
  ...{ oldest_waiting_at: '2026-01-31T11:59:58.000Z', under_way: 0, concurrency: null },
};
const operation = {
  summary: 'List receivers, and which of them fail',
  description: 'Sorted by origin. A receiver is listed once a watched address uses it.',
  example: { success: true, data: [example] },
  answerHeaders: { link: '`rel="next"` leads to the next page.' },
};

export function addReceiverRoutes(api: Api, options: ApiOptions): void {
  const { database, inFlight } = options;
  const { onRequest, watcherOf } = createShardGate(options);

  api.get(
    PATH,
    {
      onRequest,
      schema: { querystring: querySchema(parameters), response: answerOf(Type.Array(ReceiverJson)) },
      config: { operation },
    },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const { failing, period, limit = LIMIT_DEFAULT, cursor } = readKeyed(request.query, parameters);
      const after = cursor === undefined ? undefined : { watcherId, origin: cursor };
      const receivers = await listReceivers(database, {
        watcherId,
        failing: failing === 'true',
        after,
        limit,
      });
      const last = receivers.at(-1);
      if (receivers.length === limit && last !== undefined)
        reply.header('link', nextLink(PATH, { ...request.query, cursor: last.origin }));
      const queued = await withQueues(database, receivers, period);
      return { success: true as const, data: queued.map((one) => receiverJson(one, inFlight)) };
    },
  );
}
