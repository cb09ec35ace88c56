/**
 * Shows the request of a notification to its watcher, rendered by the code that sends it. Secrets are replaced, because the reader's
 * API key may be another one than the key that the webhook carries.
 */
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';
import { type DueNotification, findAsDue } from '../store/delivery/due.ts';
import { findKey } from '../store/delivery/log.ts';
import { findDeliveryKey } from '../store/watchers/api-keys.ts';
import { renderMessage } from './payload.ts';
import type { Message } from './send.ts';

const REDACTED = '[redacted]';

/** The message of the notification with `[redacted]` in the place of its secrets. */
export function renderShown(
  notification: DueNotification,
  { hasKey, nativeSymbol, now }: { hasKey: boolean; nativeSymbol: string; now: Date },
): Message {
  const apiKey = hasKey ? REDACTED : undefined;
  const message = renderMessage(notification, { apiKey, signingKeys: [], nativeSymbol, now });
  return { ...message, headers: { ...message.headers, 'webhook-signature': REDACTED } };
}

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
    const hasKey = (await findDeliveryKey(database, watcherId, now)) !== undefined;
    const { body, headers } = renderShown(notification, { hasKey, nativeSymbol, now });
    return { body, headers };
  };
}
