/**
 * Stores batches of imported awards. Each batch is stored as a whole or not at all, and awards that exist already are skipped.
 */
import { randomInt } from 'node:crypto';
import { decimalText } from '../../core/decimal.ts';
import type { Award } from '../../domain/award.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { insertAwards, lockPoints } from './awards.ts';

type StoredBatch = {
  addedCount: number;
  /** Indexes of awards that are stored already with other contents. If there are any, nothing of the batch was stored. */
  conflicts: number[];
};

/** Stores a batch in one transaction. Its awards differ in rule, hash or ordinal. */
export type StoreBatch = (awards: readonly Award[]) => Promise<StoredBatch>;

export function createBatchStore(database: Database): StoreBatch {
  return (awards) =>
    database.transaction(async (tx) => {
      // Lock before the check, because another import may be storing the same awards.
      await lockPoints(tx);
      const conflicts = await findConflicts(tx, sql`point`, awards);
      return { addedCount: conflicts.length > 0 ? 0 : await insertAwards(tx, awards), conflicts };
    });
}

/**
 * Gives `work` a store that returns for each batch the result of storing it, but stores nothing. A temporary table holds the
 * earlier batches. On a server the whole dry run is one transaction, which takes no locks. On the embedded database each batch
 * is a transaction, because all other work waits for one. There the table of a killed command stays until the service ends.
 */
export async function dryRun<T>(database: Database, work: (store: StoreBatch) => Promise<T>): Promise<T> {
  if (database.kind === 'postgres')
    return database.transaction(async (tx) => {
      // The transaction may wait for lines from standard input, and holds no locks that others wait for.
      await tx.query(sql`set local idle_in_transaction_session_timeout = 0`);
      const draft = await createDraft(tx, 'on commit drop');
      return work((awards) => storeInDraft(tx, draft, awards));
    });
  const draft = await database.transaction((tx) => createDraft(tx, 'on commit preserve rows'));
  try {
    return await work((awards) => database.transaction((tx) => storeInDraft(tx, draft, awards)));
  } finally {
    await database.query(sql`drop table ${draft}`);
  }
}

async function createDraft(tx: Tx, onCommit: 'on commit drop' | 'on commit preserve rows'): Promise<Sql> {
  const draft: Sql = { text: `point_draft_${randomInt(2 ** 47)}`, values: [] };
  await tx.query(sql`
    create temporary table ${draft} ${{ text: onCommit, values: [] }} as
    select tx_hash, ordinal, rule, version, role, user_address, category, points, awarded_at from point limit 0`);
  await tx.query(sql`create unique index on ${draft} (tx_hash, ordinal, rule, version, role)`);
  return draft;
}

async function storeInDraft(tx: Tx, draft: Sql, awards: readonly Award[]): Promise<StoredBatch> {
  await tx.query(sql`
    insert into ${draft}
    select tx_hash, ordinal, rule, version, role, p.user_address, p.category, p.points, p.awarded_at
    from point p join ${batchOf(awards)} using (tx_hash, ordinal, rule, version, role)
    on conflict do nothing`);
  const conflicts = await findConflicts(tx, draft, awards);
  if (conflicts.length > 0) return { addedCount: 0, conflicts };
  const added = await tx.query(sql`
    insert into ${draft}
    select tx_hash, ordinal, rule, version, role, user_address, category, points, awarded_at
    from ${batchOf(awards)}
    on conflict do nothing
    returning ordinal`);
  return { addedCount: added.length, conflicts };
}

async function findConflicts(tx: Tx, table: Sql, awards: readonly Award[]): Promise<number[]> {
  const rows = await tx.query<{ position: number }>(sql`
    select b.position from ${batchOf(awards)} join ${table} p using (tx_hash, ordinal, rule, version, role)
    where (p.user_address, p.category, p.points, p.awarded_at) <> (b.user_address, b.category, b.points, b.awarded_at)
    order by b.position limit ${awards.length}`);
  return rows.map(({ position }) => position - 1);
}

/** The awards as a table `b` with their keys and contents. */
const batchOf = (awards: readonly Award[]) => sql`unnest(
    ${bytesOf(awards.map(({ txHash }) => txHash))}::bytea[],
    ${listOf(awards.map(({ ordinal }) => ordinal))}::bigint[],
    ${awards.map(({ rule }) => rule)}::text[],
    ${listOf(awards.map(({ version }) => version))}::integer[],
    ${listOf(awards.map(({ role }) => role))}::text[],
    ${bytesOf(awards.map(({ user }) => user))}::bytea[],
    ${awards.map(({ category }) => category)}::text[],
    ${listOf(awards.map(({ points }) => decimalText(points)))}::numeric[],
    ${listOf(awards.map(({ awardedAt }) => awardedAt.toISOString()))}::timestamptz[]
  ) with ordinality as b (tx_hash, ordinal, rule, version, role, user_address, category, points, awarded_at, position)`;
