/**
 * Public GET routes. Their responses are cached here, by clients and by proxies for the time in spec 8, and browsers may read
 * them from any site.
 */
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import { Fault } from '../../core/fault.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { Api, ApiOptions } from '../context.ts';
import { type Cache, type CacheResult, createCache } from './cache.ts';
import { chooseCoding, matchTag, type PublicAnswer, type Variant, variantOf } from './cached-response.ts';
import type { Operation } from './operation.ts';
import {
  type Parameter,
  type Parameters,
  type Parsed,
  pathSchema,
  querySchema,
  readPublic,
} from './parameters.ts';
import { SHARED } from './shared-headers.ts';
import { createUnreadBodies, UNREAD_BYTES_MAX } from './unread-bodies.ts';

export type { PublicAnswer } from './cached-response.ts';

/** A public route. Requests with the same parameters at the same `at` share one cached response. */
export type PublicRoute<P extends Parameters, At> = {
  path: string;
  /** One line for the documentation, and a description where one line is not enough. */
  summary: string;
  description?: string;
  /** The body of a 200 response. A single string is sent as text/plain. */
  answer: TSchema;
  /** An example of that body. */
  example?: unknown;
  parameters?: P;
  /** Whether only what the configuration names is computed. True for a route without parameters. */
  hasFewKeys?: boolean;
  /** What an error status means here, with its message: `{ 404: 'Points not found' }`. */
  errors?: Record<number, string>;
  /** Descriptions of further response headers. */
  answerHeaders?: Record<string, string>;
  /** How long a response is cached (spec 8). */
  cacheSeconds: number;
  /** How long after that the old response is still served while a new one is computed. */
  staleSeconds?: number;
  /** What the response depends on besides the parameters, such as the current day. It is part of the cache key. */
  at?(): At;
  /** Computes the response. @throws Fault `not_found` and the others of spec 7. */
  compute(given: Parsed<P>, at: At): Promise<PublicAnswer>;
};

/** Exact numbers in the value are JSON.rawJSON, so 256-bit amounts are not rounded. */
export const json = (value: unknown): PublicAnswer => jsonText(JSON.stringify(value));

/** The body is already JSON. */
export const jsonText = (body: PublicAnswer['body']): PublicAnswer => ({
  type: 'application/json; charset=utf-8',
  body,
});

export const plainText = (body: string): PublicAnswer => ({ type: 'text/plain; charset=utf-8', body });

const PREFLIGHT = {
  'access-control-allow-methods': 'GET, HEAD, OPTIONS',
  'access-control-allow-headers': '*',
  'access-control-max-age': '86400',
  allow: 'GET, HEAD, OPTIONS',
};

const PARTS = 'publicParts';
type Parts = { cache: Cache; countUnread: ReturnType<typeof createUnreadBodies>; metrics: Metrics };
type CacheOptions = Pick<ApiOptions, 'clock' | 'log' | 'metrics'> & { unreadBytesMax?: number };

/** Adds the cache of the public routes. Call it before `addPublicRoute`. */
export function cacheResponses(api: Api, options: CacheOptions): void {
  const { metrics, unreadBytesMax = UNREAD_BYTES_MAX } = options;
  const cache = createCache(options);
  const countUnread = createUnreadBodies(unreadBytesMax);
  api.decorate(PARTS, { cache, countUnread, metrics } satisfies Parts);
  // A computation under way still needs the database.
  api.addHook('onClose', () => cache.settled());
}

/** Adds a public route. Call `cacheResponses` once before. */
export function addPublicRoute<P extends Parameters = Record<never, never>, At = undefined>(
  api: Api,
  route: PublicRoute<P, At>,
): void {
  const { cache, countUnread, metrics } = api.getDecorator<Parts>(PARTS);
  const {
    path,
    cacheSeconds,
    staleSeconds = 0,
    hasFewKeys = Object.keys(route.parameters ?? {}).length === 0,
  } = route;
  const read = readerOf(route);
  const lifetime = { cacheSeconds, staleSeconds, hasFewKeys };
  const partLifetime = { ...lifetime, isPart: true };
  const cacheControl = `public, max-age=${cacheSeconds}${staleSeconds > 0 ? `, stale-while-revalidate=${staleSeconds}` : ''}`;
  const counters = {
    hit: metrics.cacheResponses.labels(path, 'hit'),
    stale: metrics.cacheResponses.labels(path, 'stale'),
    miss: metrics.cacheResponses.labels(path, 'miss'),
  };

  /** Not async: a cached response is sent in the same turn of the event loop. */
  function answer(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> | undefined {
    const { key, isPart, compute } = read(request);
    const cacheKey = `${path} ${key}`;
    const found = cache.find(cacheKey, isPart ? partLifetime : lifetime, compute);
    if (found instanceof Promise) return found.then((made) => send(cacheKey, made, request, reply) ?? reply);
    return send(cacheKey, found, request, reply);
  }

  function send(
    cacheKey: string,
    { entry, from, ageSeconds }: CacheResult,
    { method, headers }: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> | undefined {
    counters[from].inc();
    const { outcome } = entry;
    if ('tooLarge' in outcome) throw outcome.tooLarge;
    reply.header('age', String(ageSeconds));
    const isUsual = entry.cacheSeconds === cacheSeconds;
    reply.header('cache-control', isUsual ? cacheControl : `public, max-age=${entry.cacheSeconds}`);
    if ('notFound' in outcome) throw new Fault('not_found', outcome.notFound);
    const { response } = outcome;
    const coding = response.isCompressible ? chooseCoding(headers['accept-encoding']) : 'identity';
    const { 'if-none-match': known } = headers;
    const tag = known === undefined ? undefined : matchTag(known, response, coding);
    if (tag !== undefined) {
      if (response.isCompressible) reply.header('vary', 'accept-encoding');
      reply.code(304).headers(response.headers).header('etag', tag);
      // Without a stream, Fastify would add `content-length: 0` to a HEAD, although the length of the GET isn't 0 (RFC 9110, 8.6).
      reply.send(method === 'HEAD' ? Readable.from([]) : undefined);
      return undefined;
    }
    const variant = variantOf(response, coding, (bytes) => cache.grow(cacheKey, entry, bytes));
    if (variant instanceof Promise) return variant.then((made) => sendVariant(made, reply));
    sendVariant(variant, reply);
    return undefined;
  }

  function sendVariant(variant: Variant, reply: FastifyReply): FastifyReply {
    const { body, headers } = variant;
    countUnread(variant, reply.raw);
    reply.headers(headers);
    return reply.send(Buffer.isBuffer(body) ? body : Readable.from(inTurns(body), { objectMode: false }));
  }

  api.get(path, { onRequest: share, config: { operation: operationOf(route) } }, answer);
  api.options(path, { onRequest: share }, (_request, reply) => reply.code(204).headers(PREFLIGHT).send());
}

/** Reads a request: the key of its response, whether it has optional parameters, and what computes the response. */
function readerOf<P extends Parameters, At>(route: PublicRoute<P, At>) {
  const parameters = route.parameters ?? ({} as P);
  const optional = Object.keys(parameters).filter((name) => parameters[name]?.isRequired === false);
  return (request: FastifyRequest) => {
    const given = readPublic(request, parameters);
    const at = route.at?.() as At;
    const isPart = optional.some((name) => given[name] !== undefined);
    return { key: JSON.stringify([given, at]), isPart, compute: () => route.compute(given, at) };
  };
}

/** The route in the OpenAPI document. */
function operationOf<P extends Parameters, At>(route: PublicRoute<P, At>): Operation {
  const { summary, description, answer, example, parameters = {}, errors } = route;
  const ways = Object.values<Parameter<unknown>>(parameters);
  const [hasPath, hasQuery] = [ways.some(isInPath), !ways.every(isInPath)];
  const isText = 'type' in answer && answer.type === 'string';
  return {
    ...{ summary, answer: isText ? { content: { 'text/plain': answer } } : answer },
    description: `${description === undefined ? '' : `${description} `}${cachingOf(route)}`,
    ...(example !== undefined && { example }),
    ...(hasPath && { params: pathSchema(parameters) }),
    ...(hasQuery && { querystring: querySchema(parameters) }),
    ...(errors !== undefined && { errors }),
    others: { 304: { description: 'The client already has this response.' } },
    answerHeaders: {
      'cache-control': 'How long the response may be cached.',
      age: 'Seconds since the response was computed.',
      etag: 'Send it as `if-none-match` to receive 304 while the response is unchanged.',
      ...route.answerHeaders,
    },
  };
}

function cachingOf({
  cacheSeconds,
  staleSeconds = 0,
}: {
  cacheSeconds: number;
  staleSeconds?: number;
}): string {
  const fresh = `Cached for ${cacheSeconds} seconds.`;
  return staleSeconds === 0
    ? fresh
    : `${fresh} For another ${staleSeconds} seconds, the old response may be served while a new one is computed.`;
}

const isInPath = (parameter: Parameter<unknown>) => parameter.isInPath === true;

/** Also on errors, so that pages of any site may read them. */
function share(_request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  reply.headers(SHARED);
  done();
}

/** One piece for each turn of the event loop. Without the pause, a fast socket would get all pieces in a single turn. */
async function* inTurns(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) {
    yield piece;
    await nextTurn();
  }
}
