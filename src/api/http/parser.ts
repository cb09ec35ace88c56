/**
 * Values that do not come as the body of a route of their own are checked as bodies are.
 */
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { invalidRequest, toProblems } from './errors.ts';

/** A function that returns its argument when it fits. @throws Fault `invalid` that names what does not. */
export function createParser<Schema extends TSchema>(schema: Schema) {
  const validator = Compile(schema);
  return (value: unknown) => {
    if (validator.Check(value)) return value;
    throw invalidRequest(validator.Errors(value).flatMap(toProblems));
  };
}
