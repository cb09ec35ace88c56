/**
 * The whole program, built from a Config: everything is constructed, started and stopped here, by the CLI and by tests.
 */
import { readFile } from 'node:fs/promises';
import packageJson from '../package.json' with { type: 'json' };
import { createMetricsServer } from './api/ops.ts';
import { nodeUrls, openChain } from './chain-access.ts';
import { chainWarnings } from './chain-warnings.ts';
import { CLOCK_MS, openCommonClock } from './common-clock.ts';
import { rulesOf } from './config/points.ts';
import type { Config } from './config/schema.ts';
import { type Clock, steadyFrom, systemClock } from './core/clock.ts';
import { Fault, messageOf } from './core/fault.ts';
import { createLog, type Log } from './core/log.ts';
import { createWake, runLoop, type Step } from './core/loop.ts';
import { createMetrics } from './core/metrics.ts';
import { parseCidr } from './core/public-address.ts';
import type { WebhookPolicy } from './core/webhook-url.ts';
import { createDeliverer, HEARTBEAT_MS } from './delivery/deliver.ts';
import type { DeliveryOptions } from './delivery/lane.ts';
import { createSender } from './delivery/send.ts';
import { createTestSender } from './delivery/test-webhook.ts';
import { createActivityReader } from './ingest/activities.ts';
import { type BackfillDisplay, createBackfill, logDisplay } from './ingest/backfill.ts';
import { createFollower } from './ingest/follow.ts';
import { createMarketLedger } from './ingest/market.ts';
import { createPairBackfill } from './ingest/pair-backfill.ts';
import { checkPairs } from './ingest/pair-contracts.ts';
import { createPairReader } from './ingest/pair-events.ts';
import { createPairReadings } from './ingest/pair-readings.ts';
import { createPairPruner } from './ingest/pair-retention.ts';
import { createPointsLedger } from './ingest/points.ts';
import { createScrutiny, withDoubts } from './ingest/scrutiny.ts';
import { createSwapValuer } from './ingest/swap-values.ts';
import { createVouch } from './ingest/vouch.ts';
import { type IssuedKey, issueKey } from './keys.ts';
import { closeServer, listen, listenFault } from './listen.ts';
import { createPriceBook, openPriceLoops } from './prices.ts';
import { agreeingReader } from './reading-block.ts';
import { openKeyRing } from './secret.ts';
import { createStatus } from './status.ts';
import { findChain } from './store/blocks.ts';
import { type Database, openDatabase } from './store/db.ts';
import { LANE_CHANNEL } from './store/lanes.ts';
import { migrate } from './store/migrate.ts';
import { requirePairs } from './store/pairs.ts';
import { createPruner } from './store/retention.ts';
import { createSessionKeeper } from './store/session-keeper.ts';
import { createWriteHealth } from './store/write-health.ts';
import { openSupply } from './supply.ts';
import { valuedPairs } from './valued-pairs.ts';

export const roles = ['follower', 'delivery', 'api', 'prices'] as const;
export type Role = (typeof roles)[number];

export type ServiceOptions = {
  clock?: Clock;
  log?: Log;
  /** What this process does; all of it by default. */
  roles?: readonly Role[];
  /** How long the start waits for a database and a node that do not answer. */
  startMsMax?: number;
  /** Breaks off a start that is still waiting. */
  signal?: AbortSignal;
  /** Where a back-fill shows how far it is; the log by default. */
  display?: BackfillDisplay;
};

export type Service = {
  apiUrl: string;
  metricsUrl: string;
  database: Database;
  issueKey(watcherName: string): Promise<IssuedKey>;
  /** Resolves with the reason when a part of the service has died of a bug. */
  readonly failed: Promise<Error>;
  /** Stops everything in reverse order; may be called again. */
  stop(): Promise<void>;
};

/** After this long without a database or a node a start gives up (exit code 69); docs/operations.md states it. */
export const START_MS_MAX = 60_000;
const START_RETRY_MS_MIN = 500;
const START_RETRY_MS_MAX = 5_000;
/** Without pushed heads the nodes are asked this often, with them only as a watchdog. */
const POLL_MS = 500;
const POLL_PUSHED_MS = 2_000;
const LOOP_RETRY_MS_MAX = 15_000;
const PRUNE_MS = 60_000;
/** How soon what follows from a block is done for pairs: a mint's supply, a first price. */
const PAIRS_MS = 1_000;
/** Advisory lock space of elections; the keys of the follower and of who asks for prices in it. */
const ELECTION_LOCK_SPACE = 0x6362_0004;
const FOLLOWER_ELECTION = 1;
const PRICES_ELECTION = 2;

/**
 * Starts the service. It answers and delivers as soon as its database is there, and has met a node on the right chain
 * when this resolves.
 * @throws Fault `unavailable` when database or nodes do not answer in time; `conflict` for another chain, a newer
 * schema or a folder in use; `invalid` for a secret that does not fit; the signal's reason when it aborts.
 */
export async function startService(config: Config, options: ServiceOptions = {}): Promise<Service> {
  const log = options.log ?? createLog(config.log);
  const active = new Set(options.roles ?? roles);
  const patience = {
    log,
    startMsMax: options.startMsMax ?? START_MS_MAX,
    signal: options.signal ?? new AbortController().signal,
  };
  const policy: WebhookPolicy = { ...config.webhooks, allowCidrs: config.webhooks.allowCidrs.map(parseCidr) };
  warnOfOpenings(config, log);
  for (const warning of chainWarnings(config)) log.warn(warning, 'config.warning');
  await using parts = new AsyncDisposableStack();

  const stored = await retryAtStart(() => openStore(config, log), { ...patience, what: 'database' });
  const { database, keyRing } = stored;
  parts.defer(() => database.close());
  // Leases and due times are instants that several machines compare, so all go by the database's clock.
  const common = options.clock === undefined ? stored.common : undefined;
  const clock = options.clock ?? stored.common.clock;
  // Differences of times that no other process sees.
  const steadyClock = steadyFrom(clock);
  /** A clock that is a year ahead by mistake must not delete everything. */
  const unlessStepped =
    (step: Step): Step =>
    async (abort) =>
      common === undefined || common.mayPrune() ? step(abort) : 'idle';
  const writes = createWriteHealth(database, clock);
  const metrics = createMetrics(packageJson.version);
  const closing = new AbortController();
  const { signal } = closing;
  const died = Promise.withResolvers<Error>();
  const loops: Promise<void>[] = [];
  // Loops first, then what they use: the stack unwinds from its end.
  const run = (
    name: string,
    step: Step,
    timing: { idleMs(): number | Promise<number>; wake?: ReturnType<typeof createWake>; retryMsMax?: number },
  ) => {
    const onFault = (fault: Fault, retryMs: number) =>
      log.warn({ loop: name, code: fault.code, error: messageOf(fault), retryMs }, 'loop.fault');
    const loop = runLoop(step, { name, clock, signal, retryMsMax: LOOP_RETRY_MS_MAX, onFault, ...timing });
    loops.push(loop.catch((error: Error) => died.resolve(error)));
  };

  const caCertificates = await readCaFile(config);
  const senderOptions = { policy, ...(caCertificates !== undefined && { caCertificates }) };
  const sender = createSender(senderOptions);
  parts.defer(() => sender.close());
  // With separate connections: no attempt waits for one that a test holds.
  const testSender = createSender(senderOptions);
  parts.defer(() => testSender.close());
  const sessions = createSessionKeeper(database, { [LANE_CHANNEL]: (payload) => deliverer.ring(payload) });
  parts.defer(() => sessions.close());
  const deliveryOptions: DeliveryOptions = {
    database: writes.watch('delivery'),
    clock,
    log,
    metrics,
    keyRing,
    nativeSymbol: config.chain.native.symbol,
    retryMinutes: config.webhooks.retryMinutes,
    send: sender.send,
  };
  const deliverer = createDeliverer({ ...deliveryOptions, session: () => sessions.current() });
  deliverer.failed.catch((error: Error) => died.resolve(error));

  const headWake = createWake(clock);
  const access = openChain(config, stored.chain, {
    urls: nodeUrls(config, active),
    clock: steadyClock,
    log,
    metrics,
    onHead: () => headWake.ring(),
  });
  parts.defer(access.close);
  const { nodes, verifier } = access;
  // Who follows compares first, and says what differs.
  if (!active.has('follower') && stored.chain !== undefined) nodes.pin(stored.chain);
  const contracts = agreeingReader(nodes, database);
  const rules = rulesOf(config);
  const pairs = valuedPairs(config);
  let leads = false;
  const followed = writes.watch('follower');
  const scrutiny = createScrutiny({ clock, log });
  const follower = createFollower({
    database: followed,
    nodes,
    clock,
    log,
    metrics,
    chainId: config.chain.id,
    startBlock: config.chain.startBlock,
    confirmations: config.chain.confirmations,
    finalityDepth: config.chain.finalityDepth,
    ledgers: [createMarketLedger(pairs, clock), createPointsLedger({ rules, log })],
    extract: { pairEvents: createPairReader(pairs), activities: createActivityReader(rules) },
    backfill: createBackfill({
      clock: steadyClock,
      log,
      display: options.display ?? logDisplay(steadyClock, log),
    }),
    checks: verifier,
    beyondHashes: {
      scrutiny,
      vouch: createVouch({ voters: nodes, recover: verifier.recover, log }),
    },
    async isLeader() {
      leads = await (await sessions.current()).tryLock(ELECTION_LOCK_SPACE, FOLLOWER_ELECTION);
      return leads;
    },
  });
  const prices = openPriceLoops(config, {
    ...{ database: writes.watch('prices'), nodes: contracts, clock, log, metrics },
    isLeader: async () => (await sessions.current()).tryLock(ELECTION_LOCK_SPACE, PRICES_ELECTION),
  });
  parts.defer(prices.close);
  const status = createStatus({
    version: packageJson.version,
    config,
    database,
    nodes: active.has('follower') ? nodes : undefined,
    proof: active.has('follower') ? verifier : undefined,
    writes,
    recentStep: () => common?.recentStep(),
    agreement: active.has('follower') ? () => withDoubts(nodes.agreement(), scrutiny.doubts()) : undefined,
    clock,
    metrics,
  });

  parts.defer(async () => {
    closing.abort();
    await deliverer.stop();
    await Promise.all(loops);
  });
  if (common !== undefined) run('clock', common.step, { idleMs: () => CLOCK_MS });
  if (active.has('delivery')) {
    run('delivery', deliverer.step, { idleMs: deliverer.idleMs, wake: deliverer.wake });
    run('delivery heartbeat', deliverer.heartbeat, { idleMs: () => HEARTBEAT_MS });
    run('retention', unlessStepped(createPruner({ database, clock, ...config.retention })), {
      idleMs: () => PRUNE_MS,
    });
  }
  if (active.has('prices')) for (const { name, step, idleMs } of prices.loops) run(name, step, { idleMs });

  const apiUrl = active.has('api') ? await listenApi() : '';
  const metricsServer = createMetricsServer(metrics, status.refreshMetrics);
  parts.defer(() => closeServer(metricsServer));
  const metricsUrl = `${await listen(metricsServer, config.metrics)}/metrics`;

  if (active.has('follower')) {
    // The API serves and webhooks go out meanwhile; only a chain that does not fit ends the start.
    const pin = status.watch(async (abort) => {
      await follower.pin(abort);
      return 'idle';
    });
    await retryAtStart(() => pin(signal), { ...patience, what: 'nodes' });
    await retryAtStart(() => checkContracts(), { ...patience, what: 'nodes' });
    const led =
      (step: Step): Step =>
      async (abort) =>
        leads ? step(abort) : 'idle';
    const market = { database: followed, nodes, clock, log, pairs };
    if (pairs.length > 0) {
      run('pair readings', led(createPairReadings({ ...market, nodes: contracts })), {
        idleMs: () => PAIRS_MS,
      });
      const anchored = { ...market, nodes: { bundles: nodes.anchored } };
      run('pair backfill', led(createPairBackfill(anchored)), { idleMs: () => PAIRS_MS });
      run('swap values', led(createSwapValuer(market)), { idleMs: () => PAIRS_MS });
    }
    // Facts of pairs that are configured no more grow old too.
    run('pair retention', led(unlessStepped(createPairPruner({ database, clock, ...config.retention }))), {
      idleMs: () => PRUNE_MS,
    });
    run('follower', status.watch(follower.step), {
      idleMs: () => (nodes.isPushed() ? POLL_PUSHED_MS : POLL_MS),
      wake: headWake,
      // Holding ends with the poll after the nodes agree again; nodes that fail are left to rest by themselves.
      retryMsMax: POLL_PUSHED_MS,
    });
  }
  log.info(
    { api: apiUrl, metrics: metricsUrl, chain: config.chain.id, database: database.kind, roles: [...active] },
    'service.started',
  );

  const running = parts.move();
  let stopping: Promise<void> | undefined;
  return {
    apiUrl,
    metricsUrl,
    database,
    issueKey: (watcherName) => issueKey({ database, keyRing }, watcherName, clock.now()),
    failed: died.promise,
    stop() {
      stopping ??= running.disposeAsync().then(() => log.info('service.stopped'));
      return stopping;
    },
  };

  /** A missing second node must not keep the service from starting. One node suffices, because no result is stored. */
  async function checkContracts(): Promise<void> {
    try {
      await checkPairs(contracts, pairs, signal);
    } catch (error) {
      if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
      await checkPairs(nodes, pairs, signal);
    }
  }

  async function listenApi(): Promise<string> {
    // Who does not serve it does not load it.
    const { createApi } = await import('./api/server.ts');
    const sendTest = createTestSender({ ...deliveryOptions, send: testSender.send });
    const { confirmations } = config.chain;
    const api = createApi({
      ...deliveryOptions,
      database: writes.watch('api'),
      webhookPolicy: policy,
      confirmations,
      pairs,
      sendTest,
      ops: status,
      prices: createPriceBook(config),
      supply: openSupply(config, { database, nodes: contracts, clock, log, signal }),
    });
    parts.defer(() => api.close());
    try {
      return await api.listen({ ...config.http });
    } catch (error) {
      throw listenFault(error, config.http);
    }
  }
}

/** The database with its schema up to date, and all that the start reads from it; closed again when any of it fails. */
async function openStore(config: Config, log: Log) {
  const database = await openDatabase({ url: config.database.url, dataDir: config.dataDir });
  try {
    const applied = await migrate(database);
    if (applied.length > 0) log.info({ applied }, 'database.migrated');
    await requirePairs(database, config.pairs);
    const { retryMinutes } = config.webhooks;
    return {
      database,
      common: await openCommonClock({ database, log, retryMinutes }),
      keyRing: await openKeyRing(config, database),
      chain: await findChain(database),
    };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** Tries again while database or nodes do not answer, for at most startMsMax or until the signal aborts. */
async function retryAtStart<T>(
  attempt: () => Promise<T>,
  { log, startMsMax, signal, what }: { log: Log; startMsMax: number; signal: AbortSignal; what: string },
): Promise<T> {
  // The machine's clock: the database's is not known yet.
  const clock = systemClock();
  const giveUpAt = clock.steadyMs() + startMsMax;
  let retryMs = START_RETRY_MS_MIN;
  for (;;) {
    signal.throwIfAborted();
    try {
      return await attempt();
    } catch (error) {
      const isWorthRetrying =
        error instanceof Fault && (error.code === 'unavailable' || error.code === 'inconsistent');
      const leftMs = giveUpAt - clock.steadyMs();
      if (!isWorthRetrying || leftMs <= 0) throw error;
      log.warn(
        { waitingFor: what, error: messageOf(error), givesUpInSeconds: Math.ceil(leftMs / 1000) },
        'service.waits',
      );
      await clock.wait(Math.min(retryMs, leftMs), signal);
      retryMs = Math.min(retryMs * 2, START_RETRY_MS_MAX);
    }
  }
}

async function readCaFile({ webhooks: { caFile } }: Config): Promise<string | undefined> {
  if (caFile === null) return undefined;
  try {
    return await readFile(caFile, 'utf8');
  } catch (error) {
    throw new Fault('invalid', `webhooks.caFile cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

function warnOfOpenings({ webhooks }: Config, log: Log): void {
  const { allowHttp, allowCidrs } = webhooks;
  if (!allowHttp && allowCidrs.length === 0) return;
  const meaning =
    'webhooks may reach what they should not on the open internet: for development and private networks only';
  log.warn({ allowHttp, allowCidrs, meaning }, 'webhooks.guard_opened');
}
