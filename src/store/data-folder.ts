/**
 * The data folder, private to the user who runs Chainbell. PGlite makes its files readable and writable by everyone, so the
 * folder is what protects them.
 */
import { chmod, mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../core/fault.ts';
import { shellWord } from '../core/terminal-text.ts';
import { withFolderFaults } from './folder-fault.ts';

const PRIVATE = 0o700;
/** Read, write and search for the group and for everyone else; and of those, write. */
const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;

/**
 * Creates `dataDir`, or takes other users' access to it away.
 * @throws Fault `invalid` when others can write there, because they may have changed the files already, and when nothing can
 * be written there; `unavailable` when the disk is full.
 */
export async function prepareDataFolder(dataDir: string): Promise<void> {
  await withFolderFaults(dataDir, async () => {
    await mkdir(dataDir, { recursive: true, mode: PRIVATE });
    // Windows has no such modes.
    if (process.platform === 'win32') return;
    const { mode } = await stat(dataDir);
    if ((mode & OTHERS_WRITE) !== 0) throw sharedFault(dataDir, mode);
    if ((mode & OTHERS) !== 0) await chmod(dataDir, PRIVATE);
  });
}

function sharedFault(dataDir: string, mode: number): Fault {
  const folder = path.resolve(dataDir);
  const shown = (mode & 0o7777).toString(8).padStart(4, '0');
  return new Fault(
    'invalid',
    `other users can write to ${folder} (mode ${shown}), which holds the database and the secret. Run: chmod 700 ${shellWord(folder)}, or set dataDir to another folder`,
  );
}
