/**
 * Marks an embedded database that has moved to a PostgreSQL server, so that it isn't used again by mistake: it would send the same
 * webhooks a second time.
 */
import { existsSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { flush } from '../../core/flush.ts';
import { shellWord } from '../../core/terminal-text.ts';
import type { Db, Tx } from './db.ts';
import { withFolderFaults } from './folder-fault.ts';
import { identityOf } from './identity.ts';
import { sql } from './sql.ts';

const markOf = (dataDir: string): string => path.resolve(dataDir, 'moved-to-postgresql');

/** `at`: an ISO time. `target`: which database it moved to, as `identityOf` names it. */
type Move = { at: string; target: string };

/**
 * Marks the database in `dataDir` as moved to the migrated database `target`. Call it before the move is committed, because the
 * process may end right after that.
 */
export async function markMoved(dataDir: string, target: Db, now: Date): Promise<void> {
  const text = `${now.toISOString()}\n${await identityOf(target)}\n`;
  const draft = `${markOf(dataDir)}.${process.pid}`;
  await withFolderFaults(dataDir, async () => {
    try {
      // Completely or not at all, because a disk may be full, and an empty mark would name no database to start on.
      await writeFile(draft, text, { mode: 0o600, flush: true });
      await rename(draft, markOf(dataDir));
      // The name of the file is in the folder, and must survive a loss of power too.
      await flush(dataDir);
    } finally {
      await rm(draft, { force: true });
    }
  });
}

/** The last move of the database in `dataDir`, which was committed or about to be; undefined if there was none. */
export async function readMove(dataDir: string): Promise<Move | undefined> {
  return withFolderFaults(dataDir, () =>
    readFile(markOf(dataDir), 'utf8').then(
      (text) => {
        const [at = '', target = ''] = text.split('\n');
        return { at, target };
      },
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return undefined;
      },
    ),
  );
}

/** Whether there is an embedded database in `dataDir` that has not moved. */
export const hasUnmoved = async (dataDir: string): Promise<boolean> =>
  existsSync(path.join(dataDir, 'database', 'PG_VERSION')) && (await readMove(dataDir)) === undefined;

/**
 * @throws Fault `conflict` if the database in `dataDir` has moved, or may have moved, to another database than `target`: the same
 * webhooks would be sent from both.
 */
export async function requireSameTarget(dataDir: string, target: Db): Promise<void> {
  const move = await readMove(dataDir);
  if (move === undefined || move.target === (await identityOf(target))) return;
  throw new Fault(
    'conflict',
    `the embedded database in ${dataDir} moved to another database at ${move.at}, or was about to: ${move.target}. Start the service on that database, or run this command again with it. To move to this one instead, run: rm ${shellWord(markOf(dataDir))}. Do this only if no service has started on the other one, because webhooks would be sent again`,
  );
}

/** Notes in the database at `database.url` that a move to it has begun. */
export async function beginIncomingMove(target: Db, now: Date): Promise<void> {
  await target.query(sql`
    insert into incoming_move (began_at) values (${now}) on conflict (only_row) do update set began_at = excluded.began_at
    where incoming_move.completed_at is null`);
}

/** The same for a database without tables, as a statement of the transaction that creates them. */
export const beginningOfMove = 'insert into incoming_move (began_at) values (clock_timestamp());';

/** Takes `beginIncomingMove` back, because the database belongs to another installation. */
export async function abandonIncomingMove(target: Db): Promise<void> {
  await target.query(sql`delete from incoming_move where completed_at is null`);
}

/** Notes in the transaction of the copy that the move is complete. */
export async function completeIncomingMove(tx: Tx, now: Date): Promise<void> {
  await tx.query(sql`update incoming_move set completed_at = ${now}`);
}

/** When a move to this database was completed; undefined if none was. */
export async function findCompletedMove(db: Db): Promise<Date | undefined> {
  const [row] = await db.query<{ completed_at: Date | null }>(sql`select completed_at from incoming_move`);
  return row?.completed_at ?? undefined;
}

/**
 * @throws Fault `conflict` if a move to this database was begun and isn't complete: a service would begin an empty installation, and
 * the move could not be completed any more.
 */
export async function requireNoOpenMove(db: Db): Promise<void> {
  const [row] = await db.query<{ began_at: Date }>(
    sql`select began_at from incoming_move where completed_at is null`,
  );
  if (row === undefined) return;
  throw new Fault(
    'conflict',
    `a move of an embedded database to the one at database.url began at ${row.began_at.toISOString()} and is not complete. To complete it, run: chainbell migrate --from-embedded. To begin an empty installation instead, create another database and set database.url to it`,
  );
}

/** @throws Fault `conflict` if the database in `dataDir` has moved */
export async function requireNotMoved(dataDir: string): Promise<void> {
  const move = await readMove(dataDir);
  if (move === undefined) return;
  throw new Fault(
    'conflict',
    `the embedded database in ${dataDir} moved to PostgreSQL at ${move.at}. Set database.url (DATABASE_URL) to that server. To go back to the state before the move, run: rm ${shellWord(markOf(dataDir))}. Do this only if no service has started on the server, because webhooks would be sent again`,
  );
}
