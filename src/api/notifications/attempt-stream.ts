/**
 * Delivery attempts as server-sent events (WHATWG HTML, section 9.2), sent as their outcomes are stored. The id of an event
 * is the id of the attempt, so a client that reconnects with `Last-Event-ID` misses no attempt that is still stored.
 */
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { startAbort } from '../../core/abort.ts';
import { Fault } from '../../core/fault.ts';
import { type Attempt, createSafeWatermark, listAttemptsBetween } from '../../store/delivery/attempts.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate, isRefusal, type WatcherGate } from '../http/auth.ts';
import { invalid } from '../http/errors.ts';
import { attemptJson } from './log-json.ts';

const PATH = '/api/notifications/attempts/stream';
/** Each holds a connection and queries the database when new outcomes are stored. */
const STREAMS_MAX = 100;
const STREAMS_PER_WATCHER_MAX = 5;
/** Clients reconnect by themselves after that, and a client that has stopped reading cannot hold its stream forever. */
const STREAM_MS_MAX = 3_600_000;
const POLL_MS = 500;
/** Attempts in one read: less than 1 MiB, because each has up to 1 KiB of the receiver's answer. */
const PAGE_ATTEMPTS = 500;
/** Common load balancers close a connection that is silent for a minute. */
const HEARTBEAT_MS = 15_000;
/** How long a stream goes on after its key was revoked. */
const CHECK_MS = 2_500;
const RECONNECT_MS = 2_000;

const operation = {
  summary: 'Stream delivery attempts',
  description:
    'Server-sent events. Each `attempt` event is an entry of the delivery log. Reconnect with the id of the last event to continue after it. A stream lasts an hour at most.',
  headers: Type.Object({
    'last-event-id': Type.Optional(Type.String({ description: 'The id of the last event you received.' })),
  }),
  answer: { content: { 'text/event-stream': Type.String() } },
  example: 'id: 9001\nevent: attempt\ndata: {"id":9001, …}\n\n',
  errors: {
    400: 'The header `last-event-id` is not the id of an event.',
    429: 'Too many streams are open.',
  },
};

const config = { operation, isEndless: true } as const;

export function addAttemptStreamRoute(api: Api, options: ApiOptions): void {
  const { onRequest, watcherOf } = createWatcherGate(options);
  const follow = createFollow(options, onRequest);
  const streams = new Map<Readable, number>();
  const closing = new AbortController();
  api.addHook('preClose', async () => closing.abort());

  // A HEAD request would read the whole stream.
  api.get(PATH, { onRequest, exposeHeadRoute: false, config }, async (request, reply) => {
    const watcherId = watcherOf(request);
    const after = parseLastEventId(request);
    const own = [...streams.values()].filter((id) => id === watcherId).length;
    if (own >= STREAMS_PER_WATCHER_MAX || streams.size >= STREAMS_MAX)
      throw new Fault('limited', 'Too many streams are open');
    const limit = startAbort(closing.signal, STREAM_MS_MAX);
    const stream = Readable.from(follow(request, { watcherId, after, signal: limit.signal }));
    const end = () => stream.destroy();
    streams.set(stream, watcherId);
    limit.signal.addEventListener('abort', end, { once: true });
    reply.raw.once('close', () => {
      streams.delete(stream);
      // Ends the wait of the generator, and so the generator.
      limit.abort();
      limit.release();
    });
    return reply
      .type('text/event-stream; charset=utf-8')
      .headers({ 'cache-control': 'no-store', 'x-accel-buffering': 'no', connection: 'close' })
      .send(stream);
  });
}

/** The text of a stream. It begins once every outcome that is stored later is certain to appear. */
function createFollow({ database, clock }: ApiOptions, onRequest: WatcherGate['onRequest']) {
  const safeWatermark = createSafeWatermark(database);

  return async function* follow(
    request: FastifyRequest,
    { watcherId, after, signal }: { watcherId: number; after: number | undefined; signal: AbortSignal },
  ): AsyncGenerator<string> {
    // A separate reader of the safe watermark, because the shared reader may hold an old value.
    const ownWatermark = createSafeWatermark(database);
    let last = after ?? (await ownWatermark());
    while (last === undefined && !signal.aborted) {
      await clock.wait(POLL_MS, signal);
      last = await ownWatermark();
    }
    let spokeMs = clock.steadyMs();
    let checkedMs = spokeMs;
    yield `retry: ${RECONNECT_MS}\n\n`;
    while (last !== undefined && !signal.aborted) {
      const upTo = Math.max(last, (await safeWatermark()) ?? last);
      const page: Attempt[] =
        upTo === last
          ? []
          : await listAttemptsBetween(database, watcherId, { after: last, upTo, limit: PAGE_ATTEMPTS });
      const isFull = page.length === PAGE_ATTEMPTS;
      last = isFull ? page.at(-1)?.id : upTo;
      const nowMs = clock.steadyMs();
      if (page.length > 0 || nowMs - spokeMs >= HEARTBEAT_MS) {
        spokeMs = nowMs;
        yield page.length > 0 ? page.map(toEvent).join('') : ': heartbeat\n\n';
      }
      if (nowMs - checkedMs >= CHECK_MS) {
        checkedMs = nowMs;
        if (!(await isAllowed(request, onRequest))) return;
      }
      if (!isFull) await clock.wait(POLL_MS, signal);
    }
  };
}

async function isAllowed(request: FastifyRequest, onRequest: WatcherGate['onRequest']): Promise<boolean> {
  try {
    await onRequest(request);
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  }
}

function parseLastEventId({ headers }: FastifyRequest): number | undefined {
  const id = headers['last-event-id'];
  if (id === undefined) return undefined;
  if (typeof id === 'string' && /^\d{1,15}$/.test(id)) return Number(id);
  throw invalid('/last-event-id', 'must be the id of an event of this stream');
}

const toEvent = (attempt: Attempt): string =>
  `id: ${attempt.id}\nevent: attempt\ndata: ${JSON.stringify(attemptJson(attempt))}\n\n`;
