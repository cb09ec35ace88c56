import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { later, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { PATH } from '../api-story.ts';
import { createAdminStory, dataOf } from './admin-story.ts';

const KEYS = '/api/admin/keys';
const UNKNOWN = { success: false, statusCode: 404, statusMessage: 'Key not found' };
const HOUR_MS = 3_600_000;

const idsOf = (json: unknown) => dataOf(json).map(({ id }: { id: string }) => id);
const nextOf = (link: string | undefined) => /^<(.+)>; rel="next"$/.exec(link ?? '')?.[1];

onSampledDatabase(import.meta.url, ({ database }) => {
  test('an issued key works, is shown once, and belongs to a new or an existing watcher', async () => {
    const { admin, ask } = createAdminStory(database());
    const first = await admin('POST', KEYS, { body: { watcher: 'acme' } });
    assert.equal(first.status, 200);
    assert.equal(first.headers['cache-control'], 'no-store');
    const { id, key, ...rest } = dataOf(first.json);
    assert.deepEqual(rest, {
      ...{ watcher_id: 1, watcher: 'acme', created_at: noon.toISOString() },
      ...{ expires_at: null, revoked_at: null },
    });
    assert.equal((await ask('GET', PATH, { key })).status, 200);
    const second = dataOf((await admin('POST', KEYS, { body: { watcher: 'acme' } })).json);
    assert.equal(second.watcher_id, 1);
    const list = await admin('GET', KEYS);
    assert.deepEqual(new Set(idsOf(list.json)), new Set([id, second.id]));
    assert.ok(!list.text.includes(key));
  });

  test('an issued key is shown even if the database fails right after its commit', async () => {
    let isDown = false;
    const refuse = async () => {
      throw new Fault('unavailable', 'database: connection refused');
    };
    const failing: Database = {
      ...database(),
      query: (statement) => (isDown ? refuse() : database().query(statement)),
      async transaction(work) {
        if (isDown) return refuse();
        const outcome = await database().transaction(work);
        isDown = true;
        return outcome;
      },
    };
    const { admin, ask } = createAdminStory(failing);
    const created = await admin('POST', KEYS, { body: { watcher: 'acme' } });
    isDown = false;
    const rotated = await admin('POST', `${KEYS}/${dataOf(created.json)?.id}/rotate`);
    isDown = false;
    for (const { status, json, text } of [created, rotated]) {
      assert.equal(status, 200, text);
      const { key, watcher, created_at } = dataOf(json);
      assert.deepEqual([watcher, created_at], ['acme', noon.toISOString()]);
      assert.equal((await ask('GET', PATH, { key })).status, 200);
    }
  });

  test('if the answer of the commit is lost, the 503 says that a key may exist, and how to find it', async () => {
    const losing: Database = {
      ...database(),
      async transaction(work) {
        await database().transaction(work);
        throw new Fault('unavailable', 'database: connection lost');
      },
    };
    const { admin, issue } = createAdminStory(losing);
    const { keyId } = await createAdminStory(database()).issue('acme');
    await assert.rejects(issue('acme'), /connection lost/);
    const create = await admin('POST', KEYS, { body: { watcher: 'acme' } });
    const rotate = await admin('POST', `${KEYS}/${keyId}/rotate`);
    for (const { status, json, headers } of [create, rotate]) {
      const { statusMessage, errors } = Object(json);
      assert.deepEqual([status, statusMessage, errors.length], [503, 'Service Unavailable', 1]);
      assert.match(errors[0].message, /A key may have been issued .*GET \/api\/admin\/keys/);
      assert.equal(headers['retry-after'], '5');
    }
    assert.equal(idsOf((await admin('GET', KEYS)).json).length, 4);
  });

  test('a name or number of slices that is not allowed is refused, and nothing is created', async () => {
    const { admin } = createAdminStory(database());
    for (const body of [
      {},
      { watcher: '' },
      { watcher: ' ' },
      { watcher: 7 },
      { watcher: 'a\u0000b' },
      { watcher: 'a\nb' },
      { watcher: 'x'.repeat(101) },
      { watcher: 'x'.repeat(10_000) },
      { watcher: 'acme', slices: 0 },
      { watcher: 'acme', slices: 257 },
      { watcher: 'acme', name: 'beta' },
    ])
      assert.equal((await admin('POST', KEYS, { body })).status, 400, JSON.stringify(body));
    assert.deepEqual(dataOf((await admin('GET', '/api/admin/watchers')).json), []);
    assert.equal((await admin('POST', KEYS, { body: { watcher: 'acme', slices: 2 } })).status, 200);
    assert.equal((await admin('POST', KEYS, { body: { watcher: 'acme', slices: 3 } })).status, 409);
  });

  test('after a rotation both keys work until the overlap ends', async () => {
    const { admin, ask, clock, issue } = createAdminStory(database());
    const old = await issue('acme');
    const body = { overlap_minutes: 90 };
    const rotated = await admin('POST', `${KEYS}/${old.keyId}/rotate`, { body });
    assert.deepEqual([rotated.status, dataOf(rotated.json).watcher], [200, 'acme']);
    assert.equal(rotated.headers['cache-control'], 'no-store');
    const { key, id } = dataOf(rotated.json);
    for (const one of [old.key, key]) assert.equal((await ask('GET', PATH, { key: one })).status, 200);
    const ends = later(1.5 * HOUR_MS).toISOString();
    const listed = dataOf((await admin('GET', KEYS)).json) as { id: string; expires_at: string | null }[];
    assert.equal(listed.find((one) => one.id === old.keyId)?.expires_at, ends);
    assert.equal(listed.find((one) => one.id === id)?.expires_at, null);
    clock.advance(1.5 * HOUR_MS);
    // It has expired, and was not revoked.
    const ended = dataOf((await admin('GET', KEYS)).json).find((one: { id: string }) => one.id === old.keyId);
    assert.deepEqual([ended.expires_at, ended.revoked_at], [ends, null]);
    assert.equal((await ask('GET', PATH, { key: old.key })).status, 401);
    assert.equal((await ask('GET', PATH, { key })).status, 200);
    // Without a body the overlap is a day.
    const again = await admin('POST', `${KEYS}/${id}/rotate`);
    assert.equal(again.status, 200);
    clock.advance(24 * HOUR_MS - 1);
    assert.equal((await ask('GET', PATH, { key })).status, 200);
    clock.advance(1);
    assert.equal((await ask('GET', PATH, { key })).status, 401);
    assert.equal((await admin('POST', `${KEYS}/${id}/rotate`)).status, 409);
    for (const overlap_minutes of [-1, 8_760 * 60 + 1, '60', null])
      assert.equal(
        (await admin('POST', `${KEYS}/${dataOf(again.json).id}/rotate`, { body: { overlap_minutes } }))
          .status,
        400,
        String(overlap_minutes),
      );
  });

  test('a revoked key is refused at once, and the answer says when the watcher has none left', async () => {
    const { admin, ask, issue } = createAdminStory(database());
    const [one, two, other] = [await issue('acme'), await issue('acme'), await issue('other')];
    const first = await admin('DELETE', `${KEYS}/${one.keyId}`);
    assert.deepEqual(
      [first.status, dataOf(first.json).watcher_has_valid_key, dataOf(first.json).remark],
      [...[200, true], null],
    );
    assert.equal((await ask('GET', PATH, { key: one.key })).status, 401);
    assert.equal((await ask('GET', PATH, { key: two.key })).status, 200);
    const last = dataOf((await admin('DELETE', `${KEYS}/${two.keyId}`)).json);
    assert.equal(last.watcher_has_valid_key, false);
    assert.match(last.remark, /^acme has no valid key left\. .*chainbell keys create --watcher acme$/);
    assert.equal((await ask('GET', PATH, { key: other.key })).status, 200);
    const listed = dataOf((await admin('GET', `${KEYS}?watcher=${one.watcherId}`)).json);
    assert.ok(listed.every(({ revoked_at }: { revoked_at: string | null }) => revoked_at !== null));
  });

  test('keys are listed newest first, page by page, of all watchers or of one', async () => {
    const { admin, clock, issue } = createAdminStory(database());
    const keyIds: string[] = [];
    for (const name of ['a', 'b', 'a', 'b', 'a']) {
      keyIds.unshift((await issue(name)).keyId);
      clock.advance(1);
    }
    const read: string[] = [];
    for (let url: string | undefined = `${KEYS}?limit=2`; url !== undefined; ) {
      const { json, headers } = await admin('GET', url);
      read.push(...idsOf(json));
      url = nextOf(headers.link);
    }
    assert.deepEqual(read, keyIds);
    assert.deepEqual(idsOf((await admin('GET', `${KEYS}?watcher=2`)).json), [keyIds[1], keyIds[3]]);
    assert.deepEqual(idsOf((await admin('GET', `${KEYS}?watcher=77`)).json), []);
    for (const query of [
      'watcher=a',
      'limit=0',
      'cursor=1',
      'cursor=x-y',
      'cursor=999999999999999-a',
      'state=valid',
    ])
      assert.equal((await admin('GET', `${KEYS}?${query}`)).status, 400, query);
  });

  test('an unknown key answers 404, and a request without the token 401, whether or not the key exists', async () => {
    const { admin, ask, issue, audited } = createAdminStory(database());
    const { keyId, key } = await issue('acme');
    for (const id of ['unknown', '%00', 'x'.repeat(90), "1'", keyId.toLowerCase()]) {
      assert.deepEqual((await admin('DELETE', `${KEYS}/${id}`)).json, UNKNOWN, id);
      assert.deepEqual((await admin('POST', `${KEYS}/${id}/rotate`)).json, UNKNOWN, id);
    }
    const before = audited().length;
    for (const options of [{}, { key }])
      for (const [method, url] of [
        ['GET', KEYS],
        ['POST', KEYS],
        ['POST', `${KEYS}/${keyId}/rotate`],
        ['DELETE', `${KEYS}/${keyId}`],
      ] as const)
        assert.equal((await ask(method, url, options)).status, 401);
    assert.equal(audited().length, before + 8);
    assert.equal((await ask('GET', PATH, { key })).status, 200);
  });
});
