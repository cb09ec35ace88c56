/**
 * The setup of a scenario: anvil, PostgreSQL, a receiver, and Chainbell as the process that operators run.
 */
import { execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findFreePort } from '../devnet/free-port.ts';
import { type Chain, startChain } from '../test/kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../test/kit/database.ts';
import { type AnswerTo, type Receiver, startReceiver } from '../test/kit/receiver.ts';
import { waitUntil } from '../test/kit/wait.ts';

export type Stage = {
  /** Mines each transaction in a separate block. */
  chain: Chain;
  database: Pick<TestDatabase, 'url'>;
  receiver: Receiver;
  apiUrl: string;
  /** The API key of watcher `bench`. */
  key: string;
  metricsUrl: string;
  pid: number;
  /** Registers an address with the receiver's URL, or another one. */
  watch(address: string, url?: string): Promise<void>;
  /** Current and peak resident memory of the service, in MiB. */
  memoryMiB(): { resident: number; peak: number };
  /** False after the service has ended. */
  isRunning(): boolean;
  [Symbol.asyncDispose](): Promise<void>;
};

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

type StageOptions = {
  answer: AnswerTo;
  /** anvil sometimes hangs for good when it is traced while it mines at full speed. */
  internalTransfers: 'auto' | 'off';
  /** The URL of an empty database, in place of a test database. */
  databaseUrl?: string;
  /** Where the receiver listens; 127.0.0.1 by default. */
  receiverHost?: string;
};

export async function setStage(options: StageOptions): Promise<Stage> {
  const { answer, internalTransfers, databaseUrl, receiverHost = '127.0.0.1' } = options;
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const database =
    databaseUrl === undefined ? parts.use(await createTestDatabase('postgres')) : { url: databaseUrl };
  const receiver = parts.use(await startReceiver({ answer, host: receiverHost }));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const port = await findFreePort(0);
  const metricsPort = await findFreePort(0);
  const environment = {
    ...process.env,
    CHAINBELL_CHAIN_ID: '31337',
    CHAINBELL_CHAIN_RPC: `${chain.url},${chain.wsUrl}`,
    CHAINBELL_DATABASE_URL: database.url,
    CHAINBELL_DATA_DIR: folder,
    CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
    CHAINBELL_HTTP_PORT: String(port),
    CHAINBELL_METRICS_PORT: String(metricsPort),
    CHAINBELL_WEBHOOKS_ALLOW_HTTP: 'true',
    CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8',
    CHAINBELL_WEBHOOKS_PORTS: String(receiver.port),
    CHAINBELL_LOG_FORMAT: 'json',
    CHAINBELL_CHAIN_INTERNAL_TRANSFERS: internalTransfers,
  };
  const place = { env: environment, cwd: folder };
  const create = [MAIN, 'keys', 'create', '--watcher', 'bench', '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, create, place);
  const { key }: { key: string } = JSON.parse(stdout);
  // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
  const child = spawn(process.execPath, [...process.execArgv, MAIN, 'start'], {
    ...place,
    stdio: 'ignore',
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  parts.defer(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  const apiUrl = `http://127.0.0.1:${port}`;
  await waitUntil(() => isReady(apiUrl), { timeoutMs: 30_000, describe: 'the service to be ready' });
  const running = parts.move();
  return {
    chain,
    database,
    receiver,
    apiUrl,
    key,
    metricsUrl: `http://127.0.0.1:${metricsPort}/metrics`,
    pid: child.pid ?? 0,
    async watch(address, url = receiver.url) {
      const answer = await fetch(`${apiUrl}/api/notifications/watched-addresses`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ address, webhook_url: url }),
      });
      if (!answer.ok) throw new Error(`the API answered ${answer.status}: ${await answer.text()}`);
    },
    memoryMiB: () => readMemory(child.pid),
    isRunning: () => child.exitCode === null && child.signalCode === null,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

const isReady = (apiUrl: string) =>
  fetch(`${apiUrl}/readyz`).then(
    (answer) => answer.ok,
    () => false,
  );

/** proc(5): VmRSS and VmHWM, which that file gives in KiB. */
function readMemory(pid: number | undefined): { resident: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const mebibytes = (name: string) =>
    Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024);
  return { resident: mebibytes('VmRSS'), peak: mebibytes('VmHWM') };
}

/** The value below which `share` of the sorted values lie. */
export function percentile(sorted: readonly number[], share: number): number {
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return Number(value.toFixed(1));
}
