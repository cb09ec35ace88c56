/**
 * The path parameter of all routes for one pair.
 */
import Type from 'typebox';
import { Fault } from '../../core/fault.ts';
import { type Parameter, parameter, required } from '../http/parameters.ts';

/** The id in its shortest form: `01` becomes `1`. Error messages call it `id` (spec 7). */
export const PAIR_ID: Parameter<string, true> = {
  ...required(
    parameter(
      'the id of a pair',
      (text) => (/^-?\d{1,100}$/.test(text) ? BigInt(text).toString() : undefined),
      Type.Optional(Type.String({ description: 'The id of the pair.' })),
    ),
  ),
  isInPath: true,
  label: 'id',
};

export const pairErrors = (what: string) => ({ 400: 'Missing id parameter', 404: `${what} not found` });

/** @throws Fault `not_found` with this message */
export function getPair<Pair>(pairs: ReadonlyMap<string, Pair>, id: string, message: string): Pair {
  const pair = pairs.get(id);
  if (pair === undefined) throw new Fault('not_found', message);
  return pair;
}
