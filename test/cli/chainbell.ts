/**
 * Runs the command line as users do: in a separate process, in a given folder.
 */
import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

export type Run = { code: number; out: string; err: string };

/** The chain that every command needs. Nothing listens at the node's URL. */
export const chain = { CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1' };

/** Runs `chainbell <words>` to its end in `folder`, with these variables beside those that a process needs. */
export function chainbell(folder: string, env: Record<string, string>, ...words: string[]): Promise<Run> {
  const { process: child, ended } = startChainbell(folder, env, ...words);
  child.stdin.end();
  return ended;
}

/** The same, for tests that interrupt the command, write to its standard input or close its standard output. */
export function startChainbell(
  folder: string,
  env: Record<string, string>,
  ...words: string[]
): { process: ChildProcessWithoutNullStreams; ended: Promise<Run> } {
  const child = spawn(process.execPath, [MAIN, ...words], {
    cwd: folder,
    env: { ...needed(), ...env },
    stdio: 'pipe',
  });
  // Reading fails once a test has closed it.
  const read = text(child.stdout).catch(() => '');
  const outcome = Promise.all([once(child, 'exit'), read, text(child.stderr)]);
  return { process: child, ended: outcome.then(([[code], out, err]) => ({ code: Number(code), out, err })) };
}

/** Each write to it fails as on a full disk. */
export const FULL = '/dev/full';
export const needsFull = { skip: existsSync(FULL) ? false : `needs ${FULL}` };

/** Runs `chainbell <words>` to its end, with a standard output that is full. */
export async function chainbellToFull(
  folder: string,
  env: Record<string, string>,
  ...words: string[]
): Promise<Omit<Run, 'out'>> {
  await using full = await open(FULL, 'w');
  const child = spawn(process.execPath, [MAIN, ...words], {
    cwd: folder,
    env: { ...needed(), ...env },
    stdio: ['ignore', full.fd, 'pipe'],
  });
  assert.ok(child.stderr !== null);
  const [[code], err] = await Promise.all([once(child, 'exit'), text(child.stderr)]);
  return { code: Number(code), err };
}

/** Variables that a process needs. */
function needed(): Record<string, string> {
  const { PATH = '', TMPDIR = '', NODE_COMPILE_CACHE = '' } = process.env;
  return {
    PATH,
    ...(TMPDIR !== '' && { TMPDIR }),
    ...(NODE_COMPILE_CACHE !== '' && { NODE_COMPILE_CACHE }),
  };
}
