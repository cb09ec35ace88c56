/**
 * The servers of a Citus cluster of its own, for tests that kill them: TEST_CITUS_URL is that of a cluster that all tests share.
 */
import pg from 'pg';
import { onServer } from './citus.ts';
import { startRestartingServer } from './postgres-server.ts';

type CitusServers = {
  /** The coordinator. */
  url: string;
  /** Kills a backend of a server that runs a statement or has run one: 0 is the coordinator. All others of that server end with it. */
  killBackend(server: number, database: string): Promise<void>;
  /** Kills a server. Resolves when it is back. */
  kill(server: number): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const SETTINGS = [
  'shared_preload_libraries=citus',
  'max_prepared_transactions=200',
  'max_worker_processes=16',
  'citus.node_conninfo=sslmode=disable',
];

/** A coordinator and two workers on this machine. */
export async function startCitusServers(): Promise<CitusServers> {
  await using parts = new AsyncDisposableStack();
  const servers: Awaited<ReturnType<typeof startRestartingServer>>[] = [];
  for (let number = 0; number < 3; number += 1) {
    const server = await startRestartingServer({ settings: SETTINGS, isTrusting: true });
    parts.defer(server.stop);
    await onServer(server.url, (client) => client.query('create extension citus'));
    servers.push(server);
  }
  const [coordinator, ...workers] = servers;
  if (coordinator === undefined) throw new Error('no coordinator');
  await onServer(coordinator.url, async (client) => {
    await client.query('select citus_set_coordinator_host($1, $2)', placeOf(coordinator.url));
    for (const { url } of workers) await client.query('select citus_add_node($1, $2)', placeOf(url));
  });
  const moved = parts.move();
  return {
    url: coordinator.url,
    async killBackend(index, database) {
      const pid = await findBackend(servers[index]?.url ?? '', database);
      if (pid !== undefined) process.kill(pid, 'SIGKILL');
    },
    async kill(index) {
      await servers[index]?.restart('SIGKILL');
    },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

const placeOf = (url: string): [string, number] => [new URL(url).hostname, Number(new URL(url).port)];

/** One that works now, or else the one that worked last. */
async function findBackend(url: string, database: string): Promise<number | undefined> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    const { rows } = await client.query(
      `select pid from pg_stat_activity where datname = $1 and backend_type = 'client backend'
       order by state = 'idle', query_start desc limit 1`,
      [database],
    );
    return rows[0]?.pid;
  } finally {
    await client.end();
  }
}
