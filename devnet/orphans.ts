/**
 * Child processes that must not outlive this process. A killed process can't end its children, so each child is recorded in a
 * folder, and the next user of the folder ends the children whose owner is gone.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Fault } from '../src/core/fault.ts';

/** The identity of a process. A pid alone is reused sooner or later. */
type ProcessIdentity = { pid: number; startedAt: string | undefined };

type ChildRecord = { owner: ProcessIdentity; child: ProcessIdentity };

/** A folder of records, and the program that the recorded children run. */
export type ChildFolder = { folder: string; program: string };

const GRACE_MS = 5_000;
const LOOK_AGAIN_MS = 20;

/** Records a child of this process. Call the returned function when the child has ended, to remove the record. */
export function recordChild({ folder, program }: ChildFolder, pid: number): () => void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, `${program}-${pid}.pid`);
  const record: ChildRecord = { owner: identify(process.pid), child: identify(pid) };
  writeFileSync(file, `${JSON.stringify(record)}\n`);
  return () => rmSync(file, { force: true });
}

/**
 * Ends every recorded child whose owner is gone, first with SIGTERM so that it saves its state. Returns their pids. A record is
 * followed only if the pid still runs the program (Linux, /proc). Otherwise it is dropped.
 * @throws Fault `conflict` if the folder is not `shared` and a child of a running process is recorded in it
 */
export async function endOrphans(children: ChildFolder, options: { shared: boolean }): Promise<number[]> {
  const ended: number[] = [];
  for (const file of listRecords(children)) {
    const record = readRecord(file);
    if (record !== undefined && isRunning(record.owner)) {
      if (options.shared) continue;
      throw new Fault(
        'conflict',
        `process ${record.owner.pid} already uses ${children.folder}: stop it first, or take another folder`,
      );
    }
    if (record !== undefined && isRunning(record.child) && runs(record.child.pid, children.program)) {
      await end(record.child);
      ended.push(record.child.pid);
    }
    rmSync(file, { force: true });
  }
  return ended;
}

function listRecords({ folder, program }: ChildFolder): string[] {
  try {
    const names = readdirSync(folder).filter(
      (name) => name.startsWith(`${program}-`) && name.endsWith('.pid'),
    );
    return names.sort().map((name) => join(folder, name));
  } catch {
    return []; // No folder yet, so nothing was ever recorded.
  }
}

function readRecord(file: string): ChildRecord | undefined {
  try {
    const record: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isRecord(record) ? record : undefined;
  } catch {
    return undefined; // Half written, or removed by another start at this moment.
  }
}

function isRecord(value: unknown): value is ChildRecord {
  if (typeof value !== 'object' || value === null) return false;
  return 'owner' in value && isIdentity(value.owner) && 'child' in value && isIdentity(value.child);
}

function isIdentity(value: unknown): value is ProcessIdentity {
  return typeof value === 'object' && value !== null && 'pid' in value && Number.isSafeInteger(value.pid);
}

function identify(pid: number): ProcessIdentity {
  return { pid, startedAt: startTime(pid) };
}

/** True while the process runs and its pid was not reused. */
function isRunning({ pid, startedAt }: ProcessIdentity): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EPERM')) return false;
  }
  return startTime(pid) === startedAt;
}

/** Clock ticks from boot to the start of the process (proc(5), field 22 of stat). Undefined if unknown. */
function startTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The second field is the program's name in parentheses and may contain spaces.
    const [state, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' ? undefined : rest[18];
  } catch {
    return undefined;
  }
}

function runs(pid: number, program: string): boolean {
  try {
    const [path = ''] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return basename(path) === program;
  } catch {
    return false;
  }
}

async function end(child: ProcessIdentity): Promise<void> {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    try {
      process.kill(child.pid, signal);
    } catch {
      return; // It ended by itself.
    }
    const deadline = Date.now() + GRACE_MS;
    while (isRunning(child) && Date.now() < deadline) await delay(LOOK_AGAIN_MS);
    if (!isRunning(child)) return;
  }
}
