/**
 * The route that shows a watcher's limits and its current usage.
 */
import { type Static, Type } from 'typebox';
import { countPending, PENDING_COUNTED_MAX } from '../../store/delivery/pending.ts';
import { hasLimits, readUsage } from '../../store/watchers/limits.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { answerOf } from './log-json.ts';

/** The description of a 409 where a limit applies. */
export const LIMIT_REACHED =
  'A limit of the watcher is reached. `errors` says which one, and for which watched address.';

const orNull = (description: string) => Type.Union([Type.Integer(), Type.Null()], { description });
const limit = orNull('Null means no limit.');
const used = orNull(
  'Null if the service limits neither watched addresses nor origins, because nothing is counted then.',
);
const LimitsJson = Type.Object({
  records: Type.Object({ limit, used }, { description: 'Watched addresses.' }),
  records_per_address_and_url: Type.Object(
    { limit },
    { description: 'Watched addresses with the same address and webhook URL.' },
  ),
  receiver_origins: Type.Object(
    { limit, used },
    { description: 'Distinct origins (scheme, host and port) of webhook URLs.' },
  ),
  pending_notifications: Type.Object(
    {
      alarm_above: orNull(
        'The operator gets an alarm above this number. Nothing is dropped. Null means no alarm.',
      ),
      used: Type.Integer({
        description: `Notifications that wait for an attempt, counted up to ${PENDING_COUNTED_MAX}.`,
      }),
      is_complete: Type.Boolean({ description: 'False if there are more.' }),
    },
    { description: 'Notifications that have yet to be delivered.' },
  ),
});
const operation = {
  summary: "Show the watcher's limits and usage",
  example: {
    success: true,
    data: {
      records: { limit: 100_000, used: 1_250 },
      records_per_address_and_url: { limit: 1 },
      receiver_origins: { limit: 20, used: 2 },
      pending_notifications: { alarm_above: 10_000, used: 17, is_complete: true },
    },
  },
};

export function addLimitRoute(api: Api, options: ApiOptions): void {
  const { database, limits } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);

  api.get(
    '/api/notifications/limits',
    { onRequest, schema: { response: answerOf(LimitsJson) }, config: { operation } },
    async (request) => {
      const watcherId = watcherOf(request);
      const { records, recordsPerAddressAndUrl, receiverOrigins, pendingNotifications } = limits;
      const isCounted = hasLimits({ records, recordsPerAddressAndUrl, receiverOrigins });
      const pending = await countPending(database, watcherId);
      const usage = isCounted ? await readUsage(database, watcherId) : undefined;
      const data: Static<typeof LimitsJson> = {
        records: { limit: records ?? null, used: usage?.records ?? null },
        records_per_address_and_url: { limit: recordsPerAddressAndUrl ?? null },
        receiver_origins: { limit: receiverOrigins ?? null, used: usage?.origins ?? null },
        pending_notifications: {
          alarm_above: pendingNotifications ?? null,
          used: Math.min(pending, PENDING_COUNTED_MAX),
          is_complete: pending <= PENDING_COUNTED_MAX,
        },
      };
      return { success: true as const, data };
    },
  );
}
