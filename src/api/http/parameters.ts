/**
 * Parameters of queries of the public API (spec 7).
 */
import type { FastifyRequest } from 'fastify';
import { Fault, orFault } from '../../core/fault.ts';

/** A whole number in digits alone: `1e3` and `0x10` are none. */
export const parseWhole = (given: string) => (/^\d{1,15}$/.test(given) ? Number(given) : undefined);

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
  const value = typeof given === 'string' ? orFault(() => parse(given)) : undefined;
  if (value === undefined || value instanceof Fault) throw new Fault('invalid', `Invalid ${name} parameter`);
  return value;
}
