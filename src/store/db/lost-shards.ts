/**
 * Lost shards, on Citus: shards that blocks leave out because their worker did not answer. They have all blocks up to one, and get
 * the later ones in their order when the worker is back (blocks/catch-up.ts). A row of `lost_shards` names them by hash values,
 * which stay the same when shards move. docs/explanation/lost-workers.md says why nothing is left out or written twice.
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { machineSteadyMs, systemClock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { listOf } from './arrays.ts';
import { type Database, type Db, DENIED, sqlStateOf, type Tx } from './db.ts';
import { within } from './shard-rows.ts';
import { type Sql, sql } from './sql.ts';

/** The shards of one worker. */
export type LostShards = {
  id: number;
  worker: string;
  since: Date;
  /** The newest block that they have; -1 for none. */
  blockNumber: number;
  /** Reorgs since then that orphaned blocks which they have, oldest first. */
  reorgIds: number[];
  /** Changes with the row. */
  version: string;
};

/** A probe reads one row, or none. */
const PROBE_MS_MAX = 3_000;
/** The first statement on a connection that broke while it was idle fails. */
const PROBE_TRIES = 2;
/** Shard ids that are tried to find one with a given hash. */
const SAMPLES_MAX = 10_000;

const selectLost = sql`select id, worker, since, block_number, reorg_ids, xmin::text as version from lost_shards`;

/** All lost shards. Makes no statement on a single server. */
export async function listLost(db: Db): Promise<LostShards[]> {
  if (db.isDistributed !== true) return [];
  return (await db.query<LostRow>(sql`${selectLost} order by id`)).map(toLost);
}

export async function findLost(tx: Db, id: number): Promise<LostShards | undefined> {
  const [row] = await tx.query<LostRow>(sql`${selectLost} where id = ${id}`);
  return row && toLost(row);
}

type LostRow = Omit<LostShards, 'blockNumber' | 'reorgIds'> & { block_number: number; reorg_ids: string[] };

const toLost = ({ block_number: blockNumber, reorg_ids: reorgIds, ...row }: LostRow): LostShards => ({
  ...row,
  blockNumber,
  // The drivers parse no arrays of int8.
  reorgIds: reorgIds.map(Number),
});

/** Whether the row `s` of `lost_shards` contains the shard. */
const contains = (shardId: Sql): Sql => sql`s.hashes @> worker_hash(${shardId})::bigint`;

/** Whether the shard is lost. For statements on the coordinator. */
export const isLost = (shardId: Sql): Sql =>
  sql`exists (select from lost_shards s where ${contains(shardId)})`;

/** @throws Fault `unavailable` while shards are lost: what they miss would look like differences from the chain. */
export async function requireNoneLost(db: Db): Promise<void> {
  const [lost] = await listLost(db);
  if (lost === undefined) return;
  throw new Fault(
    'unavailable',
    `database: the shards of worker ${lost.worker} miss blocks after ${lost.blockNumber}. Run this again when /status lists no lost shards`,
  );
}

/** Those of the shards that are lost. */
export async function listLostAmong(db: Db, shards: readonly number[]): Promise<Set<number>> {
  if (shards.length === 0) return new Set();
  const rows = await db.query<{ id: number }>(sql`
    select t.id from unnest(${listOf(shards)}::bigint[]) as t (id) where ${isLost(sql`t.id`)} order by t.id`);
  return new Set(rows.map(({ id }) => id));
}

/** For a request that would change what is watched in a lost shard: its blocks since the loss would be matched with the change. */
export const lostFault = (): Fault =>
  new Fault(
    'unavailable',
    'the server of this watcher was lost, and the blocks since then are not processed yet. Try again later',
  );

/** On Citus. @throws Fault `unavailable` if the shard is lost. */
export async function requirePresent(db: Db, shardId: number): Promise<void> {
  if (db.isDistributed !== true) return;
  if ((await listLostAmong(db, [shardId])).size > 0) throw lostFault();
}

/** The same, limited to the shards that are not among the lost ones. */
export async function withoutLost<D extends Db>(db: D, lost: readonly LostShards[]): Promise<D> {
  return lost.length === 0 ? db : within(db, await listShards(db, sql`not ${isLost(sql`l.shard_id`)}`));
}

/** The shards of this row. */
export const listShardsOf = (tx: Tx, { id }: Pick<LostShards, 'id'>): Promise<number[]> =>
  listShards(tx, sql`exists (select from lost_shards s where s.id = ${id} and ${contains(sql`l.shard_id`)})`);

/** Each record and each notification has a lane. */
async function listShards(tx: Db, condition: Sql): Promise<number[]> {
  const rows = await tx.query<{ shard_id: number }>(sql`
    select l.shard_id from (select distinct shard_id from lane) as l where ${condition} order by l.shard_id`);
  return rows.map((row) => row.shard_id);
}

/** Shards of one worker, by hash values, and the id of one of them, or of one that could be there. */
export type Place = { worker: string; groupid: number; hashes: string; sample: number };

/** The workers of all shards that are not lost. Reads Citus's metadata, so it follows shards that have moved. */
export const listPlaces = (db: Db): Promise<Place[]> =>
  placesOf(db, sql`- coalesce((select range_agg(s.hashes) from lost_shards s), '{}')`);

/** The workers on which these lost shards are now. */
export const listPlacesOf = (db: Db, { id }: Pick<LostShards, 'id'>): Promise<Place[]> =>
  placesOf(db, sql`* (select s.hashes from lost_shards s where s.id = ${id})`);

async function placesOf(db: Db, limit: Sql): Promise<Place[]> {
  return db.query<Place>(sql`
    select worker, groupid, hashes::text as hashes, sample from (
      select n.groupid, n.nodename || ':' || n.nodeport as worker,
        range_agg(int8range(s.shardminvalue::bigint, s.shardmaxvalue::bigint, '[]')) ${limit} as hashes
      from pg_dist_shard s join pg_dist_placement p on p.shardid = s.shardid
      join pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary'
      where s.logicalrelid = 'watched_address'::regclass and p.groupid <> 0
      group by n.groupid, n.nodename, n.nodeport) as place
    cross join lateral (
      select min(i) as sample from generate_series(1::bigint, ${SAMPLES_MAX}) as i where hashes @> worker_hash(i)::bigint) as found
    where sample is not null order by worker`);
}

/** For each server, the workers whose probes are under way, and since when. All shares of a process have the same connections for probes. */
const probing = new WeakMap<object, Map<string, { answer: Promise<boolean>; fromMs: number }>>();

type Prober = Pick<Database, 'query' | 'probe'>;

const serverOf = (database: Prober): object => database.probe ?? database;

/**
 * Whether the worker answers in time. Sends no second probe until the first has ended, because each would keep a connection, and
 * lets PostgreSQL end none: Citus would wait for the worker's answer to the cancellation.
 */
export async function doesAnswer(
  database: Prober,
  place: Pick<Place, 'worker' | 'sample'>,
): Promise<boolean> {
  const server = serverOf(database);
  const underWay = probing.get(server) ?? new Map<string, { answer: Promise<boolean>; fromMs: number }>();
  probing.set(server, underWay);
  let probe = underWay.get(place.worker);
  if (probe === undefined) {
    const answer = ask(database, place).finally(() => underWay.delete(place.worker));
    probe = { answer, fromMs: machineSteadyMs() };
    underWay.set(place.worker, probe);
  }
  const leftMs = PROBE_MS_MAX - (machineSteadyMs() - probe.fromMs);
  // Nobody else may wait for it.
  probe.answer.catch(() => {});
  if (leftMs <= 0) return false;
  return (await firstOrLate({ clock: systemClock(), signal: never }, [probe.answer], leftMs)) === true;
}

/** The workers that don't answer, as far as probes know that are under way. */
export function listSilent(database: Prober): string[] {
  const underWay = probing.get(serverOf(database)) ?? new Map<string, { fromMs: number }>();
  return [...underWay].flatMap(([worker, { fromMs }]) =>
    machineSteadyMs() - fromMs >= PROBE_MS_MAX ? [worker] : [],
  );
}

async function ask(database: Prober, { sample }: Pick<Place, 'sample'>): Promise<boolean> {
  const send = database.probe ?? database.query;
  for (let tries = 1; ; tries += 1) {
    try {
      await send(sql`select id from watched_address where shard_id = ${sample} limit 1`);
      return true;
    } catch (error) {
      if (!(error instanceof Fault) || !isOfServer(error.cause)) throw error;
      if (tries === PROBE_TRIES) return false;
    }
  }
}

/**
 * On Citus: asks the workers of all shards, or of those that are not lost, before work that holds locks of all watchers while it waits for
 * them. @throws Fault `unavailable` if one doesn't answer
 */
export async function requireAnswers(
  database: Database,
  which: 'all' | 'present',
  work: string,
): Promise<void> {
  if (database.isDistributed !== true) return;
  const places = await listPlaces(database);
  if (which === 'all')
    for (const lost of await listLost(database)) places.push(...(await listPlacesOf(database, lost)));
  for (const place of places)
    if (!(await doesAnswer(database, place)))
      throw new Fault('unavailable', `${work} needs worker ${place.worker}, which does not answer`);
}

/** On Citus: the elements of each worker. */
export async function groupByWorker<T extends { shardId: number }>(
  db: Db,
  elements: readonly T[],
): Promise<T[][]> {
  const workerOf = await workersOf(
    db,
    elements.map(({ shardId }) => shardId),
  );
  return [...Map.groupBy(elements, ({ shardId }) => workerOf.get(shardId)).values()];
}

/** On Citus: the worker of each shard. */
export async function workersOf(db: Db, shardIds: readonly number[]): Promise<Map<number, string>> {
  const rows = await db.query<{ shard_id: number; worker: string }>(sql`
    select l.shard_id, n.nodename || ':' || n.nodeport as worker
    from unnest(${listOf([...new Set(shardIds)])}::bigint[]) as l (shard_id)
    join pg_dist_placement p on p.shardid = get_shard_id_for_distribution_column('watched_address', l.shard_id)
    join pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary' order by l.shard_id`);
  return new Map(rows.map((row) => [row.shard_id, row.worker]));
}

/** Whether the coordinator reports it, with a SQLSTATE. Otherwise the coordinator can't be reached, or has no connection left. */
const isOfServer = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && /^\d[0-9A-Z]{4}$/.test(String(error.code));

/** On Citus: the same, with each statement in a transaction that ends it after this time. */
export function withLimit(database: Database, ms: number): Database {
  if (database.isDistributed !== true) return database;
  return {
    ...database,
    query: (statement) =>
      database.transaction(async (tx) => {
        await limitStatements(tx, ms);
        return tx.query(statement);
      }),
  };
}

/** Ends statements of the transaction that take longer, as while a worker hangs. */
export async function limitStatements(tx: Tx, ms: number): Promise<void> {
  await tx.query(sql`select set_config('statement_timeout', ${String(ms)}, true)`);
}

/**
 * Ends two-phase commits that were interrupted on these workers, so that later statements see what earlier transactions wrote there.
 * Returns false if that is not possible yet.
 */
export async function recoverCommits(database: Database, places: readonly Place[]): Promise<boolean> {
  const groups = listOf(places.map(({ groupid }) => groupid));
  const rows = await database.query<{ gid: string }>(sql`
    select gid from pg_dist_transaction where groupid = any(${groups}::integer[]) order by gid`);
  const gids = rows.map(({ gid }) => gid);
  // It skips transactions that are committing at this moment, and removes the entries of all others. A later try finds those ended.
  for (let tries = 0; tries < RECOVERY_TRIES; tries += 1) {
    await recoverPrepared(database);
    const left = await database.query(sql`
      select from pg_dist_transaction where groupid = any(${groups}::integer[]) and gid = any(${gids}::text[]) limit 1`);
    if (left.length === 0) return true;
  }
  return false;
}

const RECOVERY_TRIES = 5;

async function recoverPrepared(database: Database): Promise<void> {
  try {
    await database.query(sql`select recover_prepared_transactions()`);
  } catch (error) {
    if (!(error instanceof Fault && sqlStateOf(error) === DENIED)) throw error;
    throw new Fault(
      'unavailable',
      `database: ${messageOf(error.cause)}. Lost shards can't catch up without it. As a superuser, run on the coordinator: grant execute on function recover_prepared_transactions() to the role of database.url`,
      { cause: error },
    );
  }
}
