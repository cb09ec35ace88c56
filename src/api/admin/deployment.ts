/**
 * Operator routes: processes with their hosts, late watchers by name, and the receivers of all watchers.
 */
import { type Static, Type } from 'typebox';
import { listReceivers, type ReceiverCursor } from '../../store/delivery/receivers.ts';
import type { Api, ApiOptions, InFlight } from '../context.ts';
import { cursorParameter, nextLink } from '../http/paging.ts';
import { parameter, parseWhole, querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf } from '../notifications/log-json.ts';
import { LIMIT, LIMIT_DEFAULT } from '../notifications/log-query.ts';
import {
  FAILING,
  type QueuedReceiver,
  ReceiverJson,
  receiverJson,
  STATISTICS_PERIOD,
  withQueues,
} from '../notifications/receivers.ts';
import { DeploymentDetails } from '../ops/deployment-body.ts';

const RECEIVERS = '/api/admin/receivers';

const parameters = {
  failing: FAILING,
  period: STATISTICS_PERIOD,
  watcher_id: parameter(
    'the id of a watcher',
    parseWhole,
    Type.String({ description: 'Only receivers of this watcher.' }),
  ),
  limit: LIMIT,
  cursor: cursorParameter(parseCursor),
};
const WatcherReceiver = Type.Object(
  {
    watcher_id: Type.Integer(),
    watcher: Type.String(),
    suspended: Type.Boolean({
      description:
        'The watcher is suspended, so nothing is sent and none of its receivers counts as failing.',
    }),
    ...ReceiverJson.properties,
  },
  { title: 'WatcherReceiver' },
);

/** A receiver with its watcher. */
export function watcherReceiverJson(
  one: QueuedReceiver,
  inFlight: InFlight | undefined,
): Static<typeof WatcherReceiver> {
  const { watcherId, watcherName, isSuspended } = one.receiver;
  return {
    ...{ watcher_id: watcherId, watcher: watcherName, suspended: isSuspended },
    ...receiverJson(one, inFlight),
  };
}

const AT = '2026-01-31T12:00:00.000Z';
const receiver = {
  ...{ watcher_id: 7, watcher: 'acme', suspended: false },
  ...{ origin: 'https://hooks.acme.example:443', failing: true },
  ...{ failing_since: AT, failed_attempts: 41, last_attempt_at: AT, last_outcome: 'http_5xx' },
  ...{ last_status: 503, pending: 12, pending_is_complete: true, oldest_pending_at: AT, next_attempt_at: AT },
  ...{ state: 'failing', waiting: 12, waiting_is_complete: true, oldest_waiting_at: AT },
  ...{ under_way: 0, concurrency: null },
};
const operations = {
  receivers: {
    summary: 'List the receivers of all watchers, and which of them fail',
    description: 'Sorted by watcher and origin.',
    example: { success: true, data: [receiver] },
    answerHeaders: { link: '`rel="next"` leads to the next page.' },
  },
  deployment: {
    summary: 'Show processes with their hosts, and late watchers',
    example: {
      success: true,
      data: {
        processes: [
          {
            ...{ id: '1b9d6bcd', roles: ['api'], version: '0.1.0', state: 'running', error: null },
            ...{ started_at: AT, seen_at: AT, follower: null, host: 'api-1', pid: 17 },
          },
        ],
        late_watchers: [{ watcher_id: 7, watcher: 'acme', oldest_due_at: AT, seconds: 312.5 }],
      },
    },
  },
};

export function addAdminDeploymentRoutes(api: Api, { database, ops, inFlight }: ApiOptions): void {
  api.get(
    RECEIVERS,
    {
      schema: { querystring: querySchema(parameters), response: answerOf(Type.Array(WatcherReceiver)) },
      config: { operation: operations.receivers },
    },
    async ({ query }, reply) => {
      const given = readKeyed(query, parameters);
      const { watcher_id: watcherId, period, limit = LIMIT_DEFAULT, cursor: after } = given;
      const failing = given.failing === 'true';
      const receivers = await listReceivers(database, { watcherId, failing, after, limit });
      const last = receivers.at(-1);
      if (receivers.length === limit && last !== undefined)
        reply.header('link', nextLink(RECEIVERS, { ...query, cursor: `${last.watcherId} ${last.origin}` }));
      const queued = await withQueues(database, receivers, period);
      return { success: true as const, data: queued.map((one) => watcherReceiverJson(one, inFlight)) };
    },
  );

  api.get(
    '/api/admin/deployment',
    { schema: { response: answerOf(DeploymentDetails) }, config: { operation: operations.deployment } },
    async () => ({ success: true as const, data: await ops.details() }),
  );
}

function parseCursor(text: string): ReceiverCursor | undefined {
  const [, watcherId, origin] = /^(\d{1,15}) ([^\s\p{Cc}]+)$/u.exec(text) ?? [];
  if (watcherId === undefined || origin === undefined) return undefined;
  return { watcherId: Number(watcherId), origin };
}
