/**
 * Keeps two processes out of one data folder: a lock file that names its owner, taken over when the owner is dead.
 */
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Fault } from '../../core/fault.ts';
import { withFolderFaults } from './folder-fault.ts';

/**
 * Takes the folder's lock; the returned function gives it back.
 * @throws Fault `conflict` that names the process which has it, `unavailable` when the disk is full, `invalid` when
 * nothing can be written there.
 */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  const lock = path.join(folder, 'lock');
  const own = `${process.pid} ${await startedAt(process.pid)}\n`;
  const draft = path.join(folder, `lock.${process.pid}.${Math.random().toString(36).slice(2)}`);
  await withFolderFaults(folder, async () => {
    try {
      await writeFile(draft, own);
      // link() fails when the lock exists, and puts a complete file there when it does not.
      while (!(await tryLink(draft, lock))) await removeStale(lock, draft);
    } finally {
      await rm(draft, { force: true });
    }
  });
  return () => rm(lock, { force: true });
}

/** The process that has the folder's lock; undefined without one. */
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

/** Moves away the lock of a dead process; refuses when its process lives. */
async function removeStale(lock: string, draft: string): Promise<void> {
  const owner = await readIfThere(lock);
  if (owner === undefined) return;
  const [pid, started] = owner.trim().split(' ');
  if (await isAlive(Number(pid), started ?? '')) {
    throw new Fault(
      'conflict',
      `the folder ${path.dirname(lock)} is in use by process ${pid}: stop it first, or give this one another dataDir`,
    );
  }
  const aside = `${draft}.stale`;
  await rename(lock, aside).catch(ignoreMissing);
  // Between reading and renaming, another starter may have taken over: then give back what is his.
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
  // The number may have been given to another process since.
  return (await startedAt(pid)) === started;
}

/** When a process started, in the kernel's clock ticks; 'unknown' where /proc does not tell. */
async function startedAt(pid: number): Promise<string> {
  const stat = await readIfThere(`/proc/${pid}/stat`);
  // Field 22, counted behind the command name, which may hold spaces (proc(5)).
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? 'unknown';
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
