/**
 * The Database on a PostgreSQL server (15 or newer), through a pool of connections.
 */
import pg from 'pg';
import { machineSteadyMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { areTablesDistributed } from './citus.ts';
import {
  type Connections,
  type Database,
  INT8_OID,
  parseInt8,
  type Share,
  type SharedDatabase,
} from './db.ts';
import { createFairTurns } from './fair-turns.ts';
import { requireOnePrimary } from './one-primary.ts';
import {
  answerOf,
  ask,
  CONNECT_MS_MAX,
  createPostgresHosts,
  isGivenUp,
  type PostgresHosts,
} from './postgres-hosts.ts';
import { openSession, orFault, requireSameDatabase, requireSessions } from './postgres-sessions.ts';
import { requireVersion } from './postgres-version.ts';
import type { ReplicaConnections } from './replica.ts';
import { raw, type Sql } from './sql.ts';

/**
 * The time limit of statements on Citus for shares whose statements are short: a worker that keeps its connections but doesn't answer
 * would otherwise hold all connections of the share, which the other shards need too. PostgreSQL's own limit doesn't help: Citus then
 * waits for the worker's answer to the cancellation.
 */
const SHARD_MS_MAX = 5_000;
const limited: ReadonlySet<Share> = new Set(['api', 'delivery', 'settle']);
/** Two statements at a time record outcomes, unless that would leave delivery too few connections. */
const SETTLE_CONNECTIONS = 2;
const OTHER_CONNECTIONS_MIN = 2;
const HEARTBEAT_CONNECTIONS = 1;
/** Named statements of each connection. Statements composed of many parts could otherwise fill the server's memory. */
const NAMES_MAX = 100;
/**
 * work_mem of statements with many rows. With the default of 4 MB, sorting a leaderboard of 100,000 users used files.
 */
const EACH_WORK_MEM = '64MB';

/** Firewalls forget connections without traffic, usually after some minutes. */
const KEEP_ALIVE_MS = 30_000;

const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    oid === INT8_OID && format !== 'binary' ? parseInt8 : pg.types.getTypeParser(oid, format),
};

type PostgresOptions = {
  /** Leads to PostgreSQL itself if `url` leads to a pooler in transaction mode, which then serves only the API; else ''. */
  sessionUrl: string;
  connections: Connections;
  /** All connections that the process opens to PostgreSQL itself. */
  connectionsMax: number;
  onWait: (share: Share, waitMs: number) => void;
  silentMsMax: number;
};

/** On Citus, each transaction would otherwise open up to one connection to a worker for each of its shards. */
const ONE_AFTER_THE_OTHER = `; set local citus.multi_shard_modify_mode = 'sequential'`;

/** For probes of workers (lost-shards.ts): one for each worker that doesn't answer. */
const PROBE_CONNECTIONS = 16;
/** A probe may wait for as long as its worker is silent. A timer can't be longer. */
const PROBE_MS_MAX = 2 ** 31 - 1;
/** The replica is probed apart from its reads, which may hold all their connections for longer than a probe may take. */
export const REPLICA_PROBE_CONNECTIONS = 1;

const SETTINGS = {
  types,
  keepAlive: true,
  keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
  application_name: 'chainbell',
};

/** @throws Fault `unavailable` if the server can't be reached, `invalid` if it is older than PostgreSQL 15. */
export async function openPostgres(url: string, options: PostgresOptions): Promise<SharedDatabase> {
  const pools = createPools(url, options);
  const { hosts, apiHosts, close } = pools;
  const isPooled = apiHosts !== hosts;
  const shareOf = createShares(pools, options);
  try {
    const opened = shareOf('api', false);
    await requireVersion(opened);
    if (isPooled) await requireVersion(shareOf('follower', false));
    const isDistributed = await areTablesDistributed(opened);
    const database: SharedDatabase = {
      ...shareOf('api', isDistributed),
      for: (share) => shareOf(share, isDistributed),
      async requireSessions() {
        const key = isPooled ? 'sessionUrl' : 'url';
        // A pooler in transaction mode under several names would look like several servers, because locks tell them apart.
        await requireSessions(hosts, key);
        await requireOnePrimary(isPooled ? options.sessionUrl : url, SETTINGS, key);
        if (isPooled) await requireSameDatabase(database, hosts);
      },
      cut() {
        for (const one of new Set([hosts, apiHosts])) one.cut();
      },
    };
    return database;
  } catch (error) {
    await close();
    throw error;
  }
}

function createShares(
  { hosts, apiHosts, pools, close }: ReturnType<typeof createPools>,
  { onWait, silentMsMax, connections }: PostgresOptions,
): (share: Share, isDistributed: boolean) => Database {
  const nameOf = createNames();
  const turns = createFairTurns<pg.PoolClient>(connections.api, CONNECT_MS_MAX);
  const prober: Lender = {
    ...hosts,
    ...{ nameOf: () => undefined, begin: 'begin', msMax: PROBE_MS_MAX },
    lend: () => orFault(hosts.connect(pools.probe)),
  };
  const probe = <Row>(statement: Sql) => query<Row>(prober, statement);

  function lenderOf(share: Share, isDistributed: boolean): Lender {
    const isApi = share === 'api' || share === 'operator';
    const own = isApi ? apiHosts : hosts;
    const connect = () => orFault(own.connect(pools[share === 'operator' ? 'api' : share]));
    return {
      ...own,
      // A pooler runs the next statement in another session, which doesn't know the name.
      nameOf: own === hosts ? nameOf : () => undefined,
      msMax: isDistributed && limited.has(share) ? SHARD_MS_MAX : undefined,
      begin: `begin isolation level read committed; set local idle_in_transaction_session_timeout = ${silentMsMax}${isDistributed ? ONE_AFTER_THE_OTHER : ''}`,
      async lend() {
        const askedMs = machineSteadyMs();
        const client = await (isApi ? turns.lend(connect) : connect());
        onWait(share, machineSteadyMs() - askedMs);
        return client;
      },
      release(client, isBroken) {
        own.release(client, isBroken);
        if (isApi) turns.giveBack(client);
      },
    };
  }

  return (share, isDistributed) => {
    const lender = lenderOf(share, isDistributed);
    return {
      kind: 'postgres',
      isDistributed,
      query: (statement) => query(lender, statement),
      ...(isDistributed && { probe }),
      each: (statement, onRow) => each(lender, statement, onRow),
      transaction: (work) =>
        unlessConflict(() =>
          inTransaction(lender, (client) =>
            work({
              kind: 'transaction',
              isDistributed,
              query: (statement) => run(client, lender, statement),
            }),
          ),
        ),
      script: (text) => script(lender, text),
      session: () => openSession(hosts),
      close,
    };
  };
}

/** The pool of each share. `apiHosts` differs from `hosts` if a pooler in transaction mode serves the API. */
function createPools(url: string, { sessionUrl, connections, connectionsMax }: PostgresOptions) {
  const isPooled = sessionUrl !== '';
  const hosts = createPostgresHosts(isPooled ? sessionUrl : url, SETTINGS, { connectionsMax });
  const apiHosts = isPooled
    ? createPostgresHosts(url, SETTINGS, { connectionsMax: connections.api, keepsSessions: false })
    : hosts;
  const settling = connections.delivery - SETTLE_CONNECTIONS < OTHER_CONNECTIONS_MIN ? 1 : SETTLE_CONNECTIONS;
  const pools: Record<Exclude<Share, 'operator'> | 'probe', pg.Pool> = {
    probe: hosts.pool(PROBE_CONNECTIONS),
    follower: hosts.pool(connections.follower),
    heartbeat: hosts.pool(HEARTBEAT_CONNECTIONS),
    settle: hosts.pool(settling),
    delivery: hosts.pool(connections.delivery - settling),
    api: apiHosts.pool(connections.api),
  };
  const close = async () => {
    const { probe, ...others } = pools;
    await Promise.all(Object.values(others).map((pool) => pool.end()));
    const ended = probe.end();
    // A probe may wait for as long as its worker hangs.
    if (probe.totalCount > probe.idleCount) hosts.cut();
    await ended;
  };
  return { hosts, apiHosts, pools, close };
}

/**
 * Connections to a replica: `readsMax` for reads, and REPLICA_PROBE_CONNECTIONS. Opens none until the first statement, because the
 * replica may be down.
 */
export function openReplicaConnections(url: string, readsMax: number): ReplicaConnections {
  const connectionsMax = readsMax + REPLICA_PROBE_CONNECTIONS;
  const hosts = createPostgresHosts(url, SETTINGS, { connectionsMax, mayBeStandby: true });
  const pools = { reads: hosts.pool(readsMax), probe: hosts.pool(REPLICA_PROBE_CONNECTIONS) };
  const lenderOf = (pool: pg.Pool): Lender => ({
    ...hosts,
    ...{ nameOf: createNames(), begin: 'begin', msMax: undefined, lend: () => orFault(hosts.connect(pool)) },
  });
  const [lender, prober] = [lenderOf(pools.reads), lenderOf(pools.probe)];
  return {
    probe: (statement) => query(prober, statement),
    query: (statement) => query(lender, statement),
    each: (statement, onRow) => each(lender, statement, onRow),
    transaction: (work) =>
      inTransaction(lender, (client) =>
        work({ kind: 'transaction', query: (statement) => run(client, lender, statement) }),
      ),
    async close() {
      await Promise.all([pools.reads.end(), pools.probe.end()]);
    },
    cut: hosts.cut,
  };
}

type Names = (statement: Sql) => string | undefined;

/** Lends the connections of one share. Each must be released. */
type Lender = Pick<PostgresHosts, 'silent' | 'noteError' | 'release'> & {
  nameOf: Names;
  /** The statement that begins a transaction. */
  begin: string;
  /** How long a statement waits for its answer; the usual time if undefined. */
  msMax: number | undefined;
  lend(): Promise<pg.PoolClient>;
};

async function run<Row>(
  client: pg.PoolClient,
  { silent, nameOf, msMax }: Pick<Lender, 'silent' | 'nameOf' | 'msMax'>,
  statement: Sql,
): Promise<Row[]> {
  const { text, values } = statement;
  const name = nameOf(statement);
  const config = { ...{ text, values: [...values] }, ...(name !== undefined && { name }) };
  if (givenUp.has(client))
    throw new Fault('unavailable', 'database: an earlier statement of the transaction had no answer');
  try {
    const { rows } = await orFault(silent.answer(client, ask(client, config, msMax)));
    return rows;
  } catch (error) {
    if (error instanceof Fault && isGivenUp(error.cause)) givenUp.add(client);
    throw error;
  }
}

/** Connections that still wait for an answer that was given up. The driver would send further statements after it. */
const givenUp = new WeakSet<pg.ClientBase>();

/** Names frequent statements, so that the server keeps them parsed and planned. After NAMES_MAX it names no further ones. */
function createNames(): Names {
  const names = new Map<string, string>();
  return ({ text, isFrequent }) => {
    if (isFrequent !== true) return undefined;
    const known = names.get(text);
    if (known !== undefined || names.size === NAMES_MAX) return known;
    const name = `chainbell_${names.size}`;
    names.set(text, name);
    return name;
  };
}

/** Lends a connection to `work`, and closes it after an error, because its state is then unknown. */
async function once<T>(lender: Lender, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await lender.lend();
  let isBroken = false;
  try {
    return await work(client);
  } catch (error) {
    isBroken = true;
    lender.noteError(client, error);
    throw error;
  } finally {
    lender.release(client, isBroken);
  }
}

const query = <Row>(lender: Lender, statement: Sql): Promise<Row[]> =>
  unlessConflict(() => once(lender, (client) => run(client, lender, statement)));

/** Deadlock and serialization failure. The transaction was rolled back, and a retry may succeed at once. */
const CONFLICT = /^(40P01|40001)$/;
const CONFLICT_TRIES_MAX = 5;

/** Repeats `work`, which runs one transaction, after a conflict. */
async function unlessConflict<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      const cause = error instanceof Fault ? error.cause : undefined;
      const isConflict = cause instanceof Error && 'code' in cause && CONFLICT.test(String(cause.code));
      if (!isConflict || tries === CONFLICT_TRIES_MAX) throw error;
    }
  }
}

/** PostgreSQL runs the statements of one simple query in one transaction. */
const script = (lender: Lender, text: string): Promise<void> =>
  once(lender, async (client) => {
    await orFault(lender.silent.answer(client, ask(client, { text })));
  });

function each<Row>(lender: Lender, { text, values }: Sql, onRow: (row: Row) => void): Promise<void> {
  return inTransaction(lender, async (client) => {
    await run(client, lender, raw('set transaction read only'));
    await run(client, lender, raw(`set local work_mem = '${EACH_WORK_MEM}'`));
    let problem: { error: unknown } | undefined;
    const answered = answerOf<unknown>((done) => {
      const query = new pg.Query({ text, values: [...values] }, done);
      query.on('row', (row, result) => {
        // The driver also collects the rows. Drop them to save memory.
        if (result !== undefined) result.rows.length = 0;
        try {
          if (problem === undefined) onRow(row);
        } catch (error) {
          problem = { error };
        }
      });
      client.query(query);
    });
    await orFault(lender.silent.answer(client, answered));
    if (problem !== undefined) throw problem.error;
  });
}

async function inTransaction<T>(lender: Lender, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await lender.lend();
  let isBroken = false;
  try {
    await run(client, lender, raw(lender.begin));
    const result = await work(client);
    await run(client, lender, raw('commit'));
    return result;
  } catch (error) {
    lender.noteError(client, error);
    isBroken = givenUp.has(client) || (error instanceof Fault && isGivenUp(error.cause));
    // A rollback would wait for the statement that was given up.
    if (!isBroken)
      await lender.silent.answer(client, ask(client, { text: 'rollback' }, lender.msMax)).catch(() => {
        isBroken = true;
      });
    throw error;
  } finally {
    lender.release(client, isBroken);
  }
}
