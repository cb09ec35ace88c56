/**
 * Work that is done once for a key of the caller's: its answer is kept in the transaction that did it.
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { requireWatcher } from './watchers.ts';

export type Once = {
  watcherId: number;
  /** The watcher's own word for the request. */
  key: string;
  /** Which part of the request, from 0: each has a separate transaction. */
  part: number;
  /** Of the request up to and with this part. */
  digest: Buffer;
  now: Date;
};

/** For so long an answer is given again. */
export const ANSWER_KEPT_MS = 24 * 3_600_000;
/** Advisory lock space; requests with the same key take turns. */
const KEY_LOCK_SPACE = 0x6362_0005;

/**
 * Does the work in a transaction and returns its answer, a JSON value. With `once` the work is done only once: later and
 * at the same time the same request gets the first one's answer. What has failed may be tried again.
 * @throws Fault `conflict` when the key came with another request, `unauthorized` when the watcher is being or was deleted.
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
    await tx.query(
      sql`select pg_advisory_xact_lock(${KEY_LOCK_SPACE}::int, hashtext(${`${watcherId} ${key}`}))`,
    );
    const [kept] = await tx.query<{ digest: Uint8Array; answer: string }>(sql`
      select digest, answer from idempotent_answer
      where shard_id = ${watcherId} and key = ${key} and part = ${part}
        and created_at > ${new Date(now.getTime() - ANSWER_KEPT_MS)}`);
    if (kept !== undefined) {
      if (!digest.equals(kept.digest))
        throw new Fault('conflict', 'This Idempotency-Key came with another request in the last 24 hours');
      const answer: T = JSON.parse(kept.answer);
      return answer;
    }
    const answer = await work(tx);
    await tx.query(sql`
      insert into idempotent_answer (shard_id, key, part, digest, answer, created_at)
      values (${watcherId}, ${key}, ${part}, ${digest}, ${JSON.stringify(answer)}, ${now})
      on conflict (shard_id, key, part) do update
        set digest = excluded.digest, answer = excluded.answer, created_at = excluded.created_at`);
    return answer;
  });
}

/** Deletes up to `limit` answers that are older than `before`; returns how many. */
export async function pruneAnswers(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from idempotent_answer where ctid = any(array(
      select ctid from idempotent_answer where created_at < ${before} order by created_at limit ${limit}))
    returning part`);
  return rows.length;
}
