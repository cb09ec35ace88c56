/**
 * The connections of a process by its roles, on a real server.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectionsOf, countConnections } from '../../src/app/connections.ts';
import { type Role, roles } from '../../src/app/roles.ts';
import { actFor } from '../../src/core/account.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createTestDatabase } from '../kit/database.ts';
import { testConfig } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

/** What docs/how-to/run-in-production.md says. */
const documented: readonly { own: readonly Role[]; alone: number; direct: number; pooler?: number }[] = [
  { own: roles, alone: 16, direct: 10, pooler: 6 },
  { own: ['api'], alone: 9, direct: 3, pooler: 6 },
  { own: ['delivery'], alone: 11, direct: 11 },
  { own: ['follower'], alone: 6, direct: 6 },
  { own: ['prices'], alone: 6, direct: 6 },
];

test('a process opens the documented number of connections and never more', async () => {
  await using place = await createTestDatabase('postgres');
  const observer = await place.open();
  for (const { own, alone, direct, pooler } of documented) {
    const active = new Set(own);
    for (const sessionUrl of ['', place.url]) {
      const database = { url: place.url, sessionUrl, dataDir: place.dataDir };
      const { database: settings } = testConfig({ database, rpc: ['http://127.0.0.1:1'] });
      const said = countConnections(settings, active);
      const expected =
        sessionUrl === '' ? { direct: alone } : { direct, ...(pooler !== undefined && { pooler }) };
      assert.deepEqual(said, expected);
      const opened = await openDatabase({ ...connectionsOf(settings, active), dataDir: '' });
      const session = await opened.session();
      const shares = active.has('delivery')
        ? (['follower', 'heartbeat', 'api', 'delivery', 'settle'] as const)
        : (['follower', 'heartbeat', 'api'] as const);
      let isOver = false;
      const flood = shares.flatMap((share) =>
        Array.from({ length: 20 }, (_, account) =>
          actFor(account, () => opened.for(share).query(sql`select pg_sleep(0.05)`)),
        ),
      );
      const all = Promise.all(flood).then(() => {
        isOver = true;
      });
      let most = 0;
      await waitUntil(async () => {
        const [row] = await observer.query<{ count: number }>(sql`
          select count(*) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and application_name = 'chainbell'`);
        most = Math.max(most, row?.count ?? 0);
        return isOver;
      });
      await all;
      assert.equal(most, said.direct + (said.pooler ?? 0), own.join());
      await session.close();
      await opened.close();
      await waitUntil(async () => {
        const [row] = await observer.query<{ count: number }>(sql`
          select count(*) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and application_name = 'chainbell'`);
        return row?.count === 0;
      });
    }
  }
});

test('a process with the role api opens the connections for reads from a replica and one that probes it', () => {
  const database = { url: 'postgres://one', replicaUrl: 'postgres://two', dataDir: 'unused' };
  const { database: settings } = testConfig({ database, rpc: ['http://127.0.0.1:1'] });
  assert.equal(countConnections(settings, new Set(['api'])).replica, 7);
  assert.equal(countConnections(settings, new Set(['delivery'])).replica, undefined);
});
