/**
 * What the status reads from the database.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import type { Metrics } from '../core/metrics.ts';
import { findChain, findTipTimes } from '../store/blocks/blocks.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import type { Database } from '../store/db/db.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import type { ReplicaState } from '../store/db/replica.ts';
import type { WriteHealth } from '../store/db/write-health.ts';
import { queueStatistics } from '../store/delivery/pending.ts';
import type { CommonClock } from './common-clock.ts';
import type { DeploymentStatus } from './deployment-status.ts';
import { describeNotifications } from './notification-status.ts';
import { describePairs } from './pair-status.ts';
import { createPartReader } from './part-reader.ts';
import { describePrices } from './price-status.ts';
import { DATABASE_MS_MAX } from './readiness.ts';

export type StatusOptions = {
  version: string;
  config: Config;
  database: Database;
  /** The database for /readyz and for reads of blocks, if it has other turns. */
  probes?: Database;
  /** The connections of the follower, for its report: the API or its pooler may be busy. */
  reports?: Database;
  /** Undefined where this process doesn't follow the chain. */
  nodes: ChainNodes | undefined;
  /** Undefined where this process doesn't follow the chain. */
  proof: Pick<Verifier, 'status'> | undefined;
  /** Since when the database has held up the follower. */
  heldUpSince?: (() => Date | undefined) | undefined;
  /** The key-encryption keys of this process's secrets. */
  kekIds?: readonly string[];
  writes: Pick<WriteHealth, 'failures'>;
  recentStep: CommonClock['recentStep'];
  agreement?: Voters['agreement'] | undefined;
  /** Undefined if no replica is configured for this process. */
  replica?: (() => ReplicaState) | undefined;
  /** Without it, the status covers only this process. */
  deployment?: DeploymentStatus | undefined;
  /** Called with an unexpected error of a statement of /status, at most once a minute. `others`: errors since the last call. */
  onBug(error: unknown, others: number): void;
  clock: Clock;
  metrics: Metrics;
};

/** Undefined: unknown, because it can't be read now. */
export type Stored = Awaited<ReturnType<typeof readStored>>;

/** Everything that /status shows from the database. `errors` says why parts of it are unknown. */
export async function readStored(options: StatusOptions, now: Date) {
  const { config, database, clock } = options;
  // What blocks write, beside statements that wait for locks of deliveries.
  const quick = options.probes ?? database;
  const parts = createPartReader(clock);
  const lost = countMissed(quick);
  const present = lost.then(async (some) => withoutLost(withLimit(database, DATABASE_MS_MAX), some));
  const [tip, chain, lostShards, queue, prices, pairs, notifications, own, deployment] = await Promise.all([
    parts.read(findTipTimes(quick)),
    parts.read(findChain(quick)),
    parts.read(lost),
    parts.read(present.then((shards) => queueStatistics(shards, now))),
    parts.read(describePrices(config, database, now)),
    parts.read(describePairs(config, database, now)),
    parts.read(present.then((shards) => describeNotifications(config, shards))),
    parts.read(options.writes.failures()),
    options.deployment?.read(now),
  ]);
  const writeFailures = [...(own ?? []), ...(deployment?.writeFailures ?? [])];
  const errors = [...parts.errors, ...(deployment?.errors ?? [])];
  return {
    ...{ tip, chain, lostShards, queue, prices, pairs, notifications, deployment, errors, writeFailures },
    /** Whether other processes may have failures that this one can't read. */
    hasUnknownFailures: own === undefined || deployment?.body.processes === null,
    /** Whether the database answers nothing. */
    isUnreadable: [chain, queue, notifications, deployment?.details].every((part) => part === undefined),
  };
}
