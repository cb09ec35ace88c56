/**
 * Operator routes for statistics of deliveries, of all watchers or of one.
 */
import { Type } from 'typebox';
import { readReceiverStatistics, readStatistics } from '../../store/delivery/statistics.ts';
import type { Api, ApiOptions } from '../context.ts';
import { invalid } from '../http/errors.ts';
import { querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf } from '../notifications/log-json.ts';
import {
  PERIOD_DEFAULT,
  RECEIVERS_DEFAULT,
  ReceiverStatisticsJson,
  receiverStatisticsExample,
  receiverStatisticsJson,
  receiverStatisticsParameters,
  requireOneScope,
  StatisticsJson,
  statisticsExample,
  statisticsJson,
  statisticsParameters,
} from '../notifications/statistics-json.ts';
import { scopeOf, watcherParameter } from './scope.ts';

const PATH = '/api/admin/statistics';

const parameters = { ...statisticsParameters, ...watcherParameter };
const receiverParameters = { ...receiverStatisticsParameters, ...watcherParameter };
const WatcherReceiverStatistics = Type.Object(
  { watcher_id: Type.Integer(), watcher: Type.String(), ...ReceiverStatisticsJson.properties },
  { title: 'WatcherReceiverStatistics' },
);
const errors = { 404: 'Watcher not found' };
const operations = {
  all: {
    summary: 'Show statistics of the deliveries of all watchers',
    description:
      'Of all watchers, of one, or of a watched address or a receiver of one. Deliveries of deleted watchers stay in the sums of all watchers.',
    example: { success: true, data: statisticsExample },
    errors,
  },
  receivers: {
    summary: 'Show statistics of the receivers of all watchers',
    description: 'Lists receivers with attempts in the period.',
    example: { success: true, data: [{ watcher_id: 7, watcher: 'acme', ...receiverStatisticsExample }] },
    errors,
  },
};

export function addAdminStatisticsRoutes(api: Api, options: ApiOptions): void {
  const { database, clock } = options;
  api.get(
    PATH,
    {
      schema: { querystring: querySchema(parameters), response: answerOf(StatisticsJson) },
      config: { operation: operations.all },
    },
    async ({ query }) => {
      const given = readKeyed(query, parameters);
      const { period = PERIOD_DEFAULT, origin, watched_address_id: recordId } = given;
      requireOneScope(given);
      if (given.watcher === undefined && (origin !== undefined || recordId !== undefined))
        throw invalid('/watcher', 'is required for a receiver or a watched address');
      const watcherId = await scopeOf(options, query);
      const now = clock.now();
      const statistics = await readStatistics(database, { watcherId, origin, recordId }, { period, now });
      return { success: true as const, data: statisticsJson(statistics, { period, now }) };
    },
  );

  api.get(
    `${PATH}/receivers`,
    {
      schema: {
        querystring: querySchema(receiverParameters),
        response: answerOf(Type.Array(WatcherReceiverStatistics)),
      },
      config: { operation: operations.receivers },
    },
    async ({ query }) => {
      const given = readKeyed(query, receiverParameters);
      const { period = PERIOD_DEFAULT, order = 'slowest', limit = RECEIVERS_DEFAULT } = given;
      const wanted = { period, order, limit };
      const receivers = await readReceiverStatistics(database, await scopeOf(options, query), wanted);
      return {
        success: true as const,
        data: receivers.map((one) => ({
          ...{ watcher_id: one.watcherId, watcher: one.watcherName, ...receiverStatisticsJson(one) },
        })),
      };
    },
  );
}
