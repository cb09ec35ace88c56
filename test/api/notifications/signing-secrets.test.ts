import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { type Answer, createApiStory } from '../api-story.ts';

const PATH = '/api/notifications/signing-secrets';
const HOUR_MS = 3_600_000;

type Secret = {
  number: number;
  secret: string;
  public_key: string;
  created_at: string;
  ends_at: string | null;
};

function secretsOf({ status, json }: Answer): Secret[] {
  assert.equal(status, 200, JSON.stringify(json));
  assert.ok(typeof json === 'object' && json !== null && 'data' in json && Array.isArray(json.data));
  assert.deepEqual(Object.keys(json), ['success', 'data']);
  return json.data;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a watcher reads its signing secret and public key, the same each time and never from a cache', async () => {
    const { ask, issue, clock } = createApiStory(database());
    const [acme, other] = [await issue('acme'), await issue('other')];
    const answer = await ask('GET', PATH, { key: acme.key });
    const [secret, ...rest] = secretsOf(answer);
    assert.ok(secret !== undefined && rest.length === 0);
    assert.match(secret.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
    assert.match(secret.public_key, /^whpk_[A-Za-z0-9+/]{43}=$/);
    assert.deepEqual(
      [secret.number, secret.created_at, secret.ends_at],
      [1, clock.now().toISOString(), null],
    );
    assert.equal(answer.headers['cache-control'], 'no-store');
    assert.deepEqual(secretsOf(await ask('GET', PATH, { key: acme.key })), [secret]);
    const [theirs] = secretsOf(await ask('GET', PATH, { key: other.key }));
    assert.ok(theirs !== undefined && theirs.secret !== secret.secret);
  });

  test('a rotation keeps the old secret for a day, or for the given hours', async () => {
    const { ask, issue, clock } = createApiStory(database());
    const { key } = await issue('acme');
    const [first] = secretsOf(await ask('GET', PATH, { key }));
    const rotated = await ask('POST', `${PATH}/rotate`, { key });
    const [second, former] = secretsOf(rotated);
    assert.equal(rotated.headers['cache-control'], 'no-store');
    assert.ok(second !== undefined && second.secret !== first?.secret && second.ends_at === null);
    const endsAt = new Date(clock.now().getTime() + 24 * HOUR_MS).toISOString();
    assert.deepEqual(former, { ...first, ends_at: endsAt });
    const ended = secretsOf(await ask('POST', `${PATH}/rotate`, { key, body: { overlap_hours: 0.5 } }));
    assert.deepEqual(
      ended.map(({ number, ends_at }) => [number, ends_at]),
      [
        [3, null],
        [2, new Date(clock.now().getTime() + HOUR_MS / 2).toISOString()],
        [1, new Date(clock.now().getTime() + HOUR_MS / 2).toISOString()],
      ],
    );
    clock.advance(HOUR_MS / 2);
    assert.deepEqual(
      secretsOf(await ask('GET', PATH, { key })).map(({ number }) => number),
      [3],
    );
  });

  test('a wrong overlap is refused with its path, and a sixth secret as a conflict', async () => {
    const { ask, issue } = createApiStory(database());
    const { key } = await issue('acme');
    for (const overlap_hours of [-1, 8_761, '24', null]) {
      const { status, json } = await ask('POST', `${PATH}/rotate`, { key, body: { overlap_hours } });
      assert.equal(status, 400, String(overlap_hours));
      assert.ok(typeof json === 'object' && json !== null && 'errors' in json && Array.isArray(json.errors));
      assert.equal(json.errors[0]?.path, '/overlap_hours');
    }
    for (let count = 1; count < 5; count += 1) secretsOf(await ask('POST', `${PATH}/rotate`, { key }));
    assert.equal((await ask('POST', `${PATH}/rotate`, { key })).status, 409);
    secretsOf(await ask('POST', `${PATH}/rotate`, { key, body: { overlap_hours: 0 } }));
  });

  test('a watcher turns signatures for the public key on and off, for itself alone', async () => {
    const { ask, issue } = createApiStory(database());
    const [acme, other] = [await issue('acme'), await issue('other')];
    const settings = async (key: string) => (await ask('GET', `${PATH}/settings`, { key })).json;
    assert.deepEqual(await settings(acme.key), { success: true, data: { v1a: false } });
    for (const v1a of [true, false, true]) {
      const { status, json } = await ask('PUT', `${PATH}/settings`, { key: acme.key, body: { v1a } });
      assert.deepEqual([status, json], [200, { success: true, data: { v1a } }]);
      assert.deepEqual(await settings(acme.key), { success: true, data: { v1a } });
    }
    assert.deepEqual(await settings(other.key), { success: true, data: { v1a: false } });
    for (const body of [{}, { v1a: 'yes' }, { v1a: null }, { v1a: true, v2: true }])
      assert.equal((await ask('PUT', `${PATH}/settings`, { key: acme.key, body })).status, 400);
    assert.deepEqual(await settings(acme.key), { success: true, data: { v1a: true } });
  });

  test('reading and rotating secrets requires a valid key', async () => {
    const { ask } = createApiStory(database());
    assert.equal((await ask('GET', PATH)).status, 401);
    assert.equal((await ask('POST', `${PATH}/rotate`)).status, 401);
    assert.equal((await ask('GET', `${PATH}/settings`)).status, 401);
    assert.equal((await ask('PUT', `${PATH}/settings`, { body: { v1a: true } })).status, 401);
  });
});
