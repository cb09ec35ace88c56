/**
 * Limits the memory that requests of watchers hold at once. A large body counts from before it is read until the client has
 * taken the response. A list counts until the client has taken it, and so does the response to a list of changes. Further
 * requests of the watcher wait in turn. The operator's requests have separate, smaller limits, so that they never wait for
 * those of watchers.
 */
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { Clock } from '../../core/clock.ts';
import type { Api, ApiOptions } from '../context.ts';
import { accountOf, isOperator, passAgain } from './auth.ts';
import { liftBodyLimit, restartBodyLimit } from './body-limit.ts';
import { requireConnected } from './connected.ts';
import { LINES_TYPE } from './json-lines.ts';
import { createRoom, type Room } from './memory-queue.ts';
import { ADMIN_PREFIX, NOTIFICATIONS_PREFIX } from './shared-headers.ts';

/** Bytes of bodies. Read, parsed and answered, a body of 8 MiB takes some ten times as much memory. */
const BODY_BYTES_MAX = 64 * 1024 * 1024;
/** A small body counts as much as this, because its records and their response take memory too. */
const BODY_BYTES_MIN = 64 * 1024;
/** Pages under way, each of 1,000 records or attempts and 2.4 MB at most. One watcher gets at most half of them. */
const PAGES_MAX = 32;
const PAGE_RECORDS = 1_000;
/** For the operator: two bodies of the largest size, and one page more than the longest list. */
const OPERATOR_BODY_BYTES_MAX = 16 * 1024 * 1024;
const OPERATOR_PAGES_MAX = 11;
/** Pages that one request counts as: no list has longer pages. */
const REQUEST_PAGES_MAX = 10;
/** Bytes of responses to lists of changes: four of the longest, of 24 MB, and for the operator another one. */
const CHANGED_BYTES_MAX = 96 * 1024 * 1024;
const OPERATOR_CHANGED_BYTES_MAX = 24 * 1024 * 1024;

/** A client that takes longer than this for a response, and a second for each MiB of it, is cut off when others wait for the memory. */
const SLOW_MS_MIN = 20_000;
const READ_BYTES_PER_MS_MIN = 1024;

/** Limits every such route that is added after this call. It runs after the key or token was checked. */
export function limitMemory(api: Api, { clock }: Pick<ApiOptions, 'clock'>): void {
  const bodies = createRooms(clock, {
    ...{ unitsMax: BODY_BYTES_MAX, operatorUnitsMax: OPERATOR_BODY_BYTES_MAX },
    what: 'requests with many records',
  });
  const answers = createRooms(clock, {
    ...{ unitsMax: PAGES_MAX, operatorUnitsMax: OPERATOR_PAGES_MAX },
    what: 'requests for lists',
  });

  const admitBody = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { headers, routeOptions } = request;
    // A body of lines is not read as a whole.
    if (headers['content-type']?.startsWith(LINES_TYPE) === true) return;
    const bytesMax = routeOptions.bodyLimit ?? BODY_BYTES_MIN;
    const isChunked = headers['transfer-encoding'] !== undefined;
    const bytes = isChunked ? bytesMax : Number(headers['content-length'] ?? 0);
    // Fastify refuses it because of its length.
    if (!(bytes <= bytesMax)) return;
    // The body is not read while the request waits.
    liftBodyLimit(request);
    await admit(bodies, Math.max(bytes, BODY_BYTES_MIN), request, reply);
    restartBodyLimit(request);
  };
  const admitAnswer = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    // Fastify runs the hooks of the GET route and those of the HEAD route for a HEAD request.
    if (admitted.has(request)) return;
    admitted.add(request);
    const query = Object(request.query);
    const unlessLimited = request.routeOptions.config.recordsUnlessLimited?.(query) ?? PAGE_RECORDS;
    const limit = Number(Reflect.get(query, 'limit') ?? unlessLimited);
    const pages = Math.ceil(Math.min(limit, REQUEST_PAGES_MAX * PAGE_RECORDS) / PAGE_RECORDS);
    // The handler refuses a limit that is not a number.
    await admit(answers, Number.isNaN(pages) ? 1 : Math.max(pages, 1), request, reply);
    // The key may have been revoked while the request waited.
    await passAgain(request);
  };

  const noteBegin = async (request: FastifyRequest): Promise<void> => {
    begun.set(request, { ms: clock.steadyMs(), bytes: request.raw.socket.bytesWritten });
  };

  api.addHook('onRoute', (route: RouteOptions) => {
    if (!isLimited(route)) return;
    route.onSend = [route.onSend ?? [], noteBegin].flat();
    const methods = [route.method].flat();
    if (route.bodyLimit !== undefined)
      route.preParsing = [
        route.preParsing ?? [],
        (request: FastifyRequest, reply: FastifyReply) => admitBody(request, reply),
      ].flat();
    if ((methods.includes('GET') || methods.includes('HEAD')) && !isOfOneRecord(route))
      route.preHandler = [route.preHandler ?? [], admitAnswer].flat();
  });
}

/**
 * Returns a function that holds the bytes of a response to changes until it has been sent. Call it before the changes are made,
 * with an upper estimate, because such a response can be 35 times as long as its request. @throws Fault `limited`
 */
export function limitChanged({ clock }: Pick<ApiOptions, 'clock'>) {
  const rooms = createRooms(clock, {
    ...{ unitsMax: CHANGED_BYTES_MAX, operatorUnitsMax: OPERATOR_CHANGED_BYTES_MAX },
    what: 'requests with many records',
  });
  return async (request: FastifyRequest, reply: FastifyReply, bytes: number): Promise<void> => {
    await admit(rooms, bytes, request, reply);
    // The key may have been revoked while the request waited.
    await passAgain(request);
  };
}

/** All routes of watchers, and the operator's lists. */
function isLimited({ url, config, schema }: RouteOptions): boolean {
  if (config?.isEndless === true) return false;
  return url.startsWith(NOTIFICATIONS_PREFIX) || (url.startsWith(ADMIN_PREFIX) && hasLimit(schema));
}

function hasLimit(schema: RouteOptions['schema']): boolean {
  const { properties = {} } = (schema?.querystring ?? {}) as { properties?: object };
  return 'limit' in properties;
}

/** A response about one record or notification is short, so it waits for no other one. */
const isOfOneRecord = ({ url, schema }: RouteOptions): boolean => url.includes('/:id') && !hasLimit(schema);

type Rooms = {
  watchers: Room;
  operator: Room;
  cutOf(request: FastifyRequest, reply: FastifyReply): () => boolean;
};

function createRooms(
  clock: Clock,
  { unitsMax, operatorUnitsMax, what }: { unitsMax: number; operatorUnitsMax: number; what: string },
): Rooms {
  return {
    watchers: createRoom({ clock, unitsMax, what }),
    operator: createRoom({ clock, unitsMax: operatorUnitsMax, what }),
    cutOf: (request, reply) => createCut(clock, request, reply),
  };
}

/** Holds the units until the response has been sent, or is cut off because its client reads slowly. @throws Fault `limited` */
async function admit(
  rooms: Rooms,
  units: number,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  requireConnected(request);
  const closed = new AbortController();
  reply.raw.once('close', () => closed.abort());
  const room = isOperator(request) ? rooms.operator : rooms.watchers;
  const release = await room.take(accountOf(request), units, closed.signal, rooms.cutOf(request, reply));
  if (closed.signal.aborted) release();
  else reply.raw.once('close', release);
}

/** When a response began, by the steady clock, and the bytes that its socket had then. */
const begun = new WeakMap<FastifyRequest, { ms: number; bytes: number }>();

/**
 * Returns a function that closes the connection of a slow client, and returns whether it has. The client's time begins with its response:
 * before, the request may have waited for the database or for others.
 */
function createCut(clock: Clock, request: FastifyRequest, { raw }: FastifyReply) {
  const { socket } = request.raw;
  return (): boolean => {
    const since = begun.get(request);
    if (since === undefined || raw.writableLength === 0) return false;
    const bytesMs = (socket.bytesWritten - since.bytes) / READ_BYTES_PER_MS_MIN;
    const isSlow = clock.steadyMs() - since.ms > SLOW_MS_MIN + bytesMs;
    if (isSlow) socket.destroy();
    return isSlow;
  };
}

const admitted = new WeakSet<FastifyRequest>();
