/**
 * Builds the console into console/dist, unless it is already built from the present sources. `npm run console` runs it, and
 * so does each start of the service and of the demo (bootstrap.mjs). With `--serve` it starts a development server instead.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const FOLDER = fileURLToPath(new URL('.', import.meta.url));
const DIST = path.join(FOLDER, 'dist');
const VITE = new URL('../tools/node_modules/vite/dist/node/index.js', import.meta.url);
/** Holds the hash of the sources that dist/ was built from. */
const MARK = '.sources';
const SOURCES = ['index.html', 'build.ts', 'tsconfig.json', 'src/**/*.*', '../{,tools/}package-lock.json'];
/** Modules that only other screens use are left out of the file that the first screen loads. */
const FIRST_SCREEN =
  /console[\\/]src[\\/](state|texts|format[\\/](?!csv|decimal)|api[\\/](?!attempt|filter|import|live-list)|parts[\\/](?!address-search|dialog|fields|message-body|section|time-line)|screens[\\/](rail|top-bar))/;
const API = 'http://127.0.0.1:8080';

if (import.meta.main) {
  if (process.argv.includes('--serve')) await serve();
  else await buildConsole();
}

/** Builds what is missing or old. Several processes may do so at the same time. */
async function buildConsole(): Promise<void> {
  const hash = hashSources();
  if (readMark() === hash) return;
  const { build } = await import(VITE.href);
  // A separate folder, so that dist/ is always complete.
  const made = path.join(FOLDER, `dist-${process.pid}`);
  try {
    await build({ ...settings(), build: { ...settings().build, outDir: made } });
    await compress(made);
    await writeFile(path.join(made, MARK), hash);
    const old = `${made}-old`;
    if (existsSync(DIST)) await rename(DIST, old).catch(() => {});
    // Another process may have put its build here meanwhile. It is made from the same sources.
    await rename(made, DIST).catch((error: unknown) => {
      if (readMark() !== hash) throw error;
    });
    await rm(old, { recursive: true, force: true });
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

/** Serves the sources with hot reload, and passes API requests on to a running service. */
async function serve(): Promise<void> {
  const { createServer } = await import(VITE.href);
  const target = process.argv[process.argv.indexOf('--serve') + 1] ?? API;
  const paths = ['/api', '/status', '/openapi.json', '/docs'];
  const proxy = Object.fromEntries(paths.map((one) => [one, { target }]));
  const server = await createServer({ ...settings(), logLevel: 'info', server: { proxy } });
  await server.listen();
  server.printUrls();
}

function settings() {
  return {
    root: FOLDER,
    base: '/console/',
    configFile: false,
    logLevel: 'warn',
    publicDir: false,
    build: {
      target: 'esnext',
      // The content security policy allows no inline files except images.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      emptyOutDir: true,
      rolldownOptions: {
        output: {
          // A few files instead of many small ones, because HTTP/1.1 allows six requests at a time.
          codeSplitting: {
            groups: [
              { name: 'packages', test: /node_modules[\\/](?!d3-(shape|path))/ },
              { name: 'parts', test: FIRST_SCREEN },
            ],
          },
        },
      },
    },
  };
}

/** Writes the compressed forms that the service sends. */
async function compress(folder: string): Promise<void> {
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
  for (const name of globSync('**/*.{html,js,css,svg}', { cwd: folder })) {
    const file = path.join(folder, name);
    const bytes = await readFile(file);
    await writeFile(`${file}.br`, await promisify(brotliCompress)(bytes, quality));
    await writeFile(`${file}.gz`, await promisify(gzip)(bytes, { level: constants.Z_BEST_COMPRESSION }));
  }
}

function hashSources(): string {
  const hash = createHash('sha256');
  for (const name of globSync(SOURCES, { cwd: FOLDER }).sort())
    hash.update(`${name}\0`).update(readFileSync(path.join(FOLDER, name)));
  return hash.digest('hex');
}

function readMark(): string | undefined {
  try {
    return readFileSync(path.join(DIST, MARK), 'utf8');
  } catch {
    return undefined;
  }
}
