/**
 * The HTTP server: a Fastify instance with all routes and the hooks that apply to all of them.
 */
import { isUtf8 } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { type TypeBoxTypeProvider, TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox';
import fastify, { type FastifyRequest } from 'fastify';
import { addAdminChainRoutes } from './admin/chain.ts';
import { addAdminDeploymentRoutes } from './admin/deployment.ts';
import { guardAdmin } from './admin/gate.ts';
import { addAdminKeyRoutes } from './admin/keys.ts';
import { addAdminLogRoutes } from './admin/log.ts';
import { addAdminStatisticsRoutes } from './admin/statistics.ts';
import { addAdminStreamRoute } from './admin/stream.ts';
import { addAdminWatcherRoutes } from './admin/watchers.ts';
import { addConsoleRoutes, UNKNOWN_PAGE } from './console-routes.ts';
import type { Api, ApiOptions } from './context.ts';
import { passAgain, takeAccount } from './http/auth.ts';
import { limitBodies } from './http/body-limit.ts';
import { checkBodyNames } from './http/body-names.ts';
import { limitConnections } from './http/connection-limit.ts';
import { answerError, answerUnknownPath, invalid } from './http/errors.ts';
import { noteBody } from './http/idempotency-key.ts';
import { parseJson } from './http/json-body.ts';
import { limitMemory } from './http/memory-limit.ts';
import { watchMethods } from './http/methods.ts';
import { cacheResponses } from './http/public.ts';
import { checkQueryNames } from './http/query-names.ts';
import { answerClientError, answerConnect, answerExpectation } from './http/raw-errors.ts';
import { isKeyed, NO_SNIFF } from './http/shared-headers.ts';
import { addAttemptStreamRoute, createAttemptStreams } from './notifications/attempt-stream.ts';
import { addBulkRoutes } from './notifications/bulk.ts';
import { addDeliveryLogRoutes } from './notifications/delivery-log.ts';
import { addLimitRoute } from './notifications/limits.ts';
import { addReceiverRoutes } from './notifications/receivers.ts';
import { addRecordDeliveryRoutes } from './notifications/record-delivery.ts';
import { addSettingsRoutes } from './notifications/settings.ts';
import { addSigningSecretRoutes } from './notifications/signing-secrets.ts';
import { addStatisticsRoutes } from './notifications/statistics.ts';
import { addWatchedAddressRoutes } from './notifications/watched-addresses.ts';
import { addWatcherRoute } from './notifications/watcher.ts';
import { addDocumentation, addDocumentRoute } from './openapi.ts';
import { addOpsRoutes } from './ops/ops.ts';
import { addChainRoute } from './public/chain.ts';
import { addPointRoutes } from './public/points.ts';
import { addPriceRoutes } from './public/prices.ts';
import { addSupplyRoutes } from './public/supply.ts';
import { addSwapRoutes } from './public/swap.ts';

/** A watched address with a URL of 2,048 characters is below 3 KiB. */
const BODY_BYTES_MAX = 64 * 1024;
/** The time limit of a stream of changes, enough for some ten million of them. */
const REQUEST_MS_MAX = 3_600_000;
/** How long the headers of a request may take, checked every HEADERS_CHECK_MS. */
const HEADERS_MS_MAX = 15_000;
const HEADERS_CHECK_MS = 5_000;
/** Together with the request line. Common servers allow 8 to 32 KiB. */
const HEADERS_BYTES_MAX = 16 * 1024;
/** Common load balancers keep a connection for 60 s. A longer time ensures that they never write to a closed one. */
const KEEP_ALIVE_MS = 65_000;

/** The API, not yet listening. */
export function createApi(options: ApiOptions): Api {
  const { log, metrics } = options;
  const api: Api = fastify({
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: REQUEST_MS_MAX,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: 'idle',
    http: {
      // A hook below refuses it, because Node's own response has no body.
      requireHostHeader: false,
      headersTimeout: HEADERS_MS_MAX,
      maxHeaderSize: HEADERS_BYTES_MAX,
      connectionsCheckingInterval: HEADERS_CHECK_MS,
    },
    clientErrorHandler: answerClientError,
    // A path that can't be decoded or is too long.
    frameworkErrors(error, request, reply) {
      if (options.console !== undefined && request.url.startsWith('/console/')) {
        reply.redirect(UNKNOWN_PAGE, 303);
        return;
      }
      answerError(error, request, reply, log).catch(() => reply.raw.destroy());
    },
    genReqId: ({ headers }) => acceptedRequestId(headers['x-request-id']) ?? randomUUID(),
  }).withTypeProvider<TypeBoxTypeProvider>();
  api.setValidatorCompiler(TypeBoxValidatorCompiler);
  readJsonBodies(api);
  api.setErrorHandler((error, request, reply) => answerError(error, request, reply, log));
  const refuseOtherMethods = watchMethods(api);
  guardAdmin(api, options);
  checkQueryNames(api);
  checkBodyNames(api);
  limitMemory(api, options);
  api.server.on('connect', answerConnect).on('checkExpectation', answerExpectation);
  api.setNotFoundHandler(answerUnknownPath);
  // Hooks use callbacks, because promises would be much of the cost of a cached response.
  api.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id).headers(NO_SNIFF);
    const { httpVersion, headers } = request.raw;
    const lacksHost = headers.host === undefined && httpVersion === '1.1';
    if (lacksHost) return done(invalid('', 'has no Host header'));
    if (countHeader(request.raw.rawHeaders, 'host') > 1) return done(invalid('', 'has several Host headers'));
    if (!isKeyed(request.url)) return done();
    // One URL has the data of many watchers, so not even a cache of one's own may keep it.
    reply.header('cache-control', 'no-store');
    // Node would use the first one. A proxy that appends its own must not be overridden by its client.
    const isDoubled = countHeader(request.raw.rawHeaders, 'authorization') > 1;
    done(isDoubled ? invalid('/authorization', 'must be sent once') : undefined);
  });
  api.addHook('preHandler', passAgain);
  api.addHook('preHandler', takeAccount);
  api.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.url ?? 'unknown';
    const labels = { method: request.method, route, code: String(reply.statusCode) };
    metrics.httpSeconds.observe(labels, reply.elapsedTime / 1000);
    log.debug(
      { ...labels, requestId: request.id, durationMs: Math.round(reply.elapsedTime) },
      'http.answered',
    );
    done();
  });
  limitConnections(api, options);
  limitBodies(api);
  // An unknown path is answered before the body is read.
  api.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) return done();
    answerUnknownPath(request, reply).catch(() => reply.raw.destroy());
  });
  cacheResponses(api, options);
  addDocumentation(api);
  // Registered as a plugin, so that the plugins that read routes are loaded first.
  api.register(async (scope: Api) => {
    addRoutes(scope, options);
    refuseOtherMethods();
  });
  return api;
}

function addRoutes(api: Api, options: ApiOptions): void {
  addDocumentRoute(api);
  addOpsRoutes(api, options.ops);
  addChainRoute(api, options);
  addWatcherRoute(api, options);
  addConsoleRoutes(api, options);
  addWatchedAddressRoutes(api, options);
  addRecordDeliveryRoutes(api, options);
  // A watcher must see what it has just changed.
  const current = { ...options, database: options.reads?.current ?? options.database };
  addDeliveryLogRoutes(api, options, current);
  addReceiverRoutes(api, options);
  addStatisticsRoutes(api, current);
  const streams = createAttemptStreams(api, options);
  addAttemptStreamRoute(api, options, streams);
  addAdminStreamRoute(api, options, streams);
  addSigningSecretRoutes(api, options);
  addBulkRoutes(api, options);
  addLimitRoute(api, options);
  addSettingsRoutes(api, options);
  addAdminWatcherRoutes(api, options);
  addAdminDeploymentRoutes(api, options);
  addAdminStatisticsRoutes(api, options);
  addAdminChainRoutes(api, options);
  addAdminKeyRoutes(api, options);
  addAdminLogRoutes(api, options);
  const open = { ...options, database: options.reads?.recent ?? options.database };
  addPriceRoutes(api, open);
  addSupplyRoutes(api, options);
  addSwapRoutes(api, open);
  addPointRoutes(api, open);
}

/** Accepts only JSON. An empty body counts as none, because many clients send the content type with every request. */
function readJsonBodies(api: Api): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (request: FastifyRequest, bytes: Buffer) => {
      const { 'content-encoding': coding = 'identity' } = request.headers;
      if (!/^(identity)?$/i.test(coding)) throw invalid('', 'must be sent without Content-Encoding');
      if (!isUtf8(bytes)) throw invalid('', 'is not UTF-8');
      const body = bytes.toString();
      noteBody(request, body);
      return body === '' ? undefined : parseJson(body, request.routeOptions.bodyLimit ?? BODY_BYTES_MAX);
    },
  );
}

/** The caller's request id, if it is short and safe to log. */
function acceptedRequestId(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && /^[\w.:-]{1,128}$/.test(header) ? header : undefined;
}

/** `rawHeaders`: names and values in turn, as Node gives them. */
function countHeader(rawHeaders: readonly string[], wanted: string): number {
  return rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === wanted).length;
}
