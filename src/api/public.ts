/**
 * Public GET routes, whose answers are kept for the time that spec 8 names.
 */
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import type { Api } from './server.ts';

export type PublicAnswer = {
  type: string;
  /** Large ones as pieces, each of which may be handled in one go: the event loop turns between them. */
  body: string | Buffer | readonly Buffer[];
  /** Further headers, such as `link`. */
  headers?: Readonly<Record<string, string>>;
};

export type PublicRoute = {
  path: string;
  /** One line for the documentation. */
  summary: string;
  /** The body of the answer 200. */
  answer: TSchema;
  /** For the documentation, as `querystring` is: what is asked for is checked by `key`. */
  params?: TSchema;
  querystring?: TSchema;
  /** How long an answer is kept (spec 8). */
  cacheSeconds: number;
  /** For how long after that the old answer is given while a new one is made. */
  staleSeconds?: number;
  /**
   * What makes two requests the same: normalised parameters.
   * @throws Fault `invalid` with the message of spec 7.
   */
  key(request: FastifyRequest): string;
  /** The answer to all requests with this key. @throws Fault `not_found` and others, as spec 7 says. */
  compute(key: string): Promise<PublicAnswer>;
};

/** A body that is made by JSON.stringify, in which exact numbers are JSON.rawJSON. */
export const json = (value: unknown): PublicAnswer => jsonText(JSON.stringify(value));

/** A body that is JSON already. */
export const jsonText = (body: PublicAnswer['body']): PublicAnswer => ({
  type: 'application/json; charset=utf-8',
  body,
});

export const plainText = (body: string): PublicAnswer => ({ type: 'text/plain; charset=utf-8', body });

export function addPublicRoute(api: Api, route: PublicRoute): void {
  api.get(route.path, async (request, reply) => {
    const { type, body, headers = {} } = await route.compute(route.key(request));
    reply.type(type).headers(headers);
    return reply.send(typeof body === 'string' || Buffer.isBuffer(body) ? body : Readable.from(body));
  });
}
