/**
 * Measures the memory of the service with the embedded database: the first start, which creates it, a start on an existing folder,
 * and following blocks with webhooks. Also the time of the starts, and how many blocks and webhooks a second it follows.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findFreePort } from '../devnet/free-port.ts';
import { type Chain, startChain } from '../test/kit/anvil.ts';
import { type Receiver, startReceiver } from '../test/kit/receiver.ts';
import { waitUntil } from '../test/kit/wait.ts';
import type { Figures } from './figures.ts';
import { type RunningProgram, startProgram } from './program.ts';
import { spreadOf } from './spread.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const REPEATS = 3;
const BLOCKS = 3_000;
const BATCH_BLOCKS = 100;
/** After this time the start's garbage is collected and its pages are returned. */
const IDLE_MS = 20_000;
const POLL_MS = 25;
const DELIVERED_MS_MAX = 120_000;

type Phase = { peakMiB: number; idleMiB: number; readyMs: number; cpuSeconds: number };
type Run = { first: Phase; again: Phase; work: Omit<Phase, 'readyMs'> & { blocksPerSecond: number } };

export async function memoryEmbedded(): Promise<Figures> {
  const runs: Run[] = [];
  for (let repeat = 0; repeat < REPEATS; repeat += 1) runs.push(await run());
  const rowOf = (what: string, phases: Record<string, number>[]) => {
    const names = Object.keys(phases[0] ?? {});
    const spread = (name: string) => spreadOf(phases.map((phase) => phase[name] ?? Number.NaN));
    return { what, ...Object.fromEntries(names.map((name) => [name, spread(name)])) };
  };
  return {
    conditions: { repeats: REPEATS, blocks: BLOCKS, idleSeconds: IDLE_MS / 1_000, database: 'embedded' },
    rows: [
      rowOf(
        'first start',
        runs.map(({ first }) => first),
      ),
      rowOf(
        'existing folder',
        runs.map(({ again }) => again),
      ),
      rowOf(
        'following',
        runs.map(({ work }) => work),
      ),
    ],
  };
}

async function run(): Promise<Run> {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const received = { count: 0 };
  const receiver = parts.use(
    await startReceiver({
      answer() {
        received.count += 1;
        return { status: 200 };
      },
    }),
  );
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const place = await placeOf({ chain, receiver, folder });
  let first: Phase;
  {
    await using program = await start(place);
    first = await idlePhase(program, place);
  }
  await using program = await start(place);
  const again = await idlePhase(program, place);
  await watch(place, chain.accounts[1], receiver);
  return { first, again, work: await follow(program, { chain, receiver, received }) };
}

type Place = { apiUrl: string; environment: Record<string, string> };

async function placeOf(of: { chain: Chain; receiver: Receiver; folder: string }): Promise<Place> {
  const port = await findFreePort(0);
  const environment = {
    CHAINBELL_CHAIN_ID: '31337',
    CHAINBELL_CHAIN_RPC: `${of.chain.url},${of.chain.wsUrl}`,
    CHAINBELL_DATABASE_URL: '',
    CHAINBELL_DATA_DIR: of.folder,
    CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
    CHAINBELL_HTTP_PORT: String(port),
    CHAINBELL_METRICS_PORT: String(await findFreePort(0)),
    CHAINBELL_WEBHOOKS_ALLOW_HTTP: 'true',
    CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8',
    CHAINBELL_WEBHOOKS_PORTS: String(of.receiver.port),
    CHAINBELL_LOG_FORMAT: 'json',
    CHAINBELL_CHAIN_INTERNAL_TRANSFERS: 'off',
  };
  return { apiUrl: `http://127.0.0.1:${port}`, environment };
}

const start = ({ environment }: Place) =>
  startProgram({
    // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
    command: [process.execPath, ...process.execArgv, MAIN, 'start'],
    folder: path.dirname(MAIN),
    environment,
  });

/** Registers the address with a new watcher. */
async function watch({ apiUrl, environment }: Place, address: string, { url }: Receiver): Promise<void> {
  const create = [MAIN, 'keys', 'create', '--watcher', 'bench', '--json'];
  const env = { ...process.env, ...environment };
  const { stdout } = await promisify(execFile)(process.execPath, create, { env });
  const { key }: { key: string } = JSON.parse(stdout);
  const answer = await fetch(`${apiUrl}/api/notifications/watched-addresses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ address, webhook_url: url }),
  });
  if (!answer.ok) throw new Error(`the API answered ${answer.status}: ${await answer.text()}`);
}

/** Mines blocks with one transfer each, and waits for their webhooks after each batch. */
async function follow(
  program: RunningProgram,
  { chain, receiver, received }: { chain: Chain; receiver: Receiver; received: { count: number } },
): Promise<Run['work']> {
  const [sender, watched] = chain.accounts;
  await chain.pauseMining();
  const before = program.usage().cpuSeconds;
  const startedAt = performance.now();
  for (let block = 1; block <= BLOCKS; block += 1) {
    await chain.send({ from: sender, to: watched, valueWei: 1n });
    await chain.mine();
    if (block % BATCH_BLOCKS !== 0) continue;
    await waitUntil(() => received.count >= block, {
      timeoutMs: DELIVERED_MS_MAX,
      describe: `${block} webhooks`,
    });
    program.usage();
    receiver.requests.length = 0;
  }
  const blocksPerSecond = Math.round((BLOCKS * 1_000) / (performance.now() - startedAt));
  const { peakMiB, cpuSeconds } = program.usage();
  await delay(IDLE_MS);
  return {
    ...{ peakMiB, idleMiB: Math.round(program.residentMiB()) },
    ...{ cpuSeconds: Number((cpuSeconds - before).toFixed(1)), blocksPerSecond },
  };
}

/** Waits until the service is ready, then lets it idle. The peak includes child processes. */
async function idlePhase(program: RunningProgram, { apiUrl }: Place): Promise<Phase> {
  const startedAt = performance.now();
  await waitUntil(
    async () => {
      await program.assertAlive();
      program.usage();
      return fetch(`${apiUrl}/readyz`).then(
        (response) => response.ok,
        () => false,
      );
    },
    { timeoutMs: 60_000, pollMs: POLL_MS, describe: 'the service to be ready' },
  );
  const readyMs = Math.round(performance.now() - startedAt);
  const { cpuSeconds } = program.usage();
  await delay(IDLE_MS);
  return {
    ...{ peakMiB: program.usage().peakMiB, idleMiB: Math.round(program.residentMiB()), readyMs },
    cpuSeconds: Number(cpuSeconds.toFixed(1)),
  };
}
