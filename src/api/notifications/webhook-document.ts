/**
 * The webhook (spec 4.6 and 2.7) as the documentation has it.
 */
import { Type } from 'typebox';

const Address = Type.String({ pattern: '^0x[0-9a-f]{40}$' });
const example = {
  id: 81_234,
  watched_addresses_id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c11',
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

/** In the order in which they are sent. */
const Notification = Type.Object(
  {
    id: Type.Integer({
      description: 'The same over all attempts, and never another content: deduplicate by it.',
    }),
    watched_addresses_id: Type.String({ format: 'uuid' }),
    watcher_id: Type.Integer(),
    hash: Type.String({ pattern: '^0x[0-9a-f]{64}$', description: 'Of the transaction.' }),
    type: Type.Enum(['COIN_TRANSFER', 'TOKEN_TRANSFER']),
    sender: Address,
    receiver: Type.String({ description: 'Empty when the transaction has no `to`.' }),
    amount: Type.Union([Type.Integer(), Type.Null()], {
      description: 'wei, or raw token units; exact, of up to 78 digits: not every reader of JSON keeps them.',
    }),
    asset: Type.String({ description: 'Symbol of the native coin, or address of the token contract.' }),
    timestamp: Type.String({
      description: 'When the notification was made: `YYYY-MM-DD HH:MM:SS.ffffff`, UTC.',
    }),
    webhook_url: Type.String(),
    api_key: Type.Union([Type.String(), Type.Null()], {
      description: "The watcher's own, where one is stored.",
    }),
    next_retry_at: Type.Union([Type.String(), Type.Null()]),
  },
  { title: 'Notification' },
);

const headers: [name: string, isRequired: boolean, description: string][] = [
  ['authorization', false, "`Bearer <API_KEY>`, the watcher's own, where one is stored (spec 4.6)."],
  [
    'webhook-id',
    true,
    'Names the message (Standard Webhooks 1.0), the same over all attempts: `<id>` for the transfer, `<id>-<revision>` after a reorg. Signed, so decide by it: apply only a higher revision; an odd one means that the transfer is gone.',
  ],
  ['webhook-timestamp', true, 'Of the attempt, in seconds since 1970.'],
  [
    'webhook-signature',
    true,
    'Separated by spaces, for each signing secret in force: `v1,` HMAC-SHA256 and `v1a,` ed25519, each over `id.timestamp.body`.',
  ],
  [
    'chainbell-revision',
    true,
    '`0` for the transfer, odd for its removal notice, `2` when it is canonical again.',
  ],
  [
    'chainbell-block',
    false,
    'Number and hash of the block that holds the transfer, separated by a space; on a removal notice the orphaned block.',
  ],
  [
    'chainbell-replaces',
    false,
    'The `id` of the notification that this one stands in for, when a reorg changed the outcome of its transaction. Information only.',
  ],
  ['chainbell-removed', false, '`true` on a removal notice, which only records with `removed` are sent.'],
  ['webhook-test', false, '`true` on a test webhook, whose body is made up.'],
];

/** For the field `webhooks` of OpenAPI 3.1. */
export const webhooks = {
  notification: {
    post: {
      operationId: 'receiveNotification',
      tags: ['Webhooks'],
      summary: 'A transfer involves a watched address',
      description:
        'Sent to the URL of the record. A 2xx within 10 seconds ends it; anything else is tried again after 1, 3, 10, 15 and then every 60 minutes, for ever. Redirects are not followed.',
      parameters: headers.map(([name, required, description]) => ({
        ...{ name, in: 'header', required, description },
        schema: { type: 'string' },
      })),
      requestBody: {
        required: true,
        content: { 'application/json': { schema: Notification, example } },
      },
      responses: {
        '2XX': { description: 'Taken. The body is not looked at.' },
        default: { description: 'Not taken: it is tried again.' },
      },
    },
  },
};
