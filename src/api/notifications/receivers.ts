/**
 * The receivers of a watcher, and which of them fail.
 */
import { type Static, Type } from 'typebox';
import { listReceivers, PENDING_MAX, type Receiver } from '../../store/delivery/receivers.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { cursorParameter, nextLink } from '../http/paging.ts';
import { oneOf, parameter, querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf, textOrNull } from './log-json.ts';
import { LIMIT, LIMIT_DEFAULT } from './log-query.ts';

const PATH = '/api/notifications/receivers';

/** Undefined for a text with characters that no origin contains. */
const parseOrigin = (text: string) => (/[\s\p{Cc}]/u.test(text) ? undefined : text);
export const FAILING = parameter(
  'true or false',
  oneOf(['true', 'false']),
  Type.String({ description: '`true`: only failing receivers.' }),
);
const parameters = { failing: FAILING, limit: LIMIT, cursor: cursorParameter(parseOrigin) };

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
  },
  { title: 'Receiver' },
);

export function receiverJson({ origin, failure }: Receiver): Static<typeof ReceiverJson> {
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
  };
}

const example = {
  ...{ origin: 'https://hooks.acme.example:443', failing: true, failing_since: '2026-01-31T12:00:00.000Z' },
  ...{ failed_attempts: 41, last_attempt_at: '2026-01-31T14:11:03.000Z' },
  ...{ last_outcome: 'http_5xx', last_status: 503, pending: 12, pending_is_complete: true },
  ...{ oldest_pending_at: '2026-01-31T11:59:58.000Z', next_attempt_at: '2026-01-31T14:12:00.000Z' },
};
const operation = {
  summary: 'List receivers, and which of them fail',
  description: 'Sorted by origin. A receiver is listed once a watched address uses it.',
  example: { success: true, data: [example] },
  answerHeaders: { link: '`rel="next"` leads to the next page.' },
};

export function addReceiverRoutes(api: Api, options: ApiOptions): void {
  const { database } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);

  api.get(
    PATH,
    {
      onRequest,
      schema: { querystring: querySchema(parameters), response: answerOf(Type.Array(ReceiverJson)) },
      config: { operation },
    },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const { failing, limit = LIMIT_DEFAULT, cursor } = readKeyed(request.query, parameters);
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
      return { success: true as const, data: receivers.map(receiverJson) };
    },
  );
}
