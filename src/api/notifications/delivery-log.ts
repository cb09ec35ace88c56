/**
 * Routes of a watcher's delivery log: its notifications, their delivery attempts, and redelivery of one or of all that match a
 * filter.
 */
import { type Static, Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import { messageKind } from '../../domain/message-kind.ts';
import type { Database } from '../../store/db/db.ts';
import { listAttempts } from '../../store/delivery/attempts.ts';
import {
  countMatches,
  findLogged,
  type LoggedNotification,
  listLog,
  MATCHES_MAX,
} from '../../store/delivery/log.ts';
import type { Scope } from '../../store/delivery/log-of-all.ts';
import { redeliverOne, redeliverStep } from '../../store/delivery/redelivery.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createShardGate, type WatcherGate } from '../http/auth.ts';
import { invalid } from '../http/errors.ts';
import { nextLink } from '../http/paging.ts';
import { parseWhole, querySchema, readKeyed } from '../http/parameters.ts';
import {
  AttemptJson,
  answerOf,
  attemptJson,
  BlockJson,
  blockJson,
  MessageJson,
  NotificationJson,
  notificationJson,
  textOrNull,
} from './log-json.ts';
import {
  countParameters,
  filterOf,
  formatRedeliveryCursor,
  LIMIT_DEFAULT,
  listParameters,
  pageParameters,
  readPage,
  redeliverParameters,
} from './log-query.ts';

const PATH = '/api/notifications/log';
/** Transactions in one bulk redelivery request, which take some seconds. */
const STEPS_MAX = 10;

const Params = Type.Object({ id: Type.String() });
export const One = Type.Object({
  ...NotificationJson.properties,
  attempts: Type.Array(AttemptJson),
  block: BlockJson,
  message: MessageJson,
});
export const Counted = Type.Object({
  count: Type.Integer({ description: `Counted up to ${MATCHES_MAX}.` }),
  is_complete: Type.Boolean({ description: 'False if there are or may be more.' }),
});
export const Redelivered = Type.Object({ redelivered: Type.Integer(), cursor: textOrNull });

const attempt = {
  id: 9_001,
  notification_id: 81_234,
  revision: 0,
  started_at: '2026-01-31T12:00:01.000Z',
  duration_ms: 38,
  requests: 1,
  outcome: 'success',
  status: 204,
  response: '',
};
const notification = {
  id: 81_234,
  ...{ watched_address_id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c00', watched_address: `0x${'22'.repeat(20)}` },
  hash: `0x${'9a'.repeat(32)}`,
  type: 'COIN_TRANSFER',
  sender: `0x${'11'.repeat(20)}`,
  receiver: `0x${'22'.repeat(20)}`,
  amount: '1500000000000000',
  asset: 'ETH',
  block_number: 19_000_000,
  state: 'processed',
  status: 'delivered',
  failures: 0,
  url: 'https://hooks.acme.example/deposits',
  origin: 'https://hooks.acme.example:443',
  confirmations: 3,
  confirmations_needed: 0,
  last_attempt: {
    ...{
      id: 9_001,
      started_at: '2026-01-31T12:00:01.000Z',
      duration_ms: 38,
      outcome: 'success',
      status: 204,
    },
  },
  revision: 0,
  orphaned: false,
  orphaned_at: null,
  orphaned_block: null,
  replaces: null,
  replaced_by: null,
  retry_count: 0,
  redelivery_count: 0,
  next_retry_at: null,
  created_at: '2026-01-31T12:00:00.000Z',
  processed_at: '2026-01-31T12:00:01.000Z',
};
const block = {
  ...{ number: 19_000_000, hash: `0x${'b1'.repeat(32)}`, mined_at: '2026-01-31T11:59:59.000Z' },
  ...{ confirmations: 3, is_final: false, is_orphaned: false },
};
const message = {
  body: '{"id":81234, …}',
  headers: { 'content-type': 'application/json', authorization: 'Bearer [redacted]', 'webhook-id': '81234' },
};
const answerHeaders = { link: '`rel="next"` leads to the next page.' };
const errors = { 404: 'Notification not found' };
const conflict = {
  ...errors,
  409: 'The notification cannot be delivered: its block lacks confirmations or was orphaned, or its watched address was deleted.',
};
export const operations = {
  list: {
    summary: 'List notifications, newest first',
    example: { success: true, data: [notification] },
    answerHeaders,
  },
  count: {
    summary: 'Count the notifications that match the filters',
    description: 'The count ends where it would take long. `is_complete` says whether it did.',
    example: { success: true, data: { count: 214, is_complete: true } },
  },
  get: {
    summary: 'Show a notification with its newest attempts, its block and its message',
    example: { success: true, data: { ...notification, attempts: [attempt], block, message } },
    answerHeaders,
    errors,
  },
  attempts: {
    summary: 'List the attempts of a notification, newest first',
    example: { success: true, data: [attempt] },
    answerHeaders,
    errors,
  },
  redeliver: {
    summary: 'Redeliver a notification',
    description: 'Sends it now, with the same id.',
    example: { success: true, data: { ...notification, state: 'waiting', redelivery_count: 1 } },
    errors: conflict,
  },
  redeliverMany: {
    summary: 'Redeliver all notifications that match the filters',
    description:
      'Give at least one filter. One request handles up to 10,000 notifications, so repeat it with the returned cursor until the cursor is null.',
    example: { success: true, data: { redelivered: 1_200, cursor: null } },
    answerHeaders: { link: '`rel="next"` continues.' },
  },
};

export function addDeliveryLogRoutes(api: Api, options: ApiOptions, current: ApiOptions): void {
  const gate = createShardGate(options);
  addList(api, current, gate);
  addCount(api, current, gate);
  addOne(api, options, gate);
  addAttempts(api, current, gate);
  addRedeliverOne(api, options, gate);
  addRedeliverMany(api, options, gate);
}

function addList(api: Api, options: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const { database } = options;
  api.get(
    PATH,
    {
      onRequest,
      schema: { querystring: querySchema(listParameters), response: answerOf(Type.Array(NotificationJson)) },
      config: { operation: operations.list },
    },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const given = readKeyed(request.query, listParameters);
      const filter = await filterOf(database, watcherId, given);
      const place = {
        order: 'newest first',
        after: given.cursor,
        limit: given.limit ?? LIMIT_DEFAULT,
      } as const;
      const { notifications, next } = await listLog(database, watcherId, filter, place);
      if (next !== undefined) reply.header('link', nextLink(PATH, { ...request.query, cursor: next }));
      return {
        success: true as const,
        data: notifications.map((one) => notificationJson(one, options)),
      };
    },
  );
}

function addCount(api: Api, { database }: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  api.get(
    `${PATH}/count`,
    {
      onRequest,
      schema: { querystring: querySchema(countParameters), response: answerOf(Counted) },
      config: { operation: operations.count },
    },
    async (request) => {
      const watcherId = watcherOf(request);
      const filter = await filterOf(database, watcherId, readKeyed(request.query, countParameters));
      const { count, isComplete } = await countMatches(database, watcherId, filter);
      return { success: true as const, data: { count, is_complete: isComplete } };
    },
  );
}

function addOne(api: Api, options: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  api.get(
    `${PATH}/:id`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(One) },
      config: { operation: operations.get },
    },
    async (request, reply) => {
      const { data, link } = await showLogged(options, watcherOf(request), request.params.id, PATH);
      if (link !== undefined) reply.header('link', link);
      return { success: true as const, data };
    },
  );
}

function addAttempts(api: Api, { database }: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const schema = {
    params: Params,
    querystring: querySchema(pageParameters),
    response: answerOf(Type.Array(AttemptJson)),
  };
  api.get(
    `${PATH}/:id/attempts`,
    { onRequest, schema, config: { operation: operations.attempts } },
    async (request, reply) => {
      const page = { ...readPage(request.query), path: PATH };
      const { attempts, link } = await showAttempts(database, watcherOf(request), request.params.id, page);
      if (link !== undefined) reply.header('link', link);
      return { success: true as const, data: attempts };
    },
  );
}

function addRedeliverOne(api: Api, options: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  api.post(
    `${PATH}/:id/redeliver`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(NotificationJson) },
      config: { operation: operations.redeliver },
    },
    async (request) => ({
      success: true as const,
      data: await redeliverLogged(options, watcherOf(request), request.params.id),
    }),
  );
}

function addRedeliverMany(api: Api, options: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const path = `${PATH}/redeliver`;
  api.post(
    path,
    {
      onRequest,
      schema: { querystring: querySchema(redeliverParameters), response: answerOf(Redelivered) },
      config: { operation: operations.redeliverMany },
    },
    async (request, reply) => {
      const data = await redeliverMatching(options, watcherOf(request), request.query);
      const { cursor } = data;
      if (cursor !== null) reply.header('link', nextLink(path, { ...request.query, cursor }));
      return { success: true as const, data };
    },
  );
}

type Reader = Pick<
  ApiOptions,
  'database' | 'clock' | 'nativeSymbol' | 'confirmations' | 'inFlight' | 'showMessage'
>;
/** `path` is that of the log. */
type AttemptPage = { limit: number; before: number | undefined; path: string };

/**
 * A notification with its newest attempts, and the link to older ones below `path`.
 * @throws Fault `not_found`, also for a notification of another watcher
 */
export async function showLogged(
  options: Reader,
  watcherId: number,
  id: string,
  path: string,
): Promise<{ data: Static<typeof One>; link: string | undefined }> {
  const { database } = options;
  const { notification, block } = await getLogged(database, watcherId, id);
  const page = { limit: LIMIT_DEFAULT, before: undefined, path };
  const { attempts, link } = await attemptPage(database, watcherId, notification.id, page);
  const data = {
    ...notificationJson(notification, options),
    attempts,
    block: blockJson(notification, block),
    message: (await options.showMessage({ watcherId, id: notification.id })) ?? null,
  };
  return { data, link };
}

/** A page of a notification's attempts, and the link to the next one. @throws Fault `not_found` */
export async function showAttempts(
  database: Database,
  watcherId: number,
  text: string,
  page: AttemptPage,
): ReturnType<typeof attemptPage> {
  const { id } = (await getLogged(database, watcherId, text)).notification;
  return attemptPage(database, watcherId, id, page);
}

/** Redelivers a notification and returns it. @throws Fault `not_found`, `conflict` if it can't be delivered */
export async function redeliverLogged(
  options: Reader,
  watcherId: number,
  text: string,
): Promise<Static<typeof NotificationJson>> {
  const { database, clock } = options;
  const { id } = (await getLogged(database, watcherId, text)).notification;
  const isChanged = await redeliverOne(database, watcherId, id, clock.now());
  const { notification } = await getLogged(database, watcherId, text);
  if (!isChanged && notification.state !== 'waiting') throw refusalOf(notification);
  return notificationJson(notification, options);
}

/** Redelivers what matches the query, of one watcher or of all, up to a limit. @throws Fault `invalid` without a filter */
export async function redeliverMatching(
  { database, clock }: Pick<ApiOptions, 'database' | 'clock'>,
  scope: Scope,
  query: unknown,
): Promise<Static<typeof Redelivered>> {
  const { cursor: start, ...wanted } = readKeyed(query, redeliverParameters);
  if (Object.values(wanted).every((value) => value === undefined))
    throw invalid('', 'name at least one filter');
  const filter = await filterOf(database, scope, wanted);
  let place = start ?? { startedAt: clock.now(), after: undefined };
  let redelivered = 0;
  for (let step = 0; step < STEPS_MAX; step += 1) {
    const now = clock.now();
    const { count, next } = await redeliverStep(database, scope, filter, { ...place, now });
    redelivered += count;
    if (next === undefined) return { redelivered, cursor: null };
    place = { ...place, after: next };
  }
  return { redelivered, cursor: formatRedeliveryCursor(place) };
}

/**
 * A notification of this watcher with its block.
 * @throws Fault `not_found`, also for a notification of another watcher
 */
async function getLogged(database: Database, watcherId: number, id: string) {
  const number = parseWhole(id);
  const found = number === undefined ? undefined : await findLogged(database, watcherId, number);
  if (found === undefined) throw new Fault('not_found', 'Notification not found');
  return found;
}

async function attemptPage(
  database: Database,
  watcherId: number,
  id: number,
  { path, ...page }: AttemptPage,
) {
  const attempts = await listAttempts(database, watcherId, id, page);
  const last = attempts.at(-1);
  const isFull = last !== undefined && attempts.length === page.limit;
  const link = isFull
    ? nextLink(`${path}/${id}/attempts`, { limit: page.limit, cursor: last.id })
    : undefined;
  return { attempts: attempts.map(attemptJson), link };
}

function refusalOf({ state, orphaned, revision }: LoggedNotification): Fault {
  if (state === 'held')
    return new Fault(
      'conflict',
      'It waits for confirmations, or for an earlier notification in strict order',
    );
  const isOff = orphaned !== undefined && messageKind({ revision }) === 'transfer';
  if (state === 'withdrawn' || (state === 'processed' && isOff))
    return new Fault('conflict', 'Its block was orphaned by a reorg');
  return new Fault('conflict', 'Its watched address was deleted');
}
