/**
 * Keeps a second process out of a data folder, with a lock file that names its owner and is taken over when the owner has ended.
 * A process in another container can't be found by its id, so a service also counts as running while its socket accepts connections.
 */
import { once } from 'node:events';
import { link, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { withFolderFaults } from './folder-fault.ts';
import { isUnserved, pathProblem, socketPathOf } from './socket-frames.ts';

/** The system accepts a connection at once, even for a suspended service. */
const CONNECT_MS_MAX = 2_000;

/**
 * Takes the folder's lock. The returned function releases it.
 * @throws Fault `conflict` with the process that has the lock, `unavailable` if the disk is full, `invalid` if this process can't
 * write there.
 */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  const lock = path.join(folder, 'lock');
  const own = `${[process.pid, await startedAt(process.pid), await ownNamespace()].join(' ').trim()}\n`;
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
  const [pid, started = '', namespace] = owner.trim().split(' ');
  const folder = path.dirname(lock);
  // Locks of former versions have no namespace.
  const isNear = namespace === undefined || namespace === (await ownNamespace());
  const isRunning = isNear && (await isAlive(Number(pid), started));
  if (isRunning || (await isServed(folder))) {
    const where = isRunning ? '' : ' in another container, whose socket accepts connections';
    throw new Fault(
      'conflict',
      `the folder ${folder} is in use by process ${pid}${where}. Stop that process first`,
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

/** Whether a service accepts connections at the folder's socket. One that doesn't answer in time counts as running. */
async function isServed(folder: string): Promise<boolean> {
  if (pathProblem(folder) !== undefined) return false;
  const socket = connect(socketPathOf(folder));
  // A full queue of connections (EAGAIN) also shows that a service listens.
  const answer = once(socket, 'connect').then(
    () => true,
    (error: unknown) => !isUnserved(error),
  );
  try {
    return (await firstOrLate({ clock: systemClock(), signal: never }, [answer], CONNECT_MS_MAX)) !== false;
  } finally {
    socket.destroy();
  }
}

/** The namespace in which this process has its id; undefined if /proc is not available. */
async function ownNamespace(): Promise<string | undefined> {
  return readlink('/proc/self/ns/pid').catch(() => undefined);
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
