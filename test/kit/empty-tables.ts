/**
 * Empties the database of a suite of tests.
 */
import type { Database } from '../../src/store/db/db.ts';
import { raw, sql } from '../../src/store/db/sql.ts';

/**
 * Deletes all rows and partitions of days, and restarts ids at 1. Truncating creates new files for each table and index, which takes the
 * embedded database 0.2 s, so only large tables are truncated, and used default partitions, because retention analyzes
 * each once.
 */
export async function emptyDatabase(database: Database): Promise<void> {
  if (database.isDistributed === true) await emptyDistributed(database);
  await database.script(`
    set session_replication_role = replica;
    do $$
    declare name text; tuples real;
    begin
      for name, tuples in
        select relname, reltuples from pg_class
        where relkind = 'r' and ${database.isDistributed === true ? `oid <> all (array(select logicalrelid::oid from pg_dist_partition))` : 'true'} and relnamespace = 'public'::regnamespace and relname not in ('clock_state', 'last_success', 'record_counting', 'statistics_state', 'migration')
      loop
        if name ~ '_[0-9]{8}$' then execute format('drop table %I', name);
        elsif pg_relation_size(name::regclass) > 262144 or name ~ '_default$' and (tuples >= 0 or pg_relation_size(name::regclass) > 0) then execute format('truncate %I cascade', name);
        else execute format('delete from %I', name); end if;
      end loop;
    end $$;
    set session_replication_role = origin;
    select setval(oid::regclass, 1, false) from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace;
    update record_counting set is_counted = false;
    update last_success set at = null;
    update statistics_state set counted_id = null, counted_until = null, counted_from = null;
    update clock_state set steps_ms = 0, last_step_ms = null, last_step_at = null, prune_from = null, pausing_step_ms = null, pausing_step_at = null, probed_at = null`);
}

/** Deletes the rows and partitions of distributed tables. One statement for each, because Citus runs each on all servers. */
async function emptyDistributed(database: Database): Promise<void> {
  const tables = await database.query<{ name: string; is_partition: boolean }>(sql`
    select relname as name, relispartition as is_partition from pg_dist_partition d join pg_class c on c.oid = d.logicalrelid
    where relname !~ '_default$' order by relispartition desc, relname`);
  for (const { name, is_partition } of tables)
    await database.query(raw(is_partition ? `drop table ${name}` : `delete from ${name}`));
}
