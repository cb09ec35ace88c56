/**
 * The files of the console, as console/build.ts has made them. They are read once, with their compressed forms, so that no
 * request reaches the disk and a name can lead only to one of them.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

type ConsoleFile = {
  type: string;
  digest: string;
  cacheControl: string;
  forms: { identity: Buffer; br: Buffer; gzip: Buffer };
};
/** Files by their path below /console. Empty if the console was not built. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

const FOLDER = fileURLToPath(new URL('../../../console/dist', import.meta.url));
/** The file of every page. */
export const PAGE = 'index.html';

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};
/** Names of files contain a hash of their content. The name of the page doesn't. */
const IMMUTABLE = 'public, max-age=31536000, immutable';

/** The built files, or none. Without `globSync`, whose library would take megabytes of each process. */
export function readConsole(): ConsoleFiles {
  const names = existsSync(path.join(FOLDER, PAGE))
    ? readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((name) => path.extname(name) in types)
    : [];
  return new Map(names.map((name) => [name.replaceAll(path.sep, '/'), readForms(name)]));
}

function readForms(name: string): ConsoleFile {
  const read = (suffix: string) => readFileSync(path.join(FOLDER, `${name}${suffix}`));
  const identity = read('');
  return {
    type: types[path.extname(name)] ?? 'application/octet-stream',
    digest: createHash('sha256').update(identity).digest('base64url').slice(0, 22),
    cacheControl: name === PAGE ? 'no-cache' : IMMUTABLE,
    forms: { identity, br: read('.br'), gzip: read('.gz') },
  };
}
