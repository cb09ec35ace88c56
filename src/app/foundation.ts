/**
 * What every role of a process stands on: log, clock, database, metrics and loops.
 */
import packageJson from '../../package.json' with { type: 'json' };
import type { Config } from '../config/schema.ts';
import { type Clock, steadyFrom } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import { createMetrics, type Metrics } from '../core/metrics.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import type { ChainRow } from '../store/blocks/blocks.ts';
import type { Database, Share, SharedDatabase } from '../store/db/db.ts';
import { createWriteHealth, type WriteHealth } from '../store/db/write-health.ts';
import { createLoops, type Loops } from './background-loops.ts';
import type { CommonClock } from './common-clock.ts';
import { openStore, openToCommands, retryAtStart } from './open-store.ts';
import type { Role } from './roles.ts';

type FoundationOptions = {
  /** In place of the database's, which all processes share. */
  clock: Clock | undefined;
  log: Log;
  roles: ReadonlySet<Role>;
  startMsMax: number;
  /** Breaks off a start that is still waiting. */
  signal: AbortSignal;
};

export type Foundation = {
  config: Config;
  log: Log;
  version: string;
  roles: ReadonlySet<Role>;
  metrics: Metrics;
  /** Leases and due times are instants that several machines compare, so all go by the database's clock. */
  clock: Clock;
  /** For differences of times that no other process sees. */
  steadyClock: Clock;
  /** Undefined where the clock was given. */
  common: CommonClock | undefined;
  database: SharedDatabase;
  /** The same for each part, so that one that is overloaded keeps only itself waiting. */
  shares: Record<'api' | 'follower' | 'prices' | 'delivery' | 'settle', Database>;
  writes: WriteHealth;
  keyRing: KeyRing;
  /** As it was followed so far. */
  chain: ChainRow | undefined;
  loops: Loops;
  /** Tries again while database or nodes do not answer, as long as a start may wait. */
  atStart<T>(what: 'database' | 'nodes', attempt: () => Promise<T>): Promise<T>;
  /** A clock that is a year ahead by mistake must not delete everything. */
  unlessStepped(step: Step): Step;
};

/** What it opens is closed by `parts`. @throws Fault as startService does. */
export async function openFoundation(
  config: Config,
  options: FoundationOptions,
  parts: AsyncDisposableStack,
): Promise<Foundation> {
  const { log, roles, startMsMax, signal } = options;
  const atStart: Foundation['atStart'] = (what, attempt) =>
    retryAtStart(attempt, { log, startMsMax, signal, what });
  const metrics = createMetrics(packageJson.version);
  const onWait = (share: Share, waitMs: number) =>
    metrics.databaseWaitSeconds.observe({ share }, waitMs / 1_000);
  const stored = await atStart('database', () => openStore(config, { log, onWait }));
  const { database, keyRing, chain } = stored;
  parts.defer(() => database.close());
  parts.defer(await openToCommands(database, config, log));
  const common = options.clock === undefined ? stored.common : undefined;
  const clock = options.clock ?? stored.common.clock;
  const writes = createWriteHealth(database, clock);
  return {
    ...{
      config,
      log,
      version: packageJson.version,
      roles,
      metrics,
      clock,
      common,
      database,
      writes,
      keyRing,
      chain,
    },
    steadyClock: steadyFrom(clock),
    shares: {
      api: writes.watch('api', database.for('api')),
      follower: writes.watch('follower', database.for('follower')),
      // Price feeds ask seldom and little.
      prices: writes.watch('prices', database.for('follower')),
      delivery: writes.watch('delivery', database.for('delivery')),
      settle: writes.watch('delivery', database.for('settle')),
    },
    loops: createLoops({ clock, log }),
    atStart,
    unlessStepped: (step) => async (abort) =>
      common === undefined || common.mayPrune() ? step(abort) : 'idle',
  };
}
