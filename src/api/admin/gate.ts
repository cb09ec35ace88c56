/**
 * Authentication of the operator API under /api/admin. It exists only if `http.adminToken` is set. Every request is logged,
 * including requests for unknown paths.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { Fault } from '../../core/fault.ts';
import type { Api, ApiOptions } from '../context.ts';
import { answerUnknownPath, pathOf } from '../http/errors.ts';
import { ADMIN_PREFIX } from '../http/shared-headers.ts';

/** Longer than any path of the operator API. */
const LOGGED_CHARACTERS_MAX = 200;

/**
 * Checks the token on every route below ADMIN_PREFIX that is added after this call, before the body is read. Without a token
 * in the configuration, these routes answer like unknown paths.
 */
export function guardAdmin(api: Api, { adminToken, log }: Pick<ApiOptions, 'adminToken' | 'log'>): void {
  const wanted = adminToken === undefined ? undefined : digestOf(adminToken);

  const check: onRequestHookHandler = (request, reply, done) => {
    // A different spelling of the path could bypass a proxy that blocks the prefix.
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

/** Whether the path is of the operator API in any spelling. */
function isForOperators({ url, is404, routeOptions }: FastifyRequest): boolean {
  if (!is404) return routeOptions.url?.startsWith(ADMIN_PREFIX) === true;
  const path = url.replaceAll(/%([2-7][\da-f])/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  return /^([a-z]+:\/\/[^/]*)?\/+api\/+admin(\/|\?|$)/i.test(path);
}

/** Digests have one length, so comparing them takes the same time for every token. */
const digestOf = (token: string) => createHash('sha256').update(token).digest();
