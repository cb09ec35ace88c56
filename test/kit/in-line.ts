/**
 * Two or more transactions that wait for one lock, in an order that the test decides.
 */
import type { Database } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import type { TestDatabase } from './database.ts';
import { waitUntil } from './wait.ts';

/**
 * Takes the lock that `lock` takes. Then starts the others one after the other, each on a separate connection, and waits
 * until each of them waits for the lock. Then releases it. No other transaction may wait for a lock in this database meanwhile.
 * Those that limit their wait for locks wait for as long as the others need to come, which takes longer on Citus.
 */
export async function inLine(
  place: TestDatabase,
  lock: Sql,
  comers: readonly ((database: Database) => Promise<unknown>)[],
): Promise<void> {
  const [gate, ...databases] = await Promise.all(
    [place, ...comers.map(() => place)].map((one) => one.open()),
  );
  if (gate === undefined) throw new Error('there is always a gate');
  const shut = Promise.withResolvers<void>();
  const opening = Promise.withResolvers<void>();
  const open = gate.transaction(async (tx) => {
    await tx.query(lock);
    shut.resolve();
    await opening.promise;
  });
  const waiting: Promise<unknown>[] = [];
  try {
    await Promise.race([shut.promise, open]);
    for (const [index, database] of databases.entries()) {
      waiting.push(comers[index]?.(withoutLockTimeout(database)) ?? Promise.resolve());
      await waitUntil(async () => (await countWaiting(gate)) === waiting.length, {
        describe: `${waiting.length} stand in line`,
      });
    }
  } finally {
    opening.resolve();
  }
  await Promise.all([open, ...waiting]);
  for (const database of [gate, ...databases]) await database.close();
}

function withoutLockTimeout(database: Database): Database {
  return {
    ...database,
    transaction: (work) =>
      database.transaction((tx) =>
        work({
          ...tx,
          query: async (statement) => (statement.text.includes('lock_timeout') ? [] : tx.query(statement)),
        }),
      ),
  };
}

/** Transactions that wait for a lock in this database, on any of its servers. */
export async function countWaiting(database: Database): Promise<number> {
  const isWaiting = sql`datname = current_database() and wait_event_type = 'Lock'`;
  const [row] = await database.query<{ count: number }>(
    database.isDistributed === true
      ? sql`select count(distinct global_pid) as count from citus_stat_activity where ${isWaiting}`
      : sql`select count(*) as count from pg_stat_activity where ${isWaiting}`,
  );
  return row?.count ?? 0;
}
