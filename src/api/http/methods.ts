/**
 * 405 with `allow` for a known path and another method (RFC 9110, section 15.5.6).
 */
import type { HTTPMethods } from 'fastify';
import type { Api } from '../context.ts';
import { sendAnswer } from './errors.ts';
import { DOCS_PATH } from './operation.ts';

const METHODS: readonly HTTPMethods[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE'];

/** Notes every route that is added after this call. The returned function adds routes that answer all other methods with 405. */
export function watchMethods(api: Api): () => void {
  const methodsOf = new Map<string, Set<HTTPMethods>>();
  api.addHook('onRoute', ({ method, url }) => {
    // The documentation plugin handles its own paths, with and without trailing slashes.
    if (url.startsWith(DOCS_PATH)) return;
    const known = methodsOf.get(url) ?? new Set();
    methodsOf.set(url, known);
    for (const one of [method].flat()) known.add(one);
  });
  return () => {
    for (const [url, known] of [...methodsOf]) {
      const allow = [...known].join(', ');
      api.route({
        method: METHODS.filter((method) => !known.has(method)),
        url,
        // In `onRequest`, because the body need not be read.
        onRequest: (request, reply) => {
          reply.header('allow', allow);
          return sendAnswer(
            { statusCode: 405, statusMessage: `${request.method} is not allowed here` },
            request,
            reply,
          );
        },
        handler: async () => {},
      });
    }
  };
}
