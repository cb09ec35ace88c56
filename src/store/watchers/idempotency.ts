/**
 * Idempotency keys: work is done once for each key, and its answer is stored in the transaction that did it.
 */
import { Fault } from '../../core/fault.ts';
import { shardOf } from '../../domain/shard.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { lockText } from '../db/text-lock.ts';
import { requireWatcher } from './watchers.ts';

export type Once = {
  watcherId: number;
  /** The Idempotency-Key that the client chose. */
  key: string;
  /** Index of this part of the request, from 0. Each part has a separate transaction. */
  part: number;
  /** Hash of the request up to and including this part. */
  digest: Buffer;
  now: Date;
};

/** How long a repeated request gets the stored answer. */
export const ANSWER_RETENTION_MS = 24 * 3_600_000;
/** Advisory lock space that serializes requests with the same key. */
const KEY_LOCK_SPACE = 0x6362_0005;

/**
 * Does the work in a transaction and returns its answer, a JSON value. With `once` the work is done only once: the same request,
 * later or at the same time, gets the first one's answer. Failed work can be repeated.
 * @throws Fault `conflict` if the key was used for another request, `unauthorized` if the watcher is being or was deleted.
 */
export function doOnce<T>(
  database: Database,
  once: Once | undefined,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  return database.transaction(async (tx) => {
    if (once === undefined) return work(tx);
    const { watcherId, key, part, digest, now } = once;
    await requireWatcher(tx, watcherId);
    await lockText(tx, KEY_LOCK_SPACE, watcherId, key);
    // Another request's answer may have 23 MB and isn't needed.
    const [stored] = await tx.query<{ answer: string | null }>(sql`
      select case when digest = ${digest} then answer end as answer from idempotent_answer
      where shard_id = ${shardOf(watcherId)} and key = ${key} and part = ${part}
        and created_at > ${new Date(now.getTime() - ANSWER_RETENTION_MS)}`);
    if (stored !== undefined) {
      if (stored.answer === null)
        throw new Fault('conflict', 'This Idempotency-Key was used for another request in the last 24 hours');
      const answer: T = JSON.parse(stored.answer);
      return answer;
    }
    const answer = await work(tx);
    await tx.query(sql`
      insert into idempotent_answer (shard_id, key, part, digest, answer, created_at)
      values (${shardOf(watcherId)}, ${key}, ${part}, ${digest}, ${JSON.stringify(answer)}, ${now})
      on conflict (shard_id, key, part) do update
        set digest = excluded.digest, answer = excluded.answer, created_at = excluded.created_at`);
    return answer;
  });
}

/**
 * Deletes up to `limit` answers from before `before`, and returns their number. The outer condition is for a row that waited for its lock:
 * minor versions of PostgreSQL from before November 2025 delete its new version, which is the answer to a new request, wherever it is.
 */
export async function pruneAnswers(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from idempotent_answer where ctid = any(array(
      select ctid from idempotent_answer where created_at < ${before} order by created_at limit ${limit}))
      and created_at < ${before}
    returning part`);
  return rows.length;
}
