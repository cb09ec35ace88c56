/**
 * Suites of tests on the embedded and on the real database: one database for each suite, emptied before each test.
 */
import { after, before, beforeEach, describe } from 'node:test';
import type { Database } from '../../src/store/db.ts';
import { createTestDatabase, type DatabaseKind, databaseKinds, type TestDatabase } from './database.ts';

export type Suite = {
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

/** Removes every row; ids begin at 1 again. */
export async function emptyDatabase(database: Database): Promise<void> {
  await database.script(`
    truncate chain, block, reorg, orphaned_block, watcher, api_key, signing_secret, lane, watched_address, notification, delivery_attempt, idempotent_answer, price, price_observation, pair, swap, swap_volume, pair_state, pair_reading, point, point_day, point_month, referral, accrual, accrual_before, supply_reading, supply_balance restart identity;
    update clock_state set steps_ms = 0, last_step_ms = null, last_step_at = null, prune_from = null, probed_at = null`);
}
