import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
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

/** In how many seconds at most the machine asks whether the other end of this socket is still there. Only on Linux. */
async function secondsToKeepalive(ports: { local: number; remote: number }): Promise<number | undefined> {
  const hex = (port: number) => port.toString(16).toUpperCase().padStart(4, '0');
  const tables = await Promise.all(['tcp', 'tcp6'].map((name) => readFile(`/proc/net/${name}`, 'utf8')));
  for (const line of tables.join('\n').split('\n')) {
    const [, local, remote, , , timer] = line.trim().split(/\s+/);
    if (!local?.endsWith(`:${hex(ports.local)}`) || !remote?.endsWith(`:${hex(ports.remote)}`)) continue;
    const [kind, ticks] = timer?.split(':') ?? [];
    return kind === '02' ? Number.parseInt(ticks ?? '', 16) / 100 : undefined;
  }
  return undefined;
}

onPostgres(({ database }) => {
  test('the server soon notices that the machine of a session is gone', {
    skip: process.platform !== 'linux',
  }, async () => {
    const session = await database().session();
    await session.tryLock(77, 88);
    const [found] = await database().query<{ local: number; remote: number }>(sql`
      select current_setting('port')::int as local, a.client_port as remote
      from pg_locks l join pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'advisory' and l.classid = 77 and l.objid = 88 and a.datname = current_database()`);
    assert.ok(found !== undefined);
    let seconds: number | undefined;
    await waitUntil(async () => {
      seconds = await secondsToKeepalive(found);
      return seconds !== undefined;
    });
    assert.ok((seconds ?? Number.NaN) <= 10, `${seconds} s`);
    await session.close();
  });

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
