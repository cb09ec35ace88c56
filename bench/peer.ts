/**
 * Installs peers on demand into a folder outside the clone, one for each manifest. The folders stay between runs.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, readFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const INSTALL_MS_MAX = 300_000;

/** Installs the files of `source` and their dependencies; `manifest` becomes package.json. Returns the folder. */
export async function installPeer(name: string, source: string, manifest: string): Promise<string> {
  const text = await readFile(path.join(source, manifest));
  const hash = createHash('sha256').update(text).digest('hex');
  const folder = path.join(tmpdir(), `chainbell-peers-${userInfo().uid}`, `${name}-${hash.slice(0, 12)}`);
  await cp(source, folder, { recursive: true });
  await cp(path.join(source, manifest), path.join(folder, 'package.json'));
  // npm writes this file last.
  if (existsSync(path.join(folder, 'node_modules/.package-lock.json'))) return folder;
  process.stderr.write(`installing ${name} …\n`);
  // --prefix is needed because an outer npm has put a different folder into the environment.
  await promisify(execFile)('npm', ['install', '--no-save', `--prefix=${folder}`, '--loglevel=error'], {
    cwd: folder,
    timeout: INSTALL_MS_MAX,
  });
  return folder;
}
