/**
 * Keeps a second process out of a data folder, with a lock file that names its owner and is taken over when the owner has ended.
 */
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { withFolderFaults } from './folder-fault.ts';

/**
 * Takes the folder's lock. The returned function releases it.
 * @throws Fault `conflict` with the process that has the lock, `unavailable` if the disk is full, `invalid` if this process can't
 * write there.
 */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  const lock = path.join(folder, 'lock');
  const own = `${process.pid} ${await startedAt(process.pid)}\n`;
  const draft = path.join(folder, `lock.${process.pid}.${Math.random().toString(36).slice(2)}`);
  await withFolderFaults(folder, async () => {
    try {
      await writeFile(draft, own);
      // link() fails if the lock exists. Otherwise it creates a complete file at once.
      while (!(await tryLink(draft, lock))) await removeStale(lock, draft);
    } finally {
      await rm(draft, { force: true });
    }
  });
  return () => rm(lock, { force: true });
}

/** The process that has the folder's lock, undefined if there is none. */
export async function lockOwnerOf(folder: string): Promise<number | undefined> {
  const pid = Number.parseInt((await readIfThere(path.join(folder, 'lock'))) ?? '', 10);
  return Number.isNaN(pid) ? undefined : pid;
}

async function tryLink(draft: string, lock: string): Promise<boolean> {
  try {
    await link(draft, lock);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

/** Removes the lock of an ended process. @throws Fault `conflict` if its process is running */
async function removeStale(lock: string, draft: string): Promise<void> {
  const owner = await readIfThere(lock);
  if (owner === undefined) return;
  const [pid, started] = owner.trim().split(' ');
  if (await isAlive(Number(pid), started ?? '')) {
    throw new Fault(
      'conflict',
      `the folder ${path.dirname(lock)} is in use by process ${pid}. Stop that process first`,
    );
  }
  const aside = `${draft}.stale`;
  await rename(lock, aside).catch(ignoreMissing);
  // Another process may have taken the lock between reading and renaming. Then put its lock back.
  const moved = await readIfThere(aside);
  if (moved !== undefined && moved !== owner) await link(aside, lock).catch(() => {});
  await rm(aside, { force: true });
}

async function isAlive(pid: number, started: string): Promise<boolean> {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (codeOf(error) === 'ESRCH') return false;
  }
  // The system may have given the process id to another process since.
  return (await startedAt(pid)) === started;
}

/** When a process started, in the kernel's clock ticks; 'ended' if it has ended; 'unknown' if /proc is not available. */
async function startedAt(pid: number): Promise<string> {
  const stat = await readIfThere(`/proc/${pid}/stat`);
  // Fields 3 and 22, counted after the command name, which may contain spaces (proc(5)).
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  // A killed process whose parent hasn't noticed yet has no files open any more.
  return fields?.[0] === 'Z' ? 'ended' : (fields?.[19] ?? 'unknown');
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function ignoreMissing(error: unknown): void {
  if (codeOf(error) !== 'ENOENT') throw error;
}

const codeOf = (error: unknown): unknown =>
  typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
