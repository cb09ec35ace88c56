/**
 * Measures beside three million notifications and as many attempts, or HISTORY_ROWS of each: reading a delivery queue, finding one
 * notification, a page of the log, the commit of a block, and how long retention takes to delete them all.
 */
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import { listDue } from '../src/store/delivery/due.ts';
import { leaseLanes } from '../src/store/delivery/lanes.ts';
import { findLogged, listLog } from '../src/store/delivery/log.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { percentile } from './stage.ts';
import { commitBlock, DAY_MS, startStore, timesOf } from './stored-deliveries.ts';

const ROWS = Number(process.env.HISTORY_ROWS ?? 3_000_000);
const STEP_ROWS = 500_000;
/** Of a partition. */
const DAY_ROWS = 10_000_000;
const BLOCKS = 30;
const BLOCK_TRANSFERS = 1_000;
const READS = 1_000;
/** Rows of a queue that a worker reads at once. */
const READ = 125;
const KEEP_MS = 90 * DAY_MS;

export async function history(): Promise<Figures> {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const { clock, prune, pruneAll } = await startStore(database, KEEP_MS);
  for (let from = 0; from < ROWS; from += STEP_ROWS) {
    if (from > 0 && from % DAY_ROWS === 0) {
      clock.advance(DAY_MS);
      while ((await prune()) === 'worked');
    }
    await addRows(database, { from, at: clock.now() });
    process.stderr.write(`${from + STEP_ROWS} rows\n`);
  }
  await database.query(sql`analyze`);
  const commits = await timesOf(BLOCKS, async (index) =>
    commitBlock(database, { number: ROWS + index + 1, count: BLOCK_TRANSFERS, now: clock.now() }),
  );
  const reads = await readLanes(database, clock.now());
  const watcherOf = (index: number) => 1 + (index % 8);
  const finds = await timesOf(READS, async (index) =>
    findLogged(database, watcherOf(index), 1 + Math.floor(Math.random() * ROWS)),
  );
  const page = { order: 'newest first', after: undefined, limit: 20 } as const;
  const pages = await timesOf(100, async (index) => listLog(database, watcherOf(index), {}, page));
  await database.query(sql`delete from queue`);
  const retentionMs = await pruneAll();
  return {
    conditions: {
      notifications: ROWS,
      attempts: ROWS,
      rowsOfAPartition: Math.min(ROWS, DAY_ROWS),
      rowsOfARead: READ,
    },
    rows: [
      { what: 'commit of 1,000 transfers', ...spreadOf(commits) },
      { what: 'read of a delivery queue', ...spreadOf(reads) },
      { what: 'notification by its id', ...spreadOf(finds) },
      { what: 'page of the log', ...spreadOf(pages) },
      { what: 'retention of all', p50Ms: retentionMs, p99Ms: retentionMs },
    ],
  };
}

/** Processed notifications of the watched addresses in turn, each with one attempt. */
async function addRows(database: Database, { from, at }: { from: number; at: Date }): Promise<void> {
  await database.query(sql`
    with record as materialized (
      select shard_id, id, address, row_number() over (order by id) - 1 as number from watched_address
    ), made as materialized (
      select r.shard_id, nextval('notification_id_seq') as id, r.id as record_id, r.address, n
      from generate_series(${from + 1}::int, ${from + STEP_ROWS}::int) as n
      join record r on r.number = n % (select count(*) from record)
    ), written as (
      insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender,
        receiver, token, amount)
      select shard_id, id, ${at}, n, 0, 't', record_id, sha256(n::text::bytea), address, address, address, n::numeric * 1000000007
      from made
    )
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
    select shard_id, id, ${at}, 35, 'success', 200 from made`);
}

/** Reads one queue after the other, which all have more due rows than a read. */
async function readLanes(database: Database, now: Date): Promise<number[]> {
  const { leased } = await leaseLanes(database, {
    owner: 1,
    now,
    leaseUntil: new Date(now.getTime() + DAY_MS),
  });
  return timesOf(READS, async (index) => {
    const lane = leased[index % leased.length];
    if (lane === undefined) throw new Error('no lane is due');
    await listDue(database, [lane], { now, exclude: [], limit: READ });
  });
}

const spreadOf = (sorted: readonly number[]) => ({
  p50Ms: percentile(sorted, 0.5),
  p99Ms: percentile(sorted, 0.99),
});
