/**
 * How much a visitor loads.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { buildConsole } from '../kit/console-stage.ts';

const DIST = fileURLToPath(new URL('../../console/dist', import.meta.url));
const FIRST_BYTES_MAX = 60 * 1024;
const ALL_BYTES_MAX = 110 * 1024;

before(buildConsole);

/** In the form for browsers that know no brotli. */
const sizeOf = (names: readonly string[]) =>
  names.reduce((sum, name) => sum + statSync(path.join(DIST, `${name}.gz`)).size, 0);

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
