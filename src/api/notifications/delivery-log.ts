/**
 * The delivery log of a watcher: what was or will be delivered, each attempt, and delivering again. A POST to
 * `/redeliver` takes the filters of the list.
 */

import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import { messageKind } from '../../domain/message-kind.ts';
import { listAttempts } from '../../store/delivery/attempts.ts';
import { findLogged, type LoggedNotification, listLog } from '../../store/delivery/log.ts';
import { redeliverOne, redeliverStep } from '../../store/delivery/redelivery.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { invalid } from '../http/errors.ts';
import { parseWhole } from '../http/parameters.ts';
import {
  AttemptJson,
  answerOf,
  attemptJson,
  NotificationJson,
  notificationJson,
  textOrNull,
} from './log-json.ts';
import {
  formatPlace,
  LIMIT_DEFAULT,
  ListQuery,
  linkNext,
  Page,
  parsePlace,
  RedeliverQuery,
  readPage,
  readQuery,
} from './log-query.ts';

const PATH = '/api/notifications/log';
/** Transactions of one request to redeliver: some seconds. */
const STEPS_MAX = 10;

const Params = Type.Object({ id: Type.String() });
const One = Type.Object({ ...NotificationJson.properties, attempts: Type.Array(AttemptJson) });
const Redelivered = Type.Object({ redelivered: Type.Integer(), cursor: textOrNull });

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
  watched_address_id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c11',
  hash: `0x${'9a'.repeat(32)}`,
  type: 'COIN_TRANSFER',
  sender: `0x${'11'.repeat(20)}`,
  receiver: `0x${'22'.repeat(20)}`,
  amount: '1500000000000000',
  asset: 'ETH',
  block_number: 19_000_000,
  state: 'processed',
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
const answerHeaders = { link: '`rel="next"` leads to the next page.' };
const errors = { 404: 'Notification not found' };
const conflict = {
  ...errors,
  409: 'It is not to be delivered: its block lacks confirmations or is gone, or its record is.',
};
const operations = {
  list: {
    summary: 'Notifications by filters, newest first',
    example: { success: true, data: [notification] },
    answerHeaders,
  },
  get: {
    summary: 'One notification with its newest attempts',
    example: { success: true, data: { ...notification, attempts: [attempt] } },
    answerHeaders,
    errors,
  },
  attempts: {
    summary: 'Attempts of a notification, newest first',
    example: { success: true, data: [attempt] },
    answerHeaders,
    errors,
  },
  redeliver: {
    summary: 'Deliver a notification again',
    description: 'With the same id, now.',
    example: { success: true, data: { ...notification, state: 'waiting', redelivery_count: 1 } },
    errors: conflict,
  },
  redeliverMany: {
    summary: 'Deliver all notifications again that the filters choose',
    description: 'Some seconds of work in each call: go on with the cursor until it is null.',
    example: { success: true, data: { redelivered: 1_200, cursor: null } },
    answerHeaders: { link: '`rel="next"` goes on.' },
  },
};

export function addDeliveryLogRoutes(api: Api, options: ApiOptions): void {
  const { database, clock, nativeSymbol } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);
  const toJson = (notification: LoggedNotification) => notificationJson(notification, nativeSymbol);

  api.get(
    PATH,
    {
      onRequest,
      schema: { querystring: ListQuery, response: answerOf(Type.Array(NotificationJson)) },
      config: { operation: operations.list },
    },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const { query } = request;
      const { filter, limit, after } = await readQuery(database, watcherId, query);
      const place = { order: 'newest first', after, limit } as const;
      const { notifications, next } = await listLog(database, watcherId, filter, place);
      if (next !== undefined) linkNext(reply, PATH, { ...query, cursor: String(next) });
      return { success: true as const, data: notifications.map(toJson) };
    },
  );

  api.get(
    `${PATH}/:id`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(One) },
      config: { operation: operations.get },
    },
    async (request, reply) => {
      const notification = await getLogged(watcherOf(request), request.params.id);
      const attempts = await attemptPage(reply, watcherOf(request), notification.id, {
        limit: LIMIT_DEFAULT,
        before: undefined,
      });
      return { success: true as const, data: { ...toJson(notification), attempts } };
    },
  );

  api.get(
    `${PATH}/:id/attempts`,
    {
      onRequest,
      schema: { params: Params, querystring: Page, response: answerOf(Type.Array(AttemptJson)) },
      config: { operation: operations.attempts },
    },
    async (request, reply) => {
      const page = readPage(request.query);
      const { id } = await getLogged(watcherOf(request), request.params.id);
      return { success: true as const, data: await attemptPage(reply, watcherOf(request), id, page) };
    },
  );

  api.post(
    `${PATH}/:id/redeliver`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(NotificationJson) },
      config: { operation: operations.redeliver },
    },
    async (request) => {
      const watcherId = watcherOf(request);
      const { id } = await getLogged(watcherId, request.params.id);
      const isChanged = await redeliverOne(database, watcherId, id, clock.now());
      const notification = await getLogged(watcherId, request.params.id);
      if (!isChanged && notification.state !== 'waiting') throw refusalOf(notification);
      return { success: true as const, data: toJson(notification) };
    },
  );

  api.post(
    `${PATH}/redeliver`,
    {
      onRequest,
      schema: { querystring: RedeliverQuery, response: answerOf(Redelivered) },
      config: { operation: operations.redeliverMany },
    },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const { cursor: start, ...wanted } = request.query;
      if (Object.values(wanted).every((value) => value === undefined))
        throw invalid('', 'name at least one filter');
      const { filter } = await readQuery(database, watcherId, wanted);
      let place = start === undefined ? { startedAt: clock.now(), after: undefined } : parsePlace(start);
      let redelivered = 0;
      for (let step = 0; step < STEPS_MAX; step += 1) {
        const now = clock.now();
        const { count, next } = await redeliverStep(database, watcherId, filter, { ...place, now });
        redelivered += count;
        if (next === undefined) return { success: true as const, data: { redelivered, cursor: null } };
        place = { ...place, after: next };
      }
      const cursor = formatPlace(place);
      linkNext(reply, `${PATH}/redeliver`, { ...wanted, cursor });
      return { success: true as const, data: { redelivered, cursor } };
    },
  );

  /** Another watcher's notification looks the same as none. */
  async function getLogged(watcherId: number, id: string): Promise<LoggedNotification> {
    const number = parseWhole(id);
    const found = number === undefined ? undefined : await findLogged(database, watcherId, number);
    if (found === undefined) throw new Fault('not_found', 'Notification not found');
    return found;
  }

  async function attemptPage(
    reply: FastifyReply,
    watcherId: number,
    id: number,
    page: { limit: number; before: number | undefined },
  ) {
    const attempts = await listAttempts(database, watcherId, id, page);
    const last = attempts.at(-1);
    if (last !== undefined && attempts.length === page.limit) {
      linkNext(reply, `${PATH}/${id}/attempts`, { limit: String(page.limit), cursor: String(last.id) });
    }
    return attempts.map(attemptJson);
  }
}

function refusalOf({ state, orphaned, revision }: LoggedNotification): Fault {
  if (state === 'held')
    return new Fault(
      'conflict',
      'It waits for confirmations, or for an earlier notification in strict order',
    );
  const isOff = orphaned !== undefined && messageKind({ revision }) === 'transfer';
  if (state === 'withdrawn' || (state === 'processed' && isOff))
    return new Fault('conflict', 'Its block is not part of the chain any more');
  return new Fault('conflict', 'Its watched address was deleted');
}
