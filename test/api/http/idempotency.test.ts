import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { type ApiStory, createApiStory, PATH } from '../api-story.ts';
import { BULK, recordOf, recordsOf, URL_A } from '../notifications/bulk-story.ts';

const HOUR_MS = 3_600_000;
const headers = { 'idempotency-key': 'order-17' };
const SET = `${BULK}?webhook_url=${URL_A}`;
const membersOf = (count: number) => recordsOf(count).map(({ address }) => ({ address }));

async function createStory(database: Database) {
  const story = createApiStory(database);
  const { key } = await story.issue('acme');
  return { ...story, key };
}

async function countOf({ ask }: Pick<ApiStory, 'ask'>, key: string): Promise<number> {
  const { json } = await ask('GET', PATH, { key });
  return (json as { data: unknown[] }).data.length;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  const requests = [
    ['POST', PATH, recordOf(1), 1],
    ['POST', BULK, { records: recordsOf(3) }, 3],
    ['PUT', SET, { records: membersOf(3) }, 3],
  ] as const;
  for (const [method, url, body, count] of requests) {
    test(`${method} ${url.replace(PATH, '…')} with the same key is done once, and answered alike each time`, async () => {
      const story = await createStory(database());
      const { ask, key, clock } = story;
      const first = await ask(method, url, { key, body, headers });
      assert.equal(first.status, 200, first.text);
      clock.advance(23 * HOUR_MS);
      const again = await ask(method, url, { key, body, headers });
      assert.deepEqual([again.status, again.text], [200, first.text]);
      assert.equal(again.headers['content-type'], first.headers['content-type']);
      assert.equal(await countOf(story, key), count);
    });

    test(`${method} ${url.replace(PATH, '…')} sent several times at once is done once`, async () => {
      const story = await createStory(database());
      const { ask, key } = story;
      const answers = await Promise.all(
        Array.from({ length: 5 }, () => ask(method, url, { key, body, headers })),
      );
      for (const { status, text } of answers) assert.deepEqual([status, text], [200, answers[0]?.text]);
      assert.equal(await countOf(story, key), count);
    });
  }

  test('a body that is nested deeply, in a field that is ignored, is done once too', async () => {
    const story = await createStory(database());
    const { ask, key } = story;
    const nested = `${'['.repeat(2_000)}${']'.repeat(2_000)}`;
    const body = `{"note":${nested},${JSON.stringify(recordOf(1)).slice(1)}`;
    const options = { key, body, headers: { ...headers, 'content-type': 'application/json' } };
    const first = await ask('POST', PATH, options);
    assert.equal(first.status, 200, first.text);
    assert.equal((await ask('POST', PATH, options)).text, first.text);
    assert.equal(await countOf(story, key), 1);
  });

  test('a key with another body, path or method is a conflict', async () => {
    const story = await createStory(database());
    const { ask, key } = story;
    await ask('POST', BULK, { key, body: { records: recordsOf(2) }, headers });
    for (const [method, url, body] of [
      ['POST', BULK, { records: recordsOf(2, 1) }],
      ['POST', PATH, recordOf(1)],
      ['POST', PATH, { records: recordsOf(2), ...recordOf(1) }],
      ['PUT', SET, { records: membersOf(2) }],
    ] as const) {
      const { status, json } = await ask(method, url, { key, body, headers });
      assert.equal(status, 409);
      assert.deepEqual(json, {
        success: false,
        statusCode: 409,
        statusMessage: 'This Idempotency-Key was used for another request in the last 24 hours',
      });
    }
    assert.equal(await countOf(story, key), 2);
  });

  test('a conflict reads nothing of the stored answer', async () => {
    const { ask, key } = await createStory(database());
    await ask('POST', BULK, { key, body: { records: recordsOf(2) }, headers });
    const rows: unknown[] = [];
    const noting = createApiStory({
      ...database(),
      transaction: (work, ...rest) =>
        database().transaction(
          (tx) =>
            work({
              ...tx,
              async query<Row>(statement: Parameters<typeof tx.query>[0]) {
                const read = await tx.query<Row>(statement);
                rows.push(read);
                return read;
              },
            }),
          ...rest,
        ),
    });
    const { status } = await noting.ask('POST', PATH, { key, body: recordOf(1), headers });
    assert.equal(status, 409);
    assert.ok(rows.length > 0);
    assert.doesNotMatch(JSON.stringify(rows), /webhook_url/);
  });

  test('a key is its watcher’s own, and free again after 24 hours', async () => {
    const story = await createStory(database());
    const { ask, key, issue, clock } = story;
    const { key: otherKey } = await issue('other');
    const create = (bearer: string, number: number) =>
      ask('POST', PATH, { key: bearer, body: recordOf(number), headers });
    assert.equal((await create(key, 1)).status, 200);
    assert.equal((await create(otherKey, 2)).status, 200);
    clock.advance(24 * HOUR_MS);
    assert.equal((await create(key, 3)).status, 200);
    assert.equal((await create(key, 3)).status, 200);
    assert.equal((await create(key, 1)).status, 409);
    assert.equal(await countOf(story, key), 2);
  });

  test('what was refused may be corrected under the same key', async () => {
    const story = await createStory(database());
    const { ask, key } = story;
    for (const records of [[{}], [{ operation: 'delete', id: 'x' }]])
      assert.ok((await ask('POST', BULK, { key, body: { records }, headers })).status >= 400);
    assert.equal((await ask('POST', BULK, { key, body: { records: recordsOf(1) }, headers })).status, 200);
    assert.equal(await countOf(story, key), 1);
  });

  test('a key that cannot be kept is refused, and nothing is done', async () => {
    const story = await createStory(database());
    const { ask, key } = story;
    for (const value of ['', 'a b', 'x'.repeat(256), 'é']) {
      const { status, json } = await ask('POST', PATH, {
        key,
        body: recordOf(1),
        headers: { 'idempotency-key': value },
      });
      assert.equal(status, 400, value);
      assert.equal((json as { errors: { path: string }[] }).errors[0]?.path, '/idempotency-key');
    }
    assert.equal(await countOf(story, key), 0);
  });
});
