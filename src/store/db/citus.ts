/**
 * Distribution of the delivery tables over the servers of a Citus cluster. Rows with the same `shard_id` are on the same server. All
 * other tables stay on the coordinator, to which every process connects. docs/explanation/data.md describes it.
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Db } from './db.ts';
import { sql } from './sql.ts';

/** The first one decides the shards. The others are colocated with it. */
const [FIRST, ...OTHERS] = ['watched_address', 'notification', 'queue', 'ended', 'delivery_attempt'] as const;

export async function areTablesDistributed(db: Db): Promise<boolean> {
  const [catalog] = await db.query<{ has_citus: boolean }>(
    sql`select to_regclass('pg_catalog.pg_dist_partition') is not null as has_citus`,
  );
  if (catalog?.has_citus !== true) return false;
  const rows = await db.query(sql`
    select from pg_dist_partition where logicalrelid = to_regclass(${FIRST}) and partmethod = 'h'`);
  return rows.length > 0;
}

/**
 * Distributes the delivery tables with their rows, in one transaction, which locks them. Returns false if they are distributed
 * already. A call that was interrupted after that transaction left copies of the rows on the coordinator, which the next one
 * deletes. @throws Fault `invalid` if the server is not the coordinator of a Citus cluster with workers.
 */
export async function distributeTables(database: Database): Promise<boolean> {
  await requireCoordinator(database);
  const isDistributed = await areTablesDistributed(database);
  if (!isDistributed) await distribute(database);
  // Distributing a table copies its rows to the shards and hides those that it had.
  for (const table of await listHiding(database))
    await database.query(sql`select truncate_local_data_after_distributing_table(${table})`);
  return !isDistributed;
}

async function distribute(database: Database): Promise<void> {
  await database.transaction(async (tx) => {
    // A partitioned table has many shards, for which Citus would otherwise open a connection each.
    await tx.query(sql`set local citus.multi_shard_modify_mode = 'sequential'`);
    await tx.query(sql`select create_distributed_table(${FIRST}, 'shard_id', colocate_with => 'none')`);
    for (const table of OTHERS)
      await tx.query(sql`select create_distributed_table(${table}, 'shard_id', colocate_with => ${FIRST})`);
  });
}

/** The distributed tables that have files with rows on the coordinator, where all their rows are in shards. */
async function listHiding(db: Db): Promise<string[]> {
  const rows = await db.query<{ name: string }>(sql`
    select t.name from unnest(${[FIRST, ...OTHERS]}::text[]) with ordinality as t (name, position)
    where exists (select from pg_partition_tree(t.name::regclass) p where p.isleaf and pg_relation_size(p.relid) > 0)
    order by t.position`);
  return rows.map(({ name }) => name);
}

async function requireCoordinator(db: Db): Promise<void> {
  const [citus] = await db.query<{ is_there: boolean }>(
    sql`select exists (select from pg_extension where extname = 'citus') as is_there`,
  );
  if (citus?.is_there !== true)
    throw new Fault(
      'invalid',
      'database: the extension citus is missing. Run `create extension citus` in this database on the coordinator and on each worker',
    );
  const [node] = await db.query<{ is_coordinator: boolean; workers: number }>(sql`
    select groupid = 0 as is_coordinator, (
      select count(*) from pg_dist_node where isactive and shouldhaveshards and noderole = 'primary') as workers
    from pg_dist_local_group`);
  if (node?.is_coordinator !== true)
    throw new Fault('invalid', 'database.url must name the coordinator of the Citus cluster, not a worker');
  if (node.workers === 0)
    throw new Fault(
      'invalid',
      'database: the Citus cluster has no workers. Add each with `select citus_add_node(host, port)`',
    );
}
