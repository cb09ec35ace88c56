import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rotateKey } from '../../../src/app/issue-keys.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, keyRing } from '../api-story.ts';

const PATH = '/api/notifications/watcher';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a key shows its watcher and itself, and when it ends', async () => {
    const { ask, issue, clock } = createApiStory(database());
    await issue('other');
    const { key, keyId, watcherId } = await issue('acme');
    const at = clock.now().toISOString();
    const [{ slices } = { slices: 0 }] = await database().query<{ slices: number }>({
      text: 'select slices from watcher where id = $1',
      values: [watcherId],
    });
    const watcher = { id: watcherId, name: 'acme', slices, created_at: at, state: 'active' };
    const { json } = await ask('GET', PATH, { key });
    const data = { ...watcher, key: { id: keyId, created_at: at, ends_at: null } };
    assert.deepEqual(json, { success: true, data });
    const now = clock.now();
    const next = await rotateKey({ database: database(), keyRing }, keyId, { now, overlapMs: 60_000 });
    const endsAt = new Date(now.getTime() + 60_000).toISOString();
    const rotated = { ...watcher, key: { id: keyId, created_at: at, ends_at: endsAt } };
    assert.deepEqual((await ask('GET', PATH, { key })).json, { success: true, data: rotated });
    const successor = { ...watcher, key: { id: next.keyId, created_at: at, ends_at: null } };
    assert.deepEqual((await ask('GET', PATH, { key: next.key })).json, { success: true, data: successor });
    assert.equal((await ask('GET', PATH)).status, 401);
  });
});
