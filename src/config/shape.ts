/**
 * Checks values against the schema and says in plain words what is wrong: "must be …", "unknown key", "is required".
 */
import Type, { type TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { Settings as TypeboxSettings } from 'typebox/system';
import { Default, Errors, Pointer } from 'typebox/value';
import { branchOf } from './convert.ts';
import type { Finding } from './finding.ts';
import { childPointer, displayPath, findAt } from './pointer.ts';
import { ConfigSchema } from './schema.ts';
import { closest } from './suggest.ts';
import { listVariables } from './variables.ts';

/** Enough to name every mistake of a large file, and a bound on the work that a hostile one can cause. */
const ERRORS_MAX = 1_000;

/** Everything that the schema has against these values; defaults must be filled in before. */
export function checkShape(values: unknown): Finding[] {
  const errorsMax = TypeboxSettings.Get().maxErrors;
  // The library stops at 8 errors unless told otherwise, and can only be told for the whole process.
  TypeboxSettings.Set({ maxErrors: ERRORS_MAX });
  try {
    return checkBranch(ConfigSchema, values, '');
  } finally {
    TypeboxSettings.Set({ maxErrors: errorsMax });
  }
}

function checkBranch(schema: TSchema, value: unknown, base: string): Finding[] {
  return Errors(schema, value)
    .filter((error) => !error.schemaPath.includes('/anyOf/')) // said again, and better, at the union itself
    .flatMap((error) => {
      const at = { schema: schemaAt(schema, error), value: findAt(value, error.instancePath) };
      return translate(error, at, base + error.instancePath);
    });
}

function schemaAt(root: TSchema, error: TLocalizedValidationError): TSchema {
  return Pointer.Get(root, error.schemaPath.slice(1)) ?? {};
}

function translate(
  error: TLocalizedValidationError,
  at: { schema: TSchema; value: unknown },
  pointer: string,
): Finding[] {
  const { schema, value } = at;
  switch (error.keyword) {
    case 'additionalProperties':
      return error.params.additionalProperties.map((key) => unknownKey(schema, key, pointer));
    case 'boolean':
      // Said by additionalProperties.
      return [];
    case 'required':
      return error.params.requiredProperties.map((key) => missingKey(childPointer(pointer, key)));
    case '~refine': {
      const [message = '', suggestion] = error.message.split('\n');
      return [{ pointer, message, ...(suggestion === undefined ? {} : { suggestion }) }];
    }
    case 'anyOf':
      return checkUnion(schema, value, pointer);
    case 'enum':
      return [wrongChoice(error.params.allowedValues, value, pointer)];
    case 'minimum':
      return [{ pointer, message: `must be at least ${error.params.limit}` }];
    case 'maximum':
      return [{ pointer, message: `must be at most ${error.params.limit}` }];
    case 'exclusiveMinimum':
      return [{ pointer, message: `must be more than ${error.params.limit}` }];
    case 'minItems':
      return [{ pointer, message: 'must have at least one entry' }];
    case 'maxItems':
      return [{ pointer, message: `must have at most ${error.params.limit} entries` }];
    case 'minLength':
      return [{ pointer, message: 'must not be empty' }];
    case 'maxLength':
      return [{ pointer, message: `must have at most ${error.params.limit} characters` }];
    case 'type':
      return [wrongType(schema, value, pointer)];
    default:
      return [{ pointer, message: `must be ${expectation(schema)}` }];
  }
}

function unknownKey(schema: TSchema, key: string, parent: string): Finding {
  const pointer = childPointer(parent, key);
  const siblings = Type.IsObject(schema) ? Object.keys(schema.properties) : [];
  const elsewhere = () => listVariables().filter((known) => known.pointer.endsWith(`/${key}`));
  const near = closest(key, siblings);
  // A known key in the wrong section is mostly a matter of indentation.
  const [home, ...others] = near === undefined ? elsewhere() : [];
  const candidate = near ?? (home === undefined || others.length > 0 ? undefined : displayPath(home.pointer));
  const suggestion = candidate === undefined ? {} : { suggestion: `did you mean "${candidate}"?` };
  return { pointer, at: 'key', message: 'unknown key', ...suggestion };
}

function missingKey(pointer: string): Finding {
  return { pointer, message: 'is required' };
}

function checkUnion(schema: TSchema, value: unknown, pointer: string): Finding[] {
  if (!Type.IsUnion(schema)) return [];
  const branch = branchOf(schema.anyOf, value);
  // The defaults of an alternative are filled in only where the rest of it is right.
  if (branch !== undefined) return checkBranch(branch, Default(branch, structuredClone(value)), pointer);
  const types = schema.anyOf.flatMap((each) =>
    Type.IsObject(each) && each.properties.type !== undefined && Type.IsLiteral(each.properties.type)
      ? [each.properties.type.const]
      : [],
  );
  if (types.length === 0) return [{ pointer, message: `must be ${expectation(schema)}` }];
  if (kindOf(value) !== 'a map') return [{ pointer, message: 'must be a map (key: value) with a type' }];
  const type = findAt(value, '/type');
  const typePointer = childPointer(pointer, 'type');
  return [type === undefined ? missingKey(typePointer) : wrongChoice(types, type, typePointer)];
}

function wrongChoice(choices: readonly unknown[], value: unknown, pointer: string): Finding {
  const message = `must be ${orList(choices.map(String))}`;
  const candidate = typeof value === 'string' ? closest(value, choices.map(String)) : undefined;
  return {
    pointer,
    message,
    ...(candidate === undefined ? {} : { suggestion: `did you mean "${candidate}"?` }),
  };
}

function wrongType(schema: TSchema, value: unknown, pointer: string): Finding {
  const finding = { pointer, message: `must be ${expectation(schema)}, not ${kindOf(value)}` };
  if (Type.IsString(schema) && !Type.IsRefine(schema) && typeof value === 'number')
    return { ...finding, suggestion: 'put it in quotes' };
  if (Type.IsInteger(schema) && typeof value === 'string' && /^0x[0-9a-f]{1,13}$/i.test(value)) {
    return { ...finding, suggestion: `in decimal it is ${Number(value)}` };
  }
  return finding;
}

/** Completes "must be …". */
function expectation(schema: TSchema): string {
  if ('title' in schema && typeof schema.title === 'string') return schema.title;
  if (Type.IsInteger(schema)) return 'a whole number';
  if (Type.IsNumber(schema)) return 'a number';
  if (Type.IsBoolean(schema)) return 'true or false';
  if (Type.IsString(schema)) return 'text';
  if (Type.IsArray(schema)) return 'a list';
  if (Type.IsObject(schema) || Type.IsRecord(schema)) return 'a map (key: value)';
  return 'something else';
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a map';
  if (typeof value === 'number') return Number.isInteger(value) ? 'a number' : `the number ${value}`;
  return typeof value === 'boolean' ? `${value}` : 'text';
}

function orList(words: readonly string[]): string {
  return words.length === 1 ? String(words[0]) : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}
