/**
 * The tables of docs/reference/configuration.md, from the schema of the configuration.
 */

import { listVariables } from '../../../src/config/environment-variables.ts';
import { ConfigSchema } from '../../../src/config/schema.ts';
import { code, markdownTable } from './table.ts';

/** The parts of JSON Schema that the configuration uses. */
type Schema = {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: (string | number)[];
  const?: string;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  required?: string[];
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
};
type Key = { path: string; schema: Schema; isRequired: boolean };

export function renderConfiguration(): string {
  const root: Schema = JSON.parse(JSON.stringify(ConfigSchema));
  const variables = new Map(
    listVariables().map(({ name, pointer }) => [pointer.slice(1).replaceAll('/', '.'), name]),
  );
  return Object.entries(root.properties ?? {})
    .map(([section, schema]) => {
      const isRequired = root.required?.includes(section) === true;
      const keys = listKeys({ path: section, schema, isRequired });
      const rows = keys.map((key) => [
        code(key.path),
        formOf(key.schema),
        defaultOf(key),
        textOf(key.schema, variables.get(key.path)),
      ]);
      const intro = schema.properties !== undefined && schema.description !== undefined;
      return [
        `### \`${section}\``,
        ...(intro ? [String(schema.description)] : []),
        markdownTable(['Key', 'Value', 'Default', 'Meaning'], rows),
      ].join('\n\n');
    })
    .join('\n\n');
}

/** The leaves of a schema. `[]` stands for an entry of a list, `<name>` for a free key, and `[type=http]` for an entry of one of several forms. */
function listKeys({ path, schema, isRequired }: Key): Key[] {
  const { properties, required = [] } = schema;
  if (properties !== undefined)
    return Object.entries(properties).flatMap(([name, child]) =>
      listKeys({ path: `${path}.${name}`, schema: child, isRequired: required.includes(name) }),
    );
  const own = { path, schema, isRequired };
  // Its keys are those of prices.native.
  if (path === 'prices.tokens') return [own];
  const entry = schema.items ?? Object.values(schema.patternProperties ?? {})[0];
  const inner = schema.items === undefined ? `${path}.<name>` : `${path}[]`;
  if (entry?.properties !== undefined)
    return [own, ...listKeys({ path: inner, schema: entry, isRequired: true })];
  const forms = entry?.anyOf?.filter((form) => form.properties !== undefined) ?? [];
  return [
    own,
    ...forms.flatMap((form) => {
      const type = String(form.properties?.type?.const);
      const keys = listKeys({ path: `${path}[type=${type}]`, schema: form, isRequired: true });
      return keys.filter((key) => !key.path.endsWith('].type'));
    }),
  ];
}

function formOf(schema: Schema): string {
  const { title, type, minimum, exclusiveMinimum, maximum } = schema;
  // Outside of code, Markdown takes <…> for a tag.
  if (title !== undefined) return title.replaceAll('<', '\\<');
  if (schema.enum !== undefined) return schema.enum.map((value) => code(String(value))).join(', ');
  if (schema.const !== undefined) return code(schema.const);
  if (type === 'integer' || type === 'number') {
    const name = type === 'integer' ? 'whole number' : 'number';
    const from = exclusiveMinimum === undefined ? `${minimum} to` : `above ${exclusiveMinimum}, up to`;
    const least = exclusiveMinimum === undefined ? `from ${minimum ?? 0}` : `above ${exclusiveMinimum}`;
    return maximum === undefined || maximum === Number.MAX_SAFE_INTEGER
      ? `${name} ${least}`
      : `${name}, ${from} ${maximum}`;
  }
  if (type === 'boolean') return '`true` or `false`';
  if (type === 'array') {
    const { items = {} } = schema;
    return items.properties === undefined && items.anyOf === undefined ? `list: ${formOf(items)}` : 'list';
  }
  if (type === 'object') return 'map by name';
  return 'text';
}

function defaultOf({ schema, isRequired }: Key): string {
  if (schema.default !== undefined) return code(JSON.stringify(schema.default));
  return isRequired ? 'required' : 'none';
}

function textOf({ description = '' }: Schema, variable: string | undefined): string {
  const sentence = /[.:]$|^$/.test(description) ? description : `${description}.`;
  return [sentence, ...(variable === undefined ? [] : [`Variable: ${code(variable)}.`])].join(' ').trim();
}
