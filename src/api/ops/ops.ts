/**
 * Routes for operators and orchestrators: liveness, readiness and status. Metrics have a separate port.
 */
import { createServer, type Server } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { messageOf } from '../../core/fault.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { Api, OpsSources } from '../context.ts';
import { NO_SNIFF } from '../http/shared-headers.ts';
import { STATUS_EXAMPLE, StatusBody } from './status-body.ts';

const Alive = Type.Object({ status: Type.Literal('ok') });
const Ready = Type.Object({
  status: Type.Enum(['ok', 'unavailable']),
  checks: Type.Record(Type.String(), Type.Object({ ok: Type.Boolean(), message: Type.String() })),
  deployment: Type.Optional(
    Type.Object(
      {
        state: Type.Enum(['ok', 'degraded', 'holding']),
        message: Type.Union([Type.String(), Type.Null()]),
      },
      {
        description: 'The state of all processes together. It does not affect the readiness of this process.',
      },
    ),
  ),
});

export function addOpsRoutes(api: Api, sources: OpsSources): void {
  // It depends only on the event loop, because a slow database or node must not get the process killed.
  const alive = {
    summary: 'Liveness: does the process respond?',
    answer: Alive,
    example: { status: 'ok' },
  };
  const ready = {
    summary: 'Readiness: can the process serve requests?',
    answer: Ready,
    example: {
      status: 'ok',
      checks: { database: { ok: true, message: 'postgres' } },
      deployment: { state: 'ok', message: null },
    },
    others: {
      503: {
        description: 'A check has failed. `checks` says which one.',
        answer: Ready,
        example: {
          status: 'unavailable',
          checks: { database: { ok: false, message: 'cannot be reached' } },
        },
      },
    },
  };
  const status = {
    summary: 'The state of following, delivery, prices and nodes',
    answer: StatusBody,
    example: STATUS_EXAMPLE,
  };
  api.get('/livez', { onRequest: forbidCaching, config: { operation: alive } }, async () => ({
    status: 'ok',
  }));
  api.get('/readyz', { onRequest: forbidCaching, config: { operation: ready } }, async (_request, reply) => {
    const [checks, deployment] = await Promise.all([sources.checks(), sources.deployment?.()]);
    const isReady = Object.values(checks).every(({ ok }) => ok);
    const status = isReady ? 'ok' : 'unavailable';
    return reply.code(isReady ? 200 : 503).send({ status, checks, ...(deployment && { deployment }) });
  });
  api.get('/status', { onRequest: forbidCaching, config: { operation: status } }, async () =>
    sources.status(),
  );
}

/** Also on errors. A cache in front could show a state that is over, because 200 may be cached by default (RFC 9111, 4.2.2). */
function forbidCaching(_request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  reply.header('cache-control', 'no-store');
  done();
}

/** More scrapers than any installation has. */
const METRICS_CONNECTIONS_MAX = 64;

/** The metrics server: `/metrics` in the Prometheus text format. `refresh` sets the gauges that are read on demand. */
export function createMetricsServer(metrics: Metrics, refresh: () => Promise<void>): Server {
  const server = createServer((request, response) => {
    for (const [name, value] of Object.entries(NO_SNIFF)) response.setHeader(name, value);
    if (request.method !== 'GET' || request.url?.split('?', 1)[0] !== '/metrics') {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('Try GET /metrics\n');
      return;
    }
    refresh()
      // Without the database, the gauges that are read from it are absent. All other metrics are still served.
      .catch(() => {})
      .then(() => metrics.registry.metrics())
      .then(
        (text) => response.writeHead(200, { 'content-type': metrics.registry.contentType }).end(text),
        (error: unknown) => response.writeHead(500, { 'content-type': 'text/plain' }).end(messageOf(error)),
      );
  });
  server.maxConnections = METRICS_CONNECTIONS_MAX;
  return server;
}
