/**
 * Names of the fields of bodies. A schema with `additionalProperties: false` refuses others by name, because a field with a
 * typing error must not mean the default. Bodies of the specification don't: there other fields are passed over.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { Problem } from '../../core/fault.ts';
import type { Api } from '../context.ts';
import { invalidRequest } from './errors.ts';
import { isKeyed } from './shared-headers.ts';

/** For schemas of bodies that refuse other fields. */
export const strict = { additionalProperties: false };
const NoFields = Type.Object({}, strict);
/** Enough to see what is wrong. */
const PROBLEMS_MAX = 100;

/** Checks every route under a key that is added from now on. A body that a route doesn't take must be empty. */
export function checkBodyNames(api: Api): void {
  api.addHook('onRoute', (route) => {
    const takesBody = [route.method].flat().some((method) => ['POST', 'PUT', 'PATCH'].includes(method));
    const operation = route.config?.operation;
    if (!isKeyed(route.url) || !takesBody || operation === undefined) return;
    // One that is described only is checked by its handler.
    const schema = route.schema?.body ?? (operation.body === undefined ? NoFields : undefined);
    if (schema === undefined) return;
    const check = ({ body }: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void): void => {
      const problems = unknownFields(schema, body);
      done(problems.length === 0 ? undefined : invalidRequest(problems));
    };
    route.preValidation = [route.preValidation ?? [], check].flat();
  });
}

/** The fields of a value that its schema doesn't know, and those that it knows. */
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
