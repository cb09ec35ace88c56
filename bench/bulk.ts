/**
 * Measures how long it takes to create a million watched addresses. Several connections send lines of JSON at once while the
 * service follows its chain. The memory of the service is measured too.
 */
import { once } from 'node:events';
import { request } from 'node:http';
import type { Figures } from './figures.ts';
import { setStage } from './stage.ts';

const RECORDS = 1_000_000;
const CHUNK_LINES = 1_000;
const CONNECTIONS = [1, 2, 4];

export async function bulk(): Promise<Figures> {
  const rows: Figures['rows'] = [];
  for (const connections of CONNECTIONS) {
    await using stage = await setStage({ internalTransfers: 'off', answer: () => ({ status: 200 }) });
    const before = stage.memoryMiB().resident;
    const startedAt = performance.now();
    const counts = await Promise.all(
      Array.from({ length: connections }, (_, index) =>
        load(stage, { start: (index * RECORDS) / connections, count: RECORDS / connections }),
      ),
    );
    const seconds = (performance.now() - startedAt) / 1000;
    const answered = counts.reduce((sum, count) => sum + count, 0);
    if (answered !== RECORDS) throw new Error(`${answered} of ${RECORDS} lines were answered with success`);
    rows.push({
      connections,
      seconds: Number(seconds.toFixed(1)),
      recordsPerSecond: Math.round(RECORDS / seconds),
      residentMiBBefore: before,
      peakMiB: stage.memoryMiB().peak,
    });
  }
  return { conditions: { records: RECORDS, database: 'PostgreSQL' }, rows };
}

/** Streams this many addresses and reads the response meanwhile. Returns how many lines report success. */
async function load(
  { apiUrl, key, receiver }: { apiUrl: string; key: string; receiver: { url: string } },
  { start, count }: { start: number; count: number },
): Promise<number> {
  const stream = request(`${apiUrl}/api/notifications/watched-addresses/bulk`, {
    method: 'POST',
    agent: false,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/x-ndjson' },
  });
  const answered = once(stream, 'response').then(([response]) => countSuccesses(response));
  for (let sent = 0; sent < count; sent += CHUNK_LINES) {
    const lines = Array.from({ length: CHUNK_LINES }, (_, index) => {
      const address = (start + sent + index).toString(16).padStart(40, '0');
      return `{"address":"0x${address}","webhook_url":"${receiver.url}"}\n`;
    });
    if (!stream.write(lines.join(''))) await once(stream, 'drain');
  }
  stream.end();
  return answered;
}

async function countSuccesses(response: AsyncIterable<Buffer>): Promise<number> {
  const mark = '"success":true';
  let count = 0;
  let rest = '';
  for await (const chunk of response) {
    const parts = (rest + chunk.toString('latin1')).split(mark);
    count += parts.length - 1;
    rest = parts.at(-1)?.slice(-mark.length) ?? '';
  }
  return count;
}
