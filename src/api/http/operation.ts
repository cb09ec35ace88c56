/**
 * The description of a route in the OpenAPI document. It has no effect on how requests are read and responses are written.
 */
import { type TSchema, Type } from 'typebox';

/** The path of the documentation pages. */
export const DOCS_PATH = '/docs';

export type Operation = {
  /** One line. */
  summary: string;
  description?: string;
  /** Parameters that the route's own schema doesn't check or describes differently, as an object schema. */
  params?: TSchema;
  querystring?: TSchema;
  headers?: TSchema;
  /** Schemas by content type if it is not only JSON. */
  body?: TSchema | Contents;
  bodyExample?: unknown;
  /** The body of a 200 response, by content type if it is not only JSON. Default: the route's own schema. */
  answer?: TSchema | Contents;
  example?: unknown;
  /** Descriptions of the headers of a 200 response. */
  answerHeaders?: Record<string, string>;
  /** The meaning of error statuses, in addition to those that all routes of the same kind have (openapi.ts). */
  errors?: Record<number, string>;
  /** Responses with another status than 200 that are not errors. */
  others?: Record<number, { description: string; answer?: TSchema; example?: unknown }>;
};

/** Schemas by content type. */
export type Contents = { content: Record<string, TSchema> };

declare module 'fastify' {
  interface FastifyContextConfig {
    operation?: Operation;
    /** The response ends when the client leaves. The route has its own limit. */
    isEndless?: true;
    /** How many records the response to a request without `limit` holds in memory, if they may be more than 1,000. */
    recordsUnlessLimited?: (query: object) => number;
  }
}

/** The body of an error (spec 7). */
export const ErrorBody = Type.Object(
  { statusCode: Type.Integer(), statusMessage: Type.String() },
  { title: 'Error' },
);

/** The body of an error of a route with a key, wrapped like its responses (spec 4.5). */
export const Failure = Type.Object(
  {
    success: Type.Literal(false),
    statusCode: Type.Integer(),
    statusMessage: Type.String(),
    code: Type.Optional(
      Type.String({
        description:
          'Tells errors of one status apart: `unknown_key`, `revoked_key` or `expired_key` for a 401.',
      }),
    ),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: Type.String({ description: 'The part of the request, as a JSON Pointer.' }),
          message: Type.String(),
        }),
      ),
    ),
  },
  { title: 'Failure' },
);

/** The header of requests that a client may repeat (docs/how-to/register-many-addresses.md). */
export const IdempotencyHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      description:
        'A unique name of this request. If you repeat the request with the same key, it takes effect once.',
    }),
  ),
});
export const idempotencyErrors = {
  409: 'The idempotency key was used for a different request, or the same request is still under way.',
};
