/**
 * Starts pgbouncer in front of a PostgreSQL server, if this machine has it.
 */
import { execFileSync, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { findFreePort, makeSite } from './postgres-server.ts';
import { waitUntil } from './wait.ts';

export const hasPgbouncer = (() => {
  try {
    execFileSync('pgbouncer', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

type Pgbouncer = { url: string; [Symbol.asyncDispose](): Promise<void> };

/** `poolSize` is the number of server sessions that all clients share. */
export async function startPgbouncer(
  url: string,
  mode: 'session' | 'transaction' | 'statement',
  { poolSize = 20 }: { poolSize?: number } = {},
): Promise<Pgbouncer> {
  const server = new URL(url);
  const { folder, user } = await makeSite();
  const port = await findFreePort();
  const file = path.join(folder, 'pgbouncer.ini');
  const { username, password, hostname } = server;
  await writeFile(path.join(folder, 'users'), `"${username}" "${decodeURIComponent(password)}"\n`);
  await writeFile(
    file,
    `[databases]
* = host=${hostname} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = ${password === '' ? 'trust' : 'scram-sha-256'}
auth_file = ${path.join(folder, 'users')}
pool_mode = ${mode}
default_pool_size = ${poolSize}
`,
  );
  const child = spawn('pgbouncer', [file], { ...user, cwd: folder, stdio: 'ignore' });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  server.port = String(port);
  const isUp = async () => {
    const client = new pg.Client({ connectionString: server.href });
    try {
      await client.connect();
      return true;
    } catch {
      return false;
    } finally {
      await client.end().catch(() => {});
    }
  };
  await waitUntil(isUp, { describe: 'pgbouncer to take connections', timeoutMs: 120_000 });
  return {
    url: server.href,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
