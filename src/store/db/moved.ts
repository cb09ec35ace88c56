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

/** Marks the database in `dataDir`. */
export async function markMoved(dataDir: string, now: Date): Promise<void> {
  await withFolderFaults(dataDir, () =>
    writeFile(markOf(dataDir), `${now.toISOString()}\n`, { mode: 0o600 }),
  );
}

/** @throws Fault `conflict` if the database in `dataDir` has moved */
export async function requireNotMoved(dataDir: string): Promise<void> {
  const mark = markOf(dataDir);
  const movedAt = await withFolderFaults(dataDir, () =>
    readFile(mark, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      return undefined;
    }),
  );
  if (movedAt === undefined) return;
  throw new Fault(
    'conflict',
    `the embedded database in ${dataDir} moved to PostgreSQL at ${movedAt.trim()}. Set database.url (DATABASE_URL) to that server. To go back to the state before the move, run: rm ${shellWord(mark)}`,
  );
}
