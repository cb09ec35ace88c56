/**
 * Inserts many notifications at once, and shows the query plans that find some of them.
 */
import type { Database, Db } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import type { WatchedAddress } from '../../src/store/watchers/watched.ts';

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
    insert into notification (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, receiver,
      amount, block_number, state, next_attempt_at, created_at, processed_at)
    select w.shard_id, w.lane_id, w.id, w.watcher_id, 'transaction', decode(lpad(to_hex(made.before + n), 64, '0'), 'hex'), 0,
      decode(repeat('00', 20), 'hex'), decode(repeat('00', 20), 'hex'), 1, 1 + (made.before + n) / 10, ${state}::text,
      made.noon + (made.before + n) * interval '1 second', made.noon + (made.before + n) * interval '1 second',
      case when ${state}::text = 'processed' then made.noon + (made.before + n) * interval '1 second' end
    from (select count(*) as before, '2025-11-20T12:00:00Z'::timestamptz as noon from notification) made
    cross join generate_series(1, ${count}::int) as n
    join watched_address w on w.id = (${records.map(({ id }) => id)}::uuid[])[1 + n % ${records.length}::int]
    order by n`);
}

/** A database handle that records the plan of each statement it executes. */
export function withPlans(database: Database): { db: Db; plans: string[] } {
  const plans: string[] = [];
  const db: Db = {
    async query(statement) {
      const { text, values } = statement;
      const rows = await database.query<{ 'QUERY PLAN': string }>({ text: `explain ${text}`, values });
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'));
      return database.query(statement);
    },
  };
  return { db, plans };
}
