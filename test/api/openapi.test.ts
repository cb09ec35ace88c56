import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Compile } from 'typebox/compile';
import { documentText } from '../../src/api/openapi.ts';
import { renderOpenApi } from '../../src/app/render-openapi.ts';
import { createDescription } from '../kit/described.ts';
import { createApiStory } from './api-story.ts';
import { noDatabase } from './no-database.ts';

type Media = Record<string, { schema: object; example?: unknown }>;
type Operation = {
  operationId: string;
  summary: string;
  tags: string[];
  requestBody?: { content: Media };
  responses: Record<string, { description: string; content?: Media }>;
};
type OpenApi = {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, Record<string, Operation>>;
};

const text = await renderOpenApi();
const document = JSON.parse(text) as OpenApi;
const operations = Object.entries({ ...document.paths, ...document.webhooks }).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ name: `${method} ${path}`, ...operation })),
);

test('the document is valid OpenAPI 3.1', async () => {
  assert.match(document.openapi, /^3\.1\./);
  const { valid, errors } = await new Validator().validate(JSON.parse(text));
  assert.ok(valid, JSON.stringify(errors));
});

test('every route is described', async () => {
  const { api } = createApiStory(noDatabase);
  const routes: string[] = [];
  api.addHook('onRoute', ({ method, url }) => {
    // A list names the methods that are refused.
    if (typeof method === 'string' && method !== 'HEAD' && method !== 'OPTIONS')
      routes.push(`${method.toLowerCase()} ${url.replaceAll(/:(\w+)\??/g, '{$1}')}`);
  });
  await api.ready();
  const described = new Set(operations.map(({ name }) => name));
  const silent = routes.filter((route) => !described.has(route) && !/ \/(docs|openapi\.json)/.test(route));
  assert.deepEqual(silent, []);
  assert.equal(documentText(api), text, 'whatever is behind the API');
});

test('every operation has a unique name, a tag, and examples and errors that match their schemas', () => {
  const ids = operations.map(({ operationId }) => operationId);
  assert.equal(new Set(ids).size, ids.length);
  const { components } = JSON.parse(text) as { components: Record<string, { [name: string]: object }> };
  const resolve = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(resolve);
    if (typeof value !== 'object' || value === null) return value;
    if ('$ref' in value) return resolve(components.schemas?.[String(value.$ref).split('/').at(-1) ?? '']);
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolve(one)]));
  };
  const lacking: string[] = [];
  for (const { name, summary, tags, requestBody, responses } of operations) {
    assert.equal(tags.length, 1, name);
    assert.ok(summary.length > 0 && !summary.endsWith('.'), name);
    const bodies = [requestBody, ...Object.values(responses)].flatMap((one) => {
      const [first] = Object.values(one?.content ?? {});
      return first === undefined ? [] : [first];
    });
    for (const { schema, example } of bodies) {
      if (example === undefined) lacking.push(name);
      const check = Compile(resolve(schema) as Parameters<typeof Compile>[0]);
      if (example !== undefined && !check.Check(example))
        lacking.push(
          `${name}: ${JSON.stringify(example)} does not fit: ${JSON.stringify(check.Errors(example))}`,
        );
    }
    if (!name.endsWith('notification')) assert.ok(responses['500'], name);
  }
  assert.deepEqual(lacking, []);
});

test('the document and its pages are served without requests to other sites', async () => {
  const { askUndescribed: ask } = createApiStory(noDatabase);
  const served = await ask('GET', '/openapi.json');
  assert.equal(served.text, text);
  assert.equal(served.headers['content-type'], 'application/json; charset=utf-8');
  const page = await ask('GET', '/docs');
  assert.equal(page.status, 200);
  const policy = page.headers['content-security-policy'] ?? '';
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /http/);
  const named = Array.from(page.text.matchAll(/(?:src|href)="([^"]+)"/g), ([, path = '']) => path);
  assert.ok(named.length >= 5);
  for (const path of named) {
    assert.match(path, /^\/docs\/static\//);
    assert.equal((await ask('GET', path)).status, 200, path);
  }
  const { text: started } = await ask('GET', '/docs/static/swagger-initializer.js');
  assert.match(started, /"?validatorUrl"?: ?null/);
  assert.match(started, /"layout":"BaseLayout"/);
});

test('an undocumented response is detected', () => {
  const check = createDescription(text);
  const given = { method: 'GET', url: '/livez?a=b', status: 200, contentType: 'application/json' };
  check({ ...given, text: '{"status":"ok"}' });
  const wrong = [
    { text: '{"status":"well"}' },
    { text: '{"status":"ok","more":1}' },
    { text: '{"status":"ok"}', status: 201 },
    { text: 'ok', contentType: 'text/plain' },
    { text: '{"status":"ok"}', url: '/api/unheard' },
    { text: '{"status":"ok"}', method: 'PUT' },
  ];
  for (const one of wrong) assert.throws(() => check({ ...given, ...one }), /described/, JSON.stringify(one));
});
