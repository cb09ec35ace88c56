/**
 * The filters of the delivery log, as they stand in the console's addresses and in the API's queries.
 */
import type { AttemptEvent } from './types.ts';

export const filterNames = [
  ...([
    'status',
    'type',
    'direction',
    'token',
    'min_amount',
    'max_amount',
    'address',
    'watched_address_id',
    'origin',
  ] as const),
  ...(['code', 'hash', 'from', 'until', 'from_block', 'to_block'] as const),
];
export type FilterName = (typeof filterNames)[number];
export type DeliveryFilter = Partial<Record<FilterName, string>>;

export function filterFrom(query: Record<string, string | undefined>): DeliveryFilter {
  return Object.fromEntries(
    filterNames.flatMap((name) =>
      query[name] === undefined || query[name] === '' ? [] : [[name, query[name]]],
    ),
  );
}

export const hasFilter = (filter: DeliveryFilter): boolean => Object.keys(filter).length > 0;

/** The filter as query parameters of the API, which are the same. */
export const queryOf = (filter: DeliveryFilter): DeliveryFilter => filter;

/** The origin of a webhook URL as the log has it, always with the port. Undefined for any other text. */
export function originOf(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  const defaultPort = url.protocol === 'https:' ? '443' : '80';
  return `${url.protocol}//${url.hostname.replace(/\.+$/, '')}:${url.port === '' ? defaultPort : url.port}`;
}

/** Whether a new attempt belongs into a list with this filter. */
export function matches({ notification, outcome, status }: AttemptEvent, filter: DeliveryFilter): boolean {
  const { token, origin } = filter;
  const same = (one: string | undefined, other: string | null) =>
    one === undefined || one.toLowerCase() === other?.toLowerCase();
  const amount = BigInt(notification.amount);
  return (
    same(filter.status, notification.status) &&
    isInDirection(notification, filter.direction) &&
    same(filter.type, notification.type) &&
    same(filter.watched_address_id, notification.watched_address_id) &&
    same(filter.hash?.replace(/^(?!0x)/, '0x'), notification.hash) &&
    same(origin === undefined ? undefined : (originOf(origin) ?? origin), notification.origin) &&
    (token === undefined ||
      (token === 'native' ? notification.type === 'COIN_TRANSFER' : same(token, notification.asset))) &&
    isOfAddress(notification, filter.address) &&
    (filter.code === undefined || filter.code === String(status) || filter.code === outcome) &&
    (filter.min_amount === undefined || amount >= BigInt(filter.min_amount)) &&
    (filter.max_amount === undefined || amount <= BigInt(filter.max_amount)) &&
    (filter.from_block === undefined || notification.block_number >= Number(filter.from_block)) &&
    (filter.to_block === undefined || notification.block_number <= Number(filter.to_block)) &&
    (filter.from === undefined || notification.created_at >= new Date(filter.from).toISOString()) &&
    (filter.until === undefined || notification.created_at < new Date(filter.until).toISOString())
  );
}

/** A deleted address matches none, as in the log. */
function isOfAddress(
  { watched_address: own }: AttemptEvent['notification'],
  address: string | undefined,
): boolean {
  const digits = (text: string) => text.toLowerCase().replace(/^0x/, '');
  return address === undefined || (own !== null && digits(own) === digits(address));
}

function isInDirection(
  { watched_address: own, sender, receiver }: AttemptEvent['notification'],
  direction: string | undefined,
): boolean {
  return (
    direction === undefined || own?.toLowerCase() === (direction === 'out' ? sender : receiver).toLowerCase()
  );
}
