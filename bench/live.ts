/**
 * Measures how long a transfer takes from mining to its row and to its webhook, over WebSocket, one block at a time.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Figures } from './figures.ts';
import { percentile, setStage } from './stage.ts';

const BLOCKS = 500;
const WARM_UP_BLOCKS = 50;
const POLL_MS = 1;
const ANSWER_MS_MAX = 10_000;

export async function live(): Promise<Figures> {
  const received = new Map<string, number>();
  await using stage = await setStage({
    internalTransfers: 'auto',
    answer(request) {
      received.set(hashOf(request.json), performance.now());
      return { status: 200 };
    },
  });
  const { chain } = stage;
  const [sender, receiver] = chain.accounts;
  await stage.watch(receiver);
  const client = new pg.Client({ connectionString: stage.database.url });
  await client.connect();
  const toRow: number[] = [];
  const toWebhook: number[] = [];
  for (let block = 0; block < WARM_UP_BLOCKS + BLOCKS; block += 1) {
    // Taken before the call, so that the time includes mining: the block cannot be older.
    const minedAt = performance.now();
    const hash = await chain.send({ from: sender, to: receiver, valueWei: 1n });
    const rowAt = await waitForRow(client, hash);
    while (!received.has(hash)) await pause(minedAt);
    if (block < WARM_UP_BLOCKS) continue;
    toRow.push(rowAt - minedAt);
    toWebhook.push((received.get(hash) ?? Number.NaN) - minedAt);
  }
  await client.end();
  return {
    conditions: { blocks: BLOCKS, heads: 'WebSocket', database: 'PostgreSQL', pollMs: POLL_MS },
    rows: [rowOf('mined → row committed', toRow), rowOf('mined → webhook received', toWebhook)],
  };
}

async function waitForRow(client: pg.Client, hash: string): Promise<number> {
  const startedAt = performance.now();
  const bytes = Buffer.from(hash.slice(2), 'hex');
  for (;;) {
    const { rowCount } = await client.query(
      'select 1 from notification where tx_hash = $1 and substr(tx_hash, 29) = substr($1, 29)',
      [bytes],
    );
    if (rowCount !== 0) return performance.now();
    await pause(startedAt);
  }
}

async function pause(startedAt: number): Promise<void> {
  if (performance.now() - startedAt > ANSWER_MS_MAX) throw new Error('a transfer did not arrive in time');
  await delay(POLL_MS);
}

function rowOf(path: string, values: number[]): Figures['rows'][number] {
  const sorted = values.sort((one, other) => one - other);
  return {
    path,
    p50Ms: percentile(sorted, 0.5),
    p90Ms: percentile(sorted, 0.9),
    p99Ms: percentile(sorted, 0.99),
    maxMs: percentile(sorted, 1),
  };
}

function hashOf(body: unknown): string {
  return typeof body === 'object' && body !== null && 'hash' in body ? String(body.hash) : '';
}
