/**
 * The data folder of an empty database, as `initdb` of the installed PGlite makes it. Running initdb in WebAssembly takes
 * seconds and 550 MiB, so its result is stored beside this file. `npm run generate` makes it (test/kit/empty-database.ts).
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';

/**
 * One allocation, which the system takes back. The thousands of small ones that are the default would stay in malloc's heap.
 * The archive has 24 MB, of which 16 MB are the first file of the write-ahead log.
 */
const ARCHIVE_BYTES_MAX = 32 * 1024 * 1024;
/** Source: POSIX.1-1988 (ustar). */
const BLOCK_BYTES = 512;
const NAME = { start: 0, bytes: 100 };
const SIZE = { start: 124, bytes: 12 };
const TYPE = { start: 156, bytes: 1 };
const FOLDER = '5';

/** The archive for the installed PGlite: another version may need other files. */
export async function emptyDatabaseFile(): Promise<URL> {
  const manifest = new URL('../package.json', import.meta.resolve('@electric-sql/pglite'));
  const { version }: { version: string } = JSON.parse(await readFile(manifest, 'utf8'));
  return new URL(`./empty-database-${version}.tar.br`, import.meta.url);
}

/** Writes the data folder to `folder`, which must not exist. Returns false if there is no archive for the installed PGlite. */
export async function unpackEmptyDatabase(folder: string): Promise<boolean> {
  const packed = await readFile(await emptyDatabaseFile()).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  if (packed === undefined) return false;
  const archive = await promisify(brotliDecompress)(packed, { chunkSize: ARCHIVE_BYTES_MAX });
  await mkdir(folder, { mode: 0o700 });
  const textAt = (at: number, { start, bytes }: typeof NAME) =>
    archive.toString('latin1', at + start, at + start + bytes).replace(/[\0 ].*$/s, '');
  for (let at = 0; archive[at] !== undefined && archive[at] !== 0; ) {
    const bytes = Number.parseInt(textAt(at, SIZE), 8);
    const start = at + BLOCK_BYTES;
    const target = path.join(folder, textAt(at, NAME));
    if (textAt(at, TYPE) === FOLDER) await mkdir(target, { recursive: true, mode: 0o700 });
    else await writeFile(target, archive.subarray(start, start + bytes), { mode: 0o600 });
    at = start + Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
  }
  return true;
}
