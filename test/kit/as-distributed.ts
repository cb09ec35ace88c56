/**
 * A database whose delivery code takes the paths for Citus. On a single server this shows which statements it makes, and what it does when
 * those about some shards fail.
 */
import type { Database, Db } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { noon } from './chain-story.ts';

/** Two workers: `worker:1` has the shards with odd ids, `worker:2` the others. */
const METADATA = `
  create or replace function worker_hash(shard_id bigint) returns integer immutable language sql
    as 'select (shard_id % 2147483647)::integer';
  create or replace function get_shard_id_for_distribution_column(name text, shard_id bigint) returns bigint immutable language sql
    as 'select 2 - shard_id % 2';
  create or replace view pg_dist_placement as select n as shardid, n as groupid from generate_series(1, 2) as n;
  create or replace view pg_dist_node as
    select n as groupid, 'worker' as nodename, n as nodeport, 'primary' as noderole from generate_series(1, 2) as n`;

/** Calls `before` with each statement. It may wait, or throw the error of the statement. On Citus, only that. */
export async function asDistributed(
  database: Database,
  before: (statement: Sql) => Promise<void> = async () => {},
): Promise<Database> {
  if (database.isDistributed !== true) await database.script(METADATA);
  const withQuery = <D extends Db>(db: D): D => ({
    ...db,
    isDistributed: true,
    async query(statement: Sql) {
      await before(statement);
      return db.query(statement);
    },
  });
  return {
    ...withQuery(database),
    transaction: (work) => database.transaction((tx) => work(withQuery(tx))),
  };
}

/** Declares these shards lost. */
export async function loseShards(database: Database, shardIds: readonly number[]): Promise<void> {
  await database.query(sql`
    insert into lost_shards (worker, hashes, since, block_number)
    select 'worker:1', range_agg(int8range(worker_hash(id), worker_hash(id), '[]')), ${noon}, 0
    from unnest(${shardIds}::bigint[]) as s (id)`);
}
