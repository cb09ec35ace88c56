/**
 * Authentication of the operator API under /api/admin. It exists only if `http.adminToken` is set. Every request is logged,
 * including requests for unknown paths, and requests to the paths of watchers with the operator's token or its header.
 */
import type { FastifyRequest, onRequestHookHandler, preHandlerHookHandler } from 'fastify';
import { Fault } from '../../core/fault.ts';
import type { Api, ApiOptions } from '../context.ts';
import { isOperator, noteOperator, WATCHER_HEADER } from '../http/auth.ts';
import { answerUnknownPath, pathOf } from '../http/errors.ts';
import { createTokenCheck } from '../http/operator-token.ts';
import { parseWhole } from '../http/parameters.ts';
import { ADMIN_PREFIX, isKeyed } from '../http/shared-headers.ts';

/** Longer than any path of the operator API. */
const LOGGED_CHARACTERS_MAX = 200;

/**
 * Checks the token on every route below ADMIN_PREFIX that is added after this call, before the body is read. Without a token
 * in the configuration, these routes answer like unknown paths.
 */
export function guardAdmin(api: Api, { adminToken, log }: Pick<ApiOptions, 'adminToken' | 'log'>): void {
  const hasToken = createTokenCheck(adminToken);

  const check: onRequestHookHandler = (request, reply, done) => {
    // A different spelling of the path could bypass a proxy that blocks the prefix.
    if (adminToken === undefined || !request.url.startsWith(ADMIN_PREFIX)) {
      answerUnknownPath(request, reply).catch(() => reply.raw.destroy());
      return;
    }
    if (!hasToken(request.headers.authorization)) return done(new Fault('unauthorized', 'Unauthorized'));
    noteOperator(request);
    done();
  };
  api.addHook('onRoute', (route) => {
    if (route.url.startsWith(ADMIN_PREFIX)) route.onRequest = [check, route.onRequest ?? []].flat();
  });
  if (adminToken === undefined) return;
  const logAs = (event: string, request: FastifyRequest, status: number): void => {
    const { method, url, headers, id: requestId } = request;
    const path = pathOf(url)?.slice(0, LOGGED_CHARACTERS_MAX);
    const watcher = isKeyed(url) ? parseWhole(String(headers[WATCHER_HEADER])) : undefined;
    log.info({ method, path, status, ...(watcher !== undefined && { watcher }), requestId }, event);
  };
  api.addHook('onRoute', (route) => {
    // A stream is answered when it ends, which is too late for a log.
    if (route.config?.isEndless !== true) return;
    const logStream: preHandlerHookHandler = (request, reply, done) => {
      if (isOperator(request)) logAs('admin.stream_opened', request, reply.statusCode);
      done();
    };
    route.preHandler = [route.preHandler ?? [], logStream].flat();
  });
  api.addHook('onResponse', (request, reply, done) => {
    if (isForOperators(request)) logAs('admin.answered', request, reply.statusCode);
    done();
  });
}

/** Whether the path is of the operator API in any spelling, or the request acts for the operator on a path of watchers. */
function isForOperators(request: FastifyRequest): boolean {
  if (isOperator(request)) return true;
  const { url, headers, is404, routeOptions } = request;
  if (headers[WATCHER_HEADER] !== undefined && isKeyed(url)) return true;
  if (!is404) return routeOptions.url?.startsWith(ADMIN_PREFIX) === true;
  const path = url.replaceAll(/%([2-7][\da-f])/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  return /^([a-z]+:\/\/[^/]*)?\/+api\/+admin(\/|\?|$)/i.test(path);
}
