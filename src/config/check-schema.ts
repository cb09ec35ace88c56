/**
 * Checks values against the schema and describes problems in plain words: "must be …", "unknown key", "is required".
 */
import Type, { type TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { Settings as TypeboxSettings } from 'typebox/system';
import { Default, Errors, Pointer } from 'typebox/value';
import { closest } from './closest-word.ts';
import { branchOf } from './convert-variables.ts';
import { listVariables } from './environment-variables.ts';
import { childPointer, displayPath, findAt } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { ConfigSchema } from './schema.ts';

/** Enough to name every mistake of a large file, and a bound on the work that a hostile one can cause. */
const ERRORS_MAX = 1_000;

/** Reports every violation of the schema. Defaults must be filled in before. */
export function checkSchema(values: unknown): PointerProblem[] {
  const errorsMax = TypeboxSettings.Get().maxErrors;
  // The library stops at 8 errors by default, and has only a process-wide setting for it.
  TypeboxSettings.Set({ maxErrors: ERRORS_MAX });
  try {
    return checkBranch(ConfigSchema, values, '');
  } finally {
    TypeboxSettings.Set({ maxErrors: errorsMax });
  }
}

function checkBranch(schema: TSchema, value: unknown, base: string): PointerProblem[] {
  return Errors(schema, value)
    .filter((error) => !error.schemaPath.includes('/anyOf/')) // checkUnion reports these better
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
): PointerProblem[] {
  const { schema, value } = at;
  switch (error.keyword) {
    case 'additionalProperties':
      return error.params.additionalProperties.map((key) => unknownKey(schema, key, pointer));
    case 'boolean':
      // `additionalProperties` reports this key.
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

function unknownKey(schema: TSchema, key: string, parent: string): PointerProblem {
  const pointer = childPointer(parent, key);
  const siblings = Type.IsObject(schema) ? Object.keys(schema.properties) : [];
  const elsewhere = () => listVariables().filter((known) => known.pointer.endsWith(`/${key}`));
  const near = closest(key, siblings);
  // A known key in the wrong section usually has the wrong indentation.
  const [home, ...others] = near === undefined ? elsewhere() : [];
  const candidate = near ?? (home === undefined || others.length > 0 ? undefined : displayPath(home.pointer));
  const suggestion = candidate === undefined ? {} : { suggestion: `did you mean "${candidate}"?` };
  return { pointer, at: 'key', message: 'unknown key', ...suggestion };
}

function missingKey(pointer: string): PointerProblem {
  return { pointer, message: 'is required' };
}

function checkUnion(schema: TSchema, value: unknown, pointer: string): PointerProblem[] {
  if (!Type.IsUnion(schema)) return [];
  const branch = branchOf(schema.anyOf, value);
  // The library fills in the defaults of an alternative only if the rest of it is valid.
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

function wrongChoice(choices: readonly unknown[], value: unknown, pointer: string): PointerProblem {
  const message = `must be ${orList(choices.map(String))}`;
  const candidate = typeof value === 'string' ? closest(value, choices.map(String)) : undefined;
  return {
    pointer,
    message,
    ...(candidate === undefined ? {} : { suggestion: `did you mean "${candidate}"?` }),
  };
}

function wrongType(schema: TSchema, value: unknown, pointer: string): PointerProblem {
  const problem = { pointer, message: `must be ${expectation(schema)}, not ${kindOf(value)}` };
  if (Type.IsString(schema) && !Type.IsRefine(schema) && typeof value === 'number')
    return { ...problem, suggestion: 'put it in quotes' };
  if (Type.IsInteger(schema) && typeof value === 'string' && /^0x[0-9a-f]{1,13}$/i.test(value)) {
    return { ...problem, suggestion: `in decimal it is ${Number(value)}` };
  }
  return problem;
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
