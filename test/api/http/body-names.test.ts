import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, PATH } from '../api-story.ts';

const ADMIN_TOKEN = 'f00d'.repeat(8);
const SETTINGS = 'is unknown; known: confirmations, direction, min_amount, tokens, removed, strict_order';
const RECORD = 'is unknown; known: operation, id, address, watch_coin, watch_token, webhook_url';
const MEMBER = 'is unknown; known: address, watch_coin, watch_token';
const NONE = 'is unknown: this path takes no fields';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('an unknown field is refused with the list of known ones, and ignored on the paths of the specification', async () => {
    const story = createApiStory(database(), undefined, undefined, { adminToken: ADMIN_TOKEN });
    const { key } = await story.issue('acme');
    const record = { address: `0x${'ab'.repeat(20)}`, webhook_url: 'https://hooks.example.com/' };
    const created = await story.ask('POST', PATH, { key, body: { ...record, note: 'x' } });
    assert.equal(created.status, 200);
    const { id } = (created.json as { data: { id: string } }).data;
    assert.equal((await story.ask('PATCH', `${PATH}/${id}`, { key, body: { note: 'x' } })).status, 200);

    const set = `${PATH}/bulk?webhook_url=${encodeURIComponent(record.webhook_url)}`;
    const { address } = record;
    const wrong: [
      method: 'POST' | 'PUT',
      path: string,
      body: unknown,
      problems: [path: string, message: string][],
    ][] = [
      [
        'PUT',
        `${PATH}/${id}/settings`,
        { confirmation: 12, remove: true },
        [
          ['/confirmation', SETTINGS],
          ['/remove', SETTINGS],
        ],
      ],
      [
        'PUT',
        `${PATH}/${id}/settings`,
        { tokens: [{ address, min: 1 }] },
        [['/tokens/0/min', 'is unknown; known: address, min_amount']],
      ],
      ['PUT', `${PATH}/${id}/settings`, { constructor: 1 }, [['/constructor', SETTINGS]]],
      [
        'POST',
        `${PATH}/bulk`,
        { records: [record], dry_run: true },
        [['/dry_run', 'is unknown; known: records']],
      ],
      [
        'POST',
        `${PATH}/bulk`,
        { records: [record, { ...record, min_amount: '5' }] },
        [['/records/1/min_amount', RECORD]],
      ],
      ['PUT', set, { records: [{ address, watch_tokens: false }] }, [['/records/0/watch_tokens', MEMBER]]],
      ['PUT', set, { records: [], allow_empty: true }, [['/allow_empty', 'is unknown; known: records']]],
      ['POST', `${PATH}/${id}/test`, { amount: 1 }, [['/amount', NONE]]],
      ['POST', '/api/notifications/log/redeliver?state=processed', { from: '2026' }, [['/from', NONE]]],
      [
        'POST',
        '/api/notifications/signing-secrets/rotate',
        { overlap: 1 },
        [['/overlap', 'is unknown; known: overlap_hours']],
      ],
      ['POST', '/api/admin/watchers/1/suspend', { until: '2027' }, [['/until', NONE]]],
    ];
    for (const [method, path, body, problems] of wrong) {
      const asked = path.startsWith('/api/admin') ? ADMIN_TOKEN : key;
      const { status, json } = await story.ask(method, path, { key: asked, body });
      const { errors } = json as { errors: { path: string; message: string }[] };
      assert.deepEqual([status, errors.map((one) => [one.path, one.message])], [400, problems], path);
    }
    // Many clients send an empty object with every POST.
    const suspended = await story.ask('POST', '/api/admin/watchers/1/suspend', {
      key: ADMIN_TOKEN,
      body: {},
    });
    assert.equal(suspended.status, 200);
  });

  test('a path that takes no body refuses every JSON value but an empty object', async () => {
    const story = createApiStory(database(), undefined, undefined, { adminToken: ADMIN_TOKEN });
    const { key } = await story.issue('acme');
    for (const [path, asked] of [
      ['/api/notifications/log/redeliver?state=processed', key],
      ['/api/admin/watchers/1/suspend', ADMIN_TOKEN],
    ] as const) {
      for (const body of ['[17,18]', '[]', '17', '"17"', 'true', 'null']) {
        const { status, json } = await story.ask('POST', path, { key: asked, body });
        const problem = { path: '', message: 'must be absent or {}: this path takes no body' };
        assert.deepEqual([status, (json as { errors: unknown }).errors], [400, [problem]], `${path} ${body}`);
      }
      for (const body of ['{}', '', undefined])
        assert.equal((await story.ask('POST', path, { key: asked, body })).status, 200, `${path} ${body}`);
    }
  });

  test('for a body of unknown fields, the error lists the first hundred', async () => {
    const story = createApiStory(database());
    const { key } = await story.issue('acme');
    const records = Array.from({ length: 3_000 }, () => ({ note: 1 }));
    const { status, json } = await story.ask('PUT', `${PATH}/bulk?webhook_url=https://a.example`, {
      key,
      body: { records },
    });
    assert.deepEqual([status, (json as { errors: unknown[] }).errors.length], [400, 100]);
  });
});
