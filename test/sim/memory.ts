/**
 * The embedded database in memory. With its files in a folder, a story spent half of its time on opening them.
 */
import { PGlite, type Transaction } from '@electric-sql/pglite';
import { type Database, type Db, INT8_OID, parseInt8 } from '../../src/store/db/db.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import type { Sql } from '../../src/store/db/sql.ts';

/** Migrated and empty. It has no sessions, because the story simulates those of its actors. */
export async function openMemoryDatabase(): Promise<Database> {
  const pglite = await PGlite.create({ parsers: { [INT8_OID]: parseInt8 } });
  await pglite.exec("set timezone to 'UTC'");
  const on = (connection: PGlite | Transaction): Db => ({
    query: async <Row>({ text, values }: Sql) => (await connection.query<Row>(text, [...values])).rows,
  });
  const database: Database = {
    ...on(pglite),
    kind: 'embedded',
    transaction: (work) => pglite.transaction((tx) => work({ ...on(tx), kind: 'transaction' })),
    script: async (text) => {
      await pglite.transaction((tx) => tx.exec(text));
    },
    each: () => Promise.reject(new Error('a story asks no long question')),
    session: () => Promise.reject(new Error('a story keeps its own sessions')),
    close: () => pglite.close(),
  };
  await migrate(database);
  return database;
}
