/**
 * Suites of tests on the embedded and on the real database: one database for each suite, emptied before each test.
 */
import path from 'node:path';
import { after, before, beforeEach, describe } from 'node:test';
import type { Database } from '../../src/store/db/db.ts';
import { createTestDatabase, type DatabaseKind, databaseKinds, type TestDatabase } from './database.ts';
import { sampleOf } from './sample.ts';

type Suite = {
  kind: DatabaseKind;
  /** The suite's database; only inside tests and hooks. */
  database(): Database;
  /** Where it is, for tests that open it once more (PostgreSQL only) or start a process on it. */
  place(): TestDatabase;
};

/** Declares the tests once for each kind of database. */
export function onEachDatabase(declare: (suite: Suite) => void): void {
  for (const kind of databaseKinds) onDatabase(kind, declare);
}

/** Both kinds, or, in a run of the whole suite, one of them, and the other one at another commit. `url`: import.meta.url. */
export function sampledKinds(url: string): readonly DatabaseKind[] {
  return sampleOf(databaseKinds, { shares: 2, of: path.basename(url) });
}

/** As `onEachDatabase`, for the kinds of the sample. */
export function onSampledDatabase(url: string, declare: (suite: Suite) => void): void {
  for (const kind of sampledKinds(url)) onDatabase(kind, declare);
}

/** Declares tests that need several connections, or the server's own means. */
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

/**
 * Removes every row; ids begin at 1 again. Truncating makes new files for each table and index, which takes the embedded
 * database 0.2 s, so only tables that a test has filled are truncated.
 */
export async function emptyDatabase(database: Database): Promise<void> {
  await database.script(`
    set session_replication_role = replica;
    do $$
    declare name text;
    begin
      for name in
        select relname from pg_class
        where relkind = 'r' and relnamespace = 'public'::regnamespace and relname not in ('clock_state', 'record_counting', 'migration')
      loop
        if pg_relation_size(name::regclass) > 262144 then execute format('truncate %I cascade', name);
        else execute format('delete from %I', name); end if;
      end loop;
    end $$;
    set session_replication_role = origin;
    select setval(oid::regclass, 1, false) from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace;
    update record_counting set is_counted = false;
    update clock_state set steps_ms = 0, last_step_ms = null, last_step_at = null, prune_from = null, probed_at = null`);
}
