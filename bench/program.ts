/**
 * A contestant's process: its CPU time, its memory and its end. Linux only, because the figures come from /proc.
 */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

export type Program = {
  command: readonly [string, ...string[]];
  folder: string;
  environment: Record<string, string>;
};

export type RunningProgram = {
  /** Throws an Error with an excerpt of the output when the process has ended. */
  assertAlive(): Promise<void>;
  /** CPU time so far and peak resident memory, of the process and its children. Must be called from time to time. */
  usage(): { cpuSeconds: number; peakMiB: number };
  /** Current resident memory of the process and its children. */
  residentMiB(): number;
  /** Kills the process, as a crash would, without waiting. */
  kill(): void;
  /** Ends the process and waits until it is gone. */
  [Symbol.asyncDispose](): Promise<void>;
};

const STOP_MS_MAX = 20_000;
const EXCERPT_CHARACTERS_MAX = 300;
/** Linux reports CPU time in this unit (USER_HZ), independent of the kernel's internal clock. */
const TICKS_PER_SECOND = 100;

export async function startProgram({ command, folder, environment }: Program): Promise<RunningProgram> {
  const outputFolder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  const outputFile = path.join(outputFolder, 'output');
  const output = await open(outputFile, 'w');
  const [program, ...words] = command;
  const child = spawn(program, words, {
    cwd: folder,
    env: { ...process.env, ...environment },
    stdio: ['ignore', output.fd, output.fd],
  });
  await output.close();
  let end: string | undefined;
  const ended = new Promise<void>((resolve) => {
    const settle = (reason: string) => {
      end ??= reason;
      resolve();
    };
    child.once('error', (error) => settle(error.message));
    child.once('exit', (code, signal) => settle(`it ended with ${signal ?? code}`));
  });
  let peakMiB = 0;
  return {
    async assertAlive() {
      if (end === undefined) return;
      throw new Error(`${end}: ${excerptOf(await readFile(outputFile, 'utf8'), folder)}`);
    },
    usage() {
      const tree = child.pid === undefined ? [] : listTree(child.pid);
      const [root] = tree;
      const together = sum(tree.map((pid) => memoryMiB(pid, 'VmRSS')));
      peakMiB = Math.max(peakMiB, together, root === undefined ? 0 : memoryMiB(root, 'VmHWM'));
      return { cpuSeconds: sum(tree.map(cpuSecondsOf)), peakMiB: Math.round(peakMiB) };
    },
    residentMiB() {
      return child.pid === undefined ? 0 : sum(listTree(child.pid).map((pid) => memoryMiB(pid, 'VmRSS')));
    },
    kill() {
      child.kill('SIGKILL');
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM');
      const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
      await ended;
      clearTimeout(killer);
      await rm(outputFolder, { recursive: true, force: true });
    },
  };
}

/** One line from the first error on, without this machine's folder. Without an error, the end of the output. */
function excerptOf(output: string, folder: string): string {
  const line = output.replaceAll(folder, '.').replaceAll(/\s+/g, ' ');
  const from = line.search(/error/i);
  return from === -1 ? line.slice(-EXCERPT_CHARACTERS_MAX) : line.slice(from, from + EXCERPT_CHARACTERS_MAX);
}

/** The process and its descendants. Skips those that end during the listing. */
function listTree(pid: number): number[] {
  const children = orElse([], () =>
    readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    ),
  );
  return [pid, ...children.flatMap(listTree)];
}

/** proc(5), stat: utime, stime, cutime and cstime are fields 14 to 17; the name in field 2 may hold spaces. */
export function cpuSecondsOf(pid: number): number {
  const stat = orElse('', () => readFileSync(`/proc/${pid}/stat`, 'utf8'));
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return sum(fields.slice(11, 15).map(Number)) / TICKS_PER_SECOND;
}

/** CPU time so far of a process, its descendants and those of them that have ended. */
export const cpuSecondsOfTree = (pid: number): number => sum(listTree(pid).map(cpuSecondsOf));

/** Current resident memory of a process, without its children. */
export const residentMiBOf = (pid: number): number => memoryMiB(pid, 'VmRSS');

/** proc(5), status: memory, which that file gives in KiB. */
function memoryMiB(pid: number, name: 'VmRSS' | 'VmHWM'): number {
  const status = orElse('', () => readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024;
}

function orElse<T>(other: T, read: () => T): T {
  try {
    return read();
  } catch {
    return other;
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
