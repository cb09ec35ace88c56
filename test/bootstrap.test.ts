import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { waitUntil } from './kit/wait.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const BOOTSTRAP = path.join(ROOT, 'bootstrap.mjs');

/** Runs a script through the bootstrap, below a shell as npm does; `text` grows with what it prints. */
async function runBelowShell(context: TestContext, script: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bootstrap-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'script.mjs');
  await writeFile(file, script);
  // The second command keeps the shell from becoming the program.
  const command = `"${process.execPath}" "${BOOTSTRAP}" "${file}" one two; exit $?`;
  const shell = spawn('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'inherit'] });
  context.after(() => shell.kill('SIGKILL'));
  const output = { text: '' };
  shell.stdout.on('data', (chunk: Buffer) => {
    output.text += chunk.toString();
  });
  return { shell, output };
}

/** Says its process id, and which signal ends it. */
const WAITING = `
  process.on('SIGTERM', () => { console.log('ended by SIGTERM'); process.exit(0); });
  setInterval(() => {}, 1000);
  console.log('pid ' + process.pid);`;

test('a program gets its arguments and gives its exit code', async (context) => {
  const { shell, output } = await runBelowShell(
    context,
    'console.log(process.argv.slice(2).join("+")); process.exit(7);',
  );
  const [code] = await once(shell, 'close');
  assert.equal(code, 7);
  assert.equal(output.text, 'one+two\n');
});

test('a program ends cleanly when the shell above it is killed, as npm kills it', async (context) => {
  const { shell, output } = await runBelowShell(context, WAITING);
  await waitUntil(() => output.text.includes('pid '), { describe: 'the program to run', timeoutMs: 20_000 });
  shell.kill('SIGKILL');
  await waitUntil(() => output.text.includes('ended by SIGTERM'), { describe: 'the program to end' });
});

test('a first run without a registry says within seconds what it needs', async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-clone-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  for (const name of ['bootstrap.mjs', 'package.json', 'package-lock.json'])
    await copyFile(path.join(ROOT, name), path.join(folder, name));
  // Takes connections and never answers.
  const registry = createServer(() => {}).listen(0, '127.0.0.1');
  await once(registry, 'listening');
  const { port } = registry.address() as AddressInfo;
  const child = spawn(process.execPath, ['bootstrap.mjs', 'src/main.ts'], {
    cwd: folder,
    env: {
      PATH: process.env.PATH,
      npm_config_registry: `http://127.0.0.1:${port}`,
      npm_config_cache: path.join(folder, 'cache'),
    },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  const ended = once(child, 'exit');
  try {
    await waitUntil(() => text.includes('The first run needs an npm registry'), { timeoutMs: 60_000 });
  } finally {
    child.kill('SIGINT');
    await ended;
    registry.closeAllConnections();
    registry.close();
  }
});
