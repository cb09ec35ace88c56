/**
 * Starts the API role alone, with no chain to follow, as operators run it. Its clients run in separate threads.
 */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { findFreePort } from '../../devnet/free-port.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { startProgram } from '../program.ts';
import type { Reading } from './reader.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
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
  const port = await findFreePort(0);
  const program = parts.use(
    await startProgram({
      command: [process.execPath, ...process.execArgv, ...flags, MAIN, 'start', '--role', 'api'],
      folder: path.dirname(MAIN),
      environment: {
        CHAINBELL_CHAIN_ID: '31337',
        CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1',
        CHAINBELL_DATABASE_URL: url,
        CHAINBELL_DATA_DIR: dataDir,
        CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
        CHAINBELL_HTTP_PORT: String(port),
        CHAINBELL_METRICS_PORT: String(await findFreePort(0)),
      },
    }),
  );
  const reader = parts.use(startReader());
  const pinger = parts.use(startReader());
  const ping = () => pinger.read(`http://127.0.0.1:${port}/livez`);
  const ask = async (question: string) => {
    const reading = await reader.read(`http://127.0.0.1:${port}/api/points/${question}`);
    if (reading.status !== 200 && reading.status !== 404) throw new Error(`${question}: ${reading.status}`);
    return reading;
  };
  await waitUntil(
    async () => {
      await program.assertAlive();
      return ping().then(
        ({ status }) => status === 200,
        () => false,
      );
    },
    { timeoutMs: 30_000, describe: 'the API to listen' },
  );
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
