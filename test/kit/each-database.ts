/**
 * Suites of tests on the embedded and on the real database. Each suite has one database, which is emptied before each test.
 */
import path from 'node:path';
import { after, before, beforeEach, describe } from 'node:test';
import type { Database } from '../../src/store/db/db.ts';
import { createTestDatabase, type DatabaseKind, databaseKinds, type TestDatabase } from './database.ts';
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

/**
 * Deletes all rows and partitions of days, and restarts ids at 1. Truncating creates new files for each table and index, which takes the
 * embedded database 0.2 s, so only large tables are truncated, and used default partitions, because retention analyzes
 * each once.
 */
export async function emptyDatabase(database: Database): Promise<void> {
  await database.script(`
    set session_replication_role = replica;
    do $$
    declare name text; tuples real;
    begin
      for name, tuples in
        select relname, reltuples from pg_class
        where relkind = 'r' and relnamespace = 'public'::regnamespace and relname not in ('clock_state', 'last_success', 'record_counting', 'statistics_state', 'migration')
      loop
        if name ~ '_[0-9]{8}$' then execute format('drop table %I', name);
        elsif pg_relation_size(name::regclass) > 262144 or name ~ '_default$' and (tuples >= 0 or pg_relation_size(name::regclass) > 0) then execute format('truncate %I cascade', name);
        else execute format('delete from %I', name); end if;
      end loop;
    end $$;
    set session_replication_role = origin;
    select setval(oid::regclass, 1, false) from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace;
    update record_counting set is_counted = false;
    update last_success set at = null;
    update statistics_state set counted_id = null, counted_until = null, counted_from = null;
    update clock_state set steps_ms = 0, last_step_ms = null, last_step_at = null, prune_from = null, probed_at = null`);
}
