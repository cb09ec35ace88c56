/**
 * Checks that a response matches the OpenAPI document. Bodies may only have fields that the document describes.
 */
import { Compile } from 'typebox/compile';

type Json = { [name: string]: Json };
type OpenApi = { paths: Json; components: { schemas: Json } };

export type Given = {
  method: string;
  /** Path and query. */
  url: string;
  status: number;
  contentType: string | undefined;
  /** Undefined if it has no such header, or the headers were not read. */
  link?: string | undefined;
  /** Undefined if the body was not read. */
  text: string | undefined;
};

export type Describes = (given: Given) => void;

/** Documentation pages, the OpenAPI document and the console. */
const UNDESCRIBED = /^\/(docs|openapi\.json|console)(\/|$)/;
const WITHOUT_BODY = new Set([204, 304]);

/** Creates a check against this document. The check throws an Error that says what is not described. */
export function createDescription(text: string): Describes {
  const document = JSON.parse(text) as OpenApi;
  const paths = Object.keys(document.paths)
    // When /log/redeliver and /log/{id} both match, the path with fewer parameters applies.
    .toSorted((one, other) => one.split('{').length - other.split('{').length)
    .map((path) => ({ path, pattern: new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`) }));
  const checks = new Map<string, ReturnType<typeof Compile>>();

  return ({ method, url, status, contentType, link, text: body }) => {
    const asked = url.split('?', 1)[0] ?? '';
    if (UNDESCRIBED.test(asked)) return;
    const path = paths.find(({ pattern }) => pattern.test(asked))?.path;
    const verb = method === 'HEAD' ? 'get' : method.toLowerCase();
    const operation = path === undefined ? undefined : document.paths[path]?.[verb];
    const what = `${method} ${asked}: ${status}`;
    if (operation === undefined) {
      // An unknown path, an unsupported method, or a browser's preflight request.
      if (![400, 404, 405].includes(status) && method !== 'OPTIONS')
        throw new Error(`${what} of an operation that is not described`);
      return;
    }
    const answer = operation.responses?.[String(status)];
    // Endless streams have no HEAD.
    if (answer === undefined && method === 'HEAD' && status === 405) return;
    if (answer === undefined) throw new Error(`${what} is not described: ${body}`);
    if (link !== undefined && status === 200 && answer.headers?.link === undefined)
      throw new Error(`${what} has a link header that is not described`);
    if (WITHOUT_BODY.has(status) || method === 'HEAD' || body === undefined) return;
    const type = contentType?.split(';', 1)[0] ?? 'none';
    const schema = answer.content?.[type]?.schema;
    if (schema === undefined) throw new Error(`${what} is not described as ${type}`);
    const key = `${verb} ${path} ${status} ${type}`;
    const check = checks.get(key) ?? Compile(close(schema, document) as Parameters<typeof Compile>[0]);
    checks.set(key, check);
    const value: unknown = type === 'application/json' ? JSON.parse(body) : body;
    if (!check.Check(value)) {
      const found = check.Errors(value).map(({ instancePath, message }) => `${instancePath} ${message}`);
      throw new Error(`${what} is not as described: ${found.join('; ')} in ${body.slice(0, 500)}`);
    }
  };
}

/** Returns the schema with resolved references, in which no object may have additional fields. */
function close(schema: unknown, document: OpenApi): unknown {
  if (Array.isArray(schema)) return schema.map((one) => close(one, document));
  if (typeof schema !== 'object' || schema === null) return schema;
  if ('$ref' in schema && typeof schema.$ref === 'string') {
    const name = schema.$ref.split('/').at(-1) ?? '';
    return close(document.components.schemas[name], document);
  }
  const closed = Object.fromEntries(
    Object.entries(schema).map(([name, one]) => [name, close(one, document)]),
  );
  const isObject = closed.type === 'object' && 'properties' in closed;
  return isObject ? { additionalProperties: false, ...closed } : closed;
}
