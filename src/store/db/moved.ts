/**
 * Marks an embedded database that has moved to a PostgreSQL server, so that it isn't used again by mistake: it would send the same
 * webhooks a second time.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { shellWord } from '../../core/terminal-text.ts';
import type { Db } from './db.ts';
import { withFolderFaults } from './folder-fault.ts';
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
  await withFolderFaults(dataDir, () => writeFile(markOf(dataDir), text, { mode: 0o600, flush: true }));
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

/** A database that is dropped and created again is another one. */
async function identityOf(database: Db): Promise<string> {
  const [row] = await database.query<{ name: string; created: string }>(sql`
    select current_database() as name, to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as created
    from migration order by id limit 1`);
  return `${JSON.stringify(row?.name)}, created at ${row?.created}`;
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
