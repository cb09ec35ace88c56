/**
 * Shows the request of a notification to its watcher, rendered by the code that sends it. Secrets are replaced, because the reader's
 * API key may be another one than the key that the webhook carries.
 */
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';
import { findAsDue } from '../store/delivery/due.ts';
import { findKey } from '../store/delivery/log.ts';
import { findDeliveryKey } from '../store/watchers/api-keys.ts';
import { renderMessage } from './payload.ts';

const REDACTED = '[redacted]';

export function createMessageView({
  database,
  clock,
  nativeSymbol,
}: {
  database: Database;
  clock: Clock;
  nativeSymbol: string;
}) {
  /** The request as it would be sent now. Undefined for a notification without a URL, because its watched address is deleted. */
  return async ({
    watcherId,
    id,
  }: {
    watcherId: number;
    id: number;
  }): Promise<{ body: string; headers: Record<string, string> } | undefined> => {
    const key = await findKey(database, watcherId, id);
    const notification = key && (await findAsDue(database, key));
    if (notification === undefined) return undefined;
    const now = clock.now();
    const apiKey = (await findDeliveryKey(database, watcherId, now)) === undefined ? undefined : REDACTED;
    const { body, headers } = renderMessage(notification, { apiKey, signingKeys: [], nativeSymbol, now });
    return { body, headers: { ...headers, 'webhook-signature': REDACTED } };
  };
}
