import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, PATH } from '../api-story.ts';

const TOKEN = `0x${'ab'.repeat(20)}`;
const GREATEST = String(2n ** 256n - 1n);
/** The defaults of the specification, on a service with 3 confirmations. */
const defaults = {
  confirmations: 3,
  direction: 'both',
  min_amount: '0',
  tokens: [],
  removed: false,
  strict_order: false,
};

/** The API, a key, and the settings of a record that exists. */
async function createStory(database: Database) {
  const story = createApiStory(database);
  const { key } = await story.issue('acme');
  const body = { address: TOKEN, webhook_url: 'https://hooks.example.com/' };
  const { json } = await story.ask('POST', PATH, { key, body });
  const { data: record } = json as { data: { id: string; updated_at: string } };
  const url = `${PATH}/${record.id}/settings`;
  const read = async () => (await story.ask('GET', url, { key })).json;
  return { ...story, key, record, url, read };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a new record has the default settings, and its body does not contain them', async () => {
    const { ask, key, record, url } = await createStory(database());
    const { status, text } = await ask('GET', url, { key });
    assert.equal(status, 200);
    assert.equal(text, JSON.stringify({ success: true, data: defaults }));
    await ask('PUT', url, { key, body: { removed: true } });
    const { json } = await ask('GET', `${PATH}/${record.id}`, { key });
    const { data } = json as { data: { updated_at: string } };
    assert.deepEqual({ ...data, updated_at: record.updated_at }, record);
    assert.notEqual(data.updated_at, record.updated_at);
  });

  test('PUT replaces all settings, its response is a valid body, and DELETE restores the defaults', async () => {
    const { ask, key, url, read } = await createStory(database());
    const body = {
      confirmations: 12,
      direction: 'in',
      min_amount: GREATEST,
      tokens: [
        { address: TOKEN.slice(2).toUpperCase(), min_amount: 9_007_199_254_740_991 },
        { address: `0x${'0c'.repeat(20)}` },
      ],
      removed: true,
      strict_order: true,
    };
    const data = {
      ...body,
      tokens: [
        { address: `0x${'0c'.repeat(20)}`, min_amount: '0' },
        { address: TOKEN, min_amount: '9007199254740991' },
      ],
    };
    const { status, json } = await ask('PUT', url, { key, body });
    assert.deepEqual([status, json], [200, { success: true, data }]);
    assert.deepEqual(await read(), { success: true, data });
    assert.deepEqual((await ask('PUT', url, { key, body: data })).json, { success: true, data });
    await ask('PUT', url, { key, body: { direction: 'out' } });
    assert.deepEqual(await read(), { success: true, data: { ...defaults, direction: 'out' } });
    const gone = await ask('DELETE', url, { key });
    assert.deepEqual([gone.status, gone.text], [200, '{"success":true}']);
    assert.deepEqual(await read(), { success: true, data: defaults });
  });

  test('one error lists every wrong setting by its path, and nothing is changed', async () => {
    const { ask, key, url, read } = await createStory(database());
    const token = { address: TOKEN };
    const cases: [body: unknown, path: string][] = [
      [undefined, ''],
      [[], ''],
      [{ confirmations: 2 }, '/confirmations'],
      [{ confirmations: -1 }, '/confirmations'],
      [{ confirmations: 100_001 }, '/confirmations'],
      [{ confirmations: 3.5 }, '/confirmations'],
      [{ confirmations: null }, '/confirmations'],
      [{ direction: 'up' }, '/direction'],
      [{ min_amount: -1 }, '/min_amount'],
      [{ min_amount: 0.5 }, '/min_amount'],
      [{ min_amount: '1.0' }, '/min_amount'],
      [{ min_amount: '' }, '/min_amount'],
      [{ min_amount: '0x10' }, '/min_amount'],
      [{ min_amount: 2 ** 53 }, '/min_amount'],
      [{ min_amount: String(2n ** 256n) }, '/min_amount'],
      [{ min_amount: null }, '/min_amount'],
      [{ tokens: TOKEN }, '/tokens'],
      [{ tokens: [token, token] }, '/tokens'],
      [{ tokens: Array(101).fill(token) }, '/tokens'],
      [{ tokens: [{ address: '0x1' }] }, '/tokens/0/address'],
      [{ tokens: [token, {}] }, '/tokens/1/address'],
      [{ tokens: [{ ...token, min_amount: String(2n ** 256n) }] }, '/tokens/0/min_amount'],
      [{ removed: 'true' }, '/removed'],
      [{ strict_order: 1 }, '/strict_order'],
    ];
    for (const [body, path] of cases) {
      const { status, json, text } = await ask('PUT', url, { key, ...(body !== undefined && { body }) });
      const answer = json as { statusMessage: string; errors: { path: string }[] };
      assert.deepEqual([status, answer.statusMessage], [400, 'Invalid request'], text);
      assert.deepEqual([...new Set(answer.errors.map((error) => error.path))], [path], text);
    }
    assert.deepEqual(await read(), { success: true, data: defaults });
  });

  test('a refusal says in words what a value must be', async () => {
    const { ask, key, url } = await createStory(database());
    for (const [body, message] of [
      [{ confirmations: -1 }, 'must be at least 0'],
      [{ confirmations: 100_001 }, 'must be at most 100000'],
      [{ direction: 'up' }, 'must be one of in, out, both'],
      [{ min_amount: '1.0' }, 'must be a whole number with at most 78 digits'],
      [{ tokens: [{ address: '0x1' }] }, 'must be an address: 0x and 40 hexadecimal characters'],
    ] as const) {
      const { json } = await ask('PUT', url, { key, body });
      assert.equal((json as { errors: { message: string }[] }).errors[0]?.message, message);
    }
  });

  test('settings of another watcher’s record and of an unknown one get the same answer, and a key is required', async () => {
    const { ask, issue, url } = await createStory(database());
    const { key } = await issue('other');
    const body = {};
    for (const method of ['GET', 'PUT', 'DELETE'] as const) {
      for (const one of [url, `${PATH}/${randomUUID()}/settings`, `${PATH}/not-a-uuid/settings`]) {
        const { status, json } = await ask(method, one, { key, ...(method === 'PUT' && { body }) });
        const expected = { success: false, statusCode: 404, statusMessage: 'Watched address not found' };
        assert.deepEqual([status, json], [404, expected], `${method} ${one}`);
      }
      assert.equal((await ask(method, url)).status, 401);
    }
    const { status, headers } = await ask('POST', url, { key, body });
    assert.deepEqual([status, headers.allow], [405, 'GET, HEAD, PUT, DELETE']);
  });
});
