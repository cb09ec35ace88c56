/**
 * Notifications and attempts of the delivery log as JSON.
 */
import { type Static, type TSchema, Type } from 'typebox';
import { deliveryStatuses, statusOf } from '../../domain/delivery-status.ts';
import type { Attempt } from '../../store/delivery/attempts.ts';
import type { LoggedNotification } from '../../store/delivery/log.ts';
import type { LoggedBlock } from '../../store/delivery/logged-block.ts';
import type { ApiOptions } from '../context.ts';

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
    watched_address: Type.Union([Type.String(), Type.Null()], {
      description: 'Null if the watched address is deleted.',
    }),
    hash: Type.String(),
    type: Type.String(),
    sender: Type.String(),
    receiver: Type.String(),
    amount: Type.String(),
    asset: Type.String(),
    block_number: Type.Integer(),
    state: Type.String(),
    status: Type.Enum([...deliveryStatuses], {
      description:
        '`waiting`: no attempt has failed. `sending`: an attempt is under way, as far as this process knows. `retrying`: 1 to 3 attempts have failed. `failing`: 4 or more. `orphaned`: withdrawn after a reorg, or delivered before it without a removal notice.',
    }),
    failures: Type.Integer({
      description: 'Failed attempts of the present message. The same as `retry_count`.',
    }),
    url: Type.Union([Type.String(), Type.Null()], {
      description: 'The present webhook URL. Null if the watched address was deleted.',
    }),
    origin: Type.Union([Type.String(), Type.Null()], { description: 'Scheme, host and port of the URL.' }),
    confirmations: integerOrNull(
      'Blocks that are stored after its block. Null while the transfer is not on the canonical chain.',
    ),
    confirmations_needed: integerOrNull('Confirmations after which it is sent.'),
    last_attempt: Type.Union(
      [
        Type.Object({
          id: Type.Integer(),
          started_at: Type.String(),
          duration_ms: Type.Integer(),
          outcome: Type.String(),
          status: Type.Union([Type.Integer(), Type.Null()]),
        }),
        Type.Null(),
      ],
      { description: 'Null if no attempt is stored.' },
    ),
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

export const BlockJson = Type.Object(
  {
    number: Type.Integer(),
    hash: Type.Union([Type.String(), Type.Null()], { description: 'Null if the block is no longer stored.' }),
    mined_at: Type.Union([Type.String(), Type.Null()], {
      description: 'The timestamp in its header. Null for an orphaned block.',
    }),
    confirmations: integerOrNull('Blocks that are stored after it. Null for an orphaned block.'),
    is_final: Type.Boolean({ description: 'Whether no reorg can orphan it.' }),
    is_orphaned: Type.Boolean(),
  },
  {
    title: 'NotificationBlock',
    description: 'The block that holds the transfer, or held it before a reorg.',
  },
);
export const MessageJson = Type.Union(
  [
    Type.Object(
      {
        body: Type.String({
          description:
            'The text of the body as it would be POSTed now. Only `api_key` is replaced, with `[redacted]`.',
        }),
        headers: Type.Record(Type.String(), Type.String()),
      },
      { title: 'NotificationMessage' },
    ),
    Type.Null(),
  ],
  { description: 'The request of the webhook. Null if the watched address was deleted.' },
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

/** What the response depends on besides the notification. */
type LogView = Pick<ApiOptions, 'nativeSymbol' | 'confirmations' | 'inFlight'>;

export function notificationJson(
  notification: LoggedNotification,
  { nativeSymbol, confirmations, inFlight }: LogView,
): Static<typeof NotificationJson> {
  const { orphaned, laneId, state, retryCount: failures, isOrphanedTransfer, lastAttempt } = notification;
  const isUnderWay = laneId !== undefined && inFlight?.isUnderWay(laneId, notification.id) === true;
  return {
    id: notification.id,
    watched_address_id: notification.watchedAddressId,
    watched_address: notification.watchedAddress ?? null,
    hash: notification.hash,
    type: notification.type,
    sender: notification.sender,
    receiver: notification.receiver ?? '',
    amount: notification.amount.toString(),
    asset: notification.token ?? nativeSymbol,
    block_number: notification.blockNumber,
    state,
    status: statusOf({ state, failures, isOrphanedTransfer, isUnderWay }),
    failures,
    url: notification.webhookUrl ?? null,
    origin: notification.origin ?? null,
    confirmations: notification.confirmations ?? null,
    confirmations_needed: confirmationsNeeded(notification, confirmations) ?? null,
    last_attempt:
      lastAttempt === undefined
        ? null
        : {
            ...{ id: lastAttempt.id, started_at: lastAttempt.startedAt.toISOString() },
            ...{ duration_ms: lastAttempt.durationMs, outcome: lastAttempt.outcome },
            status: lastAttempt.status ?? null,
          },
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

/** `service`: the setting of the service, which is the least that every notification needs. */
function confirmationsNeeded(one: LoggedNotification, service: number): number | undefined {
  if (one.confirmations === undefined) return undefined;
  // The number that counted when the block was stored.
  if (one.releaseNumber !== undefined) return one.releaseNumber - one.blockNumber;
  if (one.webhookUrl === undefined) return undefined;
  return Math.max(one.recordConfirmations ?? 0, service);
}

export function blockJson(
  { blockNumber, confirmations, orphaned }: LoggedNotification,
  stored: LoggedBlock | undefined,
): Static<typeof BlockJson> {
  const isOrphaned = orphaned !== undefined;
  return {
    number: blockNumber,
    hash: (isOrphaned ? orphaned.blockHash : stored?.hash) ?? null,
    mined_at: isOrphaned ? null : (stored?.minedAt.toISOString() ?? null),
    confirmations: confirmations ?? null,
    is_final: !isOrphaned && stored?.isFinal === true,
    is_orphaned: isOrphaned,
  };
}
