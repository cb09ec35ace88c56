/**
 * A PostgreSQL primary with a streaming standby, for tests of failover. Commits wait for the standby, as in a setup that must
 * not lose data.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import {
  initialize,
  launch,
  makeSite,
  RESTARTER,
  restartServer,
  type ServerEnd,
  type Site,
  serverUrl,
} from './postgres-server.ts';
import { waitUntil } from './wait.ts';

export type PostgresPair = {
  primary: { url: string; port: number };
  standby: { url: string; port: number };
  /** Kills all processes of the primary with SIGKILL. */
  killPrimary(): Promise<void>;
  /** The same for the standby. Commits no longer wait for it. */
  killStandby(): Promise<void>;
  /** Promotes the standby. Resolves when it accepts writes. */
  promote(): Promise<void>;
  /** Ends the server that accepts writes. Resolves when it is back. The standby is never restarted. */
  restart(signal: ServerEnd): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const SETTINGS = ['fsync=off', 'wal_level=replica', 'hot_standby=on'];

export async function startPostgresPair(): Promise<PostgresPair> {
  await using parts = new AsyncDisposableStack();
  const [first, second] = [await makeSite(), await makeSite()];
  const password = await initialize(first);
  // Copy the files of a server that never ran, because not every package includes a backup tool.
  const [data, copy] = [first, second].map(({ folder }) => path.join(folder, 'data'));
  await promisify(execFile)('cp', ['-a', `${data}`, `${copy}`], { ...second.user, cwd: second.folder });
  const primary = await launch(first, { supervision: RESTARTER, settings: SETTINGS });
  parts.defer(primary.stop);
  const primaryUrl = serverUrl(primary.port, password);
  await promisify(execFile)('touch', [`${copy}/standby.signal`], { ...second.user, cwd: second.folder });
  const standby = await launch(second, {
    supervision: RESTARTER,
    settings: [...SETTINGS, `primary_conninfo=${primaryUrl}`],
  });
  parts.defer(standby.stop);
  const standbyUrl = serverUrl(standby.port, password);
  await ask(primaryUrl, async (client) => {
    const isStreaming = async () => {
      const { rows } = await client.query("select from pg_stat_replication where state = 'streaming'");
      return rows.length === 1;
    };
    await waitUntil(isStreaming, { describe: 'the standby to stream', timeoutMs: 120_000 });
    await client.query("alter system set synchronous_standby_names = '*'");
    await client.query('select pg_reload_conf()');
  });
  const running = parts.move();
  let leading = first;
  return {
    primary: { url: primaryUrl, port: primary.port },
    standby: { url: standbyUrl, port: standby.port },
    killPrimary: () => killServer(first),
    async killStandby() {
      await ask(primaryUrl, async (client) => {
        await client.query('alter system reset synchronous_standby_names');
        await client.query('select pg_reload_conf()');
      });
      await killServer(second);
    },
    async promote() {
      await ask(standbyUrl, async (client) => {
        const { rows } = await client.query('select pg_promote(true, 60) as done');
        if (rows[0]?.done !== true) throw new Error('the standby was not promoted within 60 s');
      });
      leading = second;
    },
    restart: (signal) => restartServer(leading.folder, signal),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Kills the server and all its processes for good. They start separate sessions, so no process group contains all of them. */
async function killServer({ folder }: Site): Promise<void> {
  // Tells its supervisor not to start it again.
  await writeFile(path.join(folder, 'over'), '');
  const pid = Number.parseInt(await readFile(path.join(folder, 'data/postmaster.pid'), 'utf8'), 10);
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  for (const one of [pid, ...children.map(Number)]) {
    try {
      process.kill(one, 'SIGKILL');
    } catch {
      // The process has ended meanwhile.
    }
  }
}

async function ask<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
