/**
 * What the status reads from the database.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Config } from '../config/schema.ts';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Metrics } from '../core/metrics.ts';
import { findChain, findTipTimes } from '../store/blocks/blocks.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import type { Database } from '../store/db/db.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import type { ReplicaState } from '../store/db/replica.ts';
import type { WriteFailure, WriteHealth } from '../store/db/write-health.ts';
import { type QueueStatistics, queueStatistics } from '../store/delivery/pending.ts';
import type { CommonClock } from './common-clock.ts';
import type { DeploymentReading, DeploymentStatus } from './deployment-status.ts';
import { describeNotifications, unknownNotifications } from './notification-status.ts';
import { describePairs } from './pair-status.ts';
import { describePrices } from './price-status.ts';
import { DATABASE_MS_MAX } from './readiness.ts';

export type StatusOptions = {
  version: string;
  config: Config;
  database: Database;
  /** The connections of the follower, for its report: the API or its pooler may be busy. */
  reports?: Database;
  /** Undefined where this process doesn't follow the chain. */
  nodes: ChainNodes | undefined;
  /** Undefined where this process doesn't follow the chain. */
  proof: Pick<Verifier, 'status'> | undefined;
  /** Since when the database has held up the follower. */
  heldUpSince?: (() => Date | undefined) | undefined;
  writes: Pick<WriteHealth, 'failures'>;
  recentStep: CommonClock['recentStep'];
  agreement?: Voters['agreement'] | undefined;
  /** Undefined if no replica is configured for this process. */
  replica?: (() => ReplicaState) | undefined;
  /** Without it, the status covers only this process. */
  deployment?: DeploymentStatus | undefined;
  /** Called with an unexpected error of a statement of /status. */
  onBug(error: unknown): void;
  clock: Clock;
  metrics: Metrics;
};

/** Everything that /status shows from the database. @throws Fault when the database doesn't answer in time. */
export async function readAll(options: StatusOptions, now: Date): Promise<Stored> {
  const { config, database, clock } = options;
  const lost = countMissed(database);
  const present = lost.then(async (some) => withoutLost(withLimit(database, DATABASE_MS_MAX), some));
  const reading = Promise.all([
    findTipTimes(database),
    findChain(database),
    lost,
    present.then((shards) => queueStatistics(shards, now)),
    describePrices(config, database, now),
    describePairs(config, database, now),
    options.writes.failures(),
    options.deployment?.read(now),
    present.then((shards) => describeNotifications(config, shards)),
  ]);
  const read = await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX);
  if (read === 'late')
    throw new Fault('unavailable', `database: no answer within ${DATABASE_MS_MAX / 1000} s`);
  const [tip, chain, lostShards, queue, prices, pairs, own, deployment, notifications] = read;
  const writeFailures = [...own, ...(deployment?.writeFailures ?? [])];
  return { tip, chain, lostShards, queue, prices, pairs, writeFailures, deployment, notifications };
}

export type Stored = {
  tip: Awaited<ReturnType<typeof findTipTimes>>;
  chain: Awaited<ReturnType<typeof findChain>>;
  lostShards: Awaited<ReturnType<typeof countMissed>>;
  queue: QueueStatistics | undefined;
  prices: Awaited<ReturnType<typeof describePrices>>;
  pairs: Awaited<ReturnType<typeof describePairs>>;
  writeFailures: readonly WriteFailure[];
  deployment: DeploymentReading | undefined;
  notifications: Awaited<ReturnType<typeof describeNotifications>> | typeof unknownNotifications;
};
export const unread: Stored = {
  ...{ tip: undefined, chain: undefined, queue: undefined, deployment: undefined },
  ...{ lostShards: [], prices: [], pairs: [], writeFailures: [], notifications: unknownNotifications },
};
