/**
 * The HTTP server: one Fastify instance, its routes, and one place that turns every error into a specified answer.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type TypeBoxTypeProvider, TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox';
import fastify, { type FastifyBaseLogger, type FastifyInstance, type RawServerDefault } from 'fastify';
import type { KeyRing } from '../core/api-key.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { WebhookPolicy } from '../core/webhook-url.ts';
import type { Database } from '../store/db.ts';
import { answerError, sendAnswer } from './errors.ts';
import { watchMethods } from './methods.ts';
import { addOpsRoutes, type OpsSources } from './ops.ts';
import { addSettingsRoutes } from './settings.ts';
import { addWatchedAddressRoutes } from './watched-addresses.ts';

export type Api = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

export type ApiOptions = {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  keyRing: KeyRing;
  webhookPolicy: WebhookPolicy;
  /** Those that every notification waits for. */
  confirmations: number;
  ops: OpsSources;
};

/** A watched address with a URL of 2,048 characters is below 3 KiB. */
const BODY_BYTES_MAX = 64 * 1024;
const REQUEST_MS_MAX = 30_000;
/** Longer than the 60 s for which common balancers keep a connection, so that they never write to a closed one. */
const KEEP_ALIVE_MS = 65_000;

/** The API, not yet listening. */
export function createApi(options: ApiOptions): Api {
  const { log, metrics } = options;
  const api: Api = fastify({
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: REQUEST_MS_MAX,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: 'idle',
    genReqId: ({ headers }) => acceptedRequestId(headers['x-request-id']) ?? randomUUID(),
  }).withTypeProvider<TypeBoxTypeProvider>();
  api.setValidatorCompiler(TypeBoxValidatorCompiler);
  readJsonBodies(api);
  api.setErrorHandler((error, request, reply) => answerError(error, request, reply, log));
  const refuseOtherMethods = watchMethods(api);
  api.setNotFoundHandler((request, reply) =>
    sendAnswer({ statusCode: 404, statusMessage: `No such path: ${pathOf(request.url)}` }, request, reply),
  );
  api.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
  });
  api.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'unknown';
    const labels = { method: request.method, route, code: String(reply.statusCode) };
    metrics.httpSeconds.observe(labels, reply.elapsedTime / 1000);
    log.debug(
      { ...labels, requestId: request.id, durationMs: Math.round(reply.elapsedTime) },
      'http.answered',
    );
  });
  addOpsRoutes(api, options.ops);
  addWatchedAddressRoutes(api, options);
  addSettingsRoutes(api, options);
  refuseOtherMethods();
  return api;
}

/** JSON only. An empty body is no body: many clients send the content type with every request, DELETE included. */
function readJsonBodies(api: Api): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => {
    const text = body.toString();
    try {
      done(null, text === '' ? undefined : JSON.parse(text));
    } catch (error) {
      done(
        Object.assign(new Error(`is not JSON: ${error instanceof Error ? error.message : ''}`), {
          statusCode: 400,
        }),
      );
    }
  });
}

/** A caller's own id is taken over when it is one that can be logged. */
function acceptedRequestId(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && /^[\w.:-]{1,128}$/.test(header) ? header : undefined;
}

const pathOf = (url: string) => url.split('?', 1)[0];
