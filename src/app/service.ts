/**
 * The whole program, built from a Config. The CLI and the tests construct, start and stop it here.
 */
import type { IssuedKey } from '../api/context.ts';
import { createMetricsServer } from '../api/ops/ops.ts';
import type { Config } from '../config/schema.ts';
import { abortOf } from '../core/abort.ts';
import { HEALTH, PROBE } from '../core/account.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { createWake } from '../core/loop.ts';
import type { SenderOptions } from '../delivery/send.ts';
import { kekIdsOf } from '../domain/key-ring.ts';
import { parseCidr } from '../domain/public-address.ts';
import type { BackfillDisplay } from '../ingest/backfill.ts';
import { withDoubts } from '../ingest/full-checks.ts';
import { actingFor } from '../store/db/acting-for.ts';
import type { Database } from '../store/db/db.ts';
import { createSessionKeeper, type SessionKeeper } from '../store/db/session-keeper.ts';
import { ATTEMPT_CHANNEL } from '../store/delivery/attempt-events.ts';
import { LANE_CHANNEL } from '../store/delivery/lanes.ts';
import type { Ending } from '../store/deployment/processes.ts';
import { startApi } from './api-role.ts';
import { ASK_MS, createAttemptBell, type RingingBell } from './attempt-bell.ts';
import { RESUME_MS_MAX } from './background-loops.ts';
import { attemptsMsOf, type StopParts, stopWithin } from './bounded-stop.ts';
import { nodeUrls, openChain } from './chain-access.ts';
import { chainWarnings } from './chain-warnings.ts';
import { CLOCK_MS } from './common-clock.ts';
import { countConnections } from './connections.ts';
import { createDeliveryRole, type DeliveryRole } from './delivery-role.ts';
import { createDeploymentStatus } from './deployment-status.ts';
import { createElections } from './elections.ts';
import { createFollowerRole } from './follower-role.ts';
import { type Foundation, openFoundation } from './foundation.ts';
import { issueKey } from './issue-keys.ts';
import { closeServer, listen } from './listen.ts';
import { START_MS_MAX } from './open-store.ts';
import { openPriceLoops, type PriceLoops } from './price-feeds.ts';
import { priceWarnings } from './price-warnings.ts';
import { createProcessRegistry, type ProcessRegistry } from './process-registry.ts';
import { createProgramLog } from './program-log.ts';
import { createPublicView } from './public-view.ts';
import { quorumReader } from './quorum-reader.ts';
import { openReplica } from './read-replica.ts';
import { type Role, roles } from './roles.ts';
import { createSchemaWatch, SCHEMA_MS, type SchemaWatch } from './schema-watch.ts';
import { createStatus } from './status.ts';
import { networkWarnings, readCaFile, warnOfOpenings } from './webhook-opening.ts';

export type ServiceOptions = {
  clock?: Clock;
  log?: Log;
  /** The roles of this process; all by default. */
  roles?: readonly Role[];
  /** How long the start waits while the database or all nodes don't answer. */
  startMsMax?: number;
  /** Aborts a start that is still waiting. */
  signal?: AbortSignal;
  /** The folder of migrations, for tests of several versions; the program's by default. */
  migrations?: URL;
  /** Where a backfill shows its progress; the log by default. */
  display?: BackfillDisplay;
};

export type Service = {
  apiUrl: string;
  metricsUrl: string;
  database: Database;
  issueKey(watcherName: string): Promise<IssuedKey>;
  /** Resolves with the error when a bug has ended a part of the service; with a Fault when a newer version broke the schema. */
  readonly failed: Promise<Error>;
  /**
   * Stops everything in reverse order, within `stopSeconds`. If something is still under way then, it is cut off, and the caller should
   * end the process. Further calls return the same promise.
   */
  stop(): Promise<void>;
};

/**
 * Starts the service. It serves the API and delivers as soon as the database answers. When this resolves, a node on the
 * right chain has answered too.
 * @throws Fault `unavailable` when the database or the nodes don't answer in time; `conflict` for another chain, a newer
 * schema or a folder that another service has; `invalid` for a secret that doesn't match the stored keys; the signal's reason when it
 * aborts.
 */
export async function startService(config: Config, options: ServiceOptions = {}): Promise<Service> {
  const log = options.log ?? createProgramLog(config);
  const active: ReadonlySet<Role> = new Set(options.roles ?? roles);
  warnOfConfig(config, log);
  await using parts = new AsyncDisposableStack();

  // Parts close in reverse order, so loops end before the resources that they use.
  const { startMsMax = START_MS_MAX, signal = new AbortController().signal, migrations } = options;
  const given = { clock: options.clock, log, roles: active, startMsMax, migrations, signal };
  const base = await openFoundation(config, given, parts);
  const { version, metrics, clock, steadyClock, common, database, shares, writes, chain, loops } = base;
  const sender = await senderOptions(config);
  const { bell, delivery, elections } = openDelivery(base, sender, parts);

  const headWake = createWake(clock);
  const access = openChain(config, chain, {
    ...{ urls: nodeUrls(config, active), clock: steadyClock, log, metrics },
    onHead: () => headWake.ring(),
  });
  parts.defer(access.close);
  const { nodes, verifier } = access;
  // A follower compares the nodes' chain with the stored one first, and reports what differs.
  if (!active.has('follower') && chain !== undefined) nodes.pin(chain);
  const contracts = quorumReader(nodes, shares.follower);
  const follower = createFollowerRole(base, {
    ...{ access, contracts, headWake, display: options.display, elections },
  });
  const prices = openPriceLoops(config, {
    ...{ database: shares.prices, nodes: contracts, clock, log, metrics },
    isLeader: elections.prices,
  });
  parts.defer(prices.close);

  const deployment = createProcessRegistry({
    ...{ database: database.for('heartbeat'), clock, roles: [...active], version },
    ...{ kekIds: kekIdsOf(base.keyRing), leads: follower.leads },
    report: () => status.follower(),
    failures: () => writes.failures(),
    failingWork: loops.failing,
  });
  const replica = openReplica(base, () => deployment.id, parts);
  const follows = active.has('follower');
  const forHealth = actingFor(HEALTH, database);
  const status = createStatus({
    ...{ version, config, database: forHealth, probes: actingFor(PROBE, database), writes, clock, metrics },
    ...{ reports: database.for('follower'), replica: replica?.state, kekIds: kekIdsOf(base.keyRing) },
    nodes: follows ? nodes : undefined,
    proof: follows ? verifier : undefined,
    heldUpSince: follower.heldUpSince,
    recentStep: () => common?.recentStep(),
    onBug: (err, others) => log.error({ err, others }, 'status.bug'),
    agreement: follows ? () => withDoubts(nodes.agreement(), follower.fullChecks.doubts()) : undefined,
    deployment: createDeploymentStatus({ config, database: forHealth, deployment, clock, metrics }),
  });

  const schema = createSchemaWatch(database.for('follower'), { loops, migrations });
  const { failed, hasFailed, ending, starting, unlessEnding } = watchEnd(base, { schema, signal });
  parts.defer(() => deployment.end(ending()));
  const drain = () => loops.end(() => delivery.stop(attemptsMsOf(config)));
  parts.defer(drain);
  startLoops(base, { delivery, prices, deployment, bell, schema });
  const inFlight = active.has('delivery') ? delivery.inFlight : undefined;
  const serving = { sender, contracts, ops: status, inFlight, attemptBell: bell, replica };
  const stopParts = (): StopParts => ({ running: parts.move(), drain, hasFailed });
  const { apiUrl, metricsUrl } = await starting(async () => {
    const api = active.has('api') ? await startApi(base, serving, parts) : '';
    const metricsServer = createMetricsServer(metrics, status.refreshMetrics);
    parts.defer(() => closeServer(metricsServer));
    const origin = await listen(metricsServer, { section: 'metrics', ...config.metrics });
    if (follows) await unlessEnding(follower.run(status));
    return { apiUrl: api, metricsUrl: `${origin}/metrics` };
  }, stopParts);
  logStart(base, { api: apiUrl, metrics: metricsUrl, process: deployment.id });

  return serviceOf(base, { apiUrl, metricsUrl, failed }, stopParts());
}

function warnOfConfig(config: Config, log: Log): void {
  warnOfOpenings(config, log);
  for (const warning of [...chainWarnings(config), ...priceWarnings(config), ...networkWarnings(config)])
    log.warn(warning, 'config.warning');
}

function logStart(
  { config, database, roles: active, log }: Foundation,
  place: { api: string; metrics: string; process: string },
): void {
  const { api, metrics, process: id } = place;
  const isServer = database.kind === 'postgres';
  const about = {
    ...{ api, metrics, chain: config.chain.id, database: database.kind, roles: [...active], process: id },
    ...(isServer && { connectionsMax: countConnections(config.database, active) }),
  };
  log.info(about, 'service.started');
}

/** Other processes show it to everyone, and don't know the hosts of this one's configuration. */
const describeStartError = (config: Config, error: unknown): string =>
  error instanceof Fault
    ? createPublicView(config).text(messageOf(error))
    : 'a bug. Its log has the error; please report it';

/** Logs why the service ends by itself, and keeps it, and an error of the start, for the record of its end. */
function watchEnd(
  base: Foundation,
  { schema, signal }: { schema: SchemaWatch; signal: AbortSignal },
): {
  failed: Promise<Error>;
  hasFailed(): boolean;
  ending(): Ending;
  /** Stops what works already if the start fails, so that delivery ends as soon as in any other stop. */
  starting<T>(work: () => Promise<T>, stopParts: () => StopParts): Promise<T>;
  /** Rejects as soon as the start is aborted or the service fails. The work then ends with the loops. */
  unlessEnding(work: Promise<void>): Promise<void>;
} {
  const { config, loops, log } = base;
  let isBroken = false;
  let startError: string | undefined;
  const failed = loops.failed.then(schema.explain).then((error) => {
    // With a Fault it ends as it should: another version has changed the schema.
    isBroken = !(error instanceof Fault);
    log.error({ err: error }, 'service.failed');
    return error;
  });
  const hasFailed = () => isBroken || startError !== undefined;
  return {
    failed,
    hasFailed,
    ending: () => ({ isFailed: hasFailed(), error: startError }),
    async starting(work, stopParts) {
      try {
        return await work();
      } catch (error) {
        // A start that was aborted ends as asked.
        if (!signal.aborted) startError = describeStartError(config, error);
        await stopWithin(base, stopParts());
        throw error;
      }
    },
    async unlessEnding(work) {
      const error = await Promise.race([work, abortOf(signal), failed]);
      signal.throwIfAborted();
      if (error !== undefined) throw error;
    },
  };
}

/** Delivery, with the session that listens for it and the bell that it rings. */
function openDelivery(base: Foundation, sender: SenderOptions, parts: AsyncDisposableStack) {
  const { database, steadyClock: clock, loops } = base;
  const session = () => sessions.current();
  const bell = createAttemptBell({ database, clock, session, signal: loops.signal });
  const delivery = createDeliveryRole(
    base,
    { sender, sessions: () => sessions, onSettled: bell.ring },
    parts,
  );
  const channels = { [LANE_CHANNEL]: delivery.ring, [ATTEMPT_CHANNEL]: bell.hear };
  const sessions: SessionKeeper = createSessionKeeper(database, channels);
  parts.defer(() => sessions.close());
  return { bell, delivery, elections: createElections(sessions) };
}

async function senderOptions(config: Config): Promise<SenderOptions> {
  const caCertificates = await readCaFile(config);
  return {
    policy: {
      ...config.webhooks,
      allowCidrs: config.webhooks.allowCidrs.map(parseCidr),
      denyCidrs: config.webhooks.denyCidrs.map(parseCidr),
    },
    ...(caCertificates !== undefined && { caCertificates }),
  };
}

/** Starts all loops except the follower's, which start once its nodes have been checked. */
function startLoops(
  { roles: active, common, loops }: Foundation,
  parts: {
    delivery: DeliveryRole;
    prices: PriceLoops;
    deployment: ProcessRegistry;
    bell: RingingBell;
    schema: SchemaWatch;
  },
): void {
  const { delivery, prices, deployment, bell, schema } = parts;
  const retryMsMax = RESUME_MS_MAX;
  if (common !== undefined) loops.run('clock', common.step, { idleMs: () => CLOCK_MS, retryMsMax });
  // The schema of an embedded database changes too: `chainbell migrate` of a newer version uses it through the socket.
  loops.run('schema', schema.step, { idleMs: () => SCHEMA_MS });
  // While attempts end, which may take longer than a process may be silent, the others must not report this one as lost.
  loops.runToTheEnd('process heartbeat', deployment.beat, { idleMs: deployment.idleMs, retryMsMax });
  if (active.has('delivery')) delivery.run();
  if (active.has('api')) loops.run('attempt bell', bell.ask, { idleMs: () => ASK_MS, wake: bell.askWake });
  if (active.has('prices'))
    for (const { name, step, idleMs } of prices.loops) loops.runAside(name, step, { idleMs });
}

function serviceOf(
  base: Foundation,
  given: Pick<Service, 'apiUrl' | 'metricsUrl' | 'failed'>,
  parts: StopParts,
): Service {
  const { database, keyRing, clock } = base;
  let stopping: Promise<void> | undefined;
  return {
    ...{ ...given, database },
    issueKey: (watcherName) => issueKey({ database, keyRing }, watcherName, clock.now()),
    stop() {
      stopping ??= stopWithin(base, parts);
      return stopping;
    },
  };
}
