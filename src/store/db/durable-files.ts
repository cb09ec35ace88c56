/**
 * The files of the embedded database, flushed to the disk when PostgreSQL asks for it, so that a loss of power loses nothing that was
 * committed. PGlite leaves that out: it starts PostgreSQL without fsync, and the file system of Emscripten ignores fsync.
 */
import { closeSync, fsyncSync, openSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import type { PGlite } from '@electric-sql/pglite';
import { NodeFS } from '@electric-sql/pglite/nodefs';
import { flush } from '../../core/flush.ts';

/** Emscripten has no `fdatasync`, which would be PostgreSQL's choice for the write-ahead log. */
const DURABLE_SETTINGS = ['-c', 'fsync=on', '-c', 'wal_sync_method=fsync'];

/** PGlite's parameters for starting PostgreSQL, without the one that switches fsync off. */
export const durableParameters = (parameters: readonly string[]): string[] => [
  ...parameters.filter((one) => one !== '-F'),
  ...DURABLE_SETTINGS,
];

type Options = Parameters<NodeFS['init']>[1];
/** An open file of Emscripten's NODEFS: its descriptor in this process, or for a folder none. */
type Stream = { nfd?: number; node: object };
type NodeFiles = { stream_ops: { fsync?(stream: Stream): number }; realPath(node: object): string };

/** PGlite's file system for a data folder, with fsync. */
export function openFiles(folder: string): NodeFS {
  const files = new NodeFS(folder);
  const init = files.init.bind(files);
  files.init = async (pg: PGlite, options: Options) => {
    const { emscriptenOpts } = await init(pg, options);
    const preRun = [...(emscriptenOpts.preRun ?? []), flushOnDemand];
    return { emscriptenOpts: { ...emscriptenOpts, preRun } };
  };
  return files;
}

function flushOnDemand(module: object): void {
  const { NODEFS: files, FS } = module as {
    NODEFS: NodeFiles;
    FS: { ErrnoError: new (errno: number) => Error };
  };
  files.stream_ops.fsync = ({ nfd, node }) => {
    try {
      if (nfd !== undefined) fsyncSync(nfd);
      else flushSync(files.realPath(node));
      return 0;
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      throw new FS.ErrnoError(WASI_NUMBERS[String(code)] ?? WASI_EIO);
    }
  };
}

/**
 * PostgreSQL panics, and the next start recovers from the write-ahead log. Only of a folder it accepts EINVAL and EBADF, because some file
 * systems can't flush one.
 */
const WASI_EIO = 29;
const WASI_NUMBERS: Record<string, number> = { ENOSPC: 51, EDQUOT: 19, EINVAL: 28, EBADF: 8 };

function flushSync(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Flushes a folder with all that is in it. */
export async function flushTree(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true }))
    await flush(path.join(entry.parentPath, entry.name));
  await flush(folder);
}
