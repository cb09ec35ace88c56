/**
 * Measures the 24-hour volume over a million swaps of one pair, compared with adding up all swaps. Also measures the cost of
 * storing swaps.
 */
import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { decimal } from '../src/core/decimal.ts';
import { openDatabase } from '../src/store/db/open.ts';
import { insertSwaps, type PricedSwap, sumSwapValue } from '../src/store/market/swaps.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { percentile } from './stage.ts';

const SWAPS_IN_WINDOW = 1_000_000;
const DAY_MS = 86_400_000;
/** The present moves over this time, so that both ends of the window fall at any point between two sums. */
const SPAN_MS = 3_600_000;
const ASKED = 300;
const STORED_BATCH = 1_000;
const STORED_ROUNDS = 20;
const END = new Date('2026-01-02T12:00:00.000Z');

export async function market(): Promise<Figures> {
  await using place = await createTestDatabase('postgres');
  await fill(place.url);
  const database = await openDatabase({ url: place.url, dataDir: '' });
  try {
    const windows = Array.from({ length: ASKED }, (_, index) => {
      const until = new Date(END.getTime() - Math.round((index * SPAN_MS) / ASKED));
      return { after: new Date(until.getTime() - DAY_MS), until };
    });
    // Warm up connections, plans and pages, which are warm in a running service.
    for (const window of windows) await sumSwapValue(database, 1, window);
    const rows = [];
    const times = await timeEach(windows, (window) => sumSwapValue(database, 1, window));
    rows.push({ what: 'vol24h', ...times });
    const client = new pg.Client({ connectionString: place.url });
    await client.connect();
    const plain = await timeEach(windows.slice(0, 5), ({ after, until }) =>
      client.query('select sum(usd_value) from swap where pair_id = 1 and mined_at > $1 and mined_at <= $2', [
        after,
        until,
      ]),
    );
    await client.end();
    rows.push({ what: 'the same by adding up every swap', ...plain });
    const rounds = Array.from({ length: STORED_ROUNDS }, (_, round) => swapsOf(round));
    rows.push({
      what: `storing ${STORED_BATCH} swaps`,
      ...(await timeEach(rounds, (swaps) => database.transaction((tx) => insertSwaps(tx, swaps)))),
    });
    return {
      conditions: { swapsInWindow: SWAPS_IN_WINDOW, pairs: 1, asked: ASKED, database: 'PostgreSQL' },
      rows,
    };
  } finally {
    await database.close();
  }
}

/** Stores a swap every 86.4 ms over the window and its movement. Values have 20 digits after the decimal point. */
async function fill(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const everyMs = DAY_MS / SWAPS_IN_WINDOW;
  const count = Math.ceil((DAY_MS + SPAN_MS) / everyMs);
  await client.query(
    `insert into swap (pair_id, block_number, tx_hash, ordinal, log_index, mined_at, amount0_in, amount1_in, amount0_out,
       amount1_out, usd_value, price_id)
     select 1, n / 10, sha256(n::text::bytea), 0, n % 10, $1::timestamptz - ($3 - n) * $2::float8 * interval '1 millisecond',
       n * 1000000007::numeric, 0, 0, n * 998244353::numeric, n * 0.00000000123456789012, 1
     from generate_series(1, $3::integer) as n`,
    [END, everyMs, count],
  );
  await client.query(
    `insert into swap_volume (pair_id, started_at, usd_value, swap_count)
     select pair_id, date_bin('5 minutes', mined_at, '1970-01-01T00:00:00Z'), sum(usd_value), count(*)
     from swap group by 1, 2`,
  );
  await client.query('vacuum analyze');
  await client.end();
}

/** Makes swaps of blocks that follow those of the window. */
function swapsOf(round: number): PricedSwap[] {
  return Array.from({ length: STORED_BATCH }, (_, index) => ({
    ...{
      pairId: 1,
      blockNumber: 1_000_000 + round,
      ordinal: index,
      logIndex: index,
      minedAt: new Date(END.getTime() + DAY_MS),
    },
    txHash: `0x${(round * STORED_BATCH + index).toString(16).padStart(64, '0')}`,
    ...{ amount0In: 10n ** 18n, amount1In: 0n, amount0Out: 0n, amount1Out: BigInt(index) * 10n ** 15n },
    price: { usdValue: decimal('1234.567890123456789'), priceId: 1 },
  }));
}

async function timeEach<T>(subjects: readonly T[], work: (subject: T) => Promise<unknown>) {
  const times: number[] = [];
  for (const subject of subjects) {
    const startedAt = performance.now();
    await work(subject);
    times.push(performance.now() - startedAt);
  }
  const sorted = times.toSorted((one, other) => one - other);
  return { p50Ms: percentile(sorted, 0.5), p99Ms: percentile(sorted, 0.99), maxMs: percentile(sorted, 1) };
}
