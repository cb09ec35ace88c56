/**
 * Checks values outside of Fastify's body validation, such as the lines of a stream, with the same errors.
 */
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { invalidRequest, toProblems } from './errors.ts';

/** A function that returns its argument if it matches the schema. @throws Fault `invalid` that lists the problems. */
export function createParser<Schema extends TSchema>(schema: Schema) {
  const validator = Compile(schema);
  return (value: unknown) => {
    if (validator.Check(value)) return value;
    throw invalidRequest(validator.Errors(value).flatMap(toProblems));
  };
}
