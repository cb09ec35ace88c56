/**
 * The demo: a chain, Chainbell, a receiver and traffic in one process, from the first block to the first webhook.
 */
import { randomBytes } from 'node:crypto';
import type { startService } from '../src/app/service.ts';
import { type Clock, systemClock } from '../src/core/clock.ts';
import { Fault } from '../src/core/fault.ts';
import { type Address, parseAddress } from '../src/core/hex.ts';
import type { Anvil } from './anvil.ts';
import { genesis, openDemoChain } from './demo-chain.ts';
import {
  CHAIN_ID,
  type DemoConfigOptions,
  demoConfig,
  demoConfigText,
  NATIVE_SYMBOL,
} from './demo-config.ts';
import { openDemoFolder, removeDemoConfig, writeDemoConfig, writeDemoNote } from './demo-folder.ts';
import { findFreePort, findPortNear, retryOnConflict } from './free-port.ts';
import { marketTokens, tokenSymbols } from './market.ts';
import { marketTrafficAt } from './market-traffic.ts';
import { startMining } from './mining.ts';
import { startPriceFeed } from './price-feed.ts';
import { type AssetFormats, startSampleReceiver } from './sample-receiver.ts';
import { type Scene, tokenFormats } from './scene.ts';
import type { DemoFacts } from './screen.ts';
import { startTraffic, trafficAt } from './traffic.ts';
import { findBlock } from './wallet.ts';

type DemoOptions = {
  dataFolder: string;
  /** The port of the API. Undefined means 8080, or another one if that is taken. */
  port: number | undefined;
  blockTimeSeconds: number;
  retryMinutes: readonly number[] | undefined;
  fresh: boolean;
};

/** What the demo is built from, and where it reports its progress. */
type DemoSurroundings = {
  startService: typeof startService;
  version: string;
  /** Called when a step is done. */
  onStep(text: string): void;
  /** Called with a line of the receiver, or an error of the traffic. */
  onLine(line: string): void;
};

export type Demo = {
  facts: DemoFacts;
  /** Resolves with the first webhook that the receiver accepted. */
  firstWebhook: Promise<void>;
  /** Resolves with the error if a part of the demo ends before it is stopped. */
  failed: Promise<Error>;
  /** Stops traffic, service, receiver and chain in this order, and saves the state of the chain. May be called again. */
  stop(): Promise<void>;
};

const WATCHER_NAME = 'demo';
const API_MS_MAX = 10_000;
const ADMIN_TOKEN_BYTES = 32;
/** How long to wait until the service has caught up. After that the demo starts, and the service continues to catch up. */
const FOLLOW_MS_MAX = 30_000;
const FOLLOW_POLL_MS = 50;
/** The ports that are tried first. If one is taken, the demo uses another one. */
const preferredPorts = { api: 8080, metrics: 9464, chain: 8545, receiver: 8090, prices: 8091 } as const;
/** The time between two transactions of the traders, and of the market's members. */
const trafficMs = { traders: 1_000, market: 500 } as const;

/**
 * Starts everything, or continues where the demo in this folder was stopped. If a step fails or the signal aborts, it stops
 * the parts it has started.
 * @throws Fault `conflict` if the port or the folder is in use, and the signal's reason if it aborts
 */
// oxlint-disable-next-line max-lines-per-function -- linear: each part is started once the one before it is up
export async function startDemo(
  surroundings: DemoSurroundings,
  options: DemoOptions,
  signal: AbortSignal,
): Promise<Demo> {
  const { onStep, onLine } = surroundings;
  const clock = systemClock();
  await using parts = new AsyncDisposableStack();
  const failures: Promise<Error>[] = [];

  const apiPort =
    options.port === undefined ? await findPortNear(preferredPorts.api) : await findFreePort(options.port);
  const folder = openDemoFolder(options.dataFolder);
  const chain = await openDemoChain(folder, {
    preferredPort: preferredPorts.chain,
    chainId: CHAIN_ID,
    fresh: options.fresh,
  });
  const { anvil, scene } = chain;
  parts.defer(() => anvil.stop());
  failures.push(anvil.ended.then((reason) => new Fault('unavailable', `the chain ended: ${reason}`)));
  onStep(`chain ${CHAIN_ID} on ${anvil.url}, ${chain.story}`);
  onStep('contracts: tokens, Uniswap V2 with six pairs, farm, staking, vesting, governor, bridge');
  signal.throwIfAborted();

  let apiKey = chain.continued?.apiKey;
  const receiver = await startSampleReceiver({
    preferredPort: portOf(chain.continued?.receiverUrl) ?? preferredPorts.receiver,
    apiKey: () => apiKey,
    assets: assetFormatsOf(scene),
    print: onLine,
    now: () => clock.now(),
  });
  parts.defer(() => receiver.stop());
  onStep(`sample receiver on ${receiver.url}`);

  const priceFeed = await startPriceFeed({
    preferredPort: preferredPorts.prices,
    now: () => clock.now(),
  });
  parts.defer(() => priceFeed.stop());
  onStep(`price feed on ${priceFeed.url}`);

  const configOptions: DemoConfigOptions = {
    rpc: [anvil.url, anvil.wsUrl],
    dataDir: folder.serviceFolder,
    receiverPort: Number(portOf(receiver.url)),
    retryMinutes: options.retryMinutes,
    priceFeedUrl: priceFeed.url,
    market: scene.market,
    tokens: {
      [tokenFormats.token.symbol]: { address: scene.contracts.token, decimals: tokenFormats.token.decimals },
      [tokenFormats.feeToken.symbol]: {
        address: scene.contracts.feeToken,
        decimals: tokenFormats.feeToken.decimals,
      },
    },
    deployer: scene.deployer,
    initialCoins: genesis.accounts * genesis.coinsEach,
  };
  const given = demoConfig(configOptions);
  // It stays the same from start to start, as the API key does, so that a link that someone has kept still opens.
  const adminToken = chain.continued?.adminToken ?? randomBytes(ADMIN_TOKEN_BYTES).toString('base64url');
  const config = { ...given, http: { ...given.http, adminToken } };
  const service = await startOnFreePorts(surroundings, config, {
    apiPort,
    isFixed: options.port !== undefined,
  });
  parts.defer(() => service.stop());
  failures.push(service.failed);
  writeDemoConfig(folder, {
    ...demoConfigText(configOptions),
    http: { port: Number(portOf(service.apiUrl)) },
    metrics: { port: Number(portOf(service.metricsUrl)) },
  });
  parts.defer(() => removeDemoConfig(folder));
  onStep(`Chainbell on ${service.apiUrl}`);
  signal.throwIfAborted();

  const head = await findBlock(anvil, 'latest');
  onStep(await waitForBlock(service.apiUrl, head?.number ?? 0, { clock, signal }));

  apiKey ??= (await service.issueKey(WATCHER_NAME)).key;
  onStep(chain.continued === undefined ? 'API key issued' : 'API key of the previous start');
  writeDemoNote(folder, {
    ...{ apiKey, adminToken },
    ...{ receiverUrl: receiver.url, genesisTime: chain.genesisTime },
  });

  const watched = await watchTraders(
    { apiUrl: service.apiUrl, apiKey },
    {
      addresses: scene.traders.slice(0, 2),
      webhookUrl: receiver.url,
      formerWebhookUrl: chain.continued?.receiverUrl,
    },
  );
  onStep(`${watched.length} addresses watched`);
  signal.throwIfAborted();

  // Begins after the follower has caught up, because anvil 1.7.1 traces only its newest blocks.
  const blockTimeMs = options.blockTimeSeconds * 1_000;
  for (const activity of await startActivities({ node: anvil, scene, clock }, { blockTimeMs, onLine })) {
    parts.defer(() => activity.stop());
    failures.push(failureOf(activity.ended));
  }
  onStep('traffic started');

  const running = parts.move();
  let stopping: Promise<void> | undefined;
  return {
    facts: {
      version: surroundings.version,
      chain: { id: CHAIN_ID, block: head?.number ?? 0, rpcUrl: anvil.url, wsUrl: anvil.wsUrl },
      apiUrl: service.apiUrl,
      metricsUrl: service.metricsUrl,
      dataFolder: folder.folder,
      apiKey,
      adminToken,
      receiverUrl: receiver.url,
      priceFeedUrl: priceFeed.url,
      month: clock.now().toISOString().slice(0, 'YYYY-MM'.length),
      watched,
      scene,
      story: chain.story,
      retryMinutes: config.webhooks.retryMinutes,
    },
    firstWebhook: receiver.first,
    failed: Promise.race(failures),
    stop: () => (stopping ??= running.disposeAsync()),
  };
}

/** Starts the service on the API port and a metrics port near the usual one, or on other ports if they were taken meanwhile. */
async function startOnFreePorts(
  { startService }: DemoSurroundings,
  config: ReturnType<typeof demoConfig>,
  { apiPort, isFixed }: { apiPort: number; isFixed: boolean },
) {
  const startOn = (ports: { api: number; metrics: number }) =>
    startService({
      ...config,
      http: { ...config.http, port: ports.api },
      metrics: { ...config.metrics, port: ports.metrics },
    });
  return retryOnConflict(startOn, {
    preferred: { api: apiPort, metrics: await findPortNear(preferredPorts.metrics) },
    otherwise: { api: isFixed ? apiPort : 0, metrics: 0 },
  });
}

/** Starts mining, and the transactions of the traders and of the market's members. */
async function startActivities(
  { node, scene, clock }: { node: Anvil; scene: Scene; clock: Clock },
  { blockTimeMs, onLine }: { blockTimeMs: number; onLine(line: string): void },
) {
  const logFault = (what: string) => (fault: Fault) => onLine(`${what}: ${fault.message}`);
  const onFault = logFault('traffic');
  return [
    await startMining({ node, clock }, { onFault: logFault('mining'), intervalMs: blockTimeMs }),
    startTraffic({ node, clock }, (turn) => trafficAt(node, scene, turn), {
      onFault,
      intervalMs: trafficMs.traders,
    }),
    startTraffic({ node, clock }, (turn) => marketTrafficAt(node, scene, turn, clock.now()), {
      onFault,
      intervalMs: trafficMs.market,
    }),
  ];
}

/**
 * Waits until the service has followed the chain up to this block, so that webhooks are about new transfers and not about the
 * demo's setup. Returns a line that says how far it got.
 */
async function waitForBlock(
  apiUrl: string,
  number: number,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
): Promise<string> {
  const deadline = clock.now().getTime() + FOLLOW_MS_MAX;
  for (;;) {
    signal.throwIfAborted();
    const response = await fetch(`${apiUrl}/status`, { signal: AbortSignal.timeout(API_MS_MAX) });
    const { cursor }: Record<string, unknown> = { ...Object(await response.json()) };
    const followed = Number(Object(cursor).number ?? 0);
    if (followed >= number) return `${followed} blocks followed`;
    if (clock.now().getTime() > deadline) return `${followed} of ${number} blocks followed so far`;
    await clock.wait(FOLLOW_POLL_MS, signal);
  }
}

type WatchedRecord = { id: string; address: Address; webhookUrl: string };

/**
 * Creates a watched address for each address that has none, through the API like any client. Those of the previous start are
 * kept, and get the receiver's new URL if it has changed.
 */
async function watchTraders(
  api: { apiUrl: string; apiKey: string },
  wanted: { addresses: readonly Address[]; webhookUrl: string; formerWebhookUrl: string | undefined },
): Promise<WatchedRecord[]> {
  const { webhookUrl, formerWebhookUrl } = wanted;
  const list = await callApi(api, 'GET', '');
  if (!Array.isArray(list)) throw new Fault('inconsistent', 'the list of watched addresses is not a list');
  const records = list.map(parseRecord);
  for (const { id, webhookUrl: former } of records) {
    if (former === formerWebhookUrl && former !== webhookUrl) {
      await callApi(api, 'PATCH', `/${id}`, { webhook_url: webhookUrl });
    }
  }
  const watched: WatchedRecord[] = [];
  for (const address of wanted.addresses) {
    const known = records.find((record) => record.address === address);
    watched.push(known ?? parseRecord(await callApi(api, 'POST', '', { address, webhook_url: webhookUrl })));
  }
  return watched;
}

async function callApi(
  { apiUrl, apiKey }: { apiUrl: string; apiKey: string },
  method: 'GET' | 'POST' | 'PATCH',
  path: string,
  body?: Record<string, string>,
): Promise<unknown> {
  const response = await fetch(`${apiUrl}/api/notifications/watched-addresses${path}`, {
    method,
    headers: {
      authorization: `Bearer ${apiKey}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(API_MS_MAX),
  });
  const text = await response.text();
  if (!response.ok)
    throw new Fault('unavailable', `${method} ${response.url} answered ${response.status}: ${text}`);
  const answer: unknown = JSON.parse(text);
  return typeof answer === 'object' && answer !== null && 'data' in answer ? answer.data : undefined;
}

function parseRecord(value: unknown): WatchedRecord {
  const { id, address, webhook_url: webhookUrl }: Record<string, unknown> = { ...Object(value) };
  if (typeof id !== 'string' || typeof address !== 'string' || typeof webhookUrl !== 'string') {
    throw new Fault('inconsistent', 'a watched address has an unknown form');
  }
  return { id, address: parseAddress(address), webhookUrl };
}

function assetFormatsOf({ contracts, market }: Scene): AssetFormats {
  return new Map([
    [NATIVE_SYMBOL.toLowerCase(), { symbol: NATIVE_SYMBOL, decimals: 18 }],
    [contracts.token, tokenFormats.token],
    [contracts.feeToken, tokenFormats.feeToken],
    [market.wrapped, { symbol: `W${NATIVE_SYMBOL}`, decimals: 18 }],
    ...tokenSymbols.map((symbol): [string, { symbol: string; decimals: number }] => [
      market.tokens[symbol],
      { symbol, decimals: marketTokens[symbol].decimals },
    ]),
  ]);
}

function portOf(url: string | undefined): number | undefined {
  return url === undefined ? undefined : Number(new URL(url).port);
}

/** Never resolves if the work ends without an error. */
function failureOf(work: Promise<void>): Promise<Error> {
  return new Promise((resolve) => {
    work.catch((error: unknown) => resolve(error instanceof Error ? error : new Error(String(error))));
  });
}
