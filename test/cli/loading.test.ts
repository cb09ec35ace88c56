import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** Prints the URLs of all loaded modules to standard error when the process ends. */
const LIST_MODULES = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module';
  import { writeSync } from 'node:fs';
  const urls = [];
  registerHooks({ load(url, context, next) { urls.push(url); return next(url, context); } });
  process.on('exit', () => writeSync(2, urls.join('\\n')));`)}`;

/** What the version and the help need, beside Node and `src/`. */
const ALLOWED = ['commander', '@noble/hashes', 'big.js'];

async function packagesOf(...words: string[]): Promise<{ out: string; packages: string[] }> {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [
    ...['--import', LIST_MODULES],
    ...[MAIN, ...words],
  ]);
  const urls = stderr.split('\n');
  assert.ok(urls.some((url) => url.endsWith('/src/cli/program.ts')));
  const names = urls.flatMap((url) => /\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? []);
  return { out: stdout, packages: [...new Set(names)] };
}

test('the version needs no package but the parser of the command line', async () => {
  const { out, packages } = await packagesOf('--version');
  assert.match(out, /^\d+\.\d+\.\d+\n$/);
  assert.deepEqual(packages, ['commander']);
});

test('the help of the program and of every command loads neither the API, a database nor the configuration', async () => {
  const { out } = await packagesOf('--help');
  const commands = [...out.matchAll(/^ {2}([a-z]+) .*/gm)].map(([, name]) => name ?? '');
  assert.ok(commands.includes('start') && commands.includes('config'), out);
  for (const words of [['--help'], ...commands.map((name) => [name, '--help'])]) {
    const { packages } = await packagesOf(...words);
    const others = packages.filter((name) => !ALLOWED.includes(name));
    assert.deepEqual(others, [], `chainbell ${words.join(' ')}`);
  }
});

test('a command whose reader has enough ends without an error', async () => {
  const child = spawn(process.execPath, [MAIN, 'openapi']);
  const written = text(child.stderr);
  child.stdout.once('data', () => child.stdout.destroy());
  assert.deepEqual(await once(child, 'exit'), [0, null]);
  assert.equal(await written, '');
});
