/**
 * Marks an embedded database that has moved to a PostgreSQL server, so that it isn't used again by mistake: it would send the same
 * webhooks a second time.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { shellWord } from '../../core/terminal-text.ts';
import { withFolderFaults } from './folder-fault.ts';

const markOf = (dataDir: string): string => path.resolve(dataDir, 'moved-to-postgresql');

/** Marks the database in `dataDir`. Call it before the move is committed, because the process may end right after that. */
export async function markMoved(dataDir: string, now: Date): Promise<void> {
  await withFolderFaults(dataDir, () =>
    writeFile(markOf(dataDir), `${now.toISOString()}\n`, { mode: 0o600, flush: true }),
  );
}

/** When the database in `dataDir` moved, or a move of it was about to be committed; undefined if there was none. */
export async function readMovedAt(dataDir: string): Promise<string | undefined> {
  return withFolderFaults(dataDir, () =>
    readFile(markOf(dataDir), 'utf8').then(
      (text) => text.trim(),
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return undefined;
      },
    ),
  );
}

/** @throws Fault `conflict` if the database in `dataDir` has moved */
export async function requireNotMoved(dataDir: string): Promise<void> {
  const movedAt = await readMovedAt(dataDir);
  if (movedAt === undefined) return;
  throw new Fault(
    'conflict',
    `the embedded database in ${dataDir} moved to PostgreSQL at ${movedAt}. Set database.url (DATABASE_URL) to that server. To go back to the state before the move, run: rm ${shellWord(markOf(dataDir))}. Do this only if no service has started on the server, because webhooks would be sent again`,
  );
}
