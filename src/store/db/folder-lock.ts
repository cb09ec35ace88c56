/**
 * Keeps a second process out of a data folder, with a lock file that names its owner and is taken over when the owner has ended.
 * A process in another container can't be found by its id. So the owner listens at a socket in the folder, which the lock names, for
 * as long as it has the lock.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { link, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { withFolderFaults } from './folder-fault.ts';
import { isUnserved } from './socket-frames.ts';

/** The reason of the Fault for a folder that another process has. */
export const FOLDER_IN_USE = 'folder_in_use';

/** The system accepts a connection at once, even for a suspended process. */
const CONNECT_MS_MAX = 2_000;

/** A start that `ps` doesn't say in time is unknown. */
const PS_MS_MAX = 2_000;

/** Stands in a lock for an unknown value. */
const NONE = '-';
/** Stands in a lock for an unknown start of its process, which then counts as running for as long as any process has its id. */
const UNKNOWN = 'unknown';
const SOCKET = /^lock\.[0-9a-f]{8}$/;

/**
 * Takes the folder's lock. The returned function releases it.
 * @throws Fault `conflict` with the process that has the lock (its reason is FOLDER_IN_USE), `unavailable` if the disk is full,
 * `invalid` if this process can't write there.
 */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  const lock = path.join(folder, 'lock');
  const id = randomUUID().slice(0, 8);
  const draft = path.join(folder, `lock.${process.pid}.${id}`);
  const sign = await listen(folder, `lock.${id}`);
  const namespace = (await ownNamespace()) ?? NONE;
  const own = `${[process.pid, await startedAt(process.pid), namespace, sign?.name ?? NONE].join(' ')}\n`;
  try {
    await withFolderFaults(folder, async () => {
      await writeFile(draft, own);
      // link() fails if the lock exists. Otherwise it creates a complete file at once.
      while (!(await tryLink(draft, lock))) await removeStale(lock, draft);
    });
  } catch (error) {
    await sign?.close();
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
  return async () => {
    if ((await readIfThere(lock)) === own) await rm(lock, { force: true });
    await sign?.close();
  };
}

/** Listens at a socket, and closes each connection. Undefined if the folder can't have one: too long a path, or no support. */
async function listen(folder: string, name: string) {
  const server = createServer((socket) => socket.destroy()).unref();
  try {
    await once(server.listen(path.join(path.resolve(folder), name)), 'listening');
  } catch {
    return undefined;
  }
  return { name, close: () => new Promise<void>((resolve) => server.close(() => resolve())) };
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
  const [pid, started = '', namespace = NONE, name = NONE] = owner.trim().split(' ');
  const folder = path.dirname(lock);
  const socket = SOCKET.test(name) ? path.join(path.resolve(folder), name) : undefined;
  const inUse = (where: string) =>
    new Fault('conflict', `the folder ${folder} is in use by process ${pid}${where}`, {
      reason: FOLDER_IN_USE,
    });
  if (namespace === NONE || namespace === (await ownNamespace())) {
    if (await isAlive(Number(pid), started)) throw inUse('. Stop that process first');
  } else if (socket === undefined) {
    const advice = `Stop that process. If it has ended, delete ${path.resolve(lock)}`;
    throw inUse(` of another container, or was until that ended. ${advice}`);
  } else if (await isListening(socket)) throw inUse(' of another container. Stop that process first');
  const aside = `${draft}.stale`;
  await rename(lock, aside).catch(ignoreMissing);
  // Another process may have taken the lock between reading and renaming. Then put its lock back.
  const moved = await readIfThere(aside);
  if (moved !== undefined && moved !== owner) await link(aside, lock).catch(() => {});
  else if (socket !== undefined) await rm(socket, { force: true });
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
  const since = await startedAt(pid);
  return since === started || since === UNKNOWN || started === UNKNOWN;
}

/** Whether a process listens at the socket. One that doesn't accept a connection in time counts. */
async function isListening(path: string): Promise<boolean> {
  const socket = connect(path);
  const answer = once(socket, 'connect').then(
    () => true,
    (error: unknown) => {
      // A full queue of connections (EAGAIN) also shows that a process listens.
      if (codeOf(error) === 'EAGAIN') return true;
      if (isUnserved(error)) return false;
      throw error;
    },
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

/** When a process started, as an opaque text; 'ended' if it has ended; UNKNOWN if neither /proc nor `ps` says so. */
async function startedAt(pid: number): Promise<string> {
  if ((await ownNamespace()) === undefined) return startedByPs(pid);
  const stat = await readIfThere(`/proc/${pid}/stat`);
  // Fields 3 and 22, counted after the command name, which may contain spaces (proc(5)).
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  // A killed process whose parent hasn't noticed yet has no files open any more.
  return fields?.[0] === 'Z' ? 'ended' : (fields?.[19] ?? 'ended');
}

/** Without /proc, as on macOS. Its time has a resolution of a second. */
async function startedByPs(pid: number): Promise<string> {
  const words = ['-o', 'stat=', '-o', 'lstart=', '-p', String(pid)];
  const options = { env: { PATH: '/bin:/usr/bin', LC_ALL: 'C', TZ: 'UTC' }, timeout: PS_MS_MAX };
  const line = await promisify(execFile)('ps', words, options).then(
    ({ stdout }) => stdout.trim(),
    () => '',
  );
  const [state = '', ...time] = line.split(/\s+/);
  if (time.length === 0) return UNKNOWN;
  return state.startsWith('Z') ? 'ended' : time.join('-');
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
