/**
 * The operator API under /api/admin exists only with `http.adminToken`, and serves requests that carry it. Each is logged, also
 * one for a path that doesn't exist.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { Fault } from '../../core/fault.ts';
import type { Api, ApiOptions } from '../context.ts';
import { answerUnknownPath, pathOf } from '../http/errors.ts';
import { ADMIN_PREFIX } from '../http/shared-headers.ts';

/** No path of the operator API is that long. */
const LOGGED_CHARACTERS_MAX = 200;

/**
 * Guards every route below ADMIN_PREFIX that is added from now on, before its body is read: such a route needs nothing else.
 * Without a token in the configuration they all answer as unknown paths do.
 */
export function guardAdmin(api: Api, { adminToken, log }: Pick<ApiOptions, 'adminToken' | 'log'>): void {
  const wanted = adminToken === undefined ? undefined : digestOf(adminToken);

  const check: onRequestHookHandler = (request, reply, done) => {
    // Another spelling of the path would pass a proxy that refuses the prefix.
    if (wanted === undefined || !request.url.startsWith(ADMIN_PREFIX)) {
      answerUnknownPath(request, reply).catch(() => reply.raw.destroy());
      return;
    }
    const given = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
    const isRight = given !== undefined && timingSafeEqual(digestOf(given), wanted);
    done(isRight ? undefined : new Fault('unauthorized', 'Unauthorized'));
  };
  api.addHook('onRoute', (route) => {
    if (route.url.startsWith(ADMIN_PREFIX)) route.onRequest = [check, route.onRequest ?? []].flat();
  });
  if (wanted === undefined) return;
  api.addHook('onResponse', (request, reply, done) => {
    const { method, url, id: requestId } = request;
    const path = pathOf(url)?.slice(0, LOGGED_CHARACTERS_MAX);
    if (isForOperators(request))
      log.info({ method, path, status: reply.statusCode, requestId }, 'admin.answered');
    done();
  });
}

/** Whether a request names the operator API in any spelling. */
function isForOperators({ url, is404, routeOptions }: FastifyRequest): boolean {
  if (!is404) return routeOptions.url?.startsWith(ADMIN_PREFIX) === true;
  const path = url.replaceAll(/%([2-7][\da-f])/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  return /^([a-z]+:\/\/[^/]*)?\/+api\/+admin(\/|\?|$)/i.test(path);
}

/** Of one length, so that comparing takes the same time whatever was given. */
const digestOf = (token: string) => createHash('sha256').update(token).digest();
