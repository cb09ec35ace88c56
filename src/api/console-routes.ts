/**
 * The console under /console. Each path that is no file is a page of it, and all pages are one file.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Fault } from '../core/fault.ts';
import type { Api, ApiOptions } from './context.ts';
import { chooseCoding, matchTag, tagOf } from './http/cached-response.ts';
import { PAGE } from './http/console-files.ts';

/** Only what this server serves, and nothing inline. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const HEADERS = {
  'content-security-policy': POLICY,
  'referrer-policy': 'no-referrer',
  // A page of another site that opens the console can't change its address, and with it the key.
  'cross-origin-opener-policy': 'same-origin',
  vary: 'accept-encoding',
};
/** A page that doesn't exist, which says so. */
export const UNKNOWN_PAGE = '/console/not-found';
/** A service can run without the packages that build it. */
const NOT_BUILT =
  'The console is not built. Run `npm run console` in a clone with its development packages, then restart';

/** Serves the files, unless the console is switched off. */
export function addConsoleRoutes(api: Api, { console: files }: Pick<ApiOptions, 'console'>): void {
  if (files === undefined) return;
  const page = files.get(PAGE);

  function answer(request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const { '*': name = '' } = Object(request.params) as { '*'?: string };
    if (page === undefined) throw new Fault('not_found', NOT_BUILT);
    const file = files?.get(name) ?? (name.startsWith('assets/') ? undefined : page);
    if (file === undefined) throw new Fault('not_found', `The console has no file ${name}`);
    const coding = chooseCoding(request.headers['accept-encoding']);
    const known = matchTag(request.headers['if-none-match'] ?? '', file, coding);
    reply
      .headers(HEADERS)
      .headers({ 'cache-control': file.cacheControl, etag: known ?? tagOf(file.digest, coding) });
    if (known !== undefined) return reply.code(304).send();
    if (coding !== 'identity') reply.header('content-encoding', coding);
    return reply.type(file.type).send(file.forms[coding]);
  }

  api.get('/console', answer);
  api.get('/console/*', answer);
}
