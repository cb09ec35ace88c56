/**
 * The whole program, built from a Config: everything is constructed, started and stopped here, by the CLI and by tests.
 */
import { createMetricsServer } from '../api/ops/ops.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { createWake } from '../core/loop.ts';
import type { SenderOptions } from '../delivery/send.ts';
import { parseCidr } from '../domain/public-address.ts';
import type { BackfillDisplay } from '../ingest/backfill.ts';
import { withDoubts } from '../ingest/full-checks.ts';
import type { Database } from '../store/db/db.ts';
import { createSessionKeeper } from '../store/db/session-keeper.ts';
import { LANE_CHANNEL } from '../store/delivery/lanes.ts';
import { startApi } from './api-role.ts';
import { RESUME_MS_MAX } from './background-loops.ts';
import { nodeUrls, openChain } from './chain-access.ts';
import { chainWarnings } from './chain-warnings.ts';
import { CLOCK_MS } from './common-clock.ts';
import { createDeliveryRole } from './delivery-role.ts';
import { createDeploymentStatus } from './deployment-status.ts';
import { createFollowerRole } from './follower-role.ts';
import { openFoundation } from './foundation.ts';
import { type IssuedKey, issueKey } from './issue-keys.ts';
import { closeServer, listen } from './listen.ts';
import { START_MS_MAX } from './open-store.ts';
import { openPriceLoops } from './price-feeds.ts';
import { createProcessRegistry } from './process-registry.ts';
import { createProgramLog } from './program-log.ts';
import { quorumReader } from './quorum-reader.ts';
import { type Role, roles } from './roles.ts';
import { createStatus } from './status.ts';
import { readCaFile, warnOfOpenings } from './webhook-opening.ts';

export type ServiceOptions = {
  clock?: Clock;
  log?: Log;
  /** What this process does; all of it by default. */
  roles?: readonly Role[];
  /** How long the start waits for a database and a node that do not answer. */
  startMsMax?: number;
  /** Breaks off a start that is still waiting. */
  signal?: AbortSignal;
  /** Where a backfill shows how far it is; the log by default. */
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
  const active: ReadonlySet<Role> = new Set(options.roles ?? roles);
  warnOfOpenings(config, log);
  for (const warning of chainWarnings(config)) log.warn(warning, 'config.warning');
  await using parts = new AsyncDisposableStack();

  // What is opened first is closed last: loops end before what they use.
  const base = await openFoundation(
    config,
    {
      ...{ clock: options.clock, log, roles: active, startMsMax: options.startMsMax ?? START_MS_MAX },
      signal: options.signal ?? new AbortController().signal,
    },
    parts,
  );
  const { version, metrics, clock, steadyClock, common, database, shares, writes, keyRing, chain, loops } =
    base;
  const caCertificates = await readCaFile(config);
  const sender: SenderOptions = {
    policy: { ...config.webhooks, allowCidrs: config.webhooks.allowCidrs.map(parseCidr) },
    ...(caCertificates !== undefined && { caCertificates }),
  };
  const delivery = createDeliveryRole(base, { sender, sessions: () => sessions }, parts);
  const sessions = createSessionKeeper(database, { [LANE_CHANNEL]: delivery.ring });
  parts.defer(() => sessions.close());

  const headWake = createWake(clock);
  const access = openChain(config, chain, {
    ...{ urls: nodeUrls(config, active), clock: steadyClock, log, metrics },
    onHead: () => headWake.ring(),
  });
  parts.defer(access.close);
  const { nodes, verifier } = access;
  // A follower compares first, and says what differs.
  if (!active.has('follower') && chain !== undefined) nodes.pin(chain);
  const contracts = quorumReader(nodes, shares.follower);
  const follower = createFollowerRole(base, {
    ...{ access, contracts, headWake, display: options.display },
    async elect() {
      const session = await sessions.current();
      const isLeader = await session.tryLock(ELECTION_LOCK_SPACE, FOLLOWER_ELECTION);
      return { isLeader, isHeld: () => !session.lost.aborted };
    },
  });
  const prices = openPriceLoops(config, {
    ...{ database: shares.prices, nodes: contracts, clock, log, metrics },
    isLeader: async () => (await sessions.current()).tryLock(ELECTION_LOCK_SPACE, PRICES_ELECTION),
  });
  parts.defer(prices.close);

  const deployment = createProcessRegistry({
    ...{ database: database.for('follower'), clock, roles: [...active], version },
    leads: follower.leads,
    report: () => status.follower(),
    failures: () => writes.failures(),
  });
  const follows = active.has('follower');
  const status = createStatus({
    ...{ version, config, database, writes, clock, metrics },
    nodes: follows ? nodes : undefined,
    proof: follows ? verifier : undefined,
    recentStep: () => common?.recentStep(),
    agreement: follows ? () => withDoubts(nodes.agreement(), follower.fullChecks.doubts()) : undefined,
    deployment: createDeploymentStatus({ config, database, deployment, clock, metrics }),
  });

  parts.defer(() => deployment.end());
  parts.defer(() => loops.end(delivery.stop));
  const retryMsMax = RESUME_MS_MAX;
  if (common !== undefined) loops.run('clock', common.step, { idleMs: () => CLOCK_MS, retryMsMax });
  loops.run('process heartbeat', deployment.beat, { idleMs: deployment.idleMs, retryMsMax });
  if (active.has('delivery')) delivery.run();
  if (active.has('prices'))
    for (const { name, step, idleMs } of prices.loops) loops.run(name, step, { idleMs });
  const apiUrl = active.has('api') ? await startApi(base, { sender, contracts, ops: status }, parts) : '';
  const metricsServer = createMetricsServer(metrics, status.refreshMetrics);
  parts.defer(() => closeServer(metricsServer));
  const metricsUrl = `${await listen(metricsServer, config.metrics)}/metrics`;
  if (follows) await follower.run(status);
  const about = {
    chain: config.chain.id,
    database: database.kind,
    roles: [...active],
    process: deployment.id,
  };
  log.info({ api: apiUrl, metrics: metricsUrl, ...about }, 'service.started');

  const running = parts.move();
  let stopping: Promise<void> | undefined;
  return {
    ...{ apiUrl, metricsUrl, database, failed: loops.failed },
    issueKey: (watcherName) => issueKey({ database, keyRing }, watcherName, clock.now()),
    stop() {
      stopping ??= running.disposeAsync().then(() => log.info('service.stopped'));
      return stopping;
    },
  };
}
