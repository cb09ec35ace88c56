/**
 * The embedded database has one connection. Public requests must leave places in its queue for others.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PROBE } from '../../../src/core/account.ts';
import { actingFor } from '../../../src/store/db/acting-for.ts';
import { readTime } from '../../../src/store/db/database-time.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { createApiStory, PATH } from '../api-story.ts';

test('requests for made-up users leave places for keys, readiness and other public routes', async () => {
  await using parts = new AsyncDisposableStack();
  const place = parts.use(await createTestDatabase('embedded'));
  const database = await openDatabase(place);
  parts.defer(() => database.close());
  const { askUndescribed: ask, issue } = createApiStory(database);
  const { key } = await issue('acme');
  const gate = Promise.withResolvers<void>();
  const blocked = database.for('follower').transaction(() => gate.promise);
  const flood = Array.from({ length: 1_001 }, (_, number) =>
    ask('GET', `/api/points/vs-last-month?user=0x${String(number).padStart(40, '0')}`),
  );
  // Once one is refused, the places of made-up users are taken.
  assert.equal((await Promise.race(flood)).status, 503);
  const others = Promise.all([
    readTime(actingFor(PROBE, database)),
    ask('GET', PATH, { key }),
    ask('GET', '/api/chain'),
  ]);
  gate.resolve();
  const [, list, chain] = await others;
  assert.deepEqual([list.status, chain.status], [200, 200]);
  await blocked;
  const refused = (await Promise.all(flood)).filter(({ status }) => status === 503);
  assert.ok(refused.length < 1_001, `${refused.length} were refused`);
});
