/**
 * Measures what a long history costs: the same statements beside 1, 30, 90 and 365 days of notifications, with a retention of as
 * many days.
 */
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import { listAttempts } from '../src/store/delivery/attempts.ts';
import { findLogged, listLog } from '../src/store/delivery/log.ts';
import { recordStatistics } from '../src/store/delivery/record-statistics.ts';
import { redeliverOne } from '../src/store/delivery/redelivery.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { medianOf } from './spread.ts';
import { commitBlock, DAY_MS, deliver, startStore, timesOf } from './stored-deliveries.ts';

const DAYS = [1, 30, 90, 365];
const DAY_TRANSFERS = 500;
const ROUNDS = 30;
const WATCHER = 1;

export async function days(): Promise<Figures> {
  const rows = [];
  for (const count of DAYS) rows.push(await measure(count));
  return { conditions: { transfersPerDay: DAY_TRANSFERS, rounds: ROUNDS }, rows };
}

async function measure(count: number): Promise<Record<string, string | number>> {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const { clock, prune } = await startStore(database, count * DAY_MS);
  let number = 0;
  for (let day = 0; day < count; day += 1) {
    if (day > 0) clock.advance(DAY_MS);
    await prune();
    await commitBlock(database, { number: ++number, count: DAY_TRANSFERS, now: clock.now() });
    await deliver(database, { clock, reads: [], count: Infinity });
    await prune();
  }
  await database.query(sql`analyze`);
  const [commits, settlements, reads]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    const commit = () => commitBlock(database, { number: ++number, count: DAY_TRANSFERS, now: clock.now() });
    commits.push(...(await timesOf(1, commit)));
    settlements.push(await deliver(database, { clock, reads, count: Infinity }));
  }
  const known = await sampleOf(database);
  const each = async (work: (one: { id: number; recordId: string }) => Promise<unknown>) => {
    const times: number[] = [];
    for (const one of known) times.push(...(await timesOf(1, () => work(one))));
    return medianOf(times);
  };
  const page = { order: 'newest first', after: undefined, limit: 20 } as const;
  return {
    days: count,
    commitMs: medianOf(commits),
    readMs: medianOf(reads),
    settleMs: medianOf(settlements),
    findMs: await each(({ id }) => findLogged(database, WATCHER, id)),
    attemptsMs: await each(({ id }) => listAttempts(database, WATCHER, id, { before: undefined, limit: 20 })),
    logMs: await each(() => listLog(database, WATCHER, {}, page)),
    recordLogMs: await each(({ recordId }) => listLog(database, WATCHER, { recordIds: [recordId] }, page)),
    statisticsMs: await each(({ recordId }) => recordStatistics(database, WATCHER, recordId, clock.now())),
    redeliverMs: await each(({ id }) => redeliverOne(database, WATCHER, id, clock.now())),
  };
}

/** Notifications of the watcher, from all days. */
async function sampleOf(database: Database): Promise<{ id: number; recordId: string }[]> {
  const rows = await database.query<{ id: number; watched_address_id: string }>(sql`
    select id, watched_address_id from notification where shard_id = ${WATCHER} order by random() limit ${ROUNDS}`);
  return rows.map((row) => ({ id: row.id, recordId: row.watched_address_id }));
}
