/**
 * A server that looks to the console like Chainbell under load: the real files, and an endless stream of made-up attempts. So a
 * measurement of the page isn't one of the database.
 */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PAGE, readConsole } from '../../src/api/http/console-files.ts';

const BATCH_MS = 50;
const RECORDS = 100;
/** How old repeated attempts are. */
const MISSED_AGE_MS = 60_000;
const address = (number: number) => `0x${number.toString(16).padStart(40, '0')}`;
const record = (number: number) => `00000000-0000-4000-8000-${number.toString().padStart(12, '0')}`;

type Imitation = {
  url: string;
  /** Breaks all streams, and refuses new ones until `count` more attempts have been made. */
  missAttempts(count: number): void;
  /** Sends as many more attempts at once. */
  burst(count: number): void;
  close(): Promise<void>;
};

export async function startImitation({
  attemptsPerMinute,
}: {
  attemptsPerMinute: number;
}): Promise<Imitation> {
  const files = readConsole();
  const streams = new Set<ServerResponse>();
  let lastId = 1_000;
  let due = 0;
  let refusesUntilId = 0;
  const timer = setInterval(() => {
    due += (attemptsPerMinute / 60_000) * BATCH_MS;
    let text = '';
    for (; due >= 1; due -= 1) {
      lastId += 1;
      text += eventOf(lastId);
    }
    for (const stream of streams) stream.write(text);
  }, BATCH_MS);

  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://imitation');
    if (pathname.startsWith('/console')) {
      const file = files.get(pathname.replace(/^\/console\/?/, '')) ?? files.get(PAGE);
      response.writeHead(200, { 'content-type': file?.type ?? '' }).end(file?.forms.identity);
    } else if (pathname.endsWith('/attempts/stream')) {
      if (lastId < refusesUntilId) return response.destroy();
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('retry: 2000\n\n');
      const seen = request.headers['last-event-id'];
      for (let id = Number(seen ?? lastId) + 1; id <= lastId; id += 1)
        response.write(eventOf(id, MISSED_AGE_MS));
      streams.add(response);
      response.once('close', () => streams.delete(response));
    } else {
      response
        .writeHead(200, { 'content-type': 'application/json' })

        .end(JSON.stringify(answerTo(pathname, lastId)));
    }
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    missAttempts(count) {
      refusesUntilId = lastId + count;
      for (const stream of streams) stream.destroy();
    },
    burst(count) {
      due += count;
    },
    async close() {
      clearInterval(timer);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function answerTo(path: string, lastId: number): unknown {
  const at = new Date().toISOString();
  if (path === '/api/chain')
    return {
      ...{
        id: 1,
        name: 'imitation',
        native_symbol: 'ETH',
        native_decimals: 18,
        version: '0',
        block_time_ms: 2_000,
      },
      has: { points: false, prices: false, pairs: false, supply: false, admin: false },
      tokens: [],
    };
  if (path === '/status')
    return { version: '0', state: 'ok', cursor: { number: 1, mined_at: at, stored_at: at } };
  return { success: true, data: dataOf(path, lastId) };
}

function dataOf(path: string, lastId: number): unknown {
  if (path.endsWith('/watcher')) return { id: 1, name: 'imitation', state: 'active', slices: 1, key: null };
  if (path.endsWith('/count')) return { count: 10_000, is_complete: false };
  if (path.endsWith('/watched-addresses'))
    return Array.from({ length: RECORDS }, (_, index) => ({ id: record(index), address: address(index) }));
  if (path.endsWith('/log')) return Array.from({ length: 50 }, (_, index) => deliveryOf(lastId - index));
  return [];
}

/** A delivery whose id is that of its only attempt. */
function deliveryOf(id: number, ageMs = 0) {
  const at = new Date(Date.now() - ageMs).toISOString();
  const isGood = id % 10 !== 0;
  return {
    id,
    ...{ status: isGood ? 'delivered' : 'retrying', type: 'COIN_TRANSFER', asset: 'ETH', block_number: id },
    ...{ sender: address(id), receiver: address(id % RECORDS), amount: String(BigInt(id) * 10n ** 15n) },
    ...{ hash: `0x${id.toString(16).padStart(64, '0')}`, origin: 'https://hooks.example.com:443' },
    ...{
      watched_address_id: record(id % RECORDS),
      watched_address: address(id % RECORDS),
      created_at: at,
      retry_count: isGood ? 0 : 1,
    },
    ...{ next_retry_at: null, confirmations: null, confirmations_needed: null },
    last_attempt: {
      id,
      started_at: at,
      duration_ms: 40,
      outcome: isGood ? 'success' : 'http_5xx',
      status: isGood ? 204 : 503,
    },
  };
}

function eventOf(id: number, ageMs = 0): string {
  const { last_attempt: attempt, ...notification } = deliveryOf(id, ageMs);
  const data = { ...attempt, notification_id: id, revision: 0, requests: 1, response: null, notification };
  return `id: ${id}\nevent: attempt\ndata: ${JSON.stringify(data)}\n\n`;
}
