/**
 * The configuration's JSON Schema, for editors: `# yaml-language-server: $schema=./chainbell.schema.json`.
 */
import { ConfigSchema } from './schema.ts';

/** JSON Schema (draft 2020-12) of the file, in which keys with a default are optional. */
export function configJsonSchema(): Record<string, unknown> {
  const schema = asWritten(JSON.parse(JSON.stringify(ConfigSchema)));
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', ...(schema as Record<string, unknown>) };
}

/** The file may have a variable instead of a number, a boolean, a list or a text with a pattern. */
const VARIABLE = { type: 'string', pattern: '\\$\\{', description: `\${NAME} or \${NAME:-default}` };

/**
 * The schema describes the values after variables and defaults are filled in; in the file, keys with a default are
 * optional, and a variable may stand for a value of any form.
 */
function asWritten(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(asWritten);
  if (typeof node !== 'object' || node === null) return node;
  const copy: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(node)) {
    copy[key] = key === 'default' || key === 'enum' ? value : asWritten(value);
  }
  const { required, properties } = copy;
  if (Array.isArray(required) && typeof properties === 'object' && properties !== null) {
    const needed = required.filter((key) => !hasDefault((properties as Record<string, unknown>)[key]));
    if (needed.length === 0) delete copy.required;
    else copy.required = needed;
  }
  return refusesVariables(copy) ? withVariable(copy) : copy;
}

function hasDefault(schema: unknown): boolean {
  return typeof schema === 'object' && schema !== null && 'default' in schema;
}

function refusesVariables(schema: Record<string, unknown>): boolean {
  const { type, pattern } = schema;
  const isTyped = typeof type === 'string' && ['integer', 'number', 'boolean', 'array'].includes(type);
  return isTyped || Array.isArray(schema.enum) || (type === 'string' && pattern !== undefined);
}

/** Keeps description and default outside the alternatives, because editors look for them there. */
function withVariable(schema: Record<string, unknown>): Record<string, unknown> {
  const { description, default: value, ...form } = schema;
  return {
    ...(description === undefined ? {} : { description }),
    ...(value === undefined ? {} : { default: value }),
    anyOf: [form, VARIABLE],
  };
}
