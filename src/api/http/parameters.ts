/**
 * Query and path parameters. A route declares each of them once: its schema for the OpenAPI document, and the parser that
 * reads its text. Parameter schemas and values both come from that declaration.
 */
import { type TObject, type TSchema, Type } from 'typebox';
import { Fault, orFault, type Problem } from '../../core/fault.ts';
import { invalidRequest } from './errors.ts';

export type Parameter<T, Required extends boolean = boolean> = {
  readonly schema: TSchema;
  /** What the text must be, for an error message: `a block number`. */
  readonly form: string;
  readonly isRequired: Required;
  readonly isInPath?: true;
  /** Its name in error messages, where the specification uses another one than the path. */
  readonly label?: string;
  /** The parameter of which this one is a second name. A request gives one of the two. */
  readonly aliasOf?: string;
  /** Returns undefined, or throws a Fault, when the text is invalid. */
  parse(text: string): T | undefined;
};

export type Parameters = { readonly [name: string]: Parameter<unknown> };

/** The values of parameters; undefined for an optional one that the request doesn't have. */
export type Parsed<P extends Parameters> = {
  [Name in keyof P]: P[Name] extends Parameter<infer T, true>
    ? T
    : P[Name] extends Parameter<infer T>
      ? T | undefined
      : never;
};

/** An optional query parameter. */
export const parameter = <T>(
  form: string,
  parse: (text: string) => T | undefined,
  schema: TSchema = Type.String(),
): Parameter<T, false> => ({ schema, form, parse, isRequired: false });

export const required = <T>(optional: Parameter<T>): Parameter<T, true> => ({
  ...optional,
  isRequired: true,
});

/** A whole number of up to 15 digits. `1e3` and `0x10` are invalid. */
export const parseWhole = (text: string) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined);

/** A parser that accepts these words. */
export const oneOf =
  <T extends string>(words: readonly T[]) =>
  (text: string) =>
    words.find((word) => word === text);

/** The schema of query parameters, for the OpenAPI document and for the check of their names. */
export function querySchema(parameters: Parameters): TObject {
  const entries = Object.entries(parameters).filter(([, { isInPath }]) => isInPath === undefined);
  return Type.Object(Object.fromEntries(entries.map(([name, one]) => [name, schemaOf(one)])));
}

/** The schema of path parameters. */
export function pathSchema(parameters: Parameters): TObject {
  const entries = Object.entries(parameters).filter(([, { isInPath }]) => isInPath === true);
  return Type.Object(Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])));
}

const schemaOf = ({ schema, isRequired }: Parameter<unknown>): TSchema =>
  isRequired ? schema : Type.Optional(schema);

/**
 * The parameters of a public request, checked in the order of their declaration. An empty text counts as missing.
 * @throws Fault `invalid` for the first problem, worded as spec 7 does
 */
export function readPublic<P extends Parameters>(
  { params, query }: { params: unknown; query: unknown },
  parameters: P,
): Parsed<P> {
  const parsed: Record<string, unknown> = {};
  for (const [name, one] of Object.entries(parameters)) {
    const label = one.label ?? name;
    const text: unknown = Reflect.get(Object(one.isInPath === true ? params : query), name);
    if (text === undefined || text === '') {
      if (one.isRequired) throw new Fault('invalid', `Missing ${label} parameter`);
      continue;
    }
    const value = parseText(one, text);
    if (value === undefined) throw new Fault('invalid', `Invalid ${label} parameter`);
    if (one.aliasOf !== undefined && parsed[one.aliasOf] !== undefined)
      throw new Fault('invalid', `Invalid ${label} parameter: it ${sameAs(one.aliasOf)}`);
    parsed[name] = value;
  }
  return parsed as Parsed<P>;
}

/**
 * The query parameters of a request with a key or token.
 * @throws Fault `invalid` that lists every problem
 */
export function readKeyed<P extends Parameters>(query: unknown, parameters: P): Parsed<P> {
  const parsed: Record<string, unknown> = {};
  const problems: Problem[] = [];
  for (const [name, one] of Object.entries(parameters)) {
    const text: unknown = Reflect.get(Object(query), name);
    if (text === undefined) continue;
    const value = parseText(one, text);
    if (value === undefined) problems.push({ path: `/${name}`, message: `must be ${one.form}` });
    else if (one.aliasOf !== undefined && parsed[one.aliasOf] !== undefined)
      problems.push({ path: `/${name}`, message: sameAs(one.aliasOf) });
    else parsed[name] = value;
  }
  if (problems.length > 0) throw invalidRequest(problems);
  return parsed as Parsed<P>;
}

const sameAs = (name: string) => `is the same as ${name}: give one of them`;

/** Undefined for an invalid text, and for a parameter that the request repeats. */
function parseText<T>({ parse }: Parameter<T>, text: unknown): T | undefined {
  if (typeof text !== 'string') return undefined;
  const value = orFault(() => parse(text));
  return value instanceof Fault ? undefined : value;
}
