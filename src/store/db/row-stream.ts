/**
 * Rows one by one where the driver has no cursor.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database, Db } from './db.ts';

/** Reads all rows at once, and hands them over with a turn of the event loop between two. */
export const eachBy =
  (query: Db['query']): Database['each'] =>
  async (statement, onRow) => {
    for (const row of await query<Parameters<typeof onRow>[0]>(statement)) {
      onRow(row);
      await nextTurn();
    }
  };
