/**
 * What a watcher may have, and what it has.
 */
import { type Static, Type } from 'typebox';
import { countPending, PENDING_COUNTED_MAX } from '../../store/delivery/pending.ts';
import { hasLimits, readUsage } from '../../store/watchers/limits.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { answerOf } from './log-json.ts';

/** Of an operation that adds something that is limited. */
export const LIMIT_REACHED =
  'A limit of the watcher is reached; `errors` says which, and which record it is about.';

const orNull = (description: string) => Type.Union([Type.Integer(), Type.Null()], { description });
const limit = orNull('null: any number.');
const used = orNull(
  'null while the service has no limit on records or origins, because nothing is counted then.',
);
const LimitsJson = Type.Object({
  records: Type.Object({ limit, used }, { description: 'Watched addresses.' }),
  records_per_address_and_url: Type.Object(
    { limit },
    { description: 'Watched addresses with the same address and webhook URL.' },
  ),
  receiver_origins: Type.Object(
    { limit, used },
    { description: 'Different schemes, hosts and ports of webhook URLs.' },
  ),
  pending_notifications: Type.Object(
    {
      alarm_above: orNull('Above this the operator is alarmed; nothing is dropped. null: never.'),
      used: Type.Integer({
        description: `Those that wait for an attempt; up to ${PENDING_COUNTED_MAX} are counted.`,
      }),
      is_complete: Type.Boolean({ description: 'False when there are more.' }),
    },
    { description: 'Webhooks that are still to be delivered.' },
  ),
});
const operation = {
  summary: 'What the watcher may have, and has',
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
