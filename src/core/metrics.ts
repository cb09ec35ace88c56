/**
 * The program's metrics, all in one table: names are public and stable (docs/reference/metrics.md), units last.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client';

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export type Metrics = ReturnType<typeof createMetrics>;

/** A separate registry, so that several services can live in one process. */
export function createMetrics(version: string) {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[] = []) =>
    new Counter({ name: `chainbell_${name}`, help, labelNames: [...labelNames], registers });
  const gauge = <L extends string>(name: string, help: string, labelNames: readonly L[] = []) =>
    new Gauge({ name: `chainbell_${name}`, help, labelNames: [...labelNames], registers });
  const histogram = <L extends string>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: readonly L[] = [],
  ) => new Histogram({ name: `chainbell_${name}`, help, buckets, labelNames: [...labelNames], registers });

  gauge('build_info', 'Always 1; the version is the label.', ['version']).set({ version }, 1);
  return {
    registry,
    chainBlockNumber: gauge(
      'chain_block_number',
      'Block numbers of the chain head, the newest stored, the finalized.',
      ['stage'],
    ),
    chainLagSeconds: gauge(
      'chain_lag_seconds',
      'Age of the newest stored block while the head is ahead of it, else 0.',
    ),
    chainReorgs: counter('chain_reorgs_total', 'Forks that were followed.'),
    chainReorgDepth: histogram(
      'chain_reorg_depth_blocks',
      'Blocks undone per fork.',
      [1, 2, 3, 5, 10, 30, 64],
    ),
    chainHeld: gauge('chain_held', '1 while the state in /status is holding.'),
    ingestBlocks: counter('ingest_blocks_total', 'Blocks stored.'),
    ingestTransfers: counter('ingest_transfers_total', 'Transfers seen in stored blocks.', ['kind']),
    ingestNotifications: counter('ingest_notifications_total', 'Notification rows made or revived.'),
    rpcRequests: counter('rpc_requests_total', 'JSON-RPC calls by outcome.', ['node', 'method', 'outcome']),
    rpcSeconds: histogram('rpc_request_duration_seconds', 'Duration of JSON-RPC requests.', SECONDS, [
      'node',
      'method',
    ]),
    rpcHedges: counter('rpc_hedges_total', 'Requests sent to a second node because the first was slow.', [
      'node',
    ]),
    rpcDisproved: counter(
      'rpc_disproved_total',
      'Answers of a node that a proof or other nodes contradicted.',
      ['node'],
    ),
    rpcConcurrencyMax: gauge('rpc_concurrency_max', 'Requests that a node is given at a time, as learned.', [
      'node',
    ]),
    webhookAttempts: counter('webhook_attempts_total', 'Delivery attempts by outcome.', ['outcome']),
    webhookAttemptSeconds: histogram(
      'webhook_attempt_duration_seconds',
      'Duration of delivery attempts.',
      SECONDS,
    ),
    webhookLatencySeconds: histogram(
      'webhook_delivery_latency_seconds',
      'From the making of the row to its first 2xx.',
      [...SECONDS, 60, 600, 3_600, 86_400],
    ),
    webhookRequestsRepeated: counter(
      'webhook_requests_repeated_total',
      'Requests sent again in their attempt because the receiver was closing the kept connection.',
    ),
    webhookWaiting: gauge('webhook_waiting', 'Notifications that wait for an attempt.'),
    watchersOverPendingLimit: gauge(
      'watchers_over_pending_limit',
      'Watchers with more pending notifications than limits.pendingNotifications; at most 100.',
    ),
    webhookDue: gauge('webhook_due', 'Notifications whose attempt is due.'),
    webhookOldestDueSeconds: gauge(
      'webhook_oldest_due_age_seconds',
      'How long the oldest due notification has been due.',
    ),
    receiversFailing: gauge(
      'webhook_failing_receivers',
      'Receivers with a notification that failed and waits for its retry.',
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
    processes: gauge('processes', 'Processes of the deployment; each counts for every role that it has.', [
      'role',
      'state',
    ]),
    roleMissing: gauge('role_missing', '1 while a role is needed that no process has had for 10 seconds.', [
      'role',
    ]),
    webhookOrphaned: gauge(
      'webhook_orphaned',
      'Acknowledged transfers that a reorg has orphaned since, without a removal notice.',
    ),
    webhookLanes: gauge('webhook_lanes', 'Lanes that this process has leased.'),
    webhookLanesHealed: counter(
      'webhook_lanes_healed_total',
      'Lanes that were woken because something in them was due and forgotten.',
    ),
    priceAgeSeconds: gauge('price_age_seconds', 'Age of the newest accepted price.', ['asset']),
    priceStale: gauge('price_stale', '1 while there is no price that is young enough.', ['asset']),
    priceDisputed: gauge('price_disputed', '1 while no more than half of the sources agree.', ['asset']),
    priceObservations: counter('price_observations_total', 'What became of what sources said.', [
      'asset',
      'source',
      'verdict',
    ]),
    pairPriceDeviation: gauge(
      'pair_price_deviation_ratio',
      'How far the price of a pool is from that of the feeds: 0.02 is 2 % above.',
      ['pair'],
    ),
    pairLpDeviation: gauge(
      'pair_lp_deviation_ratio',
      'How far the LP token by both reserves is above its fair price.',
      ['pair'],
    ),
    pairDeviates: gauge('pair_deviates', '1 while the LP token is more than 2 % above its fair price.', [
      'pair',
    ]),
    httpSeconds: histogram('http_request_duration_seconds', 'Duration of API requests.', SECONDS, [
      'method',
      'route',
      'code',
    ]),
    databaseWaitSeconds: histogram(
      'database_wait_seconds',
      'How long statements and transactions waited for a connection or turn.',
      [0.001, ...SECONDS],
      ['share'],
    ),
    cacheAnswers: counter(
      'cache_answers_total',
      'Public answers by where they came from: hit, stale, miss.',
      ['route', 'from'],
    ),
  };
}
