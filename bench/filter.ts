/**
 * Measures the address filter: its memory, how long it takes to build, how fast and how exact it answers, and how long a block of
 * 3,000 transfers takes with and without it, on PostgreSQL with ten million watched addresses.
 */
import { hash, randomFillSync } from 'node:crypto';
import { createBloomFilter } from '../src/core/bloom-filter.ts';
import { machineSteadyMs } from '../src/core/clock.ts';
import type { Address } from '../src/core/hex.ts';
import { silentLog } from '../src/core/log.ts';
import { createMetrics } from '../src/core/metrics.ts';
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import { type AddressFilter, createAddressFilter } from '../src/store/matching/address-filter.ts';
import { addressOf, headerOf, mine, transferOf, watchAddress } from '../test/kit/chain-story.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { percentile } from './stage.ts';

const ENTRIES = 10_000_000;
const PROBES = 2_000_000;
const RECORDS = 10_000_000;
const ROWS_AT_ONCE = 500_000;
const TRANSFERS = 3_000;
/** Transfers of a block to watched addresses. */
const WATCHED = 10;
const BLOCKS = 40;
const BATCHES = 50;
const BATCH_RECORDS = 1_000;
const ADDRESS_BYTES = 20;

export async function filter(): Promise<Figures> {
  const rows: Figures['rows'] = [measureSet()];
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await fill(database);
  const metrics = createMetrics('bench');
  const built = createAddressFilter({
    ...{
      database,
      clock: { steadyMs: machineSteadyMs },
      log: silentLog(),
      metrics,
      leads: () => true,
      minRecords: 1,
    },
  });
  let number = 0;
  const commit = async (name: string, used: AddressFilter | undefined) => {
    const times = await commitTimes(database, used, () => (number += 1));
    rows.push({ measured: name, medianMs: percentile(times, 0.5), p95Ms: percentile(times, 0.95) });
  };
  const register = async (name: string) => {
    const times = await registrationTimes(database);
    rows.push({ measured: name, medianMs: percentile(times, 0.5), p95Ms: percentile(times, 0.95) });
  };
  await commit('commit without the filter', undefined);
  await register(`registration of ${BATCH_RECORDS} records without the filter`);
  rows.push(await build(built));
  await commit('commit with the filter', built);
  await register(`registration of ${BATCH_RECORDS} records with the filter`);
  return {
    conditions: {
      ...{ database: 'PostgreSQL', records: RECORDS, transfersPerBlock: TRANSFERS, watchedPerBlock: WATCHED },
      blocks: BLOCKS,
    },
    rows,
  };
}

/** The set alone, with random addresses. */
function measureSet(): Figures['rows'][number] {
  const added = randomAddresses(ENTRIES);
  const absent = randomAddresses(PROBES);
  const set = createBloomFilter({ capacity: ENTRIES, keyBytes: ADDRESS_BYTES });
  const buildSeconds = secondsOf(() => {
    for (let at = 0; at < added.length; at += ADDRESS_BYTES) set.add(added, at);
  });
  let confirmed = 0;
  const probeSeconds = secondsOf(() => {
    for (let at = 0; at < absent.length; at += ADDRESS_BYTES) if (set.mayHave(absent, at)) confirmed += 1;
  });
  return {
    measured: `set of ${ENTRIES} addresses`,
    mebibytes: Number((set.bytes / 2 ** 20).toFixed(1)),
    buildSeconds: Number(buildSeconds.toFixed(1)),
    probesPerSecond: Math.round(PROBES / probeSeconds),
    falsePercent: Number(((100 * confirmed) / PROBES).toFixed(3)),
  };
}

async function build(built: AddressFilter): Promise<Figures['rows'][number]> {
  const startedAt = performance.now();
  while (!built.isReady()) await built.step();
  const seconds = (performance.now() - startedAt) / 1000;
  return { measured: 'build of the filter from the database', buildSeconds: Number(seconds.toFixed(1)) };
}

/** Milliseconds of each commit, sorted. Nearly all addresses of a block are new. */
async function commitTimes(
  database: Database,
  used: AddressFilter | undefined,
  nextNumber: () => number,
): Promise<number[]> {
  for (let index = 0; index < WATCHED; index += 1) await watchAddress(database, { address: watched(index) });
  const times: number[] = [];
  for (let block = 0; block < BLOCKS; block += 1) {
    const number = nextNumber();
    const transfers = Array.from({ length: TRANSFERS }, (_, index) =>
      transferOf({
        sender: strange(`${number} from ${index}`),
        receiver: index < WATCHED ? watched(index) : strange(`${number} to ${index}`),
      }),
    );
    const startedAt = performance.now();
    await mine(database, headerOf(number), transfers, { filter: used });
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other);
}

/** Milliseconds of statements that insert many records, sorted. */
async function registrationTimes(database: Database): Promise<number[]> {
  const times: number[] = [];
  for (let batch = 0; batch < BATCHES; batch += 1) {
    const startedAt = performance.now();
    await database.query(insertRecords(BATCH_RECORDS));
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other);
}

/** Without its indexes, which are created afterwards, filling the table takes minutes less. */
async function fill(database: Database): Promise<void> {
  await watchAddress(database, { address: addressOf(1) });
  await database.script(`
    alter table watched_address drop constraint watched_address_pkey;
    drop index watched_address_address;
    drop index watched_address_listed`);
  for (let count = 0; count < RECORDS; count += ROWS_AT_ONCE)
    await database.query(insertRecords(ROWS_AT_ONCE));
  await database.script('alter table watched_address add primary key (shard_id, id)');
  await database.script('create index watched_address_address on watched_address (address)');
  await database.script('create index watched_address_listed on watched_address (shard_id, created_at, id)');
  await database.script('vacuum (analyze) watched_address');
}

/** Records of random addresses in the lane of the first record. */
export const insertRecords = (count: number) => sql`
  insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at,
    updated_at)
  select l.shard_id, gen_random_uuid(), l.watcher_id, l.id, substr(sha256(uuid_send(gen_random_uuid())), 1, 20), true, true,
    'https://one.example/hook', now(), now()
  from (select * from lane order by id limit 1) as l cross join generate_series(1, ${count}::integer)`;

const watched = (index: number): Address => addressOf(0xc0_0000 + index);
const strange = (name: string): Address => `0x${hash('sha256', name).slice(0, 2 * ADDRESS_BYTES)}`;

function randomAddresses(count: number): Uint8Array {
  const bytes = new Uint8Array(count * ADDRESS_BYTES);
  const part = 2 ** 28;
  for (let at = 0; at < bytes.length; at += part) randomFillSync(bytes.subarray(at, at + part));
  return bytes;
}

function secondsOf(work: () => void): number {
  const startedAt = performance.now();
  work();
  return (performance.now() - startedAt) / 1000;
}
