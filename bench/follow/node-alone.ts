/**
 * Measures the upper limit: reads blocks and receipts from anvil as bytes, without processing them.
 */
import { Agent, request } from 'undici';
import { quantity } from '../../devnet/wallet.ts';
import { cpuSecondsOf } from '../program.ts';
import type { BenchChain } from './chain.ts';

/** The concurrency that Chainbell settles on (src/ingest/read-ahead.ts). */
const REQUESTS = 4;
const BLOCKS_PER_REQUEST = 4;

export async function readNodeAlone(chain: BenchChain, blocks: number): Promise<Record<string, number>> {
  const head = chain.head();
  const agent = new Agent({ connections: REQUESTS });
  const nodeCpuSeconds = cpuSecondsOf(chain.pid);
  const cpuBefore = process.cpuUsage();
  const startedAt = performance.now();
  let next = head - blocks + 1;
  const readAll = async () => {
    while (next <= head) {
      const first = next;
      next += BLOCKS_PER_REQUEST;
      await readBlocks(chain.url, { first, last: Math.min(next - 1, head) }, agent);
    }
  };
  await Promise.all(Array.from({ length: REQUESTS }, readAll));
  const seconds = (performance.now() - startedAt) / 1000;
  const { user, system } = process.cpuUsage(cpuBefore);
  await agent.close();
  const [before, after] = [chain.countsUpTo(head - blocks), chain.countsUpTo(head)];
  const transfers = after.token - before.token + after.native - before.native;
  return {
    seconds: round(seconds),
    transfersPerSecond: Math.round(transfers / seconds),
    cpuSeconds: round((user + system) / 1e6),
    nodeCpuSeconds: round(cpuSecondsOf(chain.pid) - nodeCpuSeconds),
  };
}

/** Reads blocks and their receipts, each pair in one request, to the last byte. */
export async function readBlocks(
  url: string,
  { first, last }: { first: number; last: number },
  dispatcher?: Agent,
): Promise<void> {
  const calls = Array.from({ length: last - first + 1 }, (_, index) => quantity(first + index)).flatMap(
    (number, index) => [
      { jsonrpc: '2.0', id: 2 * index, method: 'eth_getBlockByNumber', params: [number, true] },
      { jsonrpc: '2.0', id: 2 * index + 1, method: 'eth_getBlockReceipts', params: [number] },
    ],
  );
  const headers = { 'content-type': 'application/json' };
  const { body } = await request(url, {
    ...{ method: 'POST', headers, body: JSON.stringify(calls), ...(dispatcher && { dispatcher }) },
  });
  await body.arrayBuffer();
}

function round(value: number): number {
  return Number(value.toFixed(2));
}
