/**
 * How much a visitor loads, and a service keeps.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { buildConsole } from '../kit/console-stage.ts';

const DIST = fileURLToPath(new URL('../../console/dist', import.meta.url));
const FIRST_BYTES_MAX = 60 * 1024;
const ALL_BYTES_MAX = 110 * 1024;
const MEMORY_BYTES_MAX = 3_000_000;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** What a process keeps in its heap and in buffers after it has read the console, in bytes. */
const MEASURE = `
  const used = () => {
    gc();
    gc();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const { readConsole } = await import('./src/api/http/console-files.ts');
  const before = used();
  const files = readConsole();
  process.stdout.write(String(used() - before));
  globalThis.kept = files;
`;

before(buildConsole);

/** In Brotli, which every browser takes over https. */
const sizeOf = (names: readonly string[]) =>
  names.reduce((sum, name) => sum + statSync(path.join(DIST, `${name}.br`)).size, 0);

test('scripts and styles of the first screen take at most 60 KiB', () => {
  const page = readFileSync(path.join(DIST, 'index.html'), 'utf8');
  const names = Array.from(
    page.matchAll(/"\/console\/(assets\/[\w-]+\.(?:js|css))"/g),
    ([, name = '']) => name,
  );
  assert.ok(names.length >= 2);
  const bytes = sizeOf(names);
  assert.ok(bytes <= FIRST_BYTES_MAX, `${bytes} bytes in ${names.join(', ')}`);
});

test('all scripts and styles take at most 110 KiB', () => {
  const bytes = sizeOf(globSync('**/*.{js,css}', { cwd: DIST }));
  assert.ok(bytes <= ALL_BYTES_MAX, `${bytes} bytes`);
});

test('a service that serves the console keeps at most 3 MB for it', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--expose-gc', '--input-type=module', '--eval', MEASURE],
    { cwd: ROOT },
  );
  const bytes = Number(stdout);
  const files = globSync('**/*.{br,gz}', { cwd: DIST }).map((name) => statSync(path.join(DIST, name)).size);
  // At least the compressed files, so that something was measured.
  assert.ok(bytes >= files.reduce((sum, size) => sum + size, 0), `${stdout} bytes`);
  assert.ok(bytes <= MEMORY_BYTES_MAX, `${stdout} bytes`);
});
