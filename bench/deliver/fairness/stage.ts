/**
 * The setup of a fairness scenario: anvil, a database, healthy and hostile receivers, and the service of any checkout as the
 * process that operators run. The scenario uses the service's command line and HTTP API. Only API keys are issued through its
 * modules, because one process for each key would take minutes.
 */
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { type Anvil, startAnvil } from '../../../devnet/anvil.ts';
import { findFreePort } from '../../../devnet/free-port.ts';
import { listAccounts, quantity } from '../../../devnet/wallet.ts';
import type { Address } from '../../../src/core/hex.ts';
import { startPostgresServer } from '../../../test/kit/postgres-server.ts';
import { waitUntil } from '../../../test/kit/wait.ts';
import { type RunningProgram, startProgram } from '../../program.ts';
import { hostOf } from '../stage.ts';
import { type Api, createApi } from './api.ts';
import type { Question, Reply } from './receivers.ts';

export type DatabaseKind = 'postgres' | 'embedded';

type FairnessStageOptions = {
  /** The root of the checkout whose service is measured, with its node_modules. */
  service: string;
  database: DatabaseKind;
  /** Whether PostgreSQL waits for the disk, as a normal installation does. */
  isDurable: boolean;
  /** The number of watchers that get a key. */
  watchers: number;
};

export type Receivers = {
  /** The webhook URL of receiver number `index`. */
  urlOf(index: number): string;
  /** The receipts since the last call; `manner` applies from now on. */
  ask(question?: Pick<Question, 'manner' | 'keeps'>): Promise<Reply>;
};

export type Stage = {
  healthy: Receivers;
  hostile: Receivers;
  program: RunningProgram;
  api: Api;
  /** One key for each watcher. */
  keys: readonly string[];
  /** Mines a block with a transfer to each address, using a single request to the node. */
  mine(addresses: readonly Address[]): Promise<MinedBlock>;
  /**
   * When PostgreSQL wrote the commit record of each stored block. Undefined for the embedded database, because a second
   * process cannot read it.
   */
  readCommits(from: number): Promise<ReadonlyMap<number, number> | undefined>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** `minedAtMs` is taken just before the call that mines. `hashes` have the order of the addresses. */
export type MinedBlock = { number: number; minedAtMs: number; hashes: string[] };

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const RECEIVERS = fileURLToPath(new URL('./receivers.ts', import.meta.url));
const SECRET = Buffer.alloc(32, 7);
/** The flags that bootstrap.mjs gives to every program. */
const NODE_FLAGS = ['--max-semi-space-size=12', '--heap-growing-percent=90'];
const READY_MS_MAX = 60_000;
const CALL_MS_MAX = 30_000;
const GAS = 21_000;
/** Each hanging attempt holds a connection. The service opens at most 1,024 of them. */
const OPEN_FILES_MIN = 8_192;

export async function setStage(options: FairnessStageOptions): Promise<Stage> {
  await assertOpenFiles();
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startAnvil({ extraArguments: ['--no-mining', '--disable-block-gas-limit'] }));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-fairness-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const databaseUrl = options.database === 'embedded' ? '' : await startServer(parts, options.isDurable);
  const [healthy, hostile] = await Promise.all([startReceivers(parts), startReceivers(parts)]);
  const port = await findFreePort(0);
  const environment = {
    CHAINBELL_CHAIN_ID: '31337',
    CHAINBELL_CHAIN_RPC: `${chain.url},${chain.wsUrl}`,
    // Anvil sometimes hangs for good when it is traced while it mines.
    CHAINBELL_CHAIN_INTERNAL_TRANSFERS: 'off',
    CHAINBELL_DATABASE_URL: databaseUrl,
    CHAINBELL_DATA_DIR: folder,
    CHAINBELL_SECRET: SECRET.toString('base64'),
    CHAINBELL_HTTP_PORT: String(port),
    CHAINBELL_METRICS_PORT: '0',
    CHAINBELL_WEBHOOKS_ALLOW_HTTP: 'true',
    CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8',
    CHAINBELL_WEBHOOKS_PORTS: `${healthy.port},${hostile.port}`,
    CHAINBELL_LOG_FORMAT: 'json',
    CHAINBELL_LOG_LEVEL: 'warn',
    MALLOC_ARENA_MAX: '2',
  };
  const main = path.join(options.service, 'src/main.ts');
  await promisify(execFile)(process.execPath, [...NODE_FLAGS, main, 'migrate'], {
    cwd: folder,
    env: { ...process.env, ...environment },
    timeout: READY_MS_MAX,
  });
  const keys = await issueKeys(options, { url: databaseUrl, dataDir: folder });
  const program = parts.use(
    await startProgram({ command: [process.execPath, ...NODE_FLAGS, main, 'start'], folder, environment }),
  );
  // Kill it, because a normal shutdown would wait for thousands of hanging attempts.
  parts.defer(() => program.kill());
  const api = parts.use(createApi(`http://127.0.0.1:${port}`));
  const chainMiner = await createMiner(chain);
  await chainMiner([]);
  await waitUntil(
    async () => {
      await program.assertAlive();
      return (await api.tip()) !== undefined;
    },
    { timeoutMs: READY_MS_MAX, describe: 'the first block to be stored', pollMs: 100 },
  );
  const readCommits = await createCommitReader(parts, databaseUrl);
  const running = parts.move();
  return {
    healthy,
    hostile,
    program,
    api,
    keys,
    mine: chainMiner,
    readCommits,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** proc(5), limits. Node has already raised its soft limit to the hard limit. */
async function assertOpenFiles(): Promise<void> {
  const limits = await readFile('/proc/self/limits', 'utf8');
  const open = /^Max open files\s+(\d+|unlimited)/m.exec(limits)?.[1] ?? '0';
  if (open === 'unlimited' || Number(open) >= OPEN_FILES_MIN) return;
  throw new Error(`only ${open} files may be open at once: raise the limit to ${OPEN_FILES_MIN} (ulimit -n)`);
}

/** Starts a server that records commit times. Returns the URL of an empty database. */
async function startServer(parts: AsyncDisposableStack, isDurable: boolean): Promise<string> {
  const { url, stop } = await startPostgresServer({ isDurable, settings: ['track_commit_timestamp=on'] });
  parts.defer(stop);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('create database fairness');
  await client.end();
  return Object.assign(new URL(url), { pathname: '/fairness' }).href;
}

async function issueKeys(
  { service, watchers }: FairnessStageOptions,
  place: { url: string; dataDir: string },
): Promise<string[]> {
  // An older checkout may have these files in other folders.
  const load = (...files: string[]) => {
    const places = files.map((file) => path.join(service, 'src', file));
    return import(pathToFileURL(places.find((place) => existsSync(place)) ?? '').href);
  };
  const { issueKey }: typeof import('../../../src/app/issue-keys.ts') = await load(
    'app/issue-keys.ts',
    'keys.ts',
  );
  const { deriveKeyRing }: typeof import('../../../src/domain/key-ring.ts') = await load(
    'domain/key-ring.ts',
    'core/key-ring.ts',
  );
  const { openDatabase }: typeof import('../../../src/store/db/open.ts') = await load(
    'store/db/open.ts',
    'store/db.ts',
  );
  const database = await openDatabase(place);
  const keyRing = deriveKeyRing(SECRET);
  const keys: string[] = [];
  try {
    for (let index = 0; index < watchers; index += 1)
      keys.push((await issueKey({ database, keyRing }, `watcher ${index}`, new Date())).key);
  } finally {
    await database.close();
  }
  return keys;
}

async function startReceivers(parts: AsyncDisposableStack): Promise<Receivers & { port: number }> {
  const child = spawn(process.execPath, [RECEIVERS], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  parts.defer(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const { stdout } = child;
  if (stdout === null) throw new Error('receivers without an output');
  const port = await new Promise<number>((resolve, reject) => {
    createInterface(stdout).once('line', (line) => resolve(Number(line)));
    void ended.then(() => reject(new Error('the receivers did not start')));
  });
  const open = new Map<number, (reply: Reply) => void>();
  child.on('message', (reply: Reply) => {
    open.get(reply.id)?.(reply);
    open.delete(reply.id);
  });
  let questions = 0;
  return {
    port,
    urlOf: (index) => `http://${hostOf(index)}:${port}/hook`,
    ask(question = {}) {
      questions += 1;
      const id = questions;
      return new Promise((resolve, reject) => {
        open.set(id, resolve);
        child.send({ id, ...question } satisfies Question, (error) => {
          if (error !== null) reject(error);
        });
      });
    },
  };
}

async function createMiner(chain: Anvil): Promise<Stage['mine']> {
  const senders = await listAccounts(chain);
  let number = 0;
  return async (addresses) => {
    const calls = addresses.map((to, id) => {
      const transaction = {
        from: senders[id % senders.length],
        to,
        value: quantity(1),
        gas: quantity(GAS),
      };
      return { jsonrpc: '2.0', id, method: 'eth_sendTransaction', params: [transaction] };
    });
    const hashes = calls.length === 0 ? [] : await sendAll(chain.url, calls);
    const minedAtMs = Date.now();
    await chain.rpc('evm_mine');
    number += 1;
    return { number, minedAtMs, hashes };
  };
}

async function sendAll(url: string, calls: readonly object[]): Promise<string[]> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(calls),
    signal: AbortSignal.timeout(CALL_MS_MAX),
  });
  const text = await response.text();
  const answers: { id: number; result?: string }[] = JSON.parse(text);
  const hashes = answers.toSorted((one, other) => one.id - other.id).flatMap(({ result }) => result ?? []);
  if (hashes.length !== calls.length) throw new Error(`anvil refused transactions: ${text.slice(0, 500)}`);
  return hashes;
}

async function createCommitReader(parts: AsyncDisposableStack, url: string): Promise<Stage['readCommits']> {
  if (url === '') return async () => undefined;
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  parts.defer(() => client.end());
  return async (from) => {
    const { rows } = await client.query<{ number: string; committed_at: Date }>(
      'select number, pg_xact_commit_timestamp(xmin) as committed_at from block where number >= $1 order by number',
      [from],
    );
    return new Map(rows.map((row) => [Number(row.number), row.committed_at.getTime()]));
  };
}
