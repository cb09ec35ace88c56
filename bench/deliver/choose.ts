/**
 * Measures the cost of finding the next work while one dead receiver has a million due rows.
 */
import { performance } from 'node:perf_hooks';
import pg from 'pg';
import type { Database } from '../../src/store/db/db.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { listDue } from '../../src/store/delivery/due.ts';
import { type Lane, leaseLanes } from '../../src/store/delivery/lanes.ts';
import { scheduleNextVisits } from '../../src/store/delivery/visit-schedule.ts';
import { createTestDatabase } from '../../test/kit/database.ts';
import type { Figures } from './results.ts';

const HEALTHY_LANES = 5_000;
const ROWS_PER_HEALTHY_LANE = 2;
const ROUNDS = 5;
/** As in src/delivery/lane.ts: twice the initial concurrency of a delivery queue, and its maximum. */
const READ = 8;
const READ_DEAD = 128;
const IN_FLIGHT = 64;
const LEASE_MS = 3_600_000;

/** Times the statements that lease delivery queues and read due rows, with `deadRows` retries due in one of them. */
export async function choose(deadRows: number): Promise<Figures> {
  await using testDatabase = await createTestDatabase('postgres');
  const client = new pg.Client({ connectionString: testDatabase.url });
  await client.connect();
  await fill(client, deadRows);
  const database = await openDatabase({ url: testDatabase.url, dataDir: '' });
  const lease: number[] = [];
  const read: number[] = [];
  const readDead: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await client.query('update lane set owner = null, lease_until = null');
    await client.query('update watcher_queue set next_due = now()');
    await client.query('vacuum lane, watcher_queue');
    for (;;) {
      const now = new Date();
      const leaseUntil = new Date(now.getTime() + LEASE_MS);
      const { leased, drained } = await timed(lease, () =>
        leaseLanes(database, { owner: 1, now, leaseUntil }),
      );
      await scheduleNextVisits(database, drained, now);
      if (leased.length === 0) break;
      await timed(read, () => listDue(database, leased, { now, exclude: [], limit: READ }));
      const dead = leased.find(({ origin }) => origin === 'https://dead.example');
      if (dead !== undefined) await readDeadLane(database, dead, readDead);
    }
  }
  await database.close();
  await client.end();
  return {
    leaseP50Ms: p(lease, 0.5),
    leaseP99Ms: p(lease, 0.99),
    readP50Ms: p(read, 0.5),
    readP99Ms: p(read, 0.99),
    readDeadP50Ms: p(readDead, 0.5),
    readDeadP99Ms: p(readDead, 0.99),
  };
}

/** Reads as often as a delivery queue does in a minute, excluding its attempts in flight. */
async function readDeadLane(database: Database, lane: Lane, times: number[]): Promise<void> {
  const exclude = Array.from({ length: IN_FLIGHT }, (_, index) => index + 1);
  for (let reads = 0; reads < 60; reads += 1) {
    await timed(times, () => listDue(database, [lane], { now: new Date(), exclude, limit: READ_DEAD }));
  }
}

async function fill(client: pg.Client, deadRows: number): Promise<void> {
  await client.query(
    `insert into watcher (name, created_at) select 'w' || n, now() from generate_series(0, $1::integer) as n`,
    [HEALTHY_LANES],
  );
  await client.query(`
    insert into lane (shard_id, watcher_id, origin, next_due)
    select id, id, case name when 'w0' then 'https://dead.example' else 'https://' || name || '.example' end, now()
    from watcher`);
  await client.query('insert into watcher_queue (watcher_id, next_due) select id, now() from watcher');
  await client.query(`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    select shard_id, gen_random_uuid(), shard_id, id, decode(lpad(to_hex(id), 40, '0'), 'hex'), true, true,
      origin || '/hook', now(), now()
    from lane`);
  await client.query(
    `with made as materialized (
       select nextval('notification_id_seq') as id, w.shard_id, w.lane_id, w.id as record_id, w.address, n, is_dead
       from watched_address w, lateral (select w.webhook_url like '%//dead.%' as is_dead) as d,
         generate_series(1, case when is_dead then $1::integer else $2::integer end) as n
     ), written as (
       insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender,
         receiver, token, amount)
       select shard_id, id, now(), n, 0, 't', record_id, sha256(n::text::bytea), address, address, address, n from made
     )
     insert into queue (shard_id, id, created_at, lane_id, due_at, watched_address_id, state, retry_count)
     select shard_id, id, now(), lane_id, now() - interval '1 hour', record_id, 'waiting', case when is_dead then 7 else 0 end
     from made`,
    [deadRows, ROWS_PER_HEALTHY_LANE],
  );
  await client.query('vacuum analyze');
}

async function timed<T>(times: number[], work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  const result = await work();
  times.push(performance.now() - startedAt);
  return result;
}

function p(times: readonly number[], share: number): number {
  const sorted = times.toSorted((one, other) => one - other);
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return Number(value.toFixed(2));
}
