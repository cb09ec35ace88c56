/**
 * The data folder, private to the user who runs Chainbell. PGlite makes its files readable and writable by everyone, so the
 * folder is what protects them.
 */
import { chmod, lstat, mkdir, readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { shellWord } from '../../core/terminal-text.ts';
import { withFolderFaults } from './folder-fault.ts';

const PRIVATE = 0o700;
const PRIVATE_FILE = 0o600;
/** All permissions of the group and of everyone else, and their write permissions alone. */
const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;

/** Files that are changed at once. */
const FILES_AT_ONCE = 64;

/**
 * Creates `dataDir`, or removes other users' access to it.
 * @throws Fault `invalid` if it belongs to another user or others can write to it, because they may have changed the files
 * already, or if this process can't write to it; `unavailable` if the disk is full.
 */
export async function prepareDataFolder(dataDir: string): Promise<void> {
  await withFolderFaults(dataDir, async () => {
    await makeFolder(path.resolve(dataDir));
    // Windows has no such modes.
    if (process.platform === 'win32') return;
    const { mode, uid } = await stat(dataDir);
    if (uid !== process.geteuid?.()) throw foreignFault(dataDir, { uid, folder: dataDir });
    if ((mode & OTHERS_WRITE) !== 0) throw sharedFault(dataDir, mode);
    if ((mode & OTHERS) !== 0) await chmod(dataDir, PRIVATE);
  });
}

/** Node's recursive `mkdir` never ends in a file system that has no place for a new folder, such as /proc (Node 24.21). */
async function makeFolder(folder: string): Promise<void> {
  const isThere = async (place: string) => {
    const found = await stat(place).catch(ignoreMissing);
    if (found?.isDirectory() === false) throw new Error(`ENOTDIR: ${place} is a file`);
    return found !== undefined;
  };
  if (await isThere(folder)) return;
  const parent = path.dirname(folder);
  if (parent !== folder) await makeFolder(parent);
  await mkdir(folder, { mode: PRIVATE }).catch(async (error: NodeJS.ErrnoException) => {
    // Another process may have created it meanwhile.
    if (await isThere(folder)) return;
    if (error.code !== 'ENOENT') throw error;
    const why = `the folder ${folder} can't be created, because its file system has no place for it`;
    throw new Fault('invalid', `${why}. Set dataDir to another folder`, { cause: error });
  });
}

/**
 * Removes other users' access to the database's files in `dataDir` and to the secret, because it would matter again once the
 * folder is opened to others or copied. Only the process that has the folder's lock may call it.
 * @throws Fault `invalid` if one of the files belongs to another user, who could still change it
 */
export async function closeDataFiles(dataDir: string): Promise<void> {
  if (process.platform === 'win32') return;
  await withFolderFaults(dataDir, async () => {
    const database = path.join(dataDir, 'database');
    // Without file types, readdir would follow links to other folders.
    const options = { recursive: true, withFileTypes: true } as const;
    const inside = (await readdir(database, options).catch(ignoreMissing)) ?? [];
    const files = [
      ...[path.join(dataDir, 'secret'), database],
      ...inside.map(({ parentPath, name }) => path.join(parentPath, name)),
    ];
    for (let first = 0; first < files.length; first += FILES_AT_ONCE)
      await Promise.all(files.slice(first, first + FILES_AT_ONCE).map((file) => closeFile(dataDir, file)));
  });
}

async function closeFile(dataDir: string, file: string): Promise<void> {
  const found = await lstat(file).catch(ignoreMissing);
  // A link could lead to a file outside the data folder.
  if (found === undefined || !(found.isDirectory() || (found.isFile() && found.nlink === 1))) return;
  if (found.uid !== process.geteuid?.()) throw foreignFault(file, { uid: found.uid, folder: dataDir });
  if ((found.mode & OTHERS) !== 0) await chmod(file, found.isDirectory() ? PRIVATE : PRIVATE_FILE);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

function foreignFault(file: string, { uid, folder }: { uid: number; folder: string }): Fault {
  const user = process.geteuid?.();
  return new Fault(
    'invalid',
    `${path.resolve(file)} belongs to another user (uid ${uid}, this process has ${user}), who could read and change the database and the secret. Run as that user, or run: sudo chown -R ${user} ${shellWord(path.resolve(folder))}, or set dataDir to another folder`,
  );
}

function sharedFault(dataDir: string, mode: number): Fault {
  const folder = path.resolve(dataDir);
  const shown = (mode & 0o7777).toString(8).padStart(4, '0');
  return new Fault(
    'invalid',
    `other users can write to ${folder} (mode ${shown}), which holds the database and the secret. Run: chmod 700 ${shellWord(folder)}, or set dataDir to another folder`,
  );
}
