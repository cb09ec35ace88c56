/**
 * Refuses unknown query parameters on routes with a key, because a misspelled filter must not silently match everything.
 * Public routes ignore unknown parameters, which clients use to bypass caches.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Api } from '../context.ts';
import { invalidRequest } from './errors.ts';
import { isKeyed } from './shared-headers.ts';

/** Checks every route with a key that is added after this call. It runs after the key was checked. */
export function checkQueryNames(api: Api): void {
  api.addHook('onRoute', (route) => {
    if (!isKeyed(route.url)) return;
    const { properties = {} } = (route.schema?.querystring ?? {}) as { properties?: Record<string, unknown> };
    const known = Object.keys(properties);
    const check = (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void): void => {
      const [first, ...others] = Object.keys(Object(request.query)).filter((name) => !known.includes(name));
      if (first === undefined) {
        done();
        return;
      }
      // Only the first one has the known names, because a query may have thousands of short names.
      const message =
        known.length === 0
          ? 'is unknown: this path has no query parameters'
          : `is unknown; known: ${known.join(', ')}`;
      const more = others.map((name) => ({ path: `/${name}`, message: 'is unknown' }));
      done(invalidRequest([{ path: `/${first}`, message }, ...more]));
    };
    route.onRequest = [route.onRequest ?? [], check].flat();
  });
}
