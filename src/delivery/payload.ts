/**
 * The webhook request of one attempt (spec 2.7 and 4.6). Rendered again for each attempt: the URL, the key and
 * next_retry_at may have changed since the last one, and no rendered body, which holds the key, is ever stored.
 */
import packageJson from '../../package.json' with { type: 'json' };
import { exactInteger } from '../core/json.ts';
import { messageKind } from '../domain/message-kind.ts';
import { signMessage } from '../domain/signature.ts';
import type { DueNotification } from '../store/delivery/due.ts';
import type { Credentials } from './credentials.ts';
import type { Message } from './send.ts';

const USER_AGENT = `chainbell/${packageJson.version}`;

/**
 * The POST of a notification: exactly the 13 fields of spec 2.7 in their order, with the amount as an exact JSON integer. The
 * `webhook-…` headers are those of Standard Webhooks: the id is the same in all attempts, the timestamp is the attempt's, and the
 * signatures cover both and the body. A removal notice has the body of its transfer and another `webhook-id`, `<id>-<revision>`,
 * which is signed; the `chainbell-…` headers are not signed.
 */
export function renderMessage(
  notification: DueNotification,
  sending: Omit<Credentials, 'readMs'> & { nativeSymbol: string; now: Date },
): Message {
  const { apiKey, signingKeys, nativeSymbol, now } = sending;
  const { revision, blockNumber, blockHash, replaces } = notification;
  const id = revision === 0 ? String(notification.id) : `${notification.id}-${revision}`;
  const timestamp = String(Math.floor(now.getTime() / 1000));
  const body = JSON.stringify({
    id: notification.id,
    watched_addresses_id: notification.watchedAddressId,
    watcher_id: notification.watcherId,
    hash: notification.hash,
    type: notification.type,
    sender: notification.sender,
    receiver: notification.receiver ?? '',
    amount: exactInteger(notification.amount),
    asset: notification.token ?? nativeSymbol,
    timestamp: notification.createdAt,
    webhook_url: notification.webhookUrl,
    api_key: apiKey ?? null,
    next_retry_at: notification.nextRetryAt ?? null,
  });
  return {
    url: notification.webhookUrl,
    headers: {
      'content-type': 'application/json',
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
      'user-agent': USER_AGENT,
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signMessage({ id, timestamp, body }, signingKeys),
      'chainbell-revision': String(revision),
      ...(blockHash !== undefined && { 'chainbell-block': `${blockNumber} ${blockHash}` }),
      ...(replaces !== undefined && { 'chainbell-replaces': String(replaces) }),
      ...(messageKind(notification) === 'removal' && { 'chainbell-removed': 'true' }),
    },
    body,
  };
}
