import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { waitUntil } from './kit/wait.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const MANIFESTS = ['', 'tools/', 'tools/checks/'].flatMap((folder) =>
  ['package.json', 'package-lock.json'].map((name) => `${folder}${name}`),
);
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

/** Prints its process id, and the signal that ends it. */
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
  await waitUntil(() => output.text.includes('pid '), { describe: 'the program to run' });
  shell.kill('SIGKILL');
  await waitUntil(() => output.text.includes('ended by SIGTERM'), { describe: 'the program to end' });
});

/** A folder with the bootstrap and the manifests of this project, and an npm that only records how it was called. */
async function makeClone(context: TestContext): Promise<{ folder: string; npm: string; calls: string }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-clone-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  await mkdir(path.join(folder, 'tools/checks'), { recursive: true });
  await mkdir(path.join(folder, 'src'));
  for (const name of ['bootstrap.mjs', ...MANIFESTS])
    await copyFile(path.join(ROOT, name), path.join(folder, name));
  await writeFile(path.join(folder, 'src/main.ts'), 'console.log("runs");');
  await writeFile(path.join(folder, 'test.ts'), '');
  const calls = path.join(folder, 'calls');
  const npm = path.join(folder, 'npm-cli.cjs');
  await writeFile(
    npm,
    `require('node:fs').appendFileSync(${JSON.stringify(calls)}, JSON.stringify({ cwd: process.cwd(), words: process.argv.slice(2) }) + '\\n');`,
  );
  await writeFile(calls, '');
  return { folder, npm, calls };
}

async function runClone({ folder, npm }: { folder: string; npm: string }, words: string[]): Promise<string> {
  const env = { PATH: process.env.PATH, npm_execpath: npm };
  const { stdout } = await promisify(execFile)(process.execPath, ['bootstrap.mjs', ...words], {
    cwd: folder,
    env,
  });
  return stdout;
}

async function readCalls(calls: string): Promise<{ folder: string; isFresh: boolean }[]> {
  const lines = (await readFile(calls, 'utf8')).split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    const { cwd, words } = JSON.parse(line) as { cwd: string; words: string[] };
    return { folder: path.basename(cwd), isFresh: words.includes('--no-package-lock') };
  });
}

type Lock = { packages: Record<string, { dev?: boolean; optional?: boolean; os?: string[] }> };

async function editLock(file: string, edit: (lock: Lock) => void): Promise<Lock> {
  const lock = JSON.parse(await readFile(file, 'utf8')) as Lock;
  edit(lock);
  await writeFile(file, JSON.stringify(lock));
  return lock;
}

test('`npm ci --omit=dev` accepts the lock file', async (context) => {
  const { folder } = await makeClone(context);
  const words = ['ci', '--omit=dev', '--dry-run', '--offline', '--ignore-scripts'];
  await promisify(execFile)('npm', words, { cwd: folder });
});

test('a service starts on what `npm ci --omit=dev` installs, the demo installs its tools, and the tests everything', async (context) => {
  const clone = await makeClone(context);
  await mkdir(path.join(clone.folder, 'node_modules'));
  const record = path.join(clone.folder, 'node_modules/.package-lock.json');
  await copyFile(path.join(ROOT, 'package-lock.json'), record);
  await editLock(record, ({ packages }) => {
    for (const [name, { dev, optional }] of Object.entries(packages))
      if (dev === true || optional === true) delete packages[name];
  });
  assert.equal(await runClone(clone, ['src/main.ts', 'start']), 'runs\n');
  assert.deepEqual(await readCalls(clone.calls), []);
  await runClone(clone, ['src/main.ts', 'demo']);
  const folders = (await readCalls(clone.calls)).map(({ folder }) => folder);
  assert.deepEqual(folders, [path.basename(clone.folder), 'tools']);
  await runClone(clone, ['test.ts']);
  const all = (await readCalls(clone.calls)).slice(folders.length).map(({ folder }) => folder);
  assert.deepEqual(all, [path.basename(clone.folder), 'tools', 'checks']);
});

test('a short command takes one process, and a service gets one with the memory flags', async (context) => {
  const clone = await makeClone(context);
  await mkdir(path.join(clone.folder, 'node_modules'));
  await copyFile(
    path.join(ROOT, 'package-lock.json'),
    path.join(clone.folder, 'node_modules/.package-lock.json'),
  );
  await writeFile(
    path.join(clone.folder, 'src/main.ts'),
    'console.log(JSON.stringify([process.ppid, process.cwd(), process.execArgv.length, process.argv.slice(1)]));',
  );
  const main = path.join(clone.folder, 'src/main.ts');
  const short = JSON.parse(await runClone(clone, ['src/main.ts', 'keys', 'list'])) as unknown[];
  assert.deepEqual(short, [process.pid, clone.folder, 0, [main, 'keys', 'list']]);
  const [parent, folder, flags] = JSON.parse(await runClone(clone, ['src/main.ts', 'start'])) as unknown[];
  assert.notEqual(parent, process.pid);
  assert.deepEqual([folder, flags], [clone.folder, 2]);
});

test('versions are resolved afresh where the lock file lacks the packages of this platform', async (context) => {
  const clone = await makeClone(context);
  await editLock(path.join(clone.folder, 'tools/package-lock.json'), ({ packages }) => {
    for (const [name, one] of Object.entries(packages)) if (one.os !== undefined) delete packages[name];
  });
  await runClone(clone, ['src/main.ts', 'demo']);
  assert.deepEqual(await readCalls(clone.calls), [
    { folder: path.basename(clone.folder), isFresh: false },
    { folder: 'tools', isFresh: true },
  ]);
});

test('a first run without a registry says within seconds what it needs', async (context) => {
  const { folder } = await makeClone(context);
  // Accepts connections and never answers.
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
    await waitUntil(() => text.includes('The first run needs an npm registry'));
  } finally {
    child.kill('SIGINT');
    await ended;
    registry.closeAllConnections();
    registry.close();
  }
});
