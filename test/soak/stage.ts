/**
 * The stage of the soak: PostgreSQL with a standby, a chain with a market behind a proxy, receivers, a price feed, and two processes
 * of each role.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { genesis } from '../../devnet/demo-chain.ts';
import { demoConfigText } from '../../devnet/demo-config.ts';
import { startPriceFeed } from '../../devnet/price-feed.ts';
import { tokenFormats } from '../../devnet/scene.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { createRandom } from '../abuse/random.ts';
import { chainbell } from '../cli/chainbell.ts';
import { startNodeProxy } from '../faults/node-proxy.ts';
import { type PostgresPair, startPostgresPair } from '../kit/postgres-pair.ts';
import { waitUntil } from '../kit/wait.ts';
import { startSoakChain } from './chain.ts';
import { prepareProcesses } from './processes.ts';
import { startReceivers } from './receivers.ts';
import { createAsk, createRecords } from './records.ts';

export type SoakStage = Awaited<ReturnType<typeof setSoakStage>>;

const WATCHERS = 3;
/** Members of the market whose addresses are watched, beside those of all traders. */
const WATCHED_MEMBERS = 2;
/** Other programs may keep the machine busy. */
const START_MS_MAX = 300_000;
const RETRY_MINUTES = [0.01, 0.02, 0.05];

/** Starts everything. All parts end with the stack. */
// oxlint-disable-next-line max-lines-per-function -- linear: each part is started once the one before it is up
export async function setSoakStage(
  parts: AsyncDisposableStack,
  { seed, onLine }: { seed: number; onLine(line: string): void },
) {
  const random = createRandom(seed);
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-soak-'));
  onLine(`the processes log to ${folder}`);
  const pair = parts.use(await startPostgresPair());
  const chain = parts.use(await startSoakChain(random));
  const node = parts.use(await startNodeProxy(chain.chain));
  const receivers = await startReceivers(parts, random);
  const prices = await startPriceFeed({ preferredPort: 0, now: () => new Date() });
  parts.defer(() => prices.stop());
  onLine('PostgreSQL with a standby, chain, market, receivers and price feed are up');

  const { market, contracts, deployer, traders, members } = chain.scene;
  const config = demoConfigText({
    ...{ rpc: [node.url, node.wsUrl], dataDir: folder, receiverPort: 443, retryMinutes: RETRY_MINUTES },
    ...{ priceFeedUrl: prices.url, market, deployer, initialCoins: genesis.accounts * genesis.coinsEach },
    tokens: {
      [tokenFormats.token.symbol]: { address: contracts.token, decimals: tokenFormats.token.decimals },
      [tokenFormats.feeToken.symbol]: {
        address: contracts.feeToken,
        decimals: tokenFormats.feeToken.decimals,
      },
    },
  });
  const whole = {
    ...config,
    database: { url: pair.primary.url },
    secret: randomBytes(32).toString('base64'),
    webhooks: { ...config.webhooks, ports: receivers.ports },
    log: { level: 'info', format: 'json' },
  };
  await writeFile(path.join(folder, 'chainbell.yaml'), JSON.stringify(whole));
  const command = async (...words: string[]) => {
    const { code, out, err } = await chainbell(
      folder,
      { CHAINBELL_DATABASE_URL: leadingUrl(pair) },
      ...words,
    );
    if (code !== 0) throw new Error(`chainbell ${words.join(' ')} ended with ${code}: ${err.slice(-2_000)}`);
    return out;
  };
  await command('migrate');
  const keys: string[] = [];
  for (let watcher = 1; watcher <= WATCHERS; watcher += 1) {
    const issued = JSON.parse(await command('keys', 'create', '--watcher', `watcher ${watcher}`, '--json'));
    keys.push(String(Object(issued).key));
  }
  const database = await openDatabase({ url: leadingUrl(pair), dataDir: folder });
  parts.defer(() => database.close());
  const processes = await prepareProcesses(parts, { folder, databaseUrl: pair.primary.url });
  await Promise.all(processes.map((process) => process.start()));
  const apiUrls = processes.flatMap(({ role, apiUrl }) => (role === 'api' ? apiUrl : []));
  await waitUntil(() => areReady(apiUrls), { describe: 'the API to be ready', timeoutMs: START_MS_MAX });
  onLine(`${processes.length} processes are up`);

  const failures: { at: number; what: string }[] = [];
  const onFailure = (what: string) => failures.push({ at: performance.now(), what });
  const ask = createAsk(apiUrls, { random, onFailure });
  const records = createRecords({ ask, keys, urls: receivers.urls, random });
  await records.watch([...traders, ...members.slice(0, WATCHED_MEMBERS)]);
  return {
    ...{ random, folder, pair, chain, node, receivers, database, processes, apiUrls, records, failures },
    command,
    onFailure,
  };
}

/** Both servers: the one that accepts writes is meant. */
function leadingUrl({ primary, standby }: PostgresPair): string {
  const { username, password, pathname } = new URL(primary.url);
  const hosts = [primary.port, standby.port].map((port) => `127.0.0.1:${port}`).join();
  return `postgres://${username}:${password}@${hosts}${pathname}?target_session_attrs=read-write`;
}

export async function areReady(apiUrls: readonly string[]): Promise<boolean> {
  for (const apiUrl of apiUrls) {
    const isReady = await fetch(`${apiUrl}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (!isReady) return false;
  }
  return true;
}
