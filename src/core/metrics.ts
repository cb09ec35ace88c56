/**
 * Defines all metrics. Their names are public and stable, and end in the unit. docs/reference/metrics.md is generated from this
 * file.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client';

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export type Metrics = ReturnType<typeof createMetrics>;
type Factory = ReturnType<typeof createFactory>;

/** Creates all metrics in a separate registry, so that several services can run in one process. */
export function createMetrics(version: string) {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const factory = createFactory(registry);
  factory.gauge('build_info', 'Always 1. The label has the version.', ['version']).set({ version }, 1);
  return {
    registry,
    ...chainMetrics(factory),
    ...nodeMetrics(factory),
    ...deliveryMetrics(factory),
    ...deploymentMetrics(factory),
    ...priceMetrics(factory),
    ...apiMetrics(factory),
  };
}

function createFactory(registry: Registry) {
  const common = <L extends string>(name: string, help: string, labelNames: readonly L[]) => ({
    ...{ name: `chainbell_${name}`, help, labelNames: [...labelNames], registers: [registry] },
  });
  return {
    counter: <L extends string>(name: string, help: string, labels: readonly L[] = []) =>
      new Counter(common(name, help, labels)),
    gauge: <L extends string>(name: string, help: string, labels: readonly L[] = []) =>
      new Gauge(common(name, help, labels)),
    histogram: <L extends string>(name: string, help: string, buckets: number[], labels: readonly L[] = []) =>
      new Histogram({ ...common(name, help, labels), buckets }),
  };
}

const chainMetrics = ({ counter, gauge, histogram }: Factory) => ({
  chainBlockNumber: gauge(
    'chain_block_number',
    'Block number of each stage: head, ingested (the newest stored block) and finalized.',
    ['stage'],
  ),
  chainLagSeconds: gauge(
    'chain_lag_seconds',
    'Age of the newest stored block while the head is ahead of it, otherwise 0.',
  ),
  chainReorgs: counter('chain_reorgs_total', 'Reorgs that changed stored blocks.'),
  chainReorgDepth: histogram(
    'chain_reorg_depth_blocks',
    'Stored blocks that a reorg orphaned.',
    [1, 2, 3, 5, 10, 30, 64],
  ),
  chainHeld: gauge('chain_held', '1 while the state of the follower is holding, otherwise 0.'),
  state: gauge(
    'state',
    '1 for the state of the deployment as this process sees it (ok, degraded or holding), 0 for the others. It leaves out what only /status reads: prices, pairs, and counts of notifications.',
    ['state'],
  ),
  ingestBlocks: counter('ingest_blocks_total', 'Stored blocks.'),
  ingestTransfers: counter('ingest_transfers_total', 'Transfers in stored blocks, by kind.', ['kind']),
  ingestNotifications: counter('ingest_notifications_total', 'Notifications that were created or revived.'),
  addressFilterBytes: gauge('address_filter_bytes', 'Memory of the address filter; 0 while there is none.'),
  addressFilterEntries: gauge('address_filter_entries', 'Addresses in the address filter.'),
  addressFilterProbes: counter(
    'address_filter_probes_total',
    'Addresses of new blocks that the address filter was asked for.',
  ),
  addressFilterPassed: counter(
    'address_filter_passed_total',
    'Those of them that may be watched, for which the database was then asked.',
  ),
});

const nodeMetrics = ({ counter, gauge, histogram }: Factory) => ({
  rpcRequests: counter(
    'rpc_requests_total',
    'JSON-RPC calls by outcome: ok, error (the node answered with an error), failed or limited.',
    ['node', 'method', 'outcome'],
  ),
  rpcSeconds: histogram(
    'rpc_request_duration_seconds',
    'Duration of JSON-RPC requests. The method is batch for several calls in one request.',
    SECONDS,
    ['node', 'method'],
  ),
  rpcHedges: counter(
    'rpc_hedges_total',
    'Requests sent to this node in addition, because another one was slow.',
    ['node'],
  ),
  rpcDisproved: counter(
    'rpc_disproved_total',
    'Answers of this node about blocks that a proof or other nodes contradicted.',
    ['node'],
  ),
  rpcConcurrencyMax: gauge(
    'rpc_concurrency_max',
    'Concurrent requests that this node gets, adapted to its limits.',
    ['node'],
  ),
});

const deliveryMetrics = ({ counter, gauge, histogram }: Factory) => ({
  webhookAttempts: counter(
    'webhook_attempts_total',
    'Delivery attempts by outcome, as in the delivery log.',
    ['outcome'],
  ),
  webhookAttemptSeconds: histogram(
    'webhook_attempt_duration_seconds',
    'Duration of delivery attempts.',
    SECONDS,
  ),
  webhookLatencySeconds: histogram(
    'webhook_delivery_latency_seconds',
    'Time from the creation of a notification to its first 2xx response.',
    [...SECONDS, 60, 600, 3_600, 86_400],
  ),
  webhookRequestsRepeated: counter(
    'webhook_requests_repeated_total',
    'Requests repeated within their attempt, because the receiver closed the kept-alive connection.',
  ),
  webhookWaiting: gauge(
    'webhook_waiting',
    'Notifications that wait for an attempt. Waiting, held and deferred ones are each counted up to 100,000.',
  ),
  webhookDue: gauge('webhook_due', 'Notifications whose attempt is due, counted up to 100,000.'),
  webhookOldestDueSeconds: gauge(
    'webhook_oldest_due_age_seconds',
    'How long the oldest due notification has been due.',
  ),
  webhookOrphaned: gauge(
    'webhook_orphaned',
    'Transfers that a receiver acknowledged and a reorg orphaned afterwards, without a removal notice.',
  ),
  receiversFailing: gauge(
    'webhook_failing_receivers',
    'Receivers with a failed notification that waits for its retry.',
  ),
  watchersFailing: gauge('webhook_failing_watchers', 'Watchers that have failing receivers.'),
  watchersLate: gauge(
    'webhook_late_watchers',
    'Watchers with a webhook that has been due for more than a minute.',
  ),
  webhookLateSeconds: gauge(
    'webhook_late_seconds',
    'How long the most overdue webhook of those watchers has been due.',
  ),
  watchersOverPendingLimit: gauge(
    'watchers_over_pending_limit',
    'Watchers with more pending notifications than limits.pendingNotifications, counted up to 100. Absent without that limit.',
  ),
  deliveryQueues: gauge('webhook_delivery_queues', 'Delivery queues that this process has leased.'),
  deliveryQueuesHealed: counter(
    'webhook_delivery_queues_healed_total',
    'Delivery queues with due notifications that no worker was looking for. It stays 0 unless there is a bug.',
  ),
});

const deploymentMetrics = ({ counter, gauge }: Factory) => ({
  lostWorkers: gauge(
    'lost_workers',
    'Citus workers whose shards blocks leave out, because they did not answer.',
  ),
  missedBlocks: gauge(
    'missed_blocks',
    'Blocks that the shards of lost workers have yet to get; of several workers, the most.',
  ),
  replicaLagSeconds: gauge(
    'database_replica_lag_seconds',
    'How far the replica is behind, seen by the heartbeats of this process. Absent while it is unknown, and without database.replicaUrl.',
  ),
  replicaUsed: gauge(
    'database_replica_used',
    '1 while reads of the API go to the replica, 0 while the primary serves them. Absent without database.replicaUrl.',
  ),
  databaseReads: counter(
    'database_reads_total',
    'Statements of the API that the replica may serve, by the server that did: replica or primary.',
    ['server'],
  ),
  bugs: counter(
    'background_bugs_total',
    'Attempts at work beside blocks and webhooks, such as statistics, that a bug ended. The log has them as `loop.bug`.',
    ['loop'],
  ),
  processes: gauge(
    'processes',
    'Processes of the deployment by state: running, stopped, failed or lost. A process counts once for each of its roles.',
    ['role', 'state'],
  ),
  roleMissing: gauge(
    'role_missing',
    '1 while this role (follower, delivery or prices) is needed and no process has had it for 10 s. For prices also while the next round of any feed is overdue by 35 s (not with the embedded database).',
    ['role'],
  ),
});

const priceMetrics = ({ counter, gauge }: Factory) => ({
  priceAgeSeconds: gauge('price_age_seconds', 'Age of the newest accepted price.', ['asset']),
  priceStale: gauge(
    'price_stale',
    '1 while the price is missing or older than maxAgeSeconds (by default 10 minutes or two rounds, whichever is longer).',
    ['asset'],
  ),
  priceDisputed: gauge('price_disputed', '1 while at most half of the sources agree.', ['asset']),
  priceObservations: counter(
    'price_observations_total',
    'Answers of price sources by verdict: used, outlier, stale, not_positive, uncertain or failed.',
    ['asset', 'source', 'verdict'],
  ),
  pairPriceDeviation: gauge(
    'pair_price_deviation_ratio',
    "Deviation of the pool's price from the price of the feeds. 0.02 means 2 % above, and negative values mean below.",
    ['pair'],
  ),
  pairLpDeviation: gauge(
    'pair_lp_deviation_ratio',
    'Deviation of the LP token price computed from both reserves from its fair price.',
    ['pair'],
  ),
  pairDeviates: gauge('pair_deviates', '1 while the LP token is more than 2 % above its fair price.', [
    'pair',
  ]),
});

const apiMetrics = ({ counter, histogram }: Factory) => ({
  httpSeconds: histogram('http_request_duration_seconds', 'Duration of API requests.', SECONDS, [
    'method',
    'route',
    'code',
  ]),
  databaseWaitSeconds: histogram(
    'database_wait_seconds',
    'Time that statements waited for a database connection, by share: follower, heartbeat, api, delivery, settle or operator.',
    [0.001, ...SECONDS],
    ['share'],
  ),
  cacheResponses: counter('cache_responses_total', 'Public responses by origin: hit, stale or miss.', [
    'route',
    'from',
  ]),
});
