import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { sampledTest } from '../kit/sample.ts';
import { FULL, needsFull } from './chainbell.ts';

const test = sampledTest(import.meta.url);

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

test('a command that cannot write its standard output says why, and exits with 69', needsFull, async () => {
  await using full = await open(FULL, 'w');
  assert.deepEqual(await ended(start(full.fd, 'pipe')), {
    code: 69,
    err: 'chainbell: standard output cannot be written: no space left on device. The output is incomplete. Free space, or write it to another place\n',
  });
});

test('a command that cannot write its standard error either exits with 69 too', needsFull, async () => {
  await using full = await open(FULL, 'w');
  assert.deepEqual(await ended(start(full.fd, full.fd)), { code: 69, err: '' });
});

test(
  'a start that cannot write its standard error exits with the code of its problem',
  needsFull,
  async () => {
    await using full = await open(FULL, 'w');
    const child = spawn(process.execPath, [MAIN, 'start', '--config', 'none.yaml'], {
      stdio: ['ignore', 'ignore', full.fd],
    });
    assert.deepEqual(await ended(child), { code: 78, err: '' });
  },
);

test('a reader that has enough ends a command with 0 and no message', async () => {
  const child = start('pipe', 'pipe');
  child.stdout?.destroy();
  assert.deepEqual(await ended(child), { code: 0, err: '' });
});

/** Starts a command that prints some KiB. */
function start(stdout: 'pipe' | number, stderr: 'pipe' | number): ChildProcess {
  return spawn(process.execPath, [MAIN, 'config', 'schema'], {
    cwd: tmpdir(),
    stdio: ['ignore', stdout, stderr],
  });
}

async function ended(child: ChildProcess): Promise<{ code: unknown; err: string }> {
  const [[code], err] = await Promise.all([
    once(child, 'exit'),
    child.stderr === null ? '' : text(child.stderr),
  ]);
  return { code, err };
}
