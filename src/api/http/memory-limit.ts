/**
 * How much memory the requests of watchers hold at once: bodies of many records, from before they are read until their answer
 * is taken, and answers, until they are taken. The rest of a watcher's requests wait in turn.
 */
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { Api, ApiOptions } from '../context.ts';
import { passAgain, watcherOf } from './auth.ts';
import { liftBodyLimit, restartBodyLimit } from './body-limit.ts';
import { LINES_TYPE } from './json-lines.ts';
import { createRoom, type Room } from './memory-queue.ts';
import { NOTIFICATIONS_PREFIX } from './shared-headers.ts';

/** Bytes of bodies. Read, parsed and answered, a body of 8 MiB takes some ten times as much. */
const BODY_BYTES_MAX = 64 * 1024 * 1024;
/** What a small body counts: its records and their answer take memory too. */
const BODY_BYTES_MIN = 64 * 1024;
/** Pages under way: of 1,000 records or attempts, which have 2.4 MB at most. A watcher alone gets half of them. */
const PAGES_MAX = 32;
const PAGE_RECORDS = 1_000;
/** Of one request: no list has longer pages. */
const REQUEST_PAGES_MAX = 10;

/** Limits every route of watchers that is added from now on, once the key is known to be valid. */
export function limitMemory(api: Api, { clock }: Pick<ApiOptions, 'clock'>): void {
  const bodies = createRoom({ clock, unitsMax: BODY_BYTES_MAX, what: 'requests with many records' });
  const answers = createRoom({ clock, unitsMax: PAGES_MAX, what: 'requests for lists' });

  const admitBody = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { headers, routeOptions } = request;
    // Lines are not read as a whole.
    if (headers['content-type']?.startsWith(LINES_TYPE) === true) return;
    const bytesMax = routeOptions.bodyLimit ?? BODY_BYTES_MIN;
    const isChunked = headers['transfer-encoding'] !== undefined;
    const bytes = isChunked ? bytesMax : Number(headers['content-length'] ?? 0);
    // It is refused by its length.
    if (!(bytes <= bytesMax)) return;
    // While it waits nothing reads it.
    liftBodyLimit(request);
    await admit(bodies, Math.max(bytes, BODY_BYTES_MIN), request, reply);
    restartBodyLimit(request);
  };
  const admitAnswer = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const limit = Number(Reflect.get(Object(request.query), 'limit') ?? PAGE_RECORDS);
    const pages = Math.ceil(Math.min(limit, REQUEST_PAGES_MAX * PAGE_RECORDS) / PAGE_RECORDS);
    // Its handler refuses what is no number.
    await admit(answers, Number.isNaN(pages) ? 1 : Math.max(pages, 1), request, reply);
    // It may have waited for longer than its key is valid.
    await passAgain(request);
  };

  api.addHook('onRoute', (route: RouteOptions) => {
    if (!route.url.startsWith(NOTIFICATIONS_PREFIX) || route.config?.isEndless === true) return;
    const methods = [route.method].flat();
    if (route.bodyLimit !== undefined)
      route.preParsing = [
        route.preParsing ?? [],
        (request: FastifyRequest, reply: FastifyReply) => admitBody(request, reply),
      ].flat();
    if (methods.includes('GET') || methods.includes('HEAD'))
      route.preHandler = [route.preHandler ?? [], admitAnswer].flat();
  });
}

/** Takes what a request holds, for as long as its answer is under way. @throws Fault `limited` */
async function admit(room: Room, units: number, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  // Fastify gives a HEAD the hooks of its GET, and its own.
  if (admitted.has(request)) return;
  admitted.add(request);
  const closed = new AbortController();
  reply.raw.once('close', () => closed.abort());
  const release = await room.take(watcherOf(request), units, closed.signal);
  if (closed.signal.aborted) release();
  else reply.raw.once('close', release);
}

const admitted = new WeakSet<FastifyRequest>();
