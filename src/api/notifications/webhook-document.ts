/**
 * The webhook (spec 4.6 and 2.7) in the OpenAPI document.
 */
import { Type } from 'typebox';

const Address = Type.String({ pattern: '^0x[0-9a-f]{40}$' });
const example = {
  id: 81_234,
  watched_addresses_id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c00',
  watcher_id: 7,
  hash: `0x${'9a'.repeat(32)}`,
  type: 'COIN_TRANSFER',
  sender: `0x${'11'.repeat(20)}`,
  receiver: `0x${'22'.repeat(20)}`,
  amount: 1_500_000_000_000_000,
  asset: 'ETH',
  timestamp: '2026-01-31 12:00:00.123456',
  webhook_url: 'https://receiver.example/hook',
  api_key: 'cb_live_…',
  next_retry_at: null,
};

/** Fields in the order in which they are sent. */
const Notification = Type.Object(
  {
    id: Type.Integer({
      description: 'The same in all attempts, always with the same content. Use it to deduplicate.',
    }),
    watched_addresses_id: Type.String({ format: 'uuid' }),
    watcher_id: Type.Integer(),
    hash: Type.String({ pattern: '^0x[0-9a-f]{64}$', description: 'Transaction hash.' }),
    type: Type.Enum(['COIN_TRANSFER', 'TOKEN_TRANSFER']),
    sender: Address,
    receiver: Type.String({ description: 'Empty if the transaction has no `to`.' }),
    amount: Type.Union([Type.Integer(), Type.Null()], {
      description:
        'In wei or raw token units. Exact, with up to 78 digits, so use a JSON parser that keeps large integers.',
    }),
    asset: Type.String({ description: 'Symbol of the native coin, or address of the token contract.' }),
    timestamp: Type.String({
      description: 'When the notification was created: `YYYY-MM-DD HH:MM:SS.ffffff` in UTC.',
    }),
    webhook_url: Type.String(),
    api_key: Type.Union([Type.String(), Type.Null()], {
      description: "The watcher's API key, if it is stored.",
    }),
    next_retry_at: Type.Union([Type.String(), Type.Null()]),
  },
  { title: 'Notification' },
);

const headers: [name: string, isRequired: boolean, description: string][] = [
  ['authorization', false, "`Bearer <API_KEY>` with the watcher's API key, if it is stored."],
  [
    'webhook-id',
    true,
    'The id of the message (Standard Webhooks 1.0), the same in all attempts: `<id>` for the transfer, `<id>-<revision>` after a reorg. It is part of the signature, so rely on it: apply only a higher revision. An odd revision means that the transfer was orphaned.',
  ],
  ['webhook-timestamp', true, 'Time of the attempt in seconds since 1970.'],
  [
    'webhook-signature',
    true,
    'Signatures separated by spaces. For each signing secret in force: `v1,` with HMAC-SHA256 and, if the watcher has turned it on, `v1a,` with ed25519, each over `id.timestamp.body`.',
  ],
  [
    'chainbell-revision',
    true,
    '`0` for the transfer, an odd number for its removal notice, and `2` when the transfer is canonical again.',
  ],
  [
    'chainbell-block',
    false,
    'Number and hash of the block that contains the transfer, separated by a space. On a removal notice, the orphaned block.',
  ],
  [
    'chainbell-replaces',
    false,
    'The `id` of the notification that this one replaces, if a reorg changed the outcome of its transaction. For information only.',
  ],
  [
    'chainbell-removed',
    false,
    '`true` on a removal notice. Only watched addresses with the setting `removed` get these.',
  ],
  ['webhook-test', false, '`true` on a test webhook, which has an example body.'],
];

/** The field `webhooks` of OpenAPI 3.1. */
export const webhooks = {
  notification: {
    post: {
      operationId: 'receiveNotification',
      tags: ['Webhooks'],
      summary: 'A transfer involves a watched address',
      description:
        'Sent to the webhook URL of the watched address. A 2xx response within 10 seconds completes the delivery. Otherwise it is retried after 1, 3, 10, 15 and then every 60 minutes, forever. Redirects are not followed.',
      parameters: headers.map(([name, required, description]) => ({
        ...{ name, in: 'header', required, description },
        schema: { type: 'string' },
      })),
      requestBody: {
        required: true,
        content: { 'application/json': { schema: Notification, example } },
      },
      responses: {
        '2XX': { description: 'Delivered. The response body is ignored.' },
        default: { description: 'Not delivered. It will be retried.' },
      },
    },
  },
};
