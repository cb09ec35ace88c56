/**
 * A second pool for a database whose idle transactions PostgreSQL ends soon.
 */
import assert from 'node:assert/strict';
import type { Database } from '../../src/store/db/db.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { waitUntil } from './wait.ts';

/** Runs `work` with the pool, and with a function that returns when a transaction has been ended that began after its call. */
export async function withImpatient<T>(
  url: string,
  database: Database,
  work: (impatient: Database, waitForEnd: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const impatient = await openDatabase({ url, dataDir: '', silentMsMax: 200 });
  const waitForEnd = async () => {
    const begun = Promise.withResolvers<number>();
    const isOver = Promise.withResolvers<void>();
    const silent = impatient.transaction(async (tx) => {
      const [row] = await tx.query<{ pid: number }>(sql`select pg_backend_pid() as pid`);
      begun.resolve(row?.pid ?? 0);
      await isOver.promise;
      await tx.query(sql`select`);
    });
    const pid = await begun.promise;
    const isEnded = async () =>
      (await database.query(sql`select from pg_stat_activity where pid = ${pid}`)).length === 0;
    await waitUntil(isEnded, { describe: 'the server to end the other transaction' });
    isOver.resolve();
    await assert.rejects(silent, { code: 'unavailable' });
  };
  try {
    return await work(impatient, waitForEnd);
  } finally {
    await impatient.close();
  }
}
