/**
 * Query parameters of the delivery log: filters, limit and cursor.
 */
import { Type } from 'typebox';
import { type Address, type Hash, parseAddress } from '../../core/hex.ts';
import { findIsoTime } from '../../core/iso-time.ts';
import { storedStatuses } from '../../domain/delivery-status.ts';
import { webhookOrigin } from '../../domain/webhook-url.ts';
import type { Database } from '../../store/db/db.ts';
import type { LogFilter } from '../../store/delivery/log-filter.ts';
import { listRecordIds } from '../../store/watchers/watched.ts';
import { invalid, invalidRequest } from '../http/errors.ts';
import { cursorParameter, limitParameter } from '../http/paging.ts';
import { oneOf, type Parsed, parameter, parseWhole, readKeyed } from '../http/parameters.ts';
import { UUID } from './watched-addresses.ts';

export const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1_000;
/** Watched addresses with the same chain address. A page reads rows of each of them, which took nearly two seconds with 100. */
const RECORDS_MAX = 10;

const states = ['held', 'waiting', 'processed', 'withdrawn', 'cancelled'] as const;
const types = ['COIN_TRANSFER', 'TOKEN_TRANSFER'] as const;
const directions = ['in', 'out'] as const;
const outcomes = [
  ...[
    'success',
    'http_3xx',
    'http_4xx',
    'http_5xx',
    'timeout',
    'dns',
    'connect',
    'tls',
    'network',
    'refused',
  ],
] as const;

const TIME = parameter('a time such as 2026-01-31T12:00:00Z', findIsoTime);
const BLOCK = parameter('a block number', parseWhole);
const AMOUNT = parameter('a whole number, in wei or in the smallest unit of the token', (text) =>
  /^\d{1,78}$/.test(text) ? BigInt(text) : undefined,
);

const parseAnswer = (text: string) => (/^[1-5]\d\d$/.test(text) ? Number(text) : oneOf(outcomes)(text));
const parseToken = (text: string): Address | 'native' | undefined =>
  text === 'native' ? text : parseAddress(text);

/** The origin of a receiver as lists show it, from a text that may lack the default port. */
export const parseReceiver = (text: string) =>
  /^https?:\/\/[^\s/?#@\\\p{Cc}]{1,2048}$/u.test(text) && URL.canParse(text)
    ? webhookOrigin(text)
    : undefined;

export const RECEIVER = parameter(
  'scheme, host and port of a webhook URL',
  parseReceiver,
  Type.String({ description: 'Only this receiver. The default port of the scheme may be left out.' }),
);

export const LIMIT = limitParameter(LIMIT_MAX);
/** A list without filters, whose cursor is an id. */
export const pageParameters = { limit: LIMIT, cursor: cursorParameter(parseWhole) };

const filterParameters = {
  state: parameter(`one of ${states.join(', ')}`, oneOf(states)),
  status: parameter(`one of ${storedStatuses.join(', ')}`, oneOf(storedStatuses)),
  type: parameter(`one of ${types.join(', ')}`, oneOf(types)),
  hash: parameter('64 hexadecimal characters', parseHash),
  address: parameter('40 hexadecimal characters', parseAddress),
  watched_address_id: parameter('a UUID', parseUuid),
  from: TIME,
  until: TIME,
  to: { ...TIME, schema: Type.String({ description: 'The same as `until`.' }), aliasOf: 'until' },
  from_block: BLOCK,
  to_block: BLOCK,
  token: parameter('native or the address of a token', parseToken),
  min_amount: AMOUNT,
  max_amount: AMOUNT,
  direction: parameter(`one of ${directions.join(', ')}`, oneOf(directions)),
  origin: RECEIVER,
  code: parameter(
    `an HTTP status or one of ${outcomes.join(', ')}`,
    parseAnswer,
    Type.String({ description: 'HTTP status or outcome of the last attempt.' }),
  ),
};
export const countParameters = filterParameters;
export const listParameters = { ...filterParameters, cursor: pageParameters.cursor, limit: LIMIT };
export const redeliverParameters = {
  ...filterParameters,
  cursor: parameter('the cursor of a response', parseRedeliveryCursor),
};

/** The requested page. @throws Fault `invalid` that lists every problem */
export function readPage(query: unknown) {
  const { limit = LIMIT_DEFAULT, cursor } = readKeyed(query, pageParameters);
  return { limit, before: cursor };
}

/**
 * The filter of the log of one watcher, or of all, for parsed parameters.
 * @throws Fault `invalid` when a range ends before it begins, or the address is that of too many watched addresses
 */
export async function filterOf(
  database: Database,
  watcherId: number | undefined,
  given: Parsed<typeof filterParameters>,
): Promise<LogFilter> {
  const { address, watched_address_id: id, until, to } = given;
  checkRanges(given);
  const { state, status, type, hash, from, token, direction, origin, code: lastAnswer } = given;
  const filter = {
    ...{ state, status, type, hash, from, until: until ?? to, token, direction, origin, lastAnswer },
    ...{ fromBlock: given.from_block, toBlock: given.to_block },
    ...{ minAmount: given.min_amount, maxAmount: given.max_amount },
  };
  if (address === undefined) return { ...filter, recordIds: id === undefined ? undefined : [id] };
  const ids = await listRecordIds(database, watcherId, address, RECORDS_MAX + 1);
  if (ids.length > RECORDS_MAX)
    throw invalid(
      '/address',
      `belongs to more than ${RECORDS_MAX} watched addresses: choose one with watched_address_id`,
    );
  return { ...filter, recordIds: id === undefined ? ids : ids.filter((one) => one === id) };
}

/** @throws Fault `invalid` that lists every range whose end is before its begin */
function checkRanges(given: Parsed<typeof filterParameters>): void {
  const isReversed = <T extends Date | number | bigint>(from: T | undefined, until: T | undefined) =>
    from !== undefined && until !== undefined && from > until;
  const reversed = [
    ...(isReversed(given.from, given.until) ? [['from', 'until']] : []),
    ...(isReversed(given.from, given.to) ? [['from', 'to']] : []),
    ...(isReversed(given.from_block, given.to_block) ? [['from_block', 'to_block']] : []),
    ...(isReversed(given.min_amount, given.max_amount) ? [['min_amount', 'max_amount']] : []),
  ];
  const problems = reversed.map(([from, until]) => ({ path: `/${from}`, message: `is above ${until}` }));
  if (problems.length > 0) throw invalidRequest(problems);
}

/** The cursor of a bulk redelivery: when it began, and the last id of the previous request. */
type RedeliveryCursor = { startedAt: Date; after: number | undefined };

export const formatRedeliveryCursor = ({ startedAt, after }: RedeliveryCursor) =>
  `${startedAt.getTime()}-${after}`;

function parseRedeliveryCursor(text: string): RedeliveryCursor | undefined {
  const [, startedMs, after] = /^(\d{1,13})-(\d{1,15})$/.exec(text) ?? [];
  return startedMs === undefined
    ? undefined
    : { startedAt: new Date(Number(startedMs)), after: Number(after) };
}

export function parseUuid(text: string): string | undefined {
  return UUID.test(text) ? text.toLowerCase() : undefined;
}

export function parseHash(text: string): Hash | undefined {
  const digits = text.replace(/^0x/i, '').toLowerCase();
  return /^[0-9a-f]{64}$/.test(digits) ? `0x${digits}` : undefined;
}
