/**
 * The operator API under /api/admin exists only with `http.adminToken`, and serves requests that carry it. Each is logged.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { Fault } from '../core/fault.ts';
import { answerUnknownPath, pathOf } from './errors.ts';
import type { Api, ApiOptions } from './server.ts';
import { ADMIN_PREFIX } from './shared-headers.ts';

/**
 * Guards every route below ADMIN_PREFIX that is added from now on, before its body is read: such a route needs nothing else.
 * Without a token in the configuration they all answer as unknown paths do.
 */
export function guardAdmin(api: Api, { adminToken, log }: Pick<ApiOptions, 'adminToken' | 'log'>): void {
  const wanted = adminToken === undefined ? undefined : digestOf(adminToken);

  const check: onRequestHookHandler = (request, reply, done) => {
    if (wanted === undefined) {
      answerUnknownPath(request, reply).catch(() => reply.raw.destroy());
      return;
    }
    const given = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
    const isRight = given !== undefined && timingSafeEqual(digestOf(given), wanted);
    done(isRight ? undefined : new Fault('unauthorized', 'Unauthorized'));
  };
  const note = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    const { method, url, id: requestId } = request;
    if (wanted !== undefined)
      log.info({ method, path: pathOf(url), status: reply.statusCode, requestId }, 'admin.answered');
    done();
  };

  api.addHook('onRoute', (route) => {
    if (!route.url.startsWith(ADMIN_PREFIX)) return;
    route.onRequest = [check, route.onRequest ?? []].flat();
    route.onResponse = [route.onResponse ?? [], note].flat();
  });
}

/** Of one length, so that comparing takes the same time whatever was given. */
const digestOf = (token: string) => createHash('sha256').update(token).digest();
