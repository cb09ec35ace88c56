/**
 * Survives a loss of power.
 */
import { open } from 'node:fs/promises';

/** Writes a file, or the names in a folder, from the system's cache to the disk. */
export async function flush(path: string): Promise<void> {
  await using handle = await open(path);
  await handle.sync();
}
