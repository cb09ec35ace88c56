/**
 * Starts the API role alone, with no chain to follow, as operators run it. Its clients run in separate threads.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { startApiProcess } from '../api-process.ts';
import type { Reading } from './reader.ts';

const PING_MS = 5;

export type PointsApi = AsyncDisposable & {
  /** `question` is the path after /api/points/. @throws Error for any status except 200 and 404. */
  ask(question: string): Promise<Reading>;
  /** Sends small requests every few milliseconds meanwhile. `pauseMs` is the slowest of them: how long the API was blocked. */
  askBeside(question: string): Promise<Reading & { pauseMs: number }>;
};

export async function startApi(
  { url, dataDir }: { url: string; dataDir: string },
  flags: readonly string[] = [],
): Promise<PointsApi> {
  await using parts = new AsyncDisposableStack();
  const { url: apiUrl } = parts.use(
    await startApiProcess({ databaseUrl: url, environment: { CHAINBELL_DATA_DIR: dataDir } }, flags),
  );
  const reader = parts.use(startReader());
  const pinger = parts.use(startReader());
  const ping = () => pinger.read(`${apiUrl}/livez`);
  const ask = async (question: string) => {
    const reading = await reader.read(`${apiUrl}/api/points/${question}`);
    if (reading.status !== 200 && reading.status !== 404) throw new Error(`${question}: ${reading.status}`);
    return reading;
  };
  const running = parts.move();
  return {
    ask,
    async askBeside(question) {
      let isOver = false;
      let pauseMs = 0;
      const pinging = (async () => {
        while (!isOver) {
          pauseMs = Math.max(pauseMs, (await ping()).ms);
          await delay(PING_MS);
        }
      })();
      const reading = await ask(question).finally(() => {
        isOver = true;
      });
      await pinging;
      return { ...reading, pauseMs };
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Starts a thread that reads one URL after the other. */
function startReader(): AsyncDisposable & { read(url: string): Promise<Reading> } {
  const worker = new Worker(new URL('./reader.ts', import.meta.url));
  return {
    read: (url) =>
      new Promise((resolve, reject) => {
        worker.once('message', (reading: Reading | string) => {
          if (typeof reading === 'string') reject(new Error(reading));
          else resolve(reading);
        });
        worker.postMessage(url);
      }),
    async [Symbol.asyncDispose]() {
      await worker.terminate();
    },
  };
}
