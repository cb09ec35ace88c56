import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSessionKeeper } from '../../../src/store/db/session-keeper.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';

onEachDatabase(({ database }) => {
  test('all callers share one session, which listens to the channels', async () => {
    const payloads: string[] = [];
    const keeper = createSessionKeeper(database(), { story: (payload) => payloads.push(payload) });
    const [first, second] = await Promise.all([keeper.current(), keeper.current()]);
    assert.equal(first, second);
    assert.equal(await keeper.current(), first);
    await database().query(sql`select pg_notify('story', 'one')`);
    await waitUntil(() => payloads.length === 1);
    await keeper.close();
  });
});

onPostgres(({ database }) => {
  test('after a session is lost, the next one listens to the same channels', async () => {
    const payloads: string[] = [];
    const keeper = createSessionKeeper(database(), { story: (payload) => payloads.push(payload) });
    const first = await keeper.current();
    await database().query(sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`);
    await waitUntil(() => first.lost.aborted);
    const second = await keeper.current();
    assert.notEqual(second, first);
    await database().query(sql`select pg_notify('story', 'two')`);
    await waitUntil(() => payloads.length === 1);
    await keeper.close();
    await first.close();
  });
});
