/**
 * Reads .tar.gz archives of the data folder.
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

const BLOCK_BYTES = 512;

/** The contents of each regular file by its path in the archive. Source: POSIX.1-1988 (ustar), without long names. */
export function readTarGz(file: string): Map<string, Buffer> {
  const archive = gunzipSync(readFileSync(file));
  const files = new Map<string, Buffer>();
  const text = (start: number, bytes: number) =>
    archive.toString('latin1', start, start + bytes).replace(/[\0 ].*$/s, '');
  let at = 0;
  while (at < archive.length && archive[at] !== 0) {
    const bytes = Number.parseInt(text(at + 124, 12), 8);
    const start = at + BLOCK_BYTES;
    const isFile = ['', '0'].includes(text(at + 156, 1));
    if (isFile) files.set(text(at, 100), archive.subarray(start, start + bytes));
    at = start + Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
  }
  return files;
}
