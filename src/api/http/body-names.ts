/**
 * Refuses unknown fields in bodies by name where the schema says `additionalProperties: false`, because a misspelled field must
 * not silently mean its default. Bodies that the specification defines ignore unknown fields.
 */
import type { FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { Problem } from '../../core/fault.ts';
import type { Api } from '../context.ts';
import { invalid, invalidRequest, PROBLEMS_MAX } from './errors.ts';
import { isKeyed } from './shared-headers.ts';

/** The option of a schema that refuses unknown fields. */
export const strict = { additionalProperties: false };
const NoFields = Type.Object({}, strict);

/** Checks every route with a key that is added after this call. A route without a body schema accepts only an empty body. */
export function checkBodyNames(api: Api): void {
  api.addHook('onRoute', (route) => {
    const takesBody = [route.method].flat().some((method) => ['POST', 'PUT', 'PATCH'].includes(method));
    const operation = route.config?.operation;
    if (!isKeyed(route.url) || !takesBody || operation === undefined) return;
    // A body that is described without a schema is checked by the handler.
    const schema = route.schema?.body ?? (operation.body === undefined ? NoFields : undefined);
    if (schema === undefined) return;
    const check = async ({ body }: FastifyRequest): Promise<void> => {
      // Where there is a schema of a body, the validator refuses other values.
      if (schema === NoFields) requireNoValue(body);
      requireKnown(schema, body);
    };
    route.preValidation = [route.preValidation ?? [], check].flat();
  });
}

/** @throws Fault `invalid` for a list or a plain value. Many clients send an empty object with every request. */
function requireNoValue(body: unknown): void {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  if (body !== undefined && !isObject) throw invalid('', 'must be absent or {}: this path takes no body');
}

/**
 * Call it before a validator, which would check each item of a list that is too long.
 * @throws Fault `invalid` with the fields that the schema doesn't define, where it refuses them, and the lists that are too long.
 */
export function requireKnown(schema: TSchema, value: unknown): void {
  const problems: Problem[] = [];
  const visit = (part: Part, one: unknown, path: string): void => {
    if (problems.length >= PROBLEMS_MAX || typeof one !== 'object' || one === null) return;
    if (Array.isArray(one)) {
      const { items, maxItems = Number.POSITIVE_INFINITY } = part;
      if (one.length > maxItems)
        problems.push({ path, message: `must not have more than ${maxItems} items` });
      else if (items !== undefined)
        for (const [index, item] of one.entries()) visit(items, item, `${path}/${index}`);
      return;
    }
    const { properties, additionalProperties } = part;
    if (properties === undefined) return;
    for (const [name, field] of Object.entries(one)) {
      const inner = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (inner !== undefined) visit(inner, field, `${path}/${name}`);
      else if (additionalProperties === false && problems.length < PROBLEMS_MAX)
        problems.push({ path: `${path}/${name}`, message: unknownAmong(Object.keys(properties)) });
    }
  };
  visit(schema, value, '');
  if (problems.length > 0) throw invalidRequest(problems);
}

const unknownAmong = (known: readonly string[]) =>
  known.length === 0 ? 'is unknown: this path takes no fields' : `is unknown; known: ${known.join(', ')}`;

type Part = {
  properties?: Record<string, Part>;
  items?: Part;
  maxItems?: number;
  additionalProperties?: unknown;
};
