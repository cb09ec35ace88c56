/**
 * What the documentation says of an operation. It never reaches the code that reads requests and writes answers: bodies stay
 * as the program makes them.
 */
import { type TSchema, Type } from 'typebox';

/** Where its pages are. */
export const DOCS_PATH = '/docs';

export type Operation = {
  /** One line. */
  summary: string;
  description?: string;
  /** Parameters and bodies that the route's own schema does not check, or says otherwise; objects by name. */
  params?: TSchema;
  querystring?: TSchema;
  headers?: TSchema;
  /** By content type where it is not JSON alone. */
  body?: TSchema | Contents;
  bodyExample?: unknown;
  /** Of 200; by content type where it is not JSON. The route's own schema unless given. */
  answer?: TSchema | Contents;
  example?: unknown;
  /** What each header of the answer 200 is for. */
  answerHeaders?: Record<string, string>;
  /** Further answers: what each status means. Those that an operation has by its kind are added (openapi.ts). */
  errors?: Record<number, string>;
  /** Answers that are no errors and not 200 either. */
  others?: Record<number, { description: string; answer?: TSchema; example?: unknown }>;
};

/** Schemas by content type. */
export type Contents = { content: Record<string, TSchema> };

declare module 'fastify' {
  interface FastifyContextConfig {
    operation?: Operation;
    /** Its answer ends when its client leaves; it has a separate limit. */
    isEndless?: true;
  }
}

/** The body of an error (spec 7). */
export const ErrorBody = Type.Object(
  { statusCode: Type.Integer(), statusMessage: Type.String() },
  { title: 'Error' },
);

/** The body of an error of an operation that asks for a key: wrapped as answers are (spec 4.5). */
export const Failure = Type.Object(
  {
    success: Type.Literal(false),
    statusCode: Type.Integer(),
    statusMessage: Type.String(),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: Type.String({ description: 'Which part of the request, as a JSON pointer.' }),
          message: Type.String(),
        }),
      ),
    ),
  },
  { title: 'Failure' },
);

/** For requests that may be sent again (docs/how-to/register-many-addresses.md). */
export const IdempotencyHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({ description: 'Names the request: sent again under the same key it is done once.' }),
  ),
});
export const idempotencyErrors = {
  409: 'The key was used for another request, or the same one is under way.',
};
