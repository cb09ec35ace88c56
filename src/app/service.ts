/**
 * The whole program, built from a Config: everything is constructed, started and stopped here, by the CLI and by tests.
 */
import packageJson from '../../package.json' with { type: 'json' };
import { createMetricsServer } from '../api/ops/ops.ts';
import { rulesOf } from '../config/points.ts';
import type { Config } from '../config/schema.ts';
import { type Clock, steadyFrom } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { createWake, runLoop, type Step } from '../core/loop.ts';
import { createMetrics } from '../core/metrics.ts';
import { createDeliverer, HEARTBEAT_MS } from '../delivery/deliver.ts';
import type { DeliveryOptions } from '../delivery/lane.ts';
import { createPendingAlarm, PENDING_ALARM_MS } from '../delivery/pending-alarm.ts';
import { createSender } from '../delivery/send.ts';
import { createTestSender } from '../delivery/test-webhook.ts';
import { parseCidr } from '../domain/public-address.ts';
import type { WebhookPolicy } from '../domain/webhook-url.ts';
import { type BackfillDisplay, createBackfill, logDisplay } from '../ingest/backfill.ts';
import { createDeferredWriter } from '../ingest/deferred-writer.ts';
import { createFollower } from '../ingest/follow.ts';
import { createMarketProjection } from '../ingest/pairs/market.ts';
import { createPairBackfill } from '../ingest/pairs/pair-backfill.ts';
import { checkPairs } from '../ingest/pairs/pair-contracts.ts';
import { createPairReader } from '../ingest/pairs/pair-events.ts';
import { createPairReadings } from '../ingest/pairs/pair-readings.ts';
import { createPairPruner } from '../ingest/pairs/pair-retention.ts';
import { createSwapValuer } from '../ingest/pairs/swap-values.ts';
import { createActivityReader } from '../ingest/points/activities.ts';
import { createPointsProjection } from '../ingest/points/points.ts';
import { createScrutiny, withDoubts } from '../ingest/scrutiny.ts';
import { createVouch } from '../ingest/vouch.ts';
import type { Database, Share } from '../store/db/db.ts';
import { createSessionKeeper } from '../store/db/session-keeper.ts';
import { createWriteHealth } from '../store/db/write-health.ts';
import { createLaneRepair } from '../store/delivery/lane-repair.ts';
import { LANE_CHANNEL } from '../store/delivery/lanes.ts';
import { createReceiverRepair } from '../store/delivery/receivers.ts';
import { createPruner } from '../store/retention/retention.ts';
import { nodeUrls, openChain } from './chain-access.ts';
import { chainWarnings } from './chain-warnings.ts';
import { CLOCK_MS } from './common-clock.ts';
import { createDeployment } from './deployment.ts';
import { createDeploymentStatus } from './deployment-status.ts';
import { type IssuedKey, issueKey } from './keys.ts';
import { limitsOf, openLimits } from './limits.ts';
import { closeServer, listen, listenFault } from './listen.ts';
import { createPriceBook, openPriceLoops } from './prices.ts';
import { createProgramLog } from './program-log.ts';
import { agreeingReader } from './reading-block.ts';
import { openStore, openToCommands, retryAtStart, START_MS_MAX } from './start.ts';
import { createStatus } from './status.ts';
import { openSupply } from './supply.ts';
import { valuedPairs } from './valued-pairs.ts';
import { readCaFile, warnOfOpenings } from './webhook-opening.ts';

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

/** Without pushed heads the nodes are asked this often, with them only as a watchdog. */
const POLL_MS = 500;
const POLL_PUSHED_MS = 2_000;
const LOOP_RETRY_MS_MAX = 15_000;
/** What rings and follows goes on this soon after a standby has taken over the database. */
const RESUME_MS_MAX = 2_000;
const PRUNE_MS = 60_000;
/** How often a thousand lanes, and a thousand failing receivers, are looked at. */
const LANE_REPAIR_MS = 2_000;
/** How soon what follows from a block is done for pairs: a mint's supply, a first price. */
const PAIRS_MS = 1_000;
/** Deferred notifications are looked for this often, and at once after a commit that leaves some. */
const DEFERRED_MS = 1_000;
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
  const log = options.log ?? createProgramLog(config);
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

  const metrics = createMetrics(packageJson.version);
  const onWait = (share: Share, waitMs: number) =>
    metrics.databaseWaitSeconds.observe({ share }, waitMs / 1_000);
  const stored = await retryAtStart(() => openStore(config, { log, onWait }), {
    ...patience,
    what: 'database',
  });
  const { database, keyRing } = stored;
  parts.defer(() => database.close());
  parts.defer(await openToCommands(stored.database, config, log));
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
  // A part that is overloaded keeps only itself waiting. Price feeds ask seldom and little, so they share with the follower.
  const shares = {
    api: writes.watch('api', database.for('api')),
    follower: writes.watch('follower', database.for('follower')),
    prices: writes.watch('prices', database.for('follower')),
    delivery: writes.watch('delivery', database.for('delivery')),
    settle: writes.watch('delivery', database.for('settle')),
  };
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
    database: shares.delivery,
    clock,
    log,
    metrics,
    keyRing,
    nativeSymbol: config.chain.native.symbol,
    retryMinutes: config.webhooks.retryMinutes,
    send: sender.send,
  };
  const deliverer = createDeliverer({
    ...deliveryOptions,
    settling: shares.settle,
    session: () => sessions.current(),
  });
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
  const contracts = agreeingReader(nodes, shares.follower);
  const rules = rulesOf(config);
  const pairs = valuedPairs(config);
  let leads = () => false;
  const scrutiny = createScrutiny({ clock, log });
  const deferredWake = createWake(clock);
  const follower = createFollower({
    database: shares.follower,
    nodes,
    clock,
    log,
    metrics,
    chainId: config.chain.id,
    startBlock: config.chain.startBlock,
    confirmations: config.chain.confirmations,
    finalityDepth: config.chain.finalityDepth,
    projections: [createMarketProjection(pairs, clock), createPointsProjection({ rules, log })],
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
    onDeferred: () => deferredWake.ring(),
    async isLeader() {
      const session = await sessions.current();
      const isLeader = await session.tryLock(ELECTION_LOCK_SPACE, FOLLOWER_ELECTION);
      leads = () => isLeader && !session.lost.aborted;
      return isLeader;
    },
  });
  const prices = openPriceLoops(config, {
    ...{ database: shares.prices, nodes: contracts, clock, log, metrics },
    isLeader: async () => (await sessions.current()).tryLock(ELECTION_LOCK_SPACE, PRICES_ELECTION),
  });
  parts.defer(prices.close);
  const deployment = createDeployment({
    ...{ database: database.for('follower'), clock, roles: [...active], version: packageJson.version },
    leads: () => leads(),
    report: () => status.follower(),
    failures: () => writes.failures(),
  });
  const status = createStatus({
    version: packageJson.version,
    config,
    database,
    nodes: active.has('follower') ? nodes : undefined,
    proof: active.has('follower') ? verifier : undefined,
    writes,
    recentStep: () => common?.recentStep(),
    agreement: active.has('follower') ? () => withDoubts(nodes.agreement(), scrutiny.doubts()) : undefined,
    deployment: createDeploymentStatus({ config, database, deployment, clock, metrics }),
    clock,
    metrics,
  });

  parts.defer(() => deployment.end());
  parts.defer(async () => {
    closing.abort();
    await deliverer.stop();
    await Promise.all(loops);
  });
  if (common !== undefined) run('clock', common.step, { idleMs: () => CLOCK_MS, retryMsMax: RESUME_MS_MAX });
  run('process heartbeat', deployment.beat, { idleMs: deployment.idleMs, retryMsMax: RESUME_MS_MAX });
  if (active.has('delivery')) {
    const retryMsMax = RESUME_MS_MAX;
    run('delivery', deliverer.step, { idleMs: deliverer.idleMs, wake: deliverer.wake, retryMsMax });
    run('delivery heartbeat', deliverer.heartbeat, { idleMs: () => HEARTBEAT_MS, retryMsMax });
    run('lane repair', unlessStepped(createLaneRepair({ database: shares.delivery, clock, log, metrics })), {
      idleMs: () => LANE_REPAIR_MS,
    });
    const alarm = createPendingAlarm({ database: shares.delivery, log, limits: limitsOf(config) });
    run('pending alarm', alarm, { idleMs: () => PENDING_ALARM_MS });
    run('receiver repair', createReceiverRepair(shares.delivery), { idleMs: () => LANE_REPAIR_MS });
    run('retention', unlessStepped(createPruner({ database: shares.delivery, clock, ...config.retention })), {
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
        leads() ? step(abort) : 'idle';
    const market = { database: shares.follower, nodes, clock, log, pairs };
    if (pairs.length > 0) {
      run('pair readings', led(createPairReadings({ ...market, nodes: contracts })), {
        idleMs: () => PAIRS_MS,
      });
      const anchored = { ...market, nodes: { bundles: nodes.anchored } };
      run('pair backfill', led(createPairBackfill(anchored)), { idleMs: () => PAIRS_MS });
      run('swap values', led(createSwapValuer(market)), { idleMs: () => PAIRS_MS });
    }
    const writer = { ...market, metrics, confirmations: config.chain.confirmations };
    run('deferred notifications', led(createDeferredWriter(writer)), {
      idleMs: () => DEFERRED_MS,
      wake: deferredWake,
      retryMsMax: RESUME_MS_MAX,
    });
    // Facts of pairs that are configured no more grow old too.
    run(
      'pair retention',
      led(unlessStepped(createPairPruner({ database: shares.follower, clock, ...config.retention }))),
      {
        idleMs: () => PRUNE_MS,
      },
    );
    run('follower', status.watch(follower.step), {
      idleMs: () => (nodes.isPushed() ? POLL_PUSHED_MS : POLL_MS),
      wake: headWake,
      // Holding ends with the poll after the nodes agree again; nodes that fail are left to rest by themselves.
      retryMsMax: RESUME_MS_MAX,
    });
  }
  log.info(
    {
      api: apiUrl,
      metrics: metricsUrl,
      chain: config.chain.id,
      database: database.kind,
      roles: [...active],
      process: deployment.id,
    },
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
    const { createApi } = await import('../api/server.ts');
    const sendTest = createTestSender({ ...deliveryOptions, database: shares.api, send: testSender.send });
    const counting = { database: shares.api, clock: steadyClock, log };
    const limits = await retryAtStart(() => openLimits(config, counting), { ...patience, what: 'database' });
    const api = createApi({
      ...deliveryOptions,
      database: shares.api,
      webhookPolicy: policy,
      confirmations: config.chain.confirmations,
      limits,
      pairs,
      sendTest,
      ops: status,
      adminToken: config.http.adminToken ?? undefined,
      prices: createPriceBook(config),
      supply: openSupply(config, { database: shares.api, nodes: contracts, clock, log, signal }),
    });
    parts.defer(() => api.close());
    try {
      const { host, port } = config.http;
      return await api.listen({ host, port });
    } catch (error) {
      throw listenFault(error, config.http);
    }
  }
}
