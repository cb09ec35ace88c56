/**
 * Groups test files that may run in the same process. Starting a process, loading the program and warming up take as long as
 * the tests of a short file.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

/** Folders whose tests are short and use only resources that they create. Elsewhere, each file gets a process. */
const FOLDERS = /^test\/(api|app|audit|chain|config|core|delivery|domain|ingest|prices|store)\//;
/** Hooks outside of suites would run for other files too, and changed globals would affect those. */
const ALONE = [
  /^(before|after|beforeEach|afterEach)\(/m,
  /Date\.now = |globalThis\.|\bmock\b|setFlagsFromString|\bgc\(/,
  /process\.(chdir|emit|env|exit|kill|memoryUsage|on|once|umask)\b/,
  /node:(async_hooks|child_process|diagnostics_channel|worker_threads)/,
  // The runner could not tell which file they belong to.
  /\bsampledTest\(/,
];
/** A small number, so that a failing process shows quickly and processors share the work evenly. */
const FILES_MAX = 6;

/** Groups the files that one process runs. The files of a group are in the same folder of test/, or below it. */
export function groupFiles(root: string, files: readonly string[]): string[][] {
  const groups: string[][] = [];
  /** The incomplete group of each folder. */
  const open = new Map<string, string[]>();
  for (const file of files) {
    const folder = path.join(...file.split('/').slice(0, 2));
    const isShared = mayShare(root, file);
    const group = isShared ? open.get(folder) : undefined;
    if (group !== undefined && group.length < FILES_MAX) {
      group.push(file);
      continue;
    }
    const next = [file];
    groups.push(next);
    if (isShared) open.set(folder, next);
  }
  return groups;
}

function mayShare(root: string, file: string): boolean {
  if (!FOLDERS.test(file)) return false;
  const text = readFileSync(path.join(root, file), 'utf8');
  // The runner could not attribute tests that another file declares.
  return /^ *test\(/m.test(text) && !ALONE.some((pattern) => pattern.test(text));
}
