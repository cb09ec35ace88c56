/**
 * Names for the types of the OpenAPI document that screens use.
 */
import type { Operations } from './openapi.ts';

export type Operation = keyof Operations;
type Answer<O extends Operation> = Operations[O]['answer'];
/** The data of an answer, without `success` around it. */
export type Data<O extends Operation> = Answer<O> extends { data: infer D } ? D : Answer<O>;
export type Query<O extends Operation> = Operations[O]['query'];
export type Body<O extends Operation> = Operations[O]['body'];

/** Each number as the text that the server sent, which is exact. */
export type Exact<T> = T extends number
  ? string
  : T extends readonly (infer E)[]
    ? Exact<E>[]
    : T extends object
      ? { [K in keyof T]: Exact<T[K]> }
      : T;

/** Rows of the operator API also name the watcher. */
type OfWatcher = { watcher_id?: number; watcher?: string };

export type Chain = Data<'GET /api/chain'>;
export type Status = Data<'GET /status'>;
export type WatchedAddress = Data<'GET /api/notifications/watched-addresses'>[number];
export type Settings = Data<'GET /api/notifications/watched-addresses/{id}/settings'>;
export type TestResult = Data<'POST /api/notifications/watched-addresses/{id}/test'>;
export type Delivery = Data<'GET /api/notifications/log'>[number] & OfWatcher;
export type DeliveryDetail = Data<'GET /api/notifications/log/{id}'> & OfWatcher;
export type Attempt = Data<'GET /api/notifications/log/{id}/attempts'>[number];
export type Receiver = Data<'GET /api/notifications/receivers'>[number] & OfWatcher;
export type Statistics = Data<'GET /api/notifications/statistics'>;
export type SigningSecret = Data<'GET /api/notifications/signing-secrets'>[number];
export type DeliveryStatus = Delivery['status'];

/** What an event of the stream says of its notification. */
export type EventDelivery = Pick<
  Delivery,
  | 'status'
  | 'type'
  | 'sender'
  | 'receiver'
  | 'amount'
  | 'asset'
  | 'hash'
  | 'block_number'
  | 'origin'
  | 'watched_address_id'
  | 'watched_address'
  | 'created_at'
  | 'retry_count'
  | 'next_retry_at'
>;

/** An attempt with its notification as of that attempt. */
export type AttemptEvent = Attempt & { notification: EventDelivery; watcher_id?: number };
