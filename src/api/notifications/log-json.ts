/**
 * Notifications and attempts of the delivery log as JSON.
 */
import { type Static, type TSchema, Type } from 'typebox';
import type { Attempt } from '../../store/delivery/attempts.ts';
import type { LoggedNotification } from '../../store/delivery/log.ts';

const integerOrNull = (description: string) => Type.Union([Type.Integer(), Type.Null()], { description });
export const textOrNull = Type.Union([Type.String(), Type.Null()]);
export const AttemptJson = Type.Object(
  {
    id: Type.Integer(),
    notification_id: Type.Integer(),
    revision: Type.Integer({
      description: 'The revision of the message: even for the transfer, odd for its removal notice.',
    }),
    started_at: Type.String(),
    duration_ms: Type.Integer(),
    requests: Type.Integer({
      description:
        '2: the request was repeated at once, because the receiver closed the kept-alive connection of the first one. 0: nothing was sent.',
    }),
    outcome: Type.String({
      description:
        '`success`, `http_3xx`, `http_4xx`, `http_5xx`, `timeout`, `dns` (the host has no public address), `connect`, `tls`, `network` (the connection broke) or `refused` (the URL is not allowed).',
    }),
    status: Type.Union([Type.Integer(), Type.Null()]),
    response: textOrNull,
  },
  { title: 'Attempt' },
);
export const NotificationJson = Type.Object(
  {
    id: Type.Integer(),
    watched_address_id: Type.String(),
    hash: Type.String(),
    type: Type.String(),
    sender: Type.String(),
    receiver: Type.String(),
    amount: Type.String(),
    asset: Type.String(),
    block_number: Type.Integer(),
    state: Type.String(),
    revision: Type.Integer({ description: 'Even for the transfer, odd for its removal notice.' }),
    orphaned: Type.Boolean({
      description:
        'Whether a reorg removed the transfer from the canonical chain. If `state` is `processed` and `revision` is even, the receiver acknowledged the transfer but has received no removal notice.',
    }),
    orphaned_at: Type.Union([Type.String(), Type.Null()], { description: 'When it was orphaned.' }),
    orphaned_block: Type.Union([Type.Object({ number: Type.Integer(), hash: textOrNull }), Type.Null()], {
      description: 'The orphaned block that contained it.',
    }),
    replaces: integerOrNull(
      'The id of the notification that this one replaces, because a reorg changed the outcome of the transaction.',
    ),
    replaced_by: integerOrNull('The id of the notification that replaces this one.'),
    retry_count: Type.Integer(),
    redelivery_count: Type.Integer(),
    next_retry_at: textOrNull,
    created_at: Type.String(),
    processed_at: textOrNull,
  },
  { title: 'LoggedNotification' },
);

/** The schema of a successful response with this data. */
export const answerOf = <T extends TSchema>(data: T) => ({
  200: Type.Object({ success: Type.Literal(true), data }),
});

export function attemptJson(attempt: Attempt): Static<typeof AttemptJson> {
  return {
    id: attempt.id,
    notification_id: attempt.notificationId,
    revision: attempt.revision,
    started_at: attempt.startedAt.toISOString(),
    duration_ms: attempt.durationMs,
    requests: attempt.requestCount,
    outcome: attempt.outcome,
    status: attempt.status ?? null,
    response: attempt.response ?? null,
  };
}

export function notificationJson(
  notification: LoggedNotification,
  nativeSymbol: string,
): Static<typeof NotificationJson> {
  const { orphaned } = notification;
  return {
    id: notification.id,
    watched_address_id: notification.watchedAddressId,
    hash: notification.hash,
    type: notification.type,
    sender: notification.sender,
    receiver: notification.receiver ?? '',
    amount: notification.amount.toString(),
    asset: notification.token ?? nativeSymbol,
    block_number: notification.blockNumber,
    state: notification.state,
    revision: notification.revision,
    orphaned: orphaned !== undefined,
    orphaned_at: orphaned?.at.toISOString() ?? null,
    orphaned_block:
      orphaned === undefined ? null : { number: notification.blockNumber, hash: orphaned.blockHash ?? null },
    replaces: notification.replaces ?? null,
    replaced_by: notification.replacedBy ?? null,
    retry_count: notification.retryCount,
    redelivery_count: notification.redeliveryCount,
    next_retry_at: notification.nextRetryAt?.toISOString() ?? null,
    created_at: notification.createdAt.toISOString(),
    processed_at: notification.processedAt?.toISOString() ?? null,
  };
}
