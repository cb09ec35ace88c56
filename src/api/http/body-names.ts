/**
 * Refuses unknown fields in bodies by name where the schema says `additionalProperties: false`, because a misspelled field must
 * not silently mean its default. Bodies that the specification defines ignore unknown fields.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { Problem } from '../../core/fault.ts';
import type { Api } from '../context.ts';
import { invalidRequest } from './errors.ts';
import { isKeyed } from './shared-headers.ts';

/** The option of a schema that refuses unknown fields. */
export const strict = { additionalProperties: false };
const NoFields = Type.Object({}, strict);
/** Problems in one error: enough to see what is wrong. */
const PROBLEMS_MAX = 100;

/** Checks every route with a key that is added after this call. A route without a body schema accepts only an empty body. */
export function checkBodyNames(api: Api): void {
  api.addHook('onRoute', (route) => {
    const takesBody = [route.method].flat().some((method) => ['POST', 'PUT', 'PATCH'].includes(method));
    const operation = route.config?.operation;
    if (!isKeyed(route.url) || !takesBody || operation === undefined) return;
    // A body that is described without a schema is checked by the handler.
    const schema = route.schema?.body ?? (operation.body === undefined ? NoFields : undefined);
    if (schema === undefined) return;
    const check = ({ body }: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void): void => {
      const problems = unknownFields(schema, body);
      done(problems.length === 0 ? undefined : invalidRequest(problems));
    };
    route.preValidation = [route.preValidation ?? [], check].flat();
  });
}

/** A problem for each field that the schema doesn't define. Its message lists the defined ones. */
export function unknownFields(schema: TSchema, value: unknown): Problem[] {
  const problems: Problem[] = [];
  const visit = (part: Part, one: unknown, path: string): void => {
    if (problems.length >= PROBLEMS_MAX || typeof one !== 'object' || one === null) return;
    if (Array.isArray(one)) {
      const { items } = part;
      if (items !== undefined)
        for (const [index, item] of one.entries()) visit(items, item, `${path}/${index}`);
      return;
    }
    const { properties, additionalProperties } = part;
    if (properties === undefined) return;
    const known = Object.keys(properties);
    const message =
      known.length === 0 ? 'is unknown: this path takes no fields' : `is unknown; known: ${known.join(', ')}`;
    for (const [name, field] of Object.entries(one)) {
      const inner = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (inner !== undefined) visit(inner, field, `${path}/${name}`);
      else if (additionalProperties === false && problems.length < PROBLEMS_MAX)
        problems.push({ path: `${path}/${name}`, message });
    }
  };
  visit(schema, value, '');
  return problems;
}

type Part = { properties?: Record<string, Part>; items?: Part; additionalProperties?: unknown };
