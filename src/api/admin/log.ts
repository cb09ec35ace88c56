/**
 * Operator routes of the delivery log of all watchers: the routes of a watcher (notifications/delivery-log.ts), over all of them
 * or over the one that `watcher` names.
 */
import { Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import {
  countScopedMatches,
  findWatcherOfNotification,
  listScopedLog,
} from '../../store/delivery/log-of-all.ts';
import type { Api, ApiOptions } from '../context.ts';
import { nextLink } from '../http/paging.ts';
import { parseWhole, querySchema, readKeyed } from '../http/parameters.ts';
import {
  Counted,
  One,
  Redelivered,
  redeliverLogged,
  redeliverMatching,
  showAttempts,
  showLogged,
  operations as watcherOperations,
} from '../notifications/delivery-log.ts';
import { AttemptJson, answerOf, NotificationJson, notificationJson } from '../notifications/log-json.ts';
import {
  countParameters,
  filterOf,
  LIMIT_DEFAULT,
  listParameters,
  pageParameters,
  readPage,
  redeliverParameters,
} from '../notifications/log-query.ts';
import { scopeOf, watcherParameter } from './scope.ts';

const PATH = '/api/admin/log';

const watcherId = { watcher_id: Type.Integer() };
const Params = Type.Object({ id: Type.String() });
const ofOne = { params: Params, querystring: querySchema(watcherParameter) };
const Notification = Type.Object(
  { ...watcherId, ...NotificationJson.properties },
  { title: 'NotificationOfWatcher' },
);
const WithAttempts = Type.Object({ ...watcherId, ...One.properties });

const { list, count, get, attempts, redeliver, redeliverMany } = watcherOperations;
const [listed] = list.example.data;
const ofAll =
  'A page looks through at most 10,000 notifications, so it may be short or empty. While there is more, the header `link` leads to the next page.';
const errors = { 404: 'Notification or watcher not found' };
const operations = {
  list: {
    ...list,
    summary: 'List the notifications of all watchers, newest first',
    description: ofAll,
    example: { success: true, data: [{ watcher_id: 7, ...listed }] },
    errors,
  },
  count: { ...count, summary: 'Count the notifications of all watchers that match the filters', errors },
  get: {
    ...get,
    summary: 'Show a notification of any watcher with its newest attempts',
    example: { success: true, data: { watcher_id: 7, ...get.example.data } },
    errors,
  },
  attempts: {
    ...attempts,
    summary: 'List the attempts of a notification of any watcher, newest first',
    errors,
  },
  redeliver: {
    ...redeliver,
    summary: 'Redeliver a notification of any watcher',
    example: { success: true, data: { watcher_id: 7, ...redeliver.example.data } },
    errors: { ...redeliver.errors, ...errors },
  },
  redeliverMany: {
    ...redeliverMany,
    summary: 'Redeliver all notifications of all watchers that match the filters',
    description: `${redeliverMany.description} \`watcher\` doesn't count as a filter.`,
    errors,
  },
};

export function addAdminLogRoutes(api: Api, options: ApiOptions): void {
  addList(api, options);
  addCount(api, options);
  addOne(api, options);
  addAttempts(api, options);
  addRedeliverOne(api, options);
  addRedeliverMany(api, options);
}

function addList(api: Api, options: ApiOptions): void {
  const { database } = options;
  api.get(
    PATH,
    {
      schema: {
        querystring: querySchema({ ...watcherParameter, ...listParameters }),
        response: answerOf(Type.Array(Notification)),
      },
      config: { operation: operations.list },
    },
    async ({ query }, reply) => {
      const scope = await scopeOf(options, query);
      const { cursor: after, limit = LIMIT_DEFAULT, ...given } = readKeyed(query, listParameters);
      const filter = await filterOf(database, scope, given);
      const page = { order: 'newest first', after, limit } as const;
      const { notifications, next } = await listScopedLog(database, scope, filter, page);
      if (next !== undefined) reply.header('link', nextLink(PATH, { ...query, cursor: next }));
      return success(
        notifications.map((one) => ({
          watcher_id: one.watcherId,
          ...notificationJson(one, options),
        })),
      );
    },
  );
}

function addCount(api: Api, options: ApiOptions): void {
  api.get(
    `${PATH}/count`,
    {
      schema: {
        querystring: querySchema({ ...watcherParameter, ...countParameters }),
        response: answerOf(Counted),
      },
      config: { operation: operations.count },
    },
    async ({ query }) => {
      const scope = await scopeOf(options, query);
      const filter = await filterOf(options.database, scope, readKeyed(query, countParameters));
      const { count, isComplete } = await countScopedMatches(options.database, scope, filter);
      return success({ count, is_complete: isComplete });
    },
  );
}

function addOne(api: Api, options: ApiOptions): void {
  api.get(
    `${PATH}/:id`,
    { schema: { ...ofOne, response: answerOf(WithAttempts) }, config: { operation: operations.get } },
    async ({ params: { id }, query }, reply) => {
      const owner = await ownerOf(options, id, query);
      const { data, link } = await showLogged(options, owner, id, PATH);
      if (link !== undefined) reply.header('link', link);
      return success({ watcher_id: owner, ...data });
    },
  );
}

function addAttempts(api: Api, options: ApiOptions): void {
  api.get(
    `${PATH}/:id/attempts`,
    {
      schema: {
        params: Params,
        querystring: querySchema({ ...watcherParameter, ...pageParameters }),
        response: answerOf(Type.Array(AttemptJson)),
      },
      config: { operation: operations.attempts },
    },
    async ({ params: { id }, query }, reply) => {
      const page = { ...readPage(query), path: PATH };
      const owner = await ownerOf(options, id, query);
      const shown = await showAttempts(options.database, owner, id, page);
      if (shown.link !== undefined) reply.header('link', shown.link);
      return success(shown.attempts);
    },
  );
}

function addRedeliverOne(api: Api, options: ApiOptions): void {
  api.post(
    `${PATH}/:id/redeliver`,
    { schema: { ...ofOne, response: answerOf(Notification) }, config: { operation: operations.redeliver } },
    async ({ params: { id }, query }) => {
      const owner = await ownerOf(options, id, query);
      return success({ watcher_id: owner, ...(await redeliverLogged(options, owner, id)) });
    },
  );
}

function addRedeliverMany(api: Api, options: ApiOptions): void {
  const path = `${PATH}/redeliver`;
  api.post(
    path,
    {
      schema: {
        querystring: querySchema({ ...watcherParameter, ...redeliverParameters }),
        response: answerOf(Redelivered),
      },
      config: { operation: operations.redeliverMany },
    },
    async ({ query }, reply) => {
      const data = await redeliverMatching(options, await scopeOf(options, query), query);
      const { cursor } = data;
      if (cursor !== null) reply.header('link', nextLink(path, { ...query, cursor }));
      return success(data);
    },
  );
}

type Reader = Pick<ApiOptions, 'database' | 'clock'>;

/** The watcher of the notification with this id. @throws Fault `not_found` */
async function ownerOf(options: Reader, id: string, query: unknown): Promise<number> {
  const named = await scopeOf(options, query);
  if (named !== undefined) return named;
  const number = parseWhole(id);
  const found = number === undefined ? undefined : await findWatcherOfNotification(options.database, number);
  if (found === undefined) throw new Fault('not_found', 'Notification not found');
  return found;
}

const success = <T>(data: T) => ({ success: true as const, data });
