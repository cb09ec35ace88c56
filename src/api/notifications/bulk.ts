/**
 * Many watched addresses in one call: a list of changes that all happen or none, a stream of changes of any length, or
 * the whole set of one webhook URL. For users: docs/how-to/register-many-addresses.md.
 */
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { never } from '../../core/abort.ts';
import { Fault, type Problem } from '../../core/fault.ts';
import type { WebhookPolicy } from '../../domain/webhook-url.ts';
import type { Tx } from '../../store/db/db.ts';
import { shardOf } from '../../store/delivery/lanes.ts';
import { alignNotifications } from '../../store/delivery/record-changes.ts';
import { doOnce } from '../../store/watchers/idempotency.ts';
import { withinLimits } from '../../store/watchers/limits.ts';
import { alignChanged, changeWatchedAddresses } from '../../store/watchers/watched-bulk.ts';
import { replaceWatchedSet, type SetMember } from '../../store/watchers/watched-set.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { liftBodyLimit, readRest } from '../http/body-limit.ts';
import { strict, unknownFields } from '../http/body-names.ts';
import { untilSilent } from '../http/body-silence.ts';
import { invalid, invalidRequest } from '../http/errors.ts';
import { onceOf, startOnce } from '../http/idempotency-key.ts';
import { LINES_TYPE } from '../http/json-lines.ts';
import { createRoom } from '../http/memory-queue.ts';
import { IdempotencyHeaders, idempotencyErrors } from '../http/operation.ts';
import { createParser } from '../http/parser.ts';
import { answerLines } from './bulk-stream.ts';
import { ChangeRecord, parseChange } from './changes.ts';
import { LIMIT_REACHED } from './limits.ts';
import { found, PATH, parseFields, Record, toJson } from './watched-addresses.ts';

const BULK_PATH = `${PATH}/bulk`;

const CHANGES_MAX = 10_000;
/** More than changes, because a set cannot be cut into several calls. */
const MEMBERS_MAX = 50_000;
/** 50,000 members with all their fields, or 10,000 records with URLs of 600 characters. */
const BODY_BYTES_MAX = 8 * 1024 * 1024;
/** Enough to see what is wrong with a list. */
const PROBLEMS_MAX = 100;
/** So that one watcher leaves places to the others. */
const STREAMS_PER_WATCHER_MAX = 4;
/** Each holds a group of lines, below 8 MiB. */
const STREAMS_MAX = 32;
/** Lists, sets and groups of lines: one of a watcher at a time, so that others' requests find connections to the database. */
const STORED_MAX = 3;
/** So long may a line be waited for; as a whole a stream may last for as long as the server lets any request last. */
const STREAM_SILENCE_MS_MAX = 60_000;
/** For answers that the client does not read, by the socket's limit. Longer, so that a client that sends nothing learns the reason. */
const SOCKET_SILENCE_MS_MAX = 2 * STREAM_SILENCE_MS_MAX;

const Bulk = Type.Object(
  { records: Type.Array(Type.Unknown(), { minItems: 1, maxItems: CHANGES_MAX }) },
  strict,
);
const parseBulk = createParser(Bulk);
const Member = Type.Object(
  {
    address: Type.String(),
    watch_coin: Type.Optional(Type.Boolean()),
    watch_token: Type.Optional(Type.Boolean()),
  },
  strict,
);
const Members = Type.Object({ records: Type.Array(Member, { maxItems: MEMBERS_MAX }) }, strict);
const SetQuery = Type.Object({ webhook_url: Type.String(), allow_empty: Type.Optional(Type.Boolean()) });
const Counted = Type.Object({
  success: Type.Literal(true),
  data: Type.Object({
    created: Type.Integer(),
    updated: Type.Integer(),
    deleted: Type.Integer(),
    unchanged: Type.Integer(),
  }),
});

const TOO_MANY =
  'Too many streams, or large requests that wait, of this watcher or of all: nothing was changed.';

const Changes = Type.Object(
  { records: Type.Array(ChangeRecord, { minItems: 1, maxItems: CHANGES_MAX }) },
  strict,
);
const operations = {
  change: {
    summary: 'Create, update and delete many watched addresses',
    description:
      'As JSON all changes happen or none. As lines of JSON (`application/x-ndjson`) each line is a separate change, and is answered by a line.',
    headers: IdempotencyHeaders,
    body: { content: { 'application/json': Changes, [LINES_TYPE]: Type.String() } },
    bodyExample: {
      records: [
        {
          address: '0x00000000000000000000000000000000000000a1',
          webhook_url: 'https://hooks.example.com/deposits',
        },
        { operation: 'delete', id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c11' },
      ],
    },
    answer: {
      content: {
        'application/json': Type.Object({ success: Type.Literal(true), data: Type.Array(Record) }),
        [LINES_TYPE]: Type.String(),
      },
    },
    example: { success: true, data: [] },
    errors: {
      409: `${LIMIT_REACHED} Nothing was changed. ${idempotencyErrors[409]}`,
      404: 'A record to be changed is not there: nothing was changed.',
      408: 'The lines stopped before their end, and before any was answered, or the JSON did not come in time: nothing was changed.',
      429: TOO_MANY,
    },
  },
  replace: {
    summary: 'Make these the watched addresses of a webhook URL',
    headers: IdempotencyHeaders,
    bodyExample: { records: [{ address: '0x00000000000000000000000000000000000000a1' }] },
    example: { success: true, data: { created: 1, updated: 0, deleted: 0, unchanged: 12 } },
    errors: {
      409: `${LIMIT_REACHED} ${idempotencyErrors[409]}`,
      429: TOO_MANY,
    },
  },
};

export function addBulkRoutes(api: Api, options: ApiOptions): void {
  const { database, clock, webhookPolicy, limits } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);
  /** Of each open stream. */
  const streams = new Map<FastifyRequest, number>();
  const storing = createRoom({ clock, unitsMax: STORED_MAX, what: 'bulk changes' });
  const inTurnOf = async <T>(watcherId: number, work: () => Promise<T>): Promise<T> => {
    const end = await storing.take(watcherId, 1, never);
    try {
      return await work();
    } finally {
      end();
    }
  };

  api.addContentTypeParser(LINES_TYPE, (request, body, done) => {
    if (request.method === 'POST' && request.routeOptions.url === BULK_PATH) return done(null, body);
    done(Object.assign(new Error('no lines are taken here'), { statusCode: 415 }));
  });

  api.post(
    BULK_PATH,
    { onRequest, bodyLimit: BODY_BYTES_MAX, config: { operation: operations.change } },
    async (request, reply) => {
      const watcherId = watcherOf(request);
      const now = clock.now();
      if (request.body instanceof Readable) {
        liftBodyLimit(request);
        const once = startOnce(request, watcherId, now);
        const ownCount = [...streams.values()].filter((id) => id === watcherId).length;
        if (ownCount >= STREAMS_PER_WATCHER_MAX)
          throw new Fault('limited', `${ownCount} streams of this watcher are under way, which is the limit`);
        if (streams.size >= STREAMS_MAX)
          throw new Fault(
            'limited',
            `${streams.size} streams of all watchers are under way, which is the limit`,
          );
        // Whose end has passed already would keep its place for ever. Nothing is answered any more.
        if (request.socket.destroyed) throw new Fault('limited', 'the client has hung up');
        streams.set(request, watcherId);
        reply.raw.once('close', () => streams.delete(request));
        request.raw.setTimeout(SOCKET_SILENCE_MS_MAX);
        const check = () => onRequest(request);
        const patience = { clock, silenceMs: STREAM_SILENCE_MS_MAX, check };
        const { body, isOver } = untilSilent(request.body, patience);
        reply.raw.once('finish', () => {
          if (isOver()) request.socket.destroySoon();
          else readRest(request);
        });
        const inTurn = <T>(work: () => Promise<T>) => inTurnOf(watcherId, work);
        const answers = await answerLines(options, { watcherId, body, once, check, inTurn });
        reply.type(LINES_TYPE);
        return Readable.from(answers);
      }
      const unknown = unknownFields(Bulk, request.body);
      if (unknown.length > 0) throw invalidRequest(unknown);
      const { records } = parseBulk(request.body);
      const changes = mapRecords(records, (record) => parseChange(record, webhookPolicy));
      const once = onceOf(request, watcherId, now);
      return inTurnOf(watcherId, async () => {
        const answer = await doOnce(database, once, async (tx) => {
          const at = { now: clock.now(), limits };
          const changed = await changeWatchedAddresses(whileConnected(tx, request), watcherId, changes, at);
          return { success: true, data: mapRecords(changed, (record) => toJson(found(record))) };
        });
        await alignChanged(database, watcherId, changes, clock.now());
        return answer;
      });
    },
  );

  api.put(
    BULK_PATH,
    {
      onRequest,
      bodyLimit: BODY_BYTES_MAX,
      schema: { querystring: SetQuery, body: Members, response: { 200: Counted } },
      config: { operation: operations.replace },
    },
    async (request) => {
      const { webhook_url, allow_empty: isEmptyAllowed = false } = request.query;
      parseFields({ webhook_url }, webhookPolicy);
      const members = parseMembers(request.body.records, webhookPolicy);
      if (members.length === 0 && !isEmptyAllowed) {
        throw invalid('/records', 'is empty; allow_empty=true deletes every record of this URL');
      }
      const watcherId = watcherOf(request);
      const now = clock.now();
      const once = onceOf(request, watcherId, now);
      return inTurnOf(watcherId, async () => {
        let deletedIds: readonly string[] = [];
        const answer = await doOnce(database, once, async (plain) => {
          const tx = whileConnected(plain, request);
          const replaced = await withinLimits(tx, watcherId, limits, () =>
            replaceWatchedSet(tx, watcherId, webhook_url, members, now),
          );
          deletedIds = replaced.deletedIds;
          return { success: true as const, data: replaced.counts };
        });
        await alignNotifications(database, shardOf(watcherId), deletedIds, clock.now());
        return answer;
      });
    },
  );
}

/** The transaction, which goes no further, and is rolled back, once the client has hung up. */
function whileConnected(tx: Tx, request: FastifyRequest): Tx {
  return {
    ...tx,
    async query(statement) {
      if (request.socket.destroyed) throw new Fault('limited', 'the client has hung up');
      return tx.query(statement);
    },
  };
}

function parseMembers(records: readonly Static<typeof Member>[], policy: WebhookPolicy): SetMember[] {
  const seen = new Set<string>();
  return mapRecords(records, (record) => {
    const { address } = parseFields({ address: record.address }, policy);
    if (address === undefined) throw new Error('the schema requires it');
    if (seen.has(address)) throw invalid('/address', 'appears twice');
    seen.add(address);
    return { address, watchCoin: record.watch_coin ?? true, watchToken: record.watch_token ?? true };
  });
}

/** The result for each record. @throws Fault that names what is wrong with any of them by their places in the list. */
function mapRecords<Record, Result>(records: readonly Record[], work: (record: Record) => Result): Result[] {
  let first: Fault | undefined;
  const problems: Problem[] = [];
  const results = records.flatMap((record, index) => {
    try {
      return [work(record)];
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      first ??= error;
      const own = error.problems.length > 0 ? error.problems : [{ path: '', message: error.message }];
      problems.push(...own.map(({ path, message }) => ({ path: `/records/${index}${path}`, message })));
      return [];
    }
  });
  if (first !== undefined)
    throw new Fault(first.code, first.message, { problems: problems.slice(0, PROBLEMS_MAX) });
  return results;
}
