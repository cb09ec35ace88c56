/**
 * The tests of createTestDatabase, which most other tests rely on.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { migrationState } from '../../src/store/db/migrate.ts';
import { createTestDatabase, databaseKinds } from './database.ts';

for (const kind of databaseKinds) {
  test(`${kind}: a test database has every migration and no rows of other tests`, async () => {
    await using mine = await createTestDatabase(kind);
    await using other = await createTestDatabase(kind);
    const database = await mine.open();
    await database.script('create table mark (id integer)');

    assert.deepEqual((await migrationState(database)).pending, []);
    const [row] = await (await other.open()).query<{ present: boolean }>({
      text: "select to_regclass('mark') is not null as present",
      values: [],
    });
    assert.equal(row?.present, false);
  });

  test(`${kind}: data committed with one handle is there when the database is opened again`, async () => {
    await using place = await createTestDatabase(kind);
    const before = await place.open();
    await before.script('create table mark (id integer); insert into mark values (7)');
    await before.close();

    const after = await place.open();
    assert.deepEqual(await after.query({ text: 'select id from mark', values: [] }), [{ id: 7 }]);
  });

  test(`${kind}: dispose removes the folder and the database, even with open handles`, async () => {
    const place = await createTestDatabase(kind);
    await place.open();
    await place[Symbol.asyncDispose]();

    assert.equal(existsSync(place.dataDir), false);
    // The embedded database would be created empty, so only the server can report that it no longer exists.
    if (kind === 'postgres') await assert.rejects(place.open(), /does not exist/);
  });
}
