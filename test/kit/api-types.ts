/**
 * TypeScript types of the OpenAPI document, for the console: what each operation takes and answers.
 */
type Schema = {
  $ref?: string;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  type?: string | string[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  patternProperties?: Record<string, Schema>;
};
type Content = Record<string, { schema?: Schema }>;
type Operation = {
  parameters?: { name: string; in: string; required?: boolean; schema: Schema }[];
  requestBody?: { content: Content };
  responses: Record<string, { content?: Content }>;
};
type Document = {
  components: { schemas: Record<string, Schema> };
  paths: Record<string, Record<string, Operation>>;
};

/** The text of console/src/api/openapi.ts. */
export function renderApiTypes(openApi: string): string {
  const { components, paths }: Document = JSON.parse(openApi);
  const schemas = Object.entries(components.schemas).map(([name, schema]) => `  ${name}: ${typeOf(schema)};`);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, operation]) => `  '${method.toUpperCase()} ${path}': ${operationType(operation)};`,
    ),
  );
  return [
    '/**\n * The operations of docs/api/openapi.json. Made by `npm run generate`, not to be edited.\n */',
    `type Schemas = {\n${schemas.join('\n')}\n};`,
    `export type Operations = {\n${operations.join('\n')}\n};`,
  ]
    .join('\n\n')
    .concat('\n');
}

function operationType({ parameters = [], requestBody, responses }: Operation): string {
  const query = parameters
    .filter((parameter) => parameter.in === 'query')
    .map(({ name, schema }) => `${quote(name)}?: ${typeOf(schema)} | undefined`);
  const body = jsonOf(requestBody?.content);
  const answer = jsonOf(responses[200]?.content);
  return `{ query: { ${query.join('; ')} }; body: ${body}; answer: ${answer} }`;
}

/** JSON bodies have types. Others are text. */
function jsonOf(content: Content | undefined): string {
  if (content === undefined) return 'undefined';
  const schema = content['application/json']?.schema;
  return schema === undefined ? 'string' : typeOf(schema);
}

function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return `Schemas['${schema.$ref.split('/').at(-1)}']`;
  if ('const' in schema) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((one) => JSON.stringify(one)).join(' | ');
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ');
  const names = [schema.type ?? []].flat();
  return names.length === 0 ? 'unknown' : names.map((name) => namedType(name, schema)).join(' | ');
}

function namedType(name: string, schema: Schema): string {
  switch (name) {
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return `(${schema.items === undefined ? 'unknown' : typeOf(schema.items)})[]`;
    case 'object':
      return objectType(schema);
    default:
      return name;
  }
}

function objectType({ properties, required = [], additionalProperties, patternProperties }: Schema): string {
  if (properties !== undefined) {
    const fields = Object.entries(properties).map(
      ([name, schema]) => `${quote(name)}${required.includes(name) ? '' : '?'}: ${typeOf(schema)}`,
    );
    return `{ ${fields.join('; ')} }`;
  }
  const [value] = Object.values(patternProperties ?? {});
  const other = value ?? (typeof additionalProperties === 'object' ? additionalProperties : undefined);
  return `Record<string, ${other === undefined ? 'unknown' : typeOf(other)}>`;
}

const quote = (name: string): string => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : `'${name}'`);
