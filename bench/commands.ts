/**
 * Measures how long short commands take, alone and through npm, which is measured by itself with a script that does nothing.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Figures } from './figures.ts';
import { spreadOf } from './spread.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const REPEATS = 15;

export async function commands(): Promise<Figures> {
  const empty = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  try {
    await writeFile(path.join(empty, 'package.json'), '{"scripts":{"nothing":"true"}}');
    const direct = (...words: string[]) => [process.execPath, 'bootstrap.mjs', 'src/main.ts', ...words];
    const candidates: Record<string, string[]> = {
      'node alone': [process.execPath, '-e', '0'],
      '--version': direct('--version'),
      '--help': direct('--help'),
      'keys --help': direct('keys', '--help'),
      'config schema': direct('config', 'schema'),
      'npm alone': ['npm', '--prefix', empty, 'run', '--silent', 'nothing'],
      'npm run --silent chainbell -- --version': ['npm', ...'run --silent chainbell -- --version'.split(' ')],
    };
    const times = new Map(Object.keys(candidates).map((name) => [name, [] as number[]]));
    // The first repeat fills the compile cache and doesn't count.
    for (let repeat = 0; repeat <= REPEATS; repeat += 1)
      for (const [name, command] of Object.entries(candidates)) {
        const ms = await timeOf(command);
        if (repeat > 0) times.get(name)?.push(ms);
      }
    const rows = [...times].map(([command, ms]) => ({ command, ms: spreadOf(ms) }));
    return { conditions: { repeats: REPEATS }, rows };
  } finally {
    await rm(empty, { recursive: true, force: true });
  }
}

/** The wall time until the command has ended, in milliseconds. */
async function timeOf([program = '', ...words]: string[]): Promise<number> {
  const startedAt = performance.now();
  await promisify(execFile)(program, words, { cwd: ROOT });
  return Math.round(performance.now() - startedAt);
}
