/**
 * Measures the time from a block's head to its webhooks, with two million watched addresses and 3,000 transfers in each block.
 * A few of the transfers cause webhooks. The whole service runs in one process, with heads over WebSocket and proved blocks.
 */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { WebSocket } from 'ws';
import { createTestDatabase } from '../../test/kit/database.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { type BenchChain, startBenchChain } from '../follow/chain.ts';
import { readBlocks } from '../follow/node-alone.ts';
import { type Program, startProgram } from '../program.ts';
import { percentile } from '../stage.ts';
import { deliveryProgram, makeWatchers, type Watcher } from './chainbell.ts';
import type { Figures } from './results.ts';
import type { Sink } from './stage.ts';

const TRANSFERS = 3_000;
const RECIPIENTS = 60_000;
/** One in this many recipients is watched, so each block causes 60 webhooks. */
const WATCHED_EVERY = 50;
const WATCHERS = 20;
const BLOCKS = 100;
const WARM_UP_BLOCKS = 10;
/** Pause between blocks. A real chain with 3,000 transfers in each block is slower. */
const PAUSE_MS = 500;
const BLOCK_MS_MAX = 30_000;
/** Number of blocks that only the benchmark reads from the node. */
const NODE_BLOCKS = 30;

export async function block(sink: Sink, watchedAddresses: number): Promise<Figures> {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startBenchChain(5, { recipients: RECIPIENTS }));
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const hosts = { first: 0, count: 4 };
  const watchers = await makeWatchers(client, { databaseUrl: database.url, sink, count: WATCHERS, hosts });
  const ringing = chain.recipients.filter((_, index) => index % WATCHED_EVERY === 0);
  await watch(client, watchers, ringing, watchedAddresses - ringing.length);

  const program = deliveryProgram({ databaseUrl: database.url, sink, folder, roles: 'follower,delivery' });
  program.environment.CHAINBELL_CHAIN_RPC = `${chain.url},${chain.wsUrl}`;
  program.environment.CHAINBELL_CHAIN_INTERNAL_TRANSFERS = 'off';
  const headAt = await watchHeads(chain.wsUrl, parts);
  const { waits, peakMiB } = await ring({ program, chain, client, sink, headAt });
  const stages = await readStages(client, headAt);
  const nodeMs = await readNode(chain, headAt);
  return {
    watchedAddresses,
    transfersPerBlock: TRANSFERS,
    webhooks: waits.length,
    p50Ms: percentile(waits, 0.5),
    p90Ms: percentile(waits, 0.9),
    p99Ms: percentile(waits, 0.99),
    maxMs: percentile(waits, 1),
    nodeAloneP50Ms: percentile(nodeMs, 0.5),
    ...stages,
    peakMiB,
  };
}

/** Times from the block's head until it is proved and about to be committed, and until the webhook is rendered. */
async function readStages(client: pg.Client, headAt: HeadAt): Promise<Figures> {
  const { rows } = await client.query<{ number: string; proved_at: Date; started_at: Date }>(`
    select n.block_number as number, n.created_at as proved_at, a.started_at
    from notification n join delivery_attempt a on a.shard_id = n.shard_id and a.notification_id = n.id
    order by n.block_number desc limit ${(BLOCKS * TRANSFERS) / WATCHED_EVERY}`);
  const since = (of: (row: (typeof rows)[number]) => Date) =>
    rows.map((row) => of(row).getTime() - headAt(Number(row.number))).sort((one, other) => one - other);
  return {
    provedP50Ms: percentile(
      since(({ proved_at: at }) => at),
      0.5,
    ),
    renderedP50Ms: percentile(
      since(({ started_at: at }) => at),
      0.5,
    ),
  };
}

type HeadAt = (block: number) => number;

/** Runs Chainbell while blocks are mined. Returns the sorted times from their heads to their webhooks. */
async function ring({
  program,
  chain,
  client,
  sink,
  headAt,
}: {
  program: Program;
  chain: BenchChain;
  client: pg.Client;
  sink: Sink;
  headAt: HeadAt;
}): Promise<{ waits: number[]; peakMiB: number }> {
  await using running = await startProgram(program);
  const waits: number[] = [];
  const perBlock = TRANSFERS / WATCHED_EVERY;
  await chain.mineTransfer();
  await waitUntil(
    async () => {
      await running.assertAlive();
      return (await client.query('select from block')).rowCount;
    },
    { timeoutMs: BLOCK_MS_MAX, describe: 'the first block to be stored' },
  );
  await sink.takeStats();
  for (let index = 0; index < WARM_UP_BLOCKS + BLOCKS; index += 1) {
    await delay(PAUSE_MS);
    const { block: number } = await chain.mineTransfers(TRANSFERS);
    const times: number[] = [];
    await waitUntil(async () => times.push(...(await sink.takeStats()).times) >= perBlock, {
      timeoutMs: BLOCK_MS_MAX,
      describe: `the webhooks of block ${number}`,
      pollMs: 100,
    });
    if (index >= WARM_UP_BLOCKS) waits.push(...times.map((at) => at - headAt(number)));
  }
  return { waits: waits.sort((one, other) => one - other), peakMiB: running.usage().peakMiB };
}

/** How long the node takes to return such a block, from its head to the last byte. Sorted. */
async function readNode(chain: BenchChain, headAt: HeadAt): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < NODE_BLOCKS; index += 1) {
    await delay(PAUSE_MS);
    const { block: number } = await chain.mineTransfers(TRANSFERS);
    await waitUntil(() => !Number.isNaN(headAt(number)), { timeoutMs: BLOCK_MS_MAX, pollMs: 1 });
    const startedAt = performance.now();
    await readBlocks(chain.url, { first: number, last: number });
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other);
}

/** Watches the paid addresses, spread over the watchers, and `others` further addresses that are never paid. */
async function watch(
  client: pg.Client,
  watchers: readonly Watcher[],
  ringing: readonly string[],
  others: number,
): Promise<void> {
  const columns = `insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token,
    webhook_url, created_at, updated_at)`;
  const ids = watchers.map(({ id }) => id);
  const laneIds = watchers.map(({ laneId }) => laneId);
  const urls = watchers.map(({ url }) => url);
  const owner = (n: string) => `1 + (${n}) % cardinality($1::bigint[])`;
  const of = (n: string) =>
    `($1::bigint[])[${owner(n)}], gen_random_uuid(), ($1::bigint[])[${owner(n)}], ($2::bigint[])[${owner(n)}]`;
  const rest = (n: string) => `true, true, ($3::text[])[${owner(n)}], now(), now()`;
  const bytes = ringing.map((address) => Buffer.from(address.slice(2), 'hex'));
  await client.query(
    `${columns} select ${of('n')}, address, ${rest('n')} from unnest($4::bytea[]) with ordinality as t (address, n)`,
    [ids, laneIds, urls, bytes],
  );
  await client.query(
    `${columns} select ${of('n')}, substr(sha256(n::text::bytea), 1, 20), ${rest('n')}
     from generate_series(1, $4::integer) as n`,
    [ids, laneIds, urls, others],
  );
  await client.query('vacuum analyze');
}

/** When a plain WebSocket client received the head of each block. */
async function watchHeads(url: string, parts: AsyncDisposableStack): Promise<HeadAt> {
  const heard = new Map<number, number>();
  const socket = new WebSocket(url);
  parts.defer(() => socket.terminate());
  await once(socket, 'open');
  socket.on('message', (data: Buffer) => {
    const at = Date.now();
    const message: { params?: { result?: { number?: string } } } = JSON.parse(data.toString('utf8'));
    const number = message.params?.result?.number;
    if (number !== undefined) heard.set(Number(number), at);
  });
  socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_subscribe', params: ['newHeads'] }));
  return (number) => heard.get(number) ?? Number.NaN;
}
