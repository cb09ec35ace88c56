/**
 * Converts texts from variables to the type of their key: `8080` for a port, a comma-separated text for a list.
 */
import Type, { type TSchema } from 'typebox';
import { childPointer, findAt, keysOf, setAt } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { readVariable } from './read-yaml.ts';
import { ConfigSchema } from './schema.ts';
import type { Settings } from './value-origins.ts';

type Problems = Record<'problems' | 'rounded', PointerProblem[]>;

/**
 * Converts in place. Leaves a text that doesn't fit its type, because the schema check reports it. `rounded`: numbers in YAML that would be
 * rounded.
 */
export function convertVariables(settings: Settings): Problems {
  const read = [...settings.fromVariables].flatMap((pointer): Problems[] => {
    const text = findAt(settings.values, pointer);
    const schema = findSchema(settings.values, pointer);
    if (typeof text !== 'string' || schema === undefined) return [];
    if (isListWithoutEntries(schema, text)) {
      const problem = {
        pointer,
        message: 'has no entries',
        suggestion: 'list them, or write [] for an empty list',
      };
      return [{ problems: [problem], rounded: [] }];
    }
    if (!isYaml(schema, text)) {
      setAt(settings.values, pointer, convert(schema, text));
      return [];
    }
    const { value, ...problems } = readVariable(text, pointer);
    setAt(settings.values, pointer, value);
    return [problems];
  });
  return {
    problems: read.flatMap(({ problems }) => problems),
    rounded: read.flatMap(({ rounded }) => rounded),
  };
}

/** The schema of a key; undefined for an unknown key. */
function findSchema(values: unknown, pointer: string): TSchema | undefined {
  let schema: TSchema | undefined = ConfigSchema;
  let value = values;
  for (const key of keysOf(pointer)) {
    schema = schema === undefined ? undefined : childSchema(schema, key, value);
    value = findAt(value, childPointer('', key));
  }
  return schema;
}

function childSchema(schema: TSchema, key: string, value: unknown): TSchema | undefined {
  if (Type.IsObject(schema))
    return Object.hasOwn(schema.properties, key) ? schema.properties[key] : undefined;
  if (Type.IsRecord(schema)) return Type.RecordValue(schema);
  if (Type.IsArray(schema)) return schema.items;
  const branch = Type.IsUnion(schema) ? branchOf(schema.anyOf, value) : undefined;
  return branch === undefined ? undefined : childSchema(branch, key, value);
}

/** The alternative that the value's `type` names, in a union whose alternatives differ by `type`. */
export function branchOf(branches: readonly TSchema[], value: unknown): TSchema | undefined {
  return branches.find((branch) => {
    const type = Type.IsObject(branch) ? branch.properties.type : undefined;
    return type !== undefined && Type.IsLiteral(type) && type.const === findAt(value, '/type');
  });
}

/** Whether the text is YAML, rather than a single value or a list with commas. */
function isYaml(schema: TSchema, text: string): boolean {
  if (!Type.IsArray(schema)) return hasKeys(schema);
  return Type.IsUnknown(schema.items) || hasKeys(schema.items) || text.trimStart().startsWith('[');
}

/** Commas alone are more likely a template whose values are missing than a wish for an empty list. */
const isListWithoutEntries = (schema: TSchema, text: string) =>
  Type.IsArray(schema) && text.includes(',') && /^[\s,]+$/.test(text);

function convert(schema: TSchema, text: string): unknown {
  const trimmed = text.trim();
  if (Type.IsArray(schema)) {
    const items = trimmed.split(',').map((item) => item.trim());
    return items.filter((item) => item !== '').map((item) => convert(schema.items, item));
  }
  if (takesNumber(schema) && /^-?\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  if (Type.IsBoolean(schema) && /^(true|false)$/.test(trimmed)) return trimmed === 'true';
  return text;
}

function hasKeys(schema: TSchema): boolean {
  return (
    Type.IsObject(schema) || Type.IsRecord(schema) || (Type.IsUnion(schema) && schema.anyOf.some(hasKeys))
  );
}

function takesNumber(schema: TSchema): boolean {
  if (Type.IsUnion(schema)) return schema.anyOf.some(takesNumber);
  if (Type.IsEnum(schema)) return schema.enum.some((value) => typeof value === 'number');
  return Type.IsInteger(schema) || Type.IsNumber(schema);
}
