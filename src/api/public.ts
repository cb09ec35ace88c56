/**
 * Public GET routes, whose answers are kept for the time that spec 8 names.
 */
import type { FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import type { Api } from './server.ts';

export type PublicAnswer = { type: string; body: string };

export type PublicRoute = {
  path: string;
  /** One line for the documentation. */
  summary: string;
  /** The body of the answer 200. */
  answer: TSchema;
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
export const jsonText = (body: string): PublicAnswer => ({ type: 'application/json; charset=utf-8', body });

export const plainText = (body: string): PublicAnswer => ({ type: 'text/plain; charset=utf-8', body });

export function addPublicRoute(api: Api, route: PublicRoute): void {
  const { params, querystring } = route;
  const schema = {
    summary: route.summary,
    ...(params !== undefined && { params }),
    ...(querystring !== undefined && { querystring }),
  };
  api.get(route.path, { schema }, async (request, reply) => {
    const { type, body } = await route.compute(route.key(request));
    return reply.type(type).send(body);
  });
}
