/**
 * Makes the archive of an empty embedded database, for `src/store/db/empty-database.ts`.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import { PGlite } from '@electric-sql/pglite';

/** template1 and template0. PGlite opens only the database postgres. */
const UNUSED_DATABASES = ['1', '4'];
const ARCHIVE_BYTES_MAX = 128 * 1024 * 1024;

/** The compressed archive that the installed PGlite's initdb gives. */
export async function packEmptyDatabase(): Promise<Buffer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-empty-'));
  try {
    const pglite = new PGlite({ dataDir: folder });
    await pglite.waitReady;
    await pglite.close();
    for (const oid of UNUSED_DATABASES) await rm(path.join(folder, 'base', oid), { recursive: true });
    const names = (await readdir(folder)).sort();
    const words = ['--format=ustar', '--owner=0', '--group=0', '--numeric-owner', '-cf', '-', '-C', folder];
    const { stdout } = await promisify(execFile)('tar', [...words, ...names], {
      encoding: 'buffer',
      maxBuffer: ARCHIVE_BYTES_MAX,
    });
    return await promisify(brotliCompress)(stdout, {
      params: {
        [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
        [constants.BROTLI_PARAM_SIZE_HINT]: stdout.length,
      },
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
