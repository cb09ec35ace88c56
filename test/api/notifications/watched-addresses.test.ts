import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { get } from 'node:http';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { type ApiStory, createApiStory, PATH } from '../api-story.ts';

const DIGITS = 'abcdef0123456789abcdef0123456789abcdef01';
const valid = { address: `0x${DIGITS}`, webhook_url: 'https://hooks.example.com/a?b=c' };
const NOT_FOUND = { success: false, statusCode: 404, statusMessage: 'Watched address not found' };

type Record = { id: string; watcher_id: number } & { [field: string]: unknown };
type Many = { success: boolean; data: Record[] };

/** The API, a key, and a record that exists. */
async function createStory(database: Database) {
  const story = createApiStory(database);
  const { key, watcherId } = await story.issue('acme');
  const record = await createRecord(story, key, valid);
  return { ...story, key, watcherId, record };
}

async function createRecord(story: ApiStory, key: string, body: object): Promise<Record> {
  const { status, json, text } = await story.ask('POST', PATH, { key, body });
  assert.equal(status, 200, text);
  return (json as { data: Record }).data;
}

/** Adds this many records of the watcher, some of them made at the same moment. */
async function insertMany(database: Database, watcherId: number, count: number): Promise<void> {
  await database.query(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at)
    select ${watcherId}::bigint, gen_random_uuid(), ${watcherId}::bigint, 1, ${Buffer.alloc(20)}::bytea, true, true, 'https://a.example/',
      '2025-11-20T12:00:00Z'::timestamptz + number / 3 * interval '1 millisecond', now()
    from generate_series(1, ${count}::int) as number`);
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a HEAD of the whole list reads no record', async () => {
    const asked: string[] = [];
    const heard: Database = {
      ...database(),
      query(statement) {
        asked.push(statement.text);
        return database().query(statement);
      },
    };
    const { ask, issue } = createApiStory(heard);
    const { key } = await issue('acme');
    const { status, headers } = await ask('HEAD', PATH, { key });
    assert.deepEqual([status, headers['content-type']], [200, 'application/json; charset=utf-8']);
    assert.ok(!asked.some((text) => /from watched_address/.test(text)));
    await ask('GET', PATH, { key });
    assert.ok(asked.some((text) => /from watched_address/.test(text)));
  });

  test('a list can be limited to an address, in pages, and shows no one else’s records', async () => {
    const story = await createStory(database());
    const { key, record } = story;
    const second = await createRecord(story, key, { ...valid, webhook_url: 'https://hooks.example.com/b' });
    await createRecord(story, key, { ...valid, address: `0x${'ee'.repeat(20)}` });
    const other = await story.issue('other');
    await createRecord(story, other.key, valid);
    const list = async (query: string) => {
      const { status, json, headers, text } = await story.ask('GET', `${PATH}?${query}`, { key });
      assert.equal(status, 200, text);
      return { ids: (json as Many).data.map(({ id }) => id), link: String(headers.link ?? '') };
    };
    // Both are of the same moment, so their ids decide.
    const ids = [record.id, second.id].toSorted();
    assert.deepEqual((await list(`address=${DIGITS.toUpperCase()}`)).ids, ids);
    const first = await list(`address=0x${DIGITS}&limit=1`);
    assert.deepEqual(first.ids, ids.slice(0, 1));
    const next = /<[^?]*\?([^>]*)>/.exec(first.link)?.[1] ?? '';
    assert.match(next, /address=0x/);
    assert.deepEqual((await list(next)).ids, ids.slice(1));
    assert.deepEqual((await list(`address=${'dd'.repeat(20)}`)).ids, []);
    const { status } = await story.ask('GET', `${PATH}?address=0x12`, { key });
    assert.equal(status, 400);
  });

  test('creating returns the record with exactly these fields in this order (spec 2.6, 4.5)', async () => {
    const story = createApiStory(database());
    const { key, watcherId } = await story.issue('acme');
    const { status, headers, text, json } = await story.ask('POST', PATH, { key, body: valid });
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'application/json; charset=utf-8');
    const { id } = (json as { data: Record }).data;
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    const record = {
      id,
      watcher_id: watcherId,
      address: `0x${DIGITS}`,
      watch_coin: true,
      watch_token: true,
      webhook_url: valid.webhook_url,
      created_at: '2025-11-20T12:00:00.000Z',
      updated_at: '2025-11-20T12:00:00.000Z',
    };
    assert.equal(text, JSON.stringify({ success: true, data: record }));
    assert.equal((await story.ask('GET', `${PATH}/${id}`, { key })).text, text);
    assert.equal(
      (await story.ask('GET', PATH, { key })).text,
      JSON.stringify({ success: true, data: [record] }),
    );
  });

  test('an address is accepted with or without 0x in any letter case, and returned with 0x in lower case', async () => {
    const { key, ask, record, ...story } = await createStory(database());
    const forms = [DIGITS, DIGITS.toUpperCase(), `0X${DIGITS}`, `0x${DIGITS.toUpperCase()}`];
    for (const address of forms) {
      assert.equal(
        (await createRecord({ ...story, ask }, key, { ...valid, address })).address,
        `0x${DIGITS}`,
      );
      const { json } = await ask('PATCH', `${PATH}/${record.id}`, { key, body: { address } });
      assert.equal((json as { data: Record }).data.address, `0x${DIGITS}`);
    }
  });

  test('flags default to true, and the owner is the watcher of the key whatever the body says', async () => {
    const story = await createStory(database());
    const body = { ...valid, watch_coin: false, watcher_id: 999, id: 'mine', created_at: 'now', extra: {} };
    const record = await createRecord(story, story.key, body);
    assert.deepEqual(
      [record.watch_coin, record.watch_token, record.watcher_id, record.id === 'mine', 'extra' in record],
      [false, true, story.watcherId, false, false],
    );
    const other = await createRecord(story, story.key, { ...valid, watch_coin: false, watch_token: false });
    assert.deepEqual([other.watch_coin, other.watch_token], [false, false]);
  });

  test('any subset of the four fields can be patched, and nothing else changes', async () => {
    const { key, ask, record, clock } = await createStory(database());
    let expected = record;
    const patches = [
      { watch_coin: false },
      { watch_token: false },
      { address: '11'.repeat(20) },
      { webhook_url: 'https://other.example/' },
      { watch_coin: true, webhook_url: 'https://third.example/x' },
      { ...valid, watch_coin: true, watch_token: true },
    ];
    for (const patch of patches) {
      clock.advance(1_000);
      const { status, text } = await ask('PATCH', `${PATH}/${record.id}`, { key, body: patch });
      assert.equal(status, 200, text);
      const { id, watcher_id } = record;
      const address = 'address' in patch ? { address: `0x${patch.address.replace('0x', '')}` } : {};
      expected = { ...expected, ...patch, ...address, id, watcher_id, updated_at: clock.now().toISOString() };
      assert.equal(text, JSON.stringify({ success: true, data: expected }));
    }
  });

  test('a patch without a body is an invalid request', async () => {
    const { key, ask, record } = await createStory(database());
    for (const request of [{ key }, { key, headers: { 'content-type': 'application/json' } }]) {
      const { status, json } = await ask('PATCH', `${PATH}/${record.id}`, request);
      assert.equal(status, 400, JSON.stringify(json));
      assert.equal((json as { statusMessage: string }).statusMessage, 'Invalid request');
    }
  });

  test('deleting returns only success, once, and the record is gone', async () => {
    const { key, ask, record } = await createStory(database());
    // Many clients send a content type even with requests that have no body.
    const headers = { 'content-type': 'application/json' };
    const { status, text } = await ask('DELETE', `${PATH}/${record.id}`, { key, headers });
    assert.deepEqual([status, text], [200, '{"success":true}']);
    for (const method of ['DELETE', 'GET', 'PATCH'] as const) {
      const again = await ask(method, `${PATH}/${record.id}`, {
        key,
        ...(method === 'PATCH' && { body: {} }),
      });
      assert.deepEqual([again.status, again.json], [404, NOT_FOUND], method);
    }
    assert.equal((await ask('GET', PATH, { key })).text, '{"success":true,"data":[]}');
  });

  test('a DELETE without a body may have any content type', async () => {
    const { api, key, record } = await createStory(database());
    const { statusCode, body } = await api.inject({
      ...{ method: 'DELETE', url: `${PATH}/${record.id}` },
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/x-www-form-urlencoded' },
    });
    assert.deepEqual([statusCode, JSON.parse(body)], [200, { success: true }]);
  });

  test('an unknown id, another watcher’s id and an invalid id get the same answer', async () => {
    const { record, ask, issue } = await createStory(database());
    const { key } = await issue('other');
    for (const id of [randomUUID(), record.id, 'not-a-uuid', '1', `${record.id}0`, '%00', "';--"]) {
      for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
        const { status, json } = await ask(method, `${PATH}/${encodeURIComponent(id)}`, {
          key,
          ...(method === 'PATCH' && { body: {} }),
        });
        assert.deepEqual([status, json], [404, NOT_FOUND], `${method} ${id}`);
      }
    }
    assert.deepEqual((await ask('GET', PATH, { key })).json, { success: true, data: [] });
  });

  test('an id is the same in upper case', async () => {
    const { key, ask, record } = await createStory(database());
    assert.equal((await ask('GET', `${PATH}/${record.id.toUpperCase()}`, { key })).status, 200);
  });

  test('one error lists every wrong field by its path', async () => {
    const { key, ask, record } = await createStory(database());
    const cases: [body: unknown, paths: string[]][] = [
      [{}, ['/address', '/webhook_url']],
      [{ address: valid.address }, ['/webhook_url']],
      [{ webhook_url: valid.webhook_url }, ['/address']],
      [{ ...valid, address: 5 }, ['/address']],
      [{ ...valid, address: null }, ['/address']],
      [{ ...valid, watch_coin: 'true' }, ['/watch_coin']],
      [{ ...valid, watch_token: 1 }, ['/watch_token']],
      [{ ...valid, watch_coin: null, webhook_url: [] }, ['/watch_coin', '/webhook_url']],
      [[], ['']],
      ['null', ['']],
      ['"text"', ['']],
      [{ ...valid, address: `${valid.address}0` }, ['/address']],
      [{ ...valid, address: DIGITS.slice(1) }, ['/address']],
      [{ ...valid, address: '' }, ['/address']],
      [{ ...valid, address: `0x${DIGITS.slice(1)}g` }, ['/address']],
      [{ address: 'x', webhook_url: 'x' }, ['/address', '/webhook_url']],
    ];
    for (const [body, paths] of cases) {
      const { status, json, text } = await ask('POST', PATH, { key, body });
      assert.equal(status, 400, text);
      const { errors, ...answer } = json as { errors: { path: string; message: string }[] };
      assert.deepEqual(answer, { success: false, statusCode: 400, statusMessage: 'Invalid request' });
      assert.deepEqual(errors.map(({ path }) => path).sort(), paths, text);
      for (const error of errors) assert.deepEqual(Object.keys(error), ['path', 'message']);
    }
    const patch = await ask('PATCH', `${PATH}/${record.id}`, {
      key,
      body: { address: '0x1', watch_coin: true },
    });
    assert.equal(patch.status, 400);
    assert.deepEqual((await ask('GET', `${PATH}/${record.id}`, { key })).json, {
      success: true,
      data: record,
    });
  });

  test('a webhook URL must be public https without credentials (spec 2.6)', async () => {
    const { key, ask, record } = await createStory(database());
    const urls = [
      'http://hooks.example.com/',
      'ftp://hooks.example.com/',
      'hooks.example.com',
      'https://user:password@hooks.example.com/',
      'https://127.0.0.1/',
      'https://10.1.2.3/',
      'https://[::1]/',
      'https://[::ffff:10.0.0.1]/',
      'https://169.254.169.254/latest/meta-data',
      'https://localhost/',
      'https://printer.local/',
      'https://hooks.example.com:8443/',
      `https://hooks.example.com/${'a'.repeat(2048)}`,
      'https://hooks.example.com/\u0000',
      'https://hooks.example.com/a\nb',
    ];
    for (const webhook_url of urls) {
      for (const [method, path, body] of [
        ['POST', PATH, { ...valid, webhook_url }],
        ['PATCH', `${PATH}/${record.id}`, { webhook_url }],
      ] as const) {
        const { status, json } = await ask(method, path, { key, body });
        assert.equal(status, 400, JSON.stringify([method, webhook_url, json]));
        const { errors } = json as { errors: { path: string; message: string }[] };
        assert.deepEqual(
          errors.map((error) => error.path),
          ['/webhook_url'],
        );
      }
    }
  });

  test('a list of 3,000 records is complete, in order, over a real connection', async () => {
    const { key, watcherId, api } = await createStory(database());
    await insertMany(database(), watcherId, 2_999);
    const address = await api.listen({ host: '127.0.0.1', port: 0 });
    try {
      const { json, headers } = await getOverHttp(`${address}${PATH}`, key);
      const { data, success } = json as Many;
      assert.equal(success, true);
      assert.equal(data.length, 3_000);
      assert.equal(new Set(data.map(({ id }) => id)).size, 3_000);
      const order = data.map(({ created_at, id }) => `${String(created_at)} ${id}`);
      assert.deepEqual(order, order.toSorted());
      assert.equal(headers['content-type'], 'application/json; charset=utf-8');
      assert.equal(headers.link, undefined);
    } finally {
      await api.close();
    }
  });

  test('with a limit a list is one page, whose link leads to the next', async () => {
    const { key, watcherId, ask } = await createStory(database());
    await insertMany(database(), watcherId, 9);
    const all = ((await ask('GET', PATH, { key })).json as Many).data;
    const read: Record[] = [];
    let url: string | undefined = `${PATH}?limit=4`;
    let pages = 0;
    while (url !== undefined) {
      const { json, headers }: { json: unknown; headers: { link?: string } } = await ask('GET', url, { key });
      read.push(...(json as Many).data);
      pages += 1;
      url = /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];
    }
    assert.deepEqual(read, all);
    assert.equal(pages, 3);
    const { headers } = await ask('GET', `${PATH}?limit=4`, { key });
    const cursor = /cursor=([^>]+)>/.exec(headers.link ?? '')?.[1];
    assert.deepEqual(
      ((await ask('GET', `${PATH}?cursor=${cursor}`, { key })).json as Many).data,
      all.slice(4),
    );
  });

  test('an invalid limit or cursor is refused', async () => {
    const { key, ask } = await createStory(database());
    const queries = [
      'limit=0',
      'limit=-1',
      'limit=1.5',
      'limit=',
      'limit=x',
      'limit=10001',
      ...['limit=1e3', 'limit=0x10', 'limit=%201', 'limit=+1'],
      'cursor=',
      'cursor=abc',
      // A year after 9999, which not every database reads.
      `cursor=${Buffer.from(`999999999999999 ${randomUUID()}`).toString('base64url')}`,
      'limit=1&limit=2',
    ];
    for (const query of queries) {
      const { status, json } = await ask('GET', `${PATH}?${query}`, { key });
      assert.equal(status, 400, query);
      assert.equal((json as { statusMessage: string }).statusMessage, 'Invalid request');
    }
  });

  test('an unknown parameter is refused with the list of known ones, and of thousands the first 100 are named', async () => {
    const { key, ask } = await createStory(database());
    const { json } = await ask('GET', `${PATH}?limt=1&cursor_=2`, { key });
    assert.deepEqual(json, {
      success: false,
      statusCode: 400,
      statusMessage: 'Invalid request',
      errors: [
        { path: '/limt', message: 'is unknown; known: limit, cursor, address' },
        { path: '/cursor_', message: 'is unknown' },
      ],
    });
    const many = Array.from({ length: 5_000 }, (_, index) => index.toString(36)).join('&');
    const { text: manyText, json: manyJson } = await ask('GET', `${PATH}?${many}`, { key });
    assert.equal((manyJson as { errors: object[] }).errors.length, 100);
    assert.ok(manyText.length < many.length, String(manyText.length));
    for (const [method, path] of [
      ['POST', PATH],
      ['GET', `${PATH}/1`],
      ['GET', '/api/notifications/signing-secrets'],
      ['GET', '/api/notifications/watcher'],
    ] as const) {
      const { status, text } = await ask(method, `${path}?a=1`, { key });
      assert.equal(status, 400, path);
      assert.match(text, /this path has no query parameters/);
    }
    assert.equal((await ask('GET', `${PATH}?a=1`)).status, 401, 'without a key, no details are shown');
    assert.equal((await ask('GET', '/livez?a=1')).status, 200, 'public paths pass over it');
  });

  test('a patch that changes nothing keeps updated_at, alone or in a list', async () => {
    const { key, ask, clock } = await createStory(database());
    const created = await ask('POST', PATH, {
      key,
      body: { address: `0x${'ab'.repeat(20)}`, webhook_url: 'https://hooks.example.com/a' },
    });
    const { data } = created.json as { data: { id: string; address: string; webhook_url: string } };
    clock.advance(1_000);
    const { id, address, webhook_url } = data;
    const same = [{}, { address, watch_coin: true, watch_token: true, webhook_url }, { watch_token: true }];
    for (const body of [...same, { unknown: 1 }])
      assert.deepEqual((await ask('PATCH', `${PATH}/${id}`, { key, body })).json, created.json);
    const records = same.map((patch) => ({ operation: 'update', id, ...patch }));
    const { json } = await ask('POST', `${PATH}/bulk`, { key, body: { records } });
    assert.deepEqual(json, { success: true, data: [data, data, data] });
    const changed = await ask('PATCH', `${PATH}/${id}`, { key, body: { address, watch_coin: false } });
    assert.deepEqual((changed.json as { data: object }).data, {
      ...data,
      watch_coin: false,
      updated_at: clock.now().toISOString(),
    });
  });
});

async function getOverHttp(
  url: string,
  key: string,
): Promise<{ json: unknown; headers: { [name: string]: unknown } }> {
  const [response] = await once(
    get(url, { headers: { authorization: `Bearer ${key}` }, agent: false }),
    'response',
  );
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { json: JSON.parse(Buffer.concat(chunks).toString()), headers: response.headers };
}
