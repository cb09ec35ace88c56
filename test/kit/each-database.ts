/**
 * Suites of tests on the embedded and on the real database. Each suite has one database, which is emptied before each test.
 */
import path from 'node:path';
import { after, before, beforeEach, describe } from 'node:test';
import type { Database } from '../../src/store/db/db.ts';
import { createTestDatabase, type DatabaseKind, databaseKinds, type TestDatabase } from './database.ts';
import { emptyDatabase } from './empty-tables.ts';
import { sampleOf } from './sample.ts';

type Suite = {
  kind: DatabaseKind;
  /** The suite's database. Only available inside tests and hooks. */
  database(): Database;
  /** Its location, for tests that open it again (PostgreSQL only) or start a process on it. */
  place(): TestDatabase;
};

/** Declares the tests for each kind of database. */
export function onEachDatabase(declare: (suite: Suite) => void): void {
  for (const kind of databaseKinds) onDatabase(kind, declare);
}

/** Both kinds of database. In a run of the whole suite only one, which depends on the commit. `url`: import.meta.url. */
export function sampledKinds(url: string): readonly DatabaseKind[] {
  return sampleOf(databaseKinds, { shares: 2, of: path.basename(url) });
}

/** Like `onEachDatabase`, for the sampled kinds only. */
export function onSampledDatabase(url: string, declare: (suite: Suite) => void): void {
  for (const kind of sampledKinds(url)) onDatabase(kind, declare);
}

/** Declares tests that need several connections or features of a real server. */
export function onPostgres(declare: (suite: Suite) => void): void {
  onDatabase('postgres', declare);
}

function onDatabase(kind: DatabaseKind, declare: (suite: Suite) => void): void {
  describe(kind, () => {
    let opened: { place: TestDatabase; database: Database } | undefined;
    const get = () => {
      if (opened === undefined) throw new Error('the database is there inside tests only');
      return opened;
    };
    before(async () => {
      const place = await createTestDatabase(kind);
      opened = { place, database: await place.open() };
    });
    beforeEach(() => emptyDatabase(get().database));
    after(() => opened?.place[Symbol.asyncDispose]());
    declare({ kind, database: () => get().database, place: () => get().place });
  });
}
