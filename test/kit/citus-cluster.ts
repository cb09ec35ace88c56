/**
 * A distributed database for one test, whose workers are reached through proxies, so that the test can cut one off. Workers can
 * be added later.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { distributeTables } from '../../src/store/db/citus.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import { onDatabase, onServer, withHost, withName } from './citus.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

type Row = Record<string, unknown>;

export type CitusCluster = {
  /** The coordinator, for `openDatabase`. */
  url: string;
  dataDir: string;
  /** The way to each worker of the test cluster, in the order of their ports. */
  workers: readonly TcpProxy[];
  /** Adds one of the workers, which gets no shards yet. */
  addWorker(index: number): Promise<void>;
  /** Runs a statement on the coordinator. */
  ask(text: string, values?: unknown[]): Promise<Row[]>;
  /** The index of the worker that has the shard. */
  workerOf(shardId: number): Promise<number>;
  [Symbol.asyncDispose](): Promise<void>;
};

/**
 * Creates the database on the coordinator and its workers, with the first `count` workers. Distributes its tables over them, unless
 * `isDistributed` is false.
 */
export async function createCluster(
  coordinator: string,
  { count, isDistributed = true }: { count: number; isDistributed?: boolean },
): Promise<CitusCluster> {
  await using parts = new AsyncDisposableStack();
  const name = `chainbell_test_story_${randomBytes(6).toString('hex')}`;
  const url = withName(coordinator, name);
  const nodes = await listWorkers(coordinator);
  for (const server of [coordinator, ...nodes.map(({ host, port }) => withHost(coordinator, host, port))]) {
    await onServer(server, (client) => client.query(`create database ${name}`));
    parts.defer(async () => {
      await onServer(server, (client) => client.query(`drop database ${name} with (force)`));
    });
    await onServer(withName(server, name), (client) => client.query('create extension if not exists citus'));
  }
  const workers: TcpProxy[] = [];
  for (const { host, port } of nodes) workers.push(parts.use(await startTcpProxy({ host, port })));
  // Connects again after the coordinator has crashed.
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  pool.on('error', () => {});
  parts.defer(() => pool.end());
  const ask = async (text: string, values: unknown[] = []): Promise<Row[]> =>
    (await pool.query(text, values)).rows;
  const addWorker = async (index: number) => {
    await ask('select citus_add_node($1, $2)', ['127.0.0.1', workers[index]?.port]);
  };
  const { hostname, port } = new URL(coordinator);
  await ask('select citus_set_coordinator_host($1, $2)', [hostname, Number(port)]);
  for (let index = 0; index < count; index += 1) await addWorker(index);
  await onDatabase(url, migrate);
  if (isDistributed) await onDatabase(url, distributeTables);
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-citus-'));
  parts.defer(() => rm(dataDir, { recursive: true, force: true }));
  const moved = parts.move();
  return {
    url,
    dataDir,
    workers,
    addWorker,
    ask,
    async workerOf(shardId) {
      const [row] = await ask(
        `select n.nodeport as port from pg_dist_placement p join pg_dist_node n using (groupid)
         where p.shardid = get_shard_id_for_distribution_column('watched_address', $1::bigint)`,
        [shardId],
      );
      return workers.findIndex((worker) => worker.port === Number(row?.port));
    },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

async function listWorkers(coordinator: string): Promise<{ host: string; port: number }[]> {
  return onServer(coordinator, async (client) => {
    const { rows } = await client.query(
      'select node_name as host, node_port as port from citus_get_active_worker_nodes() order by node_port',
    );
    return rows.map(({ host, port }) => ({ host: String(host), port: Number(port) }));
  });
}

/** Names for the servers, the database and the role of the guide to Citus on the test cluster. Drops the database and the role. */
export async function nameGuide(coordinator: string) {
  const [first, second] = await listWorkers(coordinator);
  if (first === undefined || second === undefined)
    throw new Error('the guide needs a cluster with two workers');
  const { hostname, port, username, password } = new URL(coordinator);
  const superuser = password === '' ? username : `${username}:${password}`;
  const self = { host: hostname, port: Number(port) };
  const name = `chainbell_test_guide_${randomBytes(6).toString('hex')}`;
  const placeOf = ({ host, port: at }: { host: string; port: number }) => `${host}:${at}`;
  const servers = [self, first, second].map((node) => withHost(coordinator, node.host, node.port));
  return {
    replacements: {
      'coordinator.example:5432': placeOf(self),
      'worker-1.example:5432 worker-2.example:5432': placeOf(first),
      'worker-3.example:5432': placeOf(second),
      'postgres://postgres@': `postgres://${superuser}@`,
      'postgres://chainbell@': `postgres://${name}@`,
      'role chainbell': `role ${name}`,
      'database chainbell owner chainbell': `database ${name} owner ${name}`,
      'to chainbell': `to ${name}`,
      '/chainbell': `/${name}`,
    },
    ask: (text: string): Promise<Row[]> =>
      onServer(withName(coordinator, name), async (client) => (await client.query(text)).rows),
    async [Symbol.asyncDispose]() {
      // All databases first, because Citus drops a role on all servers.
      for (const object of [`database if exists ${name} with (force)`, `role if exists ${name}`])
        for (const server of servers) await onServer(server, (client) => client.query(`drop ${object}`));
    },
  };
}
