/**
 * Paged lists: a limit, a cursor, and the `Link` header that leads to the next page (RFC 8288).
 */
import { type TSchema, Type } from 'typebox';
import { type Parameter, parameter, parseWhole } from './parameters.ts';

/** The number of entries of a page, 1 to `max`. */
export const limitParameter = (max: number, schema: TSchema = Type.String()): Parameter<number, false> =>
  parameter(`a whole number from 1 to ${max}`, (text) => inRange(parseWhole(text), max), schema);

const inRange = (count: number | undefined, max: number) =>
  count !== undefined && count >= 1 && count <= max ? count : undefined;

/** The position after which a page begins. `parse` returns undefined, or throws a Fault, for an invalid one. */
export const cursorParameter = <T>(
  parse: (text: string) => T | undefined,
  schema?: TSchema,
): Parameter<T, false> => parameter('the cursor of a link header', parse, schema);

/** The value of the `Link` header. Undefined values are left out of the query. */
export function nextLink(path: string, query: object): string {
  const next = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) next.set(name, String(value));
  return `<${path}?${next.toString()}>; rel="next"`;
}
