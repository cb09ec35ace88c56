/**
 * Statistics of a watcher's deliveries, of one of its receivers or watched addresses, and of each receiver.
 */
import { Type } from 'typebox';
import { readReceiverStatistics, readStatistics } from '../../store/delivery/statistics.ts';
import { findWatchedAddress } from '../../store/watchers/watched.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createShardGate } from '../http/auth.ts';
import { querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf } from './log-json.ts';
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
} from './statistics-json.ts';
import { found } from './watched-addresses.ts';

const PATH = '/api/notifications/statistics';

const operations = {
  all: {
    summary: 'Show statistics of deliveries',
    description: 'Of all deliveries, or of one watched address or one receiver.',
    example: { success: true, data: statisticsExample },
    errors: { 404: 'Watched address not found' },
  },
  receivers: {
    summary: 'Show statistics of each receiver',
    description: 'Lists receivers with attempts in the period.',
    example: { success: true, data: [receiverStatisticsExample] },
  },
};

export function addStatisticsRoutes(api: Api, options: ApiOptions): void {
  const { database, clock } = options;
  const { onRequest, watcherOf } = createShardGate(options);

  api.get(
    PATH,
    {
      onRequest,
      schema: { querystring: querySchema(statisticsParameters), response: answerOf(StatisticsJson) },
      config: { operation: operations.all },
    },
    async (request) => {
      const watcherId = watcherOf(request);
      const given = readKeyed(request.query, statisticsParameters);
      const { period = PERIOD_DEFAULT, watched_address_id: recordId, origin } = given;
      requireOneScope(given);
      if (recordId !== undefined) found(await findWatchedAddress(database, watcherId, recordId));
      const now = clock.now();
      const scope = { watcherId, origin, recordId };
      const statistics = await readStatistics(database, scope, { period, now });
      return { success: true as const, data: statisticsJson(statistics, { period, now }) };
    },
  );

  api.get(
    `${PATH}/receivers`,
    {
      onRequest,
      schema: {
        querystring: querySchema(receiverStatisticsParameters),
        response: answerOf(Type.Array(ReceiverStatisticsJson)),
      },
      config: { operation: operations.receivers },
    },
    async (request) => {
      const given = readKeyed(request.query, receiverStatisticsParameters);
      const { period = PERIOD_DEFAULT, order = 'slowest', limit = RECEIVERS_DEFAULT } = given;
      const wanted = { period, order, limit };
      const receivers = await readReceiverStatistics(database, watcherOf(request), wanted);
      return { success: true as const, data: receivers.map(receiverStatisticsJson) };
    },
  );
}
