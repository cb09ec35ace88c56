import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { endKey, rotateKey } from '../../../src/app/issue-keys.ts';
import { presentAccount } from '../../../src/core/account.ts';
import { generateApiKey } from '../../../src/domain/api-key.ts';
import { deriveKeyRing } from '../../../src/domain/key-ring.ts';
import type { Database } from '../../../src/store/db/db.ts';
import type { Sql } from '../../../src/store/db/sql.ts';
import { revokeKey } from '../../../src/store/watchers/api-keys.ts';
import { rekeyBatch } from '../../../src/store/watchers/rekey.ts';
import { addressOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, keyRing, PATH } from '../api-story.ts';

const REFUSED = { success: false, statusCode: 401, statusMessage: 'Unauthorized' };
const refusedAs = (state: string, message: string) => ({
  ...{ ...REFUSED, code: `${state}_key` },
  errors: [{ path: '/authorization', message }],
});
const UNKNOWN = refusedAs('unknown', 'is no API key of this service');
const REVOKED = refusedAs('revoked', 'was revoked. Ask the operator for a new API key');
const EXPIRED = refusedAs('expired', 'has expired, because it was replaced by a newer API key');

onSampledDatabase(import.meta.url, ({ database }) => {
  test('without a valid key every operation is refused in the same words (spec 5)', async () => {
    const { ask, issue } = createApiStory(database());
    const { key } = await issue('acme');
    const without = [
      {},
      { authorization: '' },
      { authorization: 'Bearer' },
      { authorization: 'Bearer ' },
      { authorization: key },
      { authorization: `Basic ${key}` },
      { authorization: `Bearer ${key} ${key}` },
      { 'x-api-key': key },
    ];
    const unknown = [
      { authorization: `Bearer ${key.slice(0, -1)}0${key.endsWith('0') ? '0' : ''}` },
      { authorization: `Bearer ${generateApiKey().text}` },
      { authorization: `Bearer ${'x'.repeat(5_000)}` },
    ];
    for (const one of [...without, ...unknown]) {
      const { status, json, headers } = await ask('GET', PATH, { headers: one });
      assert.deepEqual(
        [status, json, headers['www-authenticate']],
        [401, without.some((other) => other === one) ? REFUSED : UNKNOWN, 'Bearer'],
        JSON.stringify(one),
      );
    }
    const requests = [
      ['POST', PATH],
      ['GET', `${PATH}/5`],
      ['PATCH', `${PATH}/5`],
      ['DELETE', `${PATH}/5`],
    ] as const;
    for (const [method, url] of requests) assert.deepEqual((await ask(method, url)).json, REFUSED, method);
  });

  test('statements of a request count for its watcher, and those of the operator for no watcher', async () => {
    const accounts: (number | undefined)[] = [];
    const watched: Database = {
      ...database(),
      query(statement) {
        accounts.push(presentAccount());
        return database().query(statement);
      },
    };
    const adminToken = 'f00d'.repeat(8);
    const { ask, issue } = createApiStory(watched, {}, undefined, { adminToken });
    const { key, watcherId } = await issue('acme');
    const accountOf = async (path: string, options: Parameters<typeof ask>[2]) => {
      accounts.length = 0;
      assert.equal((await ask('GET', path, options)).status, 200);
      return accounts.at(-1);
    };
    assert.equal(await accountOf('/api/notifications/log', { key }), watcherId);
    // A key that was accepted is checked in its watcher's turn, and all others in one turn of their own.
    assert.deepEqual([...new Set(accounts)], [-1, watcherId]);
    await accountOf('/api/notifications/log', { key });
    assert.deepEqual([...new Set(accounts)], [watcherId]);
    const headers = { authorization: `Bearer ${adminToken}`, 'chainbell-watcher': String(watcherId) };
    assert.equal(await accountOf('/api/notifications/log', { headers }), 0);
    assert.deepEqual([...new Set(accounts)], [0]);
  });

  test('a key is unknown only by secrets that were read after it was looked up, one reading at a time', async () => {
    const gate = Promise.withResolvers<void>();
    const began = Promise.withResolvers<void>();
    let [present, most, lookedUp] = [0, 0, 0];
    const watched: Database = {
      ...database(),
      async query<Row>(statement: Sql) {
        const isReading = /from signing_secret/.test(statement.text) && /from api_key/.test(statement.text);
        if (isReading) most = Math.max(most, ++present);
        const rows = await database().query<Row>(statement);
        if (/where lookup = any/.test(statement.text)) lookedUp += 1;
        if (!isReading) return rows;
        began.resolve();
        await gate.promise;
        present -= 1;
        return rows;
      },
    };
    const { ask, issue } = createApiStory(watched);
    const { key } = await issue('acme');
    const first = ask('GET', PATH, { key: generateApiKey().text });
    await began.promise;
    const renewed = deriveKeyRing(Buffer.alloc(32, 9), [Buffer.alloc(32, 7)]);
    while ((await rekeyBatch({ database: database(), keyRing: renewed })) > 0);
    const others = [PATH, `${PATH}/5`, '/api/notifications/watcher'].map((path) => ask('GET', path, { key }));
    await waitUntil(() => lookedUp === 4);
    gate.resolve();
    assert.equal((await first).status, 401);
    assert.deepEqual(
      (await Promise.all(others)).map(({ status }) => status),
      [503, 503, 503],
    );
    assert.equal(most, 1);
  });

  test('a body is not even looked at before the key is checked', async () => {
    const { ask } = createApiStory(database());
    for (const body of ['{ no json', '"x"', 'x'.repeat(100_000)])
      assert.equal((await ask('POST', PATH, { body })).status, 401);
  });

  test('a key that is revoked while a slow body comes is refused, and nothing is stored', async () => {
    const { api, ask, issue, clock } = createApiStory(database());
    const [{ key, keyId }, other] = [await issue('acme'), await issue('acme')];
    const body = JSON.stringify({ address: addressOf(1), webhook_url: 'https://a.example.com/' });
    async function* slowly() {
      yield body.slice(0, 10);
      await revokeKey(database(), keyId, clock.now());
      clock.advance(2_000);
      yield body.slice(10);
    }
    const { statusCode } = await api.inject({
      ...{ method: 'POST', url: PATH, payload: Readable.from(slowly()) },
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    });
    assert.equal(statusCode, 401);
    assert.deepEqual(((await ask('GET', PATH, { key: other.key })).json as { data: unknown[] }).data, []);
  });

  test('the name of the scheme is accepted in any letter case (RFC 9110, 11.1)', async () => {
    const { ask, issue } = createApiStory(database());
    const { key } = await issue('acme');
    for (const scheme of ['Bearer', 'bearer', 'BEARER']) {
      assert.equal((await ask('GET', PATH, { headers: { authorization: `${scheme} ${key}` } })).status, 200);
    }
  });

  test('a revoked key is refused by the next request, even if the clock says that the revocation lies in the future', async () => {
    const { ask, issue, clock } = createApiStory(database());
    const { key, keyId } = await issue('acme');
    assert.equal((await ask('GET', PATH, { key })).status, 200);
    await revokeKey(database(), keyId, new Date(clock.now().getTime() + 1_000));
    assert.deepEqual((await ask('GET', PATH, { key })).json, REVOKED);
  });

  test('the answer to a refused key says whether it is unknown, revoked or expired, and does not name its watcher', async () => {
    const { ask, issue, clock } = createApiStory(database());
    const store = { database: database(), keyRing };
    const [rotated, ended, early] = [await issue('acme'), await issue('acme'), await issue('acme')];
    const overlap = { now: clock.now(), overlapMs: 60_000 };
    await rotateKey(store, rotated.keyId, overlap);
    await endKey(database(), ended.keyId, clock.now());
    await rotateKey(store, early.keyId, overlap);
    await endKey(database(), early.keyId, clock.now());
    assert.equal((await ask('GET', PATH, { key: rotated.key })).status, 200);
    clock.advance(60_000);
    const bodies = async (key: string) => (await ask('GET', PATH, { key })).json;
    assert.deepEqual(await bodies(rotated.key), EXPIRED);
    assert.deepEqual(await bodies(ended.key), REVOKED);
    assert.deepEqual(await bodies(early.key), REVOKED);
    assert.deepEqual(await bodies(generateApiKey().text), UNKNOWN);
    const answers = [EXPIRED, REVOKED, UNKNOWN].map((body) => JSON.stringify(body)).join();
    assert.doesNotMatch(answers, /acme/);
  });
});
