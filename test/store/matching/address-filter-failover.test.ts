/**
 * The address filter of a process that outlives its PostgreSQL server: restarts, crashes and the promotion of a standby.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { migrate } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import type { AddressFilter } from '../../../src/store/matching/address-filter.ts';
import { addRecord, findThrough, ready, strangers, testFilter } from '../../kit/address-filter.ts';
import { alice, bob, carol } from '../../kit/chain-story.ts';
import { startPostgresPair } from '../../kit/postgres-pair.ts';
import { startRestartingServer } from '../../kit/postgres-server.ts';
import { waitUntil } from '../../kit/wait.ts';

describe('a server that restarts', () => {
  test('the filter stays in use after a clean restart, and is built again after a crash', async () => {
    await using parts = new AsyncDisposableStack();
    const server = await startRestartingServer();
    parts.defer(server.stop);
    const database = await openMigrated(server.url, parts);
    await addRecord(database, bob);
    const filter = testFilter(database);
    await ready(filter);

    await addRecord(database, carol);
    await server.restart('SIGINT');
    assert.deepEqual(await findAgain(filter), [bob, carol]);
    assert.ok(filter.isReady());

    await server.restart('SIGKILL');
    await again(() => addRecord(database, alice));
    assert.deepEqual(await findAgain(filter), [alice, bob, carol]);
    assert.ok(!filter.isReady());
    await ready(filter);
    assert.deepEqual(await findAgain(filter), [alice, bob, carol]);
  });
});

describe('a primary and a standby', () => {
  test('a filter of the primary is not used on the promoted standby', async () => {
    await using parts = new AsyncDisposableStack();
    const pair = parts.use(await startPostgresPair());
    let database = await openMigrated(pair.primary.url, parts);
    await addRecord(database, bob);
    const moving: Database = {
      ...database,
      query: (statement) => database.query(statement),
      transaction: (work) => database.transaction(work),
    };
    const filter = testFilter(moving);
    await ready(filter);
    assert.deepEqual(await findThrough(filter, [alice, bob, carol, ...strangers]), [bob]);

    await pair.killPrimary();
    await pair.promote();
    database = await openMigrated(pair.standby.url, parts);
    await addRecord(database, carol);
    assert.deepEqual(await findAgain(filter), [bob, carol]);
    assert.ok(!filter.isReady());
    await ready(filter);
    await addRecord(database, alice);
    assert.deepEqual(await findAgain(filter), [alice, bob, carol]);
    assert.ok(filter.isReady());
  });
});

async function openMigrated(url: string, parts: AsyncDisposableStack): Promise<Database> {
  const database = await openDatabase({ url, dataDir: '' });
  parts.defer(() => database.close());
  await migrate(database);
  return database;
}

const findAgain = (filter: AddressFilter) =>
  again(() => findThrough(filter, [alice, bob, carol, ...strangers]));

/** Repeats the work until its connections are new ones. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  const { result } = await waitUntil(() =>
    work().then(
      (result) => ({ result }),
      (error: unknown) => {
        if (!(error instanceof Fault)) throw error;
        return undefined;
      },
    ),
  );
  return result;
}
