import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import type { FileResult } from './run-file.ts';
import { groupFiles } from './share-process.ts';

/** Creates a folder with these files. Returns their names in order. */
function createFiles(files: Record<string, string>): {
  root: string;
  names: string[];
  [Symbol.dispose](): void;
} {
  const root = mkdtempSync(path.join(tmpdir(), 'chainbell-test-'));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  }
  const dispose = () => rmSync(root, { recursive: true, force: true });
  return { root, names: Object.keys(files), [Symbol.dispose]: dispose };
}

const PLAIN = "import { test } from 'node:test';\ntest('passes', () => {});\n";
const FAILING = "import { test } from 'node:test';\ntest('fails', () => { throw new Error('so'); });\n";

test('files share a process only within a folder of short files, without hooks of a whole file and without changing globals', () => {
  using files = createFiles({
    'test/store/a.test.ts': PLAIN,
    'test/store/hooked.test.ts': `before(() => {});\n${PLAIN}`,
    'test/store/b.test.ts': PLAIN,
    'test/store/clock.test.ts': `${PLAIN}Date.now = () => 0;\n`,
    'test/api/a.test.ts': PLAIN,
    'test/system/a.test.ts': PLAIN,
    'test/system/b.test.ts': PLAIN,
  });
  assert.deepEqual(groupFiles(files.root, files.names), [
    ['test/store/a.test.ts', 'test/store/b.test.ts'],
    ['test/store/hooked.test.ts'],
    ['test/store/clock.test.ts'],
    ['test/api/a.test.ts'],
    ['test/system/a.test.ts'],
    ['test/system/b.test.ts'],
  ]);
});

test('files that share a process have separate results; a file without a test fails', async () => {
  using files = createFiles({ 'a.test.mjs': PLAIN, 'b.test.mjs': FAILING, 'c.test.mjs': '' });
  const paths = files.names.map((name) => path.join(files.root, name));
  const program = `
    import { runFiles } from ${JSON.stringify(import.meta.resolve('./run-file.ts'))};
    const options = { timeMsMax: 60_000, signal: new AbortController().signal };
    console.log(JSON.stringify(await runFiles(${JSON.stringify(paths)}, options)));`;
  const main = path.join(files.root, 'main.mjs');
  writeFileSync(main, program);
  // node:test runs no files inside a test.
  const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, [main], { env });
  const results: FileResult[] = JSON.parse(stdout);
  assert.deepEqual(
    results.map(({ file, passed, failures }) => [file, passed, failures.map((one) => one.path)]),
    [
      [paths[0], 1, []],
      [paths[1], 0, [['fails']]],
      [paths[2], 0, [[]]],
    ],
  );
});
