/**
 * What a request asks of the delivery log: filters, a limit, the place to go on from.
 */
import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import { Fault, orFault, type Problem } from '../../core/fault.ts';
import { type Hash, parseAddress } from '../../core/hex.ts';
import { findIsoTime } from '../../core/iso-time.ts';
import type { Database } from '../../store/db/db.ts';
import type { LogFilter } from '../../store/delivery/log.ts';
import { listRecordIds } from '../../store/watchers/watched.ts';
import { invalid, invalidRequest } from '../http/errors.ts';
import { parseWhole } from '../http/parameters.ts';
import { UUID } from './watched-addresses.ts';

export const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1_000;
/** Of one address: a page looks through the rows of each; with 100 records it took nearly two seconds. */
const RECORDS_MAX = 10;

const states = ['held', 'waiting', 'processed', 'withdrawn', 'cancelled'] as const;
const types = ['COIN_TRANSFER', 'TOKEN_TRANSFER'] as const;

const text = Type.Optional(Type.String());
export const Page = Type.Object({ limit: text, cursor: text });
const filters = {
  state: text,
  type: text,
  hash: text,
  address: text,
  watched_address_id: text,
  from: text,
  until: text,
  to: Type.Optional(Type.String({ description: 'The same as `until`.' })),
  from_block: text,
  to_block: text,
};
/** A filter with a typing error must not mean everything. */
const strict = { additionalProperties: false };
export const RedeliverQuery = Type.Object({ ...filters, cursor: text }, strict);
export const ListQuery = Type.Object({ ...filters, cursor: text, limit: text }, strict);

/** What the query asks for; all that is wrong with it at once. */
export async function readQuery(database: Database, watcherId: number, query: Static<typeof ListQuery>) {
  const checks = createChecks();
  const address = checks.of('address', query.address, parseAddressOrNot, '40 hexadecimal characters');
  const recordId = checks.of('watched_address_id', query.watched_address_id, parseUuid, 'a UUID');
  const filter: LogFilter = {
    state: checks.of('state', query.state, oneOf(states), `one of ${states.join(', ')}`),
    type: checks.of('type', query.type, oneOf(types), `one of ${types.join(', ')}`),
    hash: checks.of('hash', query.hash, parseHash, '64 hexadecimal characters'),
    from: checks.of('from', query.from, findIsoTime, 'a time such as 2026-01-31T12:00:00Z'),
    until: checks.of(
      query.until === undefined ? 'to' : 'until',
      query.until ?? query.to,
      findIsoTime,
      'a time such as 2026-01-31T12:00:00Z',
    ),
    fromBlock: checks.of('from_block', query.from_block, parseWhole, 'a block number'),
    toBlock: checks.of('to_block', query.to_block, parseWhole, 'a block number'),
  };
  checks.onlyOne({ until: query.until, to: query.to });
  const limit = checks.limit(query.limit);
  const after = checks.cursor(query.cursor);
  checks.done();
  if (address === undefined)
    return {
      filter: { ...filter, recordIds: recordId === undefined ? undefined : [recordId] },
      limit,
      after,
    };
  const ids = await listRecordIds(database, watcherId, address, RECORDS_MAX + 1);
  if (ids.length > RECORDS_MAX)
    throw invalid('/address', `has more than ${RECORDS_MAX} records: name one by watched_address_id`);
  const recordIds = recordId === undefined ? ids : ids.filter((id) => id === recordId);
  return { filter: { ...filter, recordIds }, limit, after };
}

function createChecks() {
  const problems: Problem[] = [];
  const of = <T>(
    name: string,
    given: string | undefined,
    parse: (text: string) => T | undefined,
    form: string,
  ) => {
    const value = given === undefined ? undefined : parse(given);
    if (given !== undefined && value === undefined)
      problems.push({ path: `/${name}`, message: `must be ${form}` });
    return value;
  };
  const parseLimit = (given: string) => {
    const limit = parseWhole(given);
    return limit !== undefined && limit >= 1 && limit <= LIMIT_MAX ? limit : undefined;
  };
  return {
    of,
    limit: (given: string | undefined) =>
      of('limit', given, parseLimit, `a whole number from 1 to ${LIMIT_MAX}`) ?? LIMIT_DEFAULT,
    cursor: (given: string | undefined) => of('cursor', given, parseWhole, 'the cursor of a link header'),
    /** For names of the same thing. */
    onlyOne(given: Record<string, string | undefined>) {
      const names = Object.keys(given).filter((name) => given[name] !== undefined);
      for (const name of names.slice(1))
        problems.push({ path: `/${name}`, message: `is the same as ${names[0]}: give one of them` });
    },
    done() {
      if (problems.length > 0) throw invalidRequest(problems);
    },
  };
}

/** Limit and cursor of a list without filters. */
export function readPage({ limit, cursor }: Static<typeof Page>) {
  const checks = createChecks();
  const page = { limit: checks.limit(limit), before: checks.cursor(cursor) };
  checks.done();
  return page;
}

/** A redelivery's cursor: when it began, and the last id of the request before. */
export const formatPlace = ({ startedAt, after }: { startedAt: Date; after: number | undefined }) =>
  `${startedAt.getTime()}-${after}`;

export function parsePlace(cursor: string): { startedAt: Date; after: number | undefined } {
  const [, startedMs, after] = /^(\d{1,15})-(\d{1,15})$/.exec(cursor) ?? [];
  if (startedMs === undefined) throw invalid('/cursor', 'must be the cursor of an answer');
  return { startedAt: new Date(Number(startedMs)), after: Number(after) };
}

/** Leads to the next page by the header that RFC 8288 has for it. */
export function linkNext(
  reply: FastifyReply,
  path: string,
  query: { [name: string]: string | undefined },
): void {
  const next = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) next.set(name, value);
  reply.header('link', `<${path}?${next.toString()}>; rel="next"`);
}

const parseUuid = (given: string) => (UUID.test(given) ? given.toLowerCase() : undefined);
const oneOf =
  <T extends string>(words: readonly T[]) =>
  (given: string) =>
    words.find((word) => word === given);

function parseHash(given: string): Hash | undefined {
  const digits = given.replace(/^0x/i, '').toLowerCase();
  return /^[0-9a-f]{64}$/.test(digits) ? `0x${digits}` : undefined;
}

function parseAddressOrNot(given: string) {
  const address = orFault(() => parseAddress(given));
  return address instanceof Fault ? undefined : address;
}
