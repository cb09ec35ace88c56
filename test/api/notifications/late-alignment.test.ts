/**
 * A watched address that is changed or deleted while very many of its notifications wait.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  headerOf,
  listLanes,
  listNotifications,
  listStates,
  mine,
  transferOf,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, PATH } from '../api-story.ts';
import { addressOf, recordOf, URL_A } from './bulk-story.ts';

const WAIT_MS = 5_000;

/** The API with `count` watched addresses, for each of which a notification waits. Each search for those waits for the gate. */
async function createStory(t: TestContext, database: Database, count: number) {
  const gate = Promise.withResolvers<void>();
  t.after(() => gate.resolve());
  const warnings: unknown[][] = [];
  const slow: Database = {
    ...database,
    async query(statement) {
      if (/with page as materialized \(\s*select id, lane_id/.test(statement.text)) await gate.promise;
      return database.query(statement);
    },
  };
  const log = Object.assign(silentLog(), { warn: (...line: unknown[]) => warnings.push(line) });
  const story = createApiStory(slow, undefined, undefined, { log });
  const { key } = await story.issue('acme');
  const ids: string[] = [];
  for (let number = 1; number <= count; number += 1) {
    const { json } = await story.ask('POST', PATH, { key, body: recordOf(number) });
    ids.push((json as { data: { id: string } }).data.id);
  }
  await mine(
    database,
    headerOf(1),
    ids.map((_, index) => transferOf({ receiver: addressOf(index + 1) })),
  );
  const { ask, clock } = story;
  return {
    ...{ ask, clock, gate, warnings, key, ids },
    remove: (id: string | undefined) => ask('DELETE', `${PATH}/${id}`, { key }),
    /** Waits until `pending` answers wait for the notifications, and ends the wait. */
    async endWait(pending: number) {
      await waitUntil(() => clock.waits().filter((ms) => ms === WAIT_MS).length === pending);
      clock.advance(WAIT_MS);
    },
  };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a deletion is answered after 5 s. Nothing more is sent, and the rest is cancelled', async (t) => {
    const { remove, endWait, gate, clock, ids } = await createStory(t, database(), 2);
    const [first, second] = ids;
    const removed = remove(first);
    await endWait(1);
    assert.equal((await removed).status, 200);
    assert.deepEqual(await listStates(database()), ['waiting', 'waiting']);
    const sent = await attemptDue(database(), { now: clock.now(), succeeds: true });
    assert.deepEqual(
      sent.map(({ watchedAddressId }) => watchedAddressId),
      [second],
    );
    const again = remove(second);
    gate.resolve();
    assert.equal((await again).status, 200);
    assert.equal((await remove(first)).status, 404);
  });

  test('a new URL is answered after 5 s, and notifications go on moving to it', async (t) => {
    const { ask, key, endWait, gate, ids } = await createStory(t, database(), 1);
    const body = { webhook_url: 'https://b.example.com/' };
    const patched = ask('PATCH', `${PATH}/${ids[0]}`, { key, body });
    await endWait(1);
    const { status, json } = await patched;
    assert.deepEqual([status, (json as { data: typeof body }).data.webhook_url], [200, body.webhook_url]);
    const laneId = async () => (await listNotifications(database()))[0]?.lane_id;
    const [former, next] = await listLanes(database());
    assert.equal(await laneId(), former?.id);
    gate.resolve();
    await waitUntil(async () => (await laneId()) === next?.id);
  });

  test('the database can fail after the change is stored. The answer says that it is, and workers do the rest', async (t) => {
    const { ask, remove, gate, warnings, clock, key, ids } = await createStory(t, database(), 4);
    gate.promise.catch(() => {});
    gate.reject(new Fault('unavailable', 'the database is away'));
    const [first, second, third] = ids;
    assert.equal((await remove(first)).status, 200);
    const bulk = `${PATH}/bulk`;
    const records = [{ operation: 'delete', id: second }];
    assert.equal((await ask('POST', bulk, { key, body: { records } })).status, 200);
    const set = `${bulk}?webhook_url=${encodeURIComponent(URL_A)}`;
    const left = [{ address: addressOf(4) }];
    assert.equal((await ask('PUT', set, { key, body: { records: left } })).status, 200);
    const failed = warnings
      .filter(([, event]) => event === 'delivery.align_failed')
      .map(([fields]) => fields);
    assert.deepEqual(
      failed,
      [first, second, third].map((id) => ({
        watcher: 1,
        watchedAddresses: [id],
        error: 'the database is away',
      })),
    );
    const sent = await attemptDue(database(), { now: clock.now(), succeeds: true });
    assert.deepEqual(
      sent.map(({ watchedAddressId }) => watchedAddressId),
      [ids[3]],
    );
  });

  test('a third one waits while two go on after their answers, and a failure after the answer is logged', async (t) => {
    const { remove, endWait, gate, warnings, ids } = await createStory(t, database(), 3);
    const [first, second, third] = ids;
    for (const id of [first, second]) {
      const removed = remove(id);
      await endWait(1);
      assert.equal((await removed).status, 200);
    }
    const last = remove(third);
    await endWait(1);
    assert.equal(warnings.length, 0);
    gate.reject(new Error('the database is away'));
    assert.equal((await last).status, 500);
    const fieldsOf = (id: string | undefined) => ({
      watcher: 1,
      watchedAddresses: [id],
      error: 'the database is away',
    });
    assert.deepEqual(
      warnings.map(([fields, event]) => [fields, event]),
      [first, second].map((id) => [fieldsOf(id), 'delivery.align_failed']),
    );
  });
});
