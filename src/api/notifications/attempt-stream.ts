/**
 * Delivery attempts as server-sent events (WHATWG HTML, section 9.2), sent as their outcomes are stored. The id of an event
 * is the id of the attempt, so a client that reconnects with `Last-Event-ID` misses no attempt that is still stored.
 */
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { startAbort } from '../../core/abort.ts';
import { keepAccount } from '../../core/account.ts';
import { Fault } from '../../core/fault.ts';
import { publicIdentityOf } from '../../store/db/identity.ts';
import type { Api, ApiOptions } from '../context.ts';
import { accountOf, createShardGate, isRefusal, OPERATOR } from '../http/auth.ts';
import { requireConnected } from '../http/connected.ts';
import { oneOf, parameter, querySchema, readKeyed } from '../http/parameters.ts';
import { hasFreeSlot } from '../http/stream-slots.ts';
import {
  createAttemptEvents,
  EventJson,
  eventJson,
  type Following,
  parseLastEventId,
  requireAssigned,
} from './attempt-events.ts';

const PATH = '/api/notifications/attempts/stream';
const DATABASE_HEADER = 'chainbell-database';
/** Each holds a connection and queries the database when new outcomes are stored. */
const STREAMS_MAX = 100;
const STREAMS_PER_WATCHER_MAX = 5;
/** Of all people and programs with the operator's token. */
const OPERATOR_STREAMS_MAX = 20;
/** Clients reconnect by themselves after that, and a client that has stopped reading cannot hold its stream forever. */
const STREAM_MS_MAX = 3_600_000;

export const streamParameters = {
  failures: parameter(
    'true or false',
    oneOf(['true', 'false']),
    Type.String({ description: '`true`: only failed attempts.' }),
  ),
};

export const streamOperation = {
  summary: 'Stream delivery attempts',
  description:
    'Server-sent events. The data of each `attempt` event is a JSON object: the attempt as in the delivery log, and its notification as of the attempt. An event is sent within 0.1 s after the attempt was recorded, while few streams are open. Reconnect with the id of the last event to continue after it. A stream lasts an hour at most.',
  headers: Type.Object({
    'last-event-id': Type.Optional(Type.String({ description: 'The id of the last event you received.' })),
  }),
  answer: { content: { 'text/event-stream': Type.String({ 'x-event-data': EventJson }) } },
  answerHeaders: {
    [DATABASE_HEADER]:
      'Names the database. With another value than before, the database was replaced, and ids of former events mean nothing.',
  },
  example: 'id: 9001\nevent: attempt\ndata: {"id":9001, …, "notification":{"status":"delivered", …}}\n\n',
  errors: {
    400: 'The header `last-event-id` is not the id of an event, or is above that of every stored event.',
    429: 'Too many streams are open.',
  },
};

const config = { operation: streamOperation, isEndless: true } as const;

export type AttemptStreams = {
  /** Answers a request with a stream of attempts. @throws Fault `invalid` for a wrong last id, `limited` if too many are open */
  open(
    request: FastifyRequest,
    reply: FastifyReply,
    following: Pick<Following, 'watcherId' | 'toJson'> & {
      /** Rejects once the client may no longer read the stream (`isRefusal`). */
      check(): Promise<unknown>;
    },
  ): Promise<FastifyReply>;
};

/** The open streams of all routes, which share their limits. */
export function createAttemptStreams(api: Api, options: ApiOptions): AttemptStreams {
  const follow = createAttemptEvents(options);
  /** The account of each. */
  const streams = new Map<Readable, number>();
  const closing = new AbortController();
  api.addHook('preClose', async () => closing.abort());

  return {
    async open(request, reply, following) {
      const after = parseLastEventId(request.headers['last-event-id']);
      // Also without an id, so that a stream without the database is refused before it begins.
      await requireAssigned(options.database, after ?? 0);
      const identity = await publicIdentityOf(options.database);
      const { failures } = readKeyed(request.query, streamParameters);
      const account = accountOf(request);
      const ownMax = account === OPERATOR ? OPERATOR_STREAMS_MAX : STREAMS_PER_WATCHER_MAX;
      if (!hasFreeSlot(streams.values(), account, { ownMax, watchersMax: STREAMS_MAX }))
        throw new Fault('limited', 'Too many streams are open');
      requireConnected(request);
      const limit = startAbort(closing.signal, STREAM_MS_MAX);
      const events = follow({
        ...{ ...following, after, onlyFailures: failures === 'true', signal: limit.signal },
        isAllowed: () => passes(following.check),
      });
      const stream = Readable.from(keepAccount(events));
      streams.set(stream, account);
      const end = () => {
        streams.delete(stream);
        // Ends the wait of the generator, and so the generator.
        limit.abort();
        limit.release();
        stream.destroy();
      };
      limit.signal.addEventListener('abort', end, { once: true });
      reply.raw.once('close', end);
      return reply
        .type('text/event-stream; charset=utf-8')
        .headers({ 'cache-control': 'no-store', 'x-accel-buffering': 'no', connection: 'close' })
        .header(DATABASE_HEADER, identity)
        .send(stream);
    },
  };
}

export function addAttemptStreamRoute(api: Api, options: ApiOptions, { open }: AttemptStreams): void {
  const { onRequest, watcherOf } = createShardGate(options);
  const schema = { querystring: querySchema(streamParameters) };
  // A HEAD request would read the whole stream.
  api.get(PATH, { onRequest, exposeHeadRoute: false, schema, config }, async (request, reply) =>
    open(request, reply, {
      watcherId: watcherOf(request),
      toJson: (event) => eventJson(event, options.nativeSymbol),
      check: () => onRequest(request),
    }),
  );
}

async function passes(check: () => Promise<unknown>): Promise<boolean> {
  try {
    await check();
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  }
}
