/**
 * Parameters of queries of the public API (spec 7).
 */
import type { FastifyRequest } from 'fastify';
import { Fault } from '../core/fault.ts';

/**
 * Undefined when it is missing or empty.
 * @throws Fault `invalid` as spec 7 words it, where `parse` gives nothing or throws one, or it is there twice.
 */
export function readOptional<T>(
  request: FastifyRequest,
  name: string,
  parse: (text: string) => T | undefined,
): T | undefined {
  const given: unknown = Reflect.get(Object(request.query), name);
  if (given === undefined || given === '') return undefined;
  const value = typeof given === 'string' ? orUndefined(() => parse(given)) : undefined;
  if (value === undefined) throw new Fault('invalid', `Invalid ${name} parameter`);
  return value;
}

function orUndefined<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}
