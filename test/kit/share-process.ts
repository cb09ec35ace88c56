/**
 * Which test files may follow one another in one process. Starting a process, loading the program and warming up take as long
 * as a short file's tests.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

/** Where tests are short and use only what they make themselves; elsewhere each file has a process. */
const FOLDERS = /^test\/(api|app|audit|chain|config|core|delivery|domain|ingest|prices|store)\//;
/** Hooks outside of a suite would run for the other files too, and a global would be changed for them. */
const ALONE = [
  /^(before|after|beforeEach|afterEach)\(/m,
  /Date\.now = |globalThis\.|\bmock\b|setFlagsFromString|\bgc\(/,
  /process\.(chdir|emit|env|exit|kill|memoryUsage|on|once|umask)\b/,
  /node:(async_hooks|child_process|diagnostics_channel|worker_threads)/,
  // The runner would not know to which file they belong.
  /\bsampledTest\(/,
];
/** Few enough that a failing process is found out quickly, and that processors share the work evenly. */
const FILES_MAX = 6;

/** The files in groups, each of which one process runs; files of a group are in one folder of test/, or below it. */
export function groupFiles(root: string, files: readonly string[]): string[][] {
  const groups: string[][] = [];
  /** The group of each folder that has room. */
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
  // Tests that another file declares could not be told apart.
  return /^ *test\(/m.test(text) && !ALONE.some((pattern) => pattern.test(text));
}
