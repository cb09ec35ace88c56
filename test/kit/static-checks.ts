/**
 * The checks that read code without running it: types, formatting, lint, and lint with types.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

export type StaticCheckResult = {
  name: string;
  durationMs: number;
  /** The tool's output, if the check failed. */
  problem: string | undefined;
};

type Output = { code: number; text: string };

const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
/** oxlint looks for its second program only in the root folder's packages. */
const TSGOLINT = 'tools/checks/node_modules/.bin/tsgolint';
const TYPE_AWARE = ['tools/checks/node_modules/oxlint/bin/oxlint', '--type-aware', '--deny-warnings'];

/** Runs all static checks concurrently on the project in `root`. */
export function runStaticChecks(root: string): Promise<StaticCheckResult[]> {
  return Promise.all([
    check('types (tsc)', async () =>
      problemOf(await runTool(root, ['node_modules/typescript/bin/tsc', '--noEmit', '-p', '.'])),
    ),
    check('types of the console (tsc)', async () =>
      problemOf(await runTool(root, ['node_modules/typescript/bin/tsc', '--noEmit', '-p', 'console'])),
    ),
    check('format and lint (biome)', async () =>
      problemOf(
        await runTool(root, [
          'tools/checks/node_modules/@biomejs/biome/bin/biome',
          'check',
          '--error-on-warnings',
          '.',
        ]),
      ),
    ),
    check('lint with types (oxlint)', async () => problemOf(await runTool(root, TYPE_AWARE))),
    check('the linter sees a floating promise', () => findBlindness(root)),
  ]);
}

/**
 * Lints a floating promise on purpose. Type-aware rules come from a second program. Without it, the linter would silently
 * skip the most important rules.
 */
async function findBlindness(root: string): Promise<string | undefined> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-lint-'));
  try {
    const file = path.join(folder, 'canary.ts');
    await writeFile(file, 'async function work(): Promise<void> {}\nwork();\n');
    const { code, text } = await runTool(root, [...TYPE_AWARE, '--config', '.oxlintrc.json', file]);
    return code !== 0 && text.includes('no-floating-promises') ? undefined : `it did not:\n${text}`;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function check(
  name: string,
  findProblem: () => Promise<string | undefined>,
): Promise<StaticCheckResult> {
  const startedAt = performance.now();
  const problem = await findProblem();
  return { name, durationMs: performance.now() - startedAt, problem };
}

function problemOf(output: Output): string | undefined {
  return output.code === 0 ? undefined : output.text;
}

function runTool(root: string, words: string[]): Promise<Output> {
  return new Promise((resolve) => {
    const env = { ...process.env, OXLINT_TSGOLINT_PATH: path.join(root, TSGOLINT) };
    const options = { cwd: root, env, maxBuffer: OUTPUT_BYTES_MAX };
    execFile(process.execPath, words, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      const text = `${stdout}${stderr}`.trim();
      resolve({ code, text: error !== null && text === '' ? error.message : text });
    });
  });
}
