/**
 * When the console is built.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { appendFile, cp, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A clone with the console's sources and the installed packages, and a function that builds it. */
async function makeClone(context: TestContext) {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-build-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const isSource = (name: string) => !/console.(dist|screenshots)/.test(name);
  await cp(path.join(ROOT, 'console'), path.join(folder, 'console'), { recursive: true, filter: isSource });
  for (const name of ['node_modules', 'tools', 'tsconfig.json', 'package.json', 'package-lock.json'])
    await symlink(path.join(ROOT, name), path.join(folder, name));
  const inFolder = (name: string) => path.join(folder, 'console', name);
  return { inFolder, build: () => promisify(execFile)(process.execPath, [inFolder('build.ts')]) };
}

test('the console is built when it is missing or its sources have changed, and otherwise left alone', async (context) => {
  const { inFolder, build } = await makeClone(context);
  await build();
  const first = await stat(inFolder('dist/index.html'));
  await build();
  assert.equal((await stat(inFolder('dist/index.html'))).mtimeMs, first.mtimeMs);
  await appendFile(inFolder('src/styles/small.css'), '\n.added-by-a-test {\n  color: red;\n}\n');
  await build();
  const assets = await readdir(inFolder('dist/assets'));
  const styles = assets.filter((name) => name.endsWith('.css'));
  assert.equal(styles.length, 1);
  assert.match(await readFile(inFolder(`dist/assets/${styles[0]}`), 'utf8'), /added-by-a-test/);
  assert.deepEqual(
    (await readdir(inFolder('.'))).filter((name) => name.startsWith('dist')),
    ['dist'],
  );
});

test('two starts at once build one complete console', async (context) => {
  const { inFolder, build } = await makeClone(context);
  await Promise.all([build(), build()]);
  const page = await readFile(inFolder('dist/index.html'), 'utf8');
  for (const [, name = ''] of page.matchAll(/"\/console\/(assets\/[^"]+)"/g))
    await stat(inFolder(`dist/${name}`));
});

test('sources that can’t be built leave the former console as it is, and say why', async (context) => {
  const { inFolder, build } = await makeClone(context);
  await build();
  const before = await readFile(inFolder('dist/index.html'), 'utf8');
  await writeFile(inFolder('src/main.tsx'), 'import { nothing } from "./nowhere.ts";\nnothing(');
  await assert.rejects(build(), /main\.tsx/);
  assert.equal(await readFile(inFolder('dist/index.html'), 'utf8'), before);
});
