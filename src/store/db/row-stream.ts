/**
 * `Database.each` for drivers without a cursor.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database, Db } from './db.ts';

/** Reads all rows at once, then passes them on one by one, so that the event loop runs between two rows. */
export const eachBy =
  (query: Db['query']): Database['each'] =>
  async (statement, onRow) => {
    for (const row of await query<Parameters<typeof onRow>[0]>(statement)) {
      onRow(row);
      await nextTurn();
    }
  };
