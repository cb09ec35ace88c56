/**
 * Inserts many notifications at once, and shows the query plans that find some of them.
 */
import type { Database, Db } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import type { WatchedAddress } from '../../src/store/watchers/watched.ts';
import { citusUrl } from './citus.ts';

type ManyNotifications = {
  /** Records of one watcher. The notifications use them in turn. */
  records: readonly Pick<WatchedAddress, 'id' | 'watcherId'>[];
  count: number;
  state?: 'waiting' | 'processed';
};

/**
 * Waiting notifications of payments between zero addresses. Creation times start at noon, one second apart, and each block from
 * block 1 on has ten of them. The n-th transaction has hash n. `processed` ones were processed when they were created.
 */
export async function insertNotifications(
  database: Database,
  { records, count, state = 'waiting' }: ManyNotifications,
): Promise<void> {
  await database.query(sql`
    with made as materialized (
      select nextval('notification_id_seq') as id, w.shard_id, w.lane_id, w.id as record_id, earlier.count + n as number,
        '2025-11-20T12:00:00Z'::timestamptz + (earlier.count + n) * interval '1 second' as at
      from (select count(*) as count from notification) earlier
      cross join generate_series(1, ${count}::int) as n
      join watched_address w on w.id = (${records.map(({ id }) => id)}::uuid[])[1 + n % ${records.length}::int]
      order by n
    ), written as (
      insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender,
        receiver, amount)
      select shard_id, id, at, 1 + number / 10, 0, 'c', record_id, decode(lpad(to_hex(number), 64, '0'), 'hex'),
        decode(repeat('00', 20), 'hex'), decode(repeat('00', 20), 'hex'), 1
      from made order by id
    ), waiting as (
      insert into queue (shard_id, id, created_at, lane_id, due_at, watched_address_id, state)
      select shard_id, id, at, lane_id, at, record_id, 'waiting' from made where ${state}::text = 'waiting' order by id
    )
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
    select shard_id, id, at, 0, 'success', 200 from made where ${state}::text = 'processed' order by id`);
}

/** For tests of query plans, which are those of one server: a run on Citus skips them. */
export const planTest = { skip: citusUrl() === undefined ? false : 'plans of one server' };

/**
 * A database handle that adds the plan of each statement it executes to `plans`, apart from changes of the schema.
 */
export function withPlans(database: Db, plans: string[] = []): { db: Db; plans: string[] } {
  const db: Db = {
    isDistributed: database.isDistributed === true,
    async query(statement) {
      const { text, values } = statement;
      if (!/^\s*(with|select|insert|update|delete)\b/.test(text)) return database.query(statement);
      const rows = await database.query<{ 'QUERY PLAN': string }>({ text: `explain ${text}`, values });
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'));
      return database.query(statement);
    },
  };
  return { db, plans };
}

/** The database, whose statements add their plans to `plans`, with those of all tasks in transactions. */
export function planAll(database: Database): { plans: string[]; database: Database } {
  const { db, plans } = withPlans(database);
  const planned: Database = {
    ...database,
    query: db.query,
    transaction: (work) =>
      database.transaction(async (tx) => {
        await tx.query(sql`set local citus.explain_all_tasks = on`);
        return work({ ...withPlans(tx, plans).db, kind: 'transaction' });
      }),
  };
  return { plans, database: planned };
}

/** Executes the statement, and returns how many rows it reads from this table and its partitions, including those that don't match. */
export async function countRead(db: Db, { text, values }: Sql, table: string): Promise<number> {
  type Node = { [name: string]: unknown; Plans?: Node[] };
  const [row] = await db.query<{ 'QUERY PLAN': { Plan: Node }[] }>({
    text: `explain (analyze, timing off, format json) ${text}`,
    values,
  });
  const nodesOf = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];
  return (row?.['QUERY PLAN'] ?? [])
    .flatMap(({ Plan }) => nodesOf(Plan))
    .filter((node) => String(node['Relation Name']).startsWith(table))
    .map((node) => {
      const rows = [
        node['Actual Rows'],
        node['Rows Removed by Filter'],
        node['Rows Removed by Index Recheck'],
      ];
      return rows.reduce((sum: number, count) => sum + Number(count ?? 0), 0) * Number(node['Actual Loops']);
    })
    .reduce((sum, count) => sum + count, 0);
}
