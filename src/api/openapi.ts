/**
 * The OpenAPI 3.1 document, derived from the routes: at /openapi.json, and as pages at /docs that load nothing from other sites.
 */
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyReply, FastifyRequest, FastifySchema, RouteOptions } from 'fastify';
import { type TObject, type TSchema, Type } from 'typebox';
import packageJson from '../../package.json' with { type: 'json' };
import type { Api } from './context.ts';
import { SUSPENDED, WATCHER_HEADER } from './http/auth.ts';
import { type Contents, DOCS_PATH, ErrorBody, Failure, type Operation } from './http/operation.ts';
import { ADMIN_PREFIX, isKeyed } from './http/shared-headers.ts';
import { webhooks } from './notifications/webhook-document.ts';

/** Tags by path prefix. The first match counts. */
const tags: [prefix: string, name: string, description: string][] = [
  ['/api/points', 'Points', 'Points that users earn by activity on the chain.'],
  ['/api/price', 'Prices', 'Token prices in USD.'],
  ['/api/swap', 'Swap pairs', 'Statistics of the swap pairs of a constant-product exchange.'],
  ['/api/native', 'Supply', 'Supply of the native coin.'],
  ['/api/chain', 'Chain', 'The followed chain.'],
  [
    '/api/notifications/watched-addresses',
    'Watched addresses',
    'Addresses whose transfers are sent to your webhook URLs.',
  ],
  ['/api/notifications/signing-secrets', 'Signing secrets', 'Secrets that sign webhooks.'],
  ['/api/notifications/watcher', 'Watcher', 'The watcher of an API key.'],
  [
    '/api/notifications/statistics',
    'Statistics',
    'Statistics of deliveries, receivers and watched addresses.',
  ],
  ['/api/notifications', 'Delivery log', 'Delivery attempts and their outcomes, and redelivery.'],
  [
    '/api/admin',
    'Operator',
    'For the operator, with `http.adminToken`. Without that token in the configuration, these paths answer 404.',
  ],
  ['/', 'Operation', 'For operators and orchestrators.'],
];

/** A header of every path of watchers. The authentication reads it (http/auth.ts). */
const WatcherHeaders = Type.Object({
  [WATCHER_HEADER]: Type.Optional(
    Type.String({
      description:
        'Only with the token of the operator, and required then: the id of the watcher for whom the operator acts.',
    }),
  ),
});

const JSON_TYPE = 'application/json; charset=utf-8';
/** Only what this server serves. Inline styles are allowed because Swagger UI uses style attributes. */
const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Documents all routes that are added after this call. */
export function addDocumentation(api: Api): void {
  api.register(swagger, {
    convertConstToEnum: false,
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Chainbell',
        version: packageJson.version,
        description: packageJson.description,
        license: { name: packageJson.license, identifier: packageJson.license },
      },
      // The process that serves the document serves the API.
      servers: [{ url: '/' }],
      tags: [
        ...tags.map(([, name, description]) => ({ name, description })),
        { name: 'Webhooks', description: 'Requests that Chainbell sends to your webhook URLs.' },
      ],
      components: {
        securitySchemes: {
          apiKey: { type: 'http', scheme: 'bearer' },
          adminToken: {
            type: 'http',
            scheme: 'bearer',
            description:
              '`http.adminToken` of the configuration. On the paths of watchers, the header `chainbell-watcher` names the watcher.',
          },
        },
      },
      ...{ webhooks },
    },
    transform: ({ url, route }) => ({ url: url.replace(/\?$/, ''), schema: describe(url, route) }),
    transformObject: (document) => ('openapiObject' in document ? nameSchemas(document.openapiObject) : {}),
  });
  api.addHook('onRoute', (route) => {
    if (route.url === `${DOCS_PATH}/json`) route.handler = sendOnce(JSON_TYPE, () => documentText(api));
    if (route.url === `${DOCS_PATH}/yaml`)
      route.handler = sendOnce('application/x-yaml', () => api.swagger({ yaml: true }));
  });
  api.register(swaggerUi, {
    routePrefix: DOCS_PATH,
    staticCSP: DOCS_POLICY,
    theme: { title: 'Chainbell' },
    // The default validator is another site, and the default layout can open documents of other sites.
    uiConfig: { validatorUrl: null, layout: 'BaseLayout', defaultModelsExpandDepth: 0 },
  });
}

/** Adds the route that serves the document. */
export function addDocumentRoute(api: Api): void {
  api.get(
    '/openapi.json',
    sendOnce(JSON_TYPE, () => documentText(api)),
  );
}

/** Sends a text that is made once, as bytes, because a string would be copied for each connection whose client doesn't read. */
function sendOnce(type: string, make: () => string) {
  let bytes: Buffer | undefined;
  return (_request: FastifyRequest, reply: FastifyReply): void => {
    bytes ??= Buffer.from(make());
    reply.type(type).send(bytes);
  };
}

/** The document. The API must be ready. */
export const documentText = (api: Api): string => `${JSON.stringify(api.swagger(), null, 2)}\n`;

/** The route in the form that the plugin reads. Routes without an `operation` are hidden. */
function describe(url: string, { method, config, schema = {} }: RouteOptions): FastifySchema {
  const operation = config?.operation;
  if (operation === undefined) return { hide: true };
  const params = operation.params ?? schema.params;
  const querystring = operation.querystring ?? schema.querystring;
  const body = operation.body ?? schema.body;
  const isAdmin = url.startsWith(ADMIN_PREFIX);
  const isOfWatcher = isKeyed(url) && !isAdmin;
  const headers = isOfWatcher ? withWatcherHeader(operation.headers) : operation.headers;
  const own = (schema.response as Record<number, TSchema> | undefined)?.[200];
  const answer = operation.answer ?? own;
  if (answer === undefined) throw new Error(`${url} has no schema of its response`);
  const errors = errorsOf(operation, {
    asksFor: isAdmin ? 'token' : isKeyed(url) ? 'key' : undefined,
    mayHaveBody: method !== 'GET',
    hasQuery: querystring !== undefined,
    hasParams: params !== undefined,
  });
  return {
    operationId: operationIdOf(String(method), url),
    summary: operation.summary,
    ...(operation.description !== undefined && { description: operation.description }),
    tags: tags
      .filter(([prefix]) => url.startsWith(prefix))
      .slice(0, 1)
      .map(([, name]) => name),
    ...(isAdmin && { security: [{ adminToken: [] }] }),
    ...(isOfWatcher && { security: [{ apiKey: [] }, { adminToken: [] }] }),
    ...(params !== undefined && { params }),
    ...(querystring !== undefined && { querystring }),
    ...(headers !== undefined && { headers }),
    ...(body !== undefined && { body: contentsOf(body as TSchema | Contents, operation.bodyExample) }),
    response: {
      200: {
        description: 'OK.',
        ...(operation.answerHeaders !== undefined && { headers: headersOf(operation.answerHeaders) }),
        ...mediaOf(answer, operation.example),
      },
      ...errors,
      ...Object.fromEntries(
        Object.entries(operation.others ?? {}).map(([status, other]) => [
          status,
          // The plugin's notation for a response without a body.
          {
            description: other.description,
            ...(other.answer === undefined ? { type: 'null' } : mediaOf(other.answer, other.example)),
          },
        ]),
      ),
    },
  };
}

/** The headers of a path of watchers. */
function withWatcherHeader(headers: TSchema | undefined): TObject {
  const own = (headers as TObject | undefined)?.properties ?? {};
  return Type.Object({ ...own, ...WatcherHeaders.properties });
}

/** The meaning of each error status, and an example of its message. */
const usual: Record<number, [description: string, statusMessage: string]> = {
  400: ['The request is invalid. `errors` says which parts and why.', 'Invalid request'],
  401: ['The API key or token is missing or invalid.', 'Unauthorized'],
  403: ['The watcher of this key is suspended.', SUSPENDED],
  404: ['The watched address does not exist.', 'Watched address not found'],
  408: ['The body did not arrive in time.', 'Request Timeout: the body did not arrive within 30 s'],
  413: ['The body is too large.', 'Payload Too Large'],
  415: [
    'The content type of the body is not supported.',
    'Unsupported Media Type: send Content-Type: application/json',
  ],
  429: [
    'Too many requests of this watcher, or of the operator, are under way, whose responses were not read. Read them, then repeat the request.',
    'Too many requests for lists are under way. This one has waited for 30 s',
  ],
  500: ['An internal error. The log of the process has the details.', 'Internal Server Error'],
  503: [
    'The database or the nodes do not answer. Repeat the request after `retry-after` seconds.',
    'Service Unavailable',
  ],
};

/** The 404 of paths of watchers that name nothing else. */
const unknownWatcher = ['The watcher of `chainbell-watcher` does not exist.', 'Watcher not found'] as const;

/** The errors that all routes of its kind have, and its own. */
function errorsOf(
  { errors = {} }: Operation,
  kind: { asksFor: 'key' | 'token' | undefined; mayHaveBody: boolean; hasQuery: boolean; hasParams: boolean },
) {
  const isWrapped = kind.asksFor !== undefined;
  const statuses = [
    ...(isWrapped || kind.mayHaveBody || kind.hasQuery || kind.hasParams ? [400] : []),
    ...(isWrapped ? [401] : []),
    ...(kind.asksFor === 'key' ? [403] : []),
    ...(kind.hasParams || isWrapped ? [404] : []),
    ...(kind.mayHaveBody ? [408, 413, 415] : []),
    ...(isWrapped && !kind.mayHaveBody ? [429] : []),
    ...[500, 503],
    ...Object.keys(errors).map(Number),
  ];
  return Object.fromEntries(
    statuses.map((statusCode) => {
      const isNamed = statusCode === 404 && kind.asksFor === 'key' && !kind.hasParams;
      const [description, message] = isNamed ? unknownWatcher : (usual[statusCode] ?? ['', '']);
      const statusMessage = errors[statusCode] ?? message;
      const body = { ...(isWrapped && { success: false }), statusCode, statusMessage };
      return [
        statusCode,
        {
          description: errors[statusCode] ?? description,
          ...mediaOf(isWrapped ? Failure : ErrorBody, body),
        },
      ];
    }),
  );
}

const isContents = (value: TSchema | Contents): value is Contents => 'content' in value;

/** Media types with their schemas. The first one has the example. */
function mediaOf(answer: TSchema | Contents, example: unknown) {
  const contents = isContents(answer) ? answer.content : { 'application/json': answer };
  return {
    content: Object.fromEntries(
      Object.entries(contents).map(([type, schema], index) => [
        type,
        { schema, ...(example !== undefined && index === 0 && { example }) },
      ]),
    ),
  };
}

/** The plugin takes the example of a body from its schema. */
function contentsOf(body: TSchema | Contents, example: unknown): unknown {
  const examples = example === undefined ? {} : { examples: [example] };
  if (!isContents(body)) return { ...body, ...examples };
  return {
    content: Object.fromEntries(
      Object.entries(body.content).map(([type, schema], index) => [
        type,
        { schema: { ...schema, ...(index === 0 && examples) } },
      ]),
    ),
  };
}

const headersOf = (descriptions: Record<string, string>) =>
  Object.fromEntries(
    Object.entries(descriptions).map(([name, description]) => [name, { type: 'string', description }]),
  );

/** `GET /api/swap/volume/:pair_id?` → getSwapVolumeByPairId. */
function operationIdOf(method: string, url: string): string {
  const words = url
    .replace(/^\/api\//, '')
    .replaceAll(/[?]/g, '')
    .replaceAll(':', 'by_')
    .split(/[^a-z\d]+/i)
    .filter((word) => word !== '');
  return [method.toLowerCase(), ...words.map((word) => `${word[0]?.toUpperCase()}${word.slice(1)}`)].join('');
}

type Json = Record<string, unknown>;

/** Moves each schema with a title to the components and leaves references to it. */
function nameSchemas(document: object): Json {
  const schemas: Json = {};
  const visit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(visit);
    if (typeof value !== 'object' || value === null) return value;
    const visited = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, visit(one)]));
    if (typeof visited.title !== 'string' || visited.type !== 'object') return visited;
    schemas[visited.title] = visited;
    return { $ref: `#/components/schemas/${visited.title}` };
  };
  const { components, ...rest } = document as { components: Json };
  const named = visit(rest) as Json;
  return { ...named, components: { ...components, schemas } };
}
