/**
 * Routes that change many watched addresses in one call: a list of changes in one transaction, a stream of separate changes
 * of any length, or the complete set of a webhook URL. User documentation: docs/how-to/register-many-addresses.md.
 */
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { never } from '../../core/abort.ts';
import { Fault, orFault, type Problem } from '../../core/fault.ts';
import type { WebhookPolicy } from '../../domain/webhook-url.ts';
import type { Tx } from '../../store/db/db.ts';
import { doOnce } from '../../store/watchers/idempotency.ts';
import { withinLimits } from '../../store/watchers/limits.ts';
import { alignChanged, changeWatchedAddresses } from '../../store/watchers/watched-bulk.ts';
import { replaceWatchedSet, type SetMember } from '../../store/watchers/watched-set.ts';
import type { Api, ApiOptions } from '../context.ts';
import { accountOf, createShardGate, passAgain, type WatcherGate } from '../http/auth.ts';
import { liftBodyLimit, readRest } from '../http/body-limit.ts';
import { requireKnown, strict } from '../http/body-names.ts';
import { untilSilent } from '../http/body-silence.ts';
import { requireConnected } from '../http/connected.ts';
import { invalid, PROBLEMS_MAX } from '../http/errors.ts';
import { onceOf, startOnce } from '../http/idempotency-key.ts';
import { LINES_TYPE } from '../http/json-lines.ts';
import { limitChanged } from '../http/memory-limit.ts';
import { createRoom } from '../http/memory-queue.ts';
import { IdempotencyHeaders, idempotencyErrors } from '../http/operation.ts';
import { createParser } from '../http/parser.ts';
import { hasFreeSlot } from '../http/stream-slots.ts';
import { answerLines } from './bulk-stream.ts';
import { ChangeRecord, changedBytes, parseChange } from './changes.ts';
import { createAlignment } from './late-alignment.ts';
import { LIMIT_REACHED } from './limits.ts';
import { found, PATH, parseFields, Record, toJson } from './watched-addresses.ts';

const BULK_PATH = `${PATH}/bulk`;

const CHANGES_MAX = 10_000;
/** More than for changes, because a set cannot be split into several calls. */
const MEMBERS_MAX = 50_000;
/** Enough for 50,000 members with all fields, or 10,000 records with URLs of 600 characters. */
const BODY_BYTES_MAX = 8 * 1024 * 1024;
/** Leaves streams for other watchers. */
const STREAMS_PER_WATCHER_MAX = 4;
/** Each holds a group of lines in memory, less than 8 MiB. */
const STREAMS_MAX = 32;
/** Lists, sets and groups of lines stored at once, one for each watcher, so that other requests find a database connection. */
const STORED_MAX = 3;
/** How long the server waits for the next line. A stream as a whole may last as long as any request. */
const STREAM_SILENCE_MS_MAX = 60_000;
/** For a client that doesn't read its answers. Longer than for lines, so that a silent client still receives the reason. */
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
const parseMember = createParser(Member);
const Members = Type.Object({ records: Type.Array(Member, { maxItems: MEMBERS_MAX }) }, strict);
// The validator of a whole list checks every member, even after the last problem that it reports.
const parseSet = createParser(Type.Object({ records: Type.Array(Type.Unknown()) }));
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
  'This watcher, or all watchers together, have too many open streams or waiting large requests. Nothing was changed.';

const Changes = Type.Object(
  { records: Type.Array(ChangeRecord, { minItems: 1, maxItems: CHANGES_MAX }) },
  strict,
);
const operations = {
  change: {
    summary: 'Create, update and delete many watched addresses',
    description:
      'As JSON, either all changes happen or none. As lines of JSON (`application/x-ndjson`), each line is a separate change and gets a line as its answer.',
    headers: IdempotencyHeaders,
    body: { content: { 'application/json': Changes, [LINES_TYPE]: Type.String() } },
    bodyExample: {
      records: [
        {
          address: '0x00000000000000000000000000000000000000a1',
          webhook_url: 'https://hooks.example.com/deposits',
        },
        { operation: 'delete', id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c00' },
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
      404: 'A watched address to change does not exist. Nothing was changed.',
      415: `Unsupported Media Type: send Content-Type: application/json or ${LINES_TYPE}`,
      408: 'The lines stopped before the first answer, or the JSON did not arrive in time. Nothing was changed.',
      429: TOO_MANY,
    },
  },
  replace: {
    summary: 'Replace the watched addresses of a webhook URL',
    headers: IdempotencyHeaders,
    body: Members,
    bodyExample: { records: [{ address: '0x00000000000000000000000000000000000000a1' }] },
    example: { success: true, data: { created: 1, updated: 0, deleted: 0, unchanged: 12 } },
    errors: {
      409: `${LIMIT_REACHED} ${idempotencyErrors[409]}`,
      429: TOO_MANY,
    },
  },
};

export function addBulkRoutes(api: Api, options: ApiOptions): void {
  const gate = createShardGate(options);
  const storing = createRoom({ clock: options.clock, unitsMax: STORED_MAX, what: 'bulk changes' });
  const inTurn: InTurn = async (request, work, check = passAgain) => {
    const end = await storing.take(accountOf(request), 1, never);
    try {
      // Meanwhile the key may have been revoked.
      await check(request);
      return await work();
    } finally {
      end();
    }
  };
  addChangeRoute(api, options, gate, inTurn);
  addReplaceRoute(api, options, gate, inTurn);
}

/** Does work that stores many rows when it is the turn of the request's account. @throws Fault `limited` when too many calls wait. */
type InTurn = <T>(
  request: FastifyRequest,
  work: () => Promise<T>,
  check?: (request: FastifyRequest) => Promise<void>,
) => Promise<T>;

function addChangeRoute(api: Api, options: ApiOptions, gate: WatcherGate, inTurn: InTurn): void {
  const { database, clock, webhookPolicy, limits } = options;
  const { onRequest, watcherOf } = gate;
  const answerStream = createStreamAnswer(options, gate, inTurn);
  const admitAnswer = limitChanged(options);
  const align = createAlignment(options);

  api.addContentTypeParser(LINES_TYPE, (request, body, done) => {
    if (request.method === 'POST' && request.routeOptions.url === BULK_PATH) return done(null, body);
    done(Object.assign(new Error('this route accepts no lines of JSON'), { statusCode: 415 }));
  });
  api.post(
    BULK_PATH,
    { onRequest, bodyLimit: BODY_BYTES_MAX, config: { operation: operations.change } },
    async (request, reply) => {
      if (request.body instanceof Readable) return answerStream(request, request.body, reply);
      const watcherId = watcherOf(request);
      requireKnown(Bulk, request.body);
      const { records } = parseBulk(request.body);
      const changes = mapRecords(records, (record) => parseChange(record, webhookPolicy));
      const once = onceOf(request, watcherId, clock.now());
      await admitAnswer(request, reply, changedBytes(changes));
      return inTurn(request, async () => {
        const answer = await doOnce(database, once, async (tx) => {
          const at = { now: clock.now, limits };
          const changed = await changeWatchedAddresses(whileConnected(tx, request), watcherId, changes, at);
          return { success: true, data: mapRecords(changed, (record) => toJson(found(record))) };
        });
        await alignChanged(database, watcherId, changes, clock.now(), align);
        return answer;
      });
    },
  );
}

/** Answers a stream of changes, each line with a line, while it arrives. */
function createStreamAnswer(options: ApiOptions, { onRequest, watcherOf }: WatcherGate, inTurn: InTurn) {
  const { clock } = options;
  /** The account of each open stream. */
  const streams = new Map<FastifyRequest, number>();

  function requireFreeStream(account: number): void {
    const max = { ownMax: STREAMS_PER_WATCHER_MAX, watchersMax: STREAMS_MAX };
    if (hasFreeSlot(streams.values(), account, max)) return;
    const ownCount = [...streams.values()].filter((one) => one === account).length;
    if (ownCount >= STREAMS_PER_WATCHER_MAX)
      throw new Fault('limited', `${ownCount} streams of this watcher are open, which is the limit`);
    throw new Fault('limited', `${STREAMS_MAX} streams of all watchers are open, which is the limit`);
  }

  return async (request: FastifyRequest, source: Readable, reply: FastifyReply): Promise<Readable> => {
    const watcherId = watcherOf(request);
    liftBodyLimit(request);
    const once = startOnce(request, watcherId, clock.now());
    const account = accountOf(request);
    requireFreeStream(account);
    requireConnected(request);
    streams.set(request, account);
    reply.raw.once('close', () => streams.delete(request));
    request.raw.setTimeout(SOCKET_SILENCE_MS_MAX);
    const check = () => onRequest(request);
    const { body, isOver } = untilSilent(source, { clock, silenceMs: STREAM_SILENCE_MS_MAX, check });
    reply.raw.once('finish', () => {
      if (isOver()) request.socket.destroySoon();
      else readRest(request);
    });
    const answers = await answerLines(options, {
      ...{ watcherId, body, once },
      inTurn: (work) => inTurn(request, work, onRequest),
    });
    reply.type(LINES_TYPE);
    return Readable.from(answers);
  };
}

function addReplaceRoute(
  api: Api,
  { database, clock, log, webhookPolicy, limits }: ApiOptions,
  { onRequest, watcherOf }: WatcherGate,
  inTurn: InTurn,
): void {
  const align = createAlignment({ log });
  api.put(
    BULK_PATH,
    {
      onRequest,
      bodyLimit: BODY_BYTES_MAX,
      schema: { querystring: SetQuery, response: { 200: Counted } },
      config: { operation: operations.replace },
    },
    async (request) => {
      const { webhook_url, allow_empty: isEmptyAllowed = false } = request.query;
      parseFields({ webhook_url }, webhookPolicy);
      requireKnown(Members, request.body);
      const members = parseMembers(parseSet(request.body).records, webhookPolicy);
      if (members.length === 0 && !isEmptyAllowed) {
        throw invalid('/records', 'is empty; allow_empty=true deletes every watched address of this URL');
      }
      const watcherId = watcherOf(request);
      const once = onceOf(request, watcherId, clock.now());
      return inTurn(request, async () => {
        let deletedIds: readonly string[] = [];
        const answer = await doOnce(database, once, async (plain) => {
          const tx = whileConnected(plain, request);
          const replaced = await withinLimits(tx, watcherId, limits, () =>
            replaceWatchedSet(tx, watcherId, webhook_url, members, clock.now),
          );
          deletedIds = replaced.deletedIds;
          return { success: true as const, data: replaced.counts };
        });
        await align(database, watcherId, deletedIds, clock.now());
        return answer;
      });
    },
  );
}

/** The transaction, which rolls back at the next statement once the client has hung up. */
function whileConnected(tx: Tx, request: FastifyRequest): Tx {
  return {
    ...tx,
    async query(statement) {
      requireConnected(request);
      return tx.query(statement);
    },
  };
}

function parseMembers(records: readonly unknown[], policy: WebhookPolicy): SetMember[] {
  const seen = new Set<string>();
  return mapRecords(records, (value) => {
    const record = parseMember(value);
    const { address } = parseFields({ address: record.address }, policy);
    if (address === undefined) throw new Error('the schema requires an address');
    if (seen.has(address)) throw invalid('/address', 'appears twice');
    seen.add(address);
    return { address, watchCoin: record.watch_coin ?? true, watchToken: record.watch_token ?? true };
  });
}

/** The result for each record. @throws Fault with the first problems, each with the index of its record in the list. */
function mapRecords<Record, Result>(records: readonly Record[], work: (record: Record) => Result): Result[] {
  let first: Fault | undefined;
  const problems: Problem[] = [];
  const results: Result[] = [];
  for (const [index, record] of records.entries()) {
    const result = orFault(() => work(record));
    if (!(result instanceof Fault)) {
      results.push(result);
      continue;
    }
    first ??= result;
    const own = result.problems.length > 0 ? result.problems : [{ path: '', message: result.message }];
    problems.push(...own.map(({ path, message }) => ({ path: `/records/${index}${path}`, message })));
    if (problems.length >= PROBLEMS_MAX) break;
  }
  if (first !== undefined) throw new Fault(first.code, first.message, { problems });
  return results;
}
