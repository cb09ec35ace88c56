/**
 * The parts that all roles of a process share: log, clock, database, metrics and loops.
 */
import packageJson from '../../package.json' with { type: 'json' };
import type { Config } from '../config/schema.ts';
import { onAbort, startAbort } from '../core/abort.ts';
import { PROBE } from '../core/account.ts';
import { type Clock, steadyFrom } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import { createMetrics, type Metrics } from '../core/metrics.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import type { ChainRow } from '../store/blocks/blocks.ts';
import { actingFor } from '../store/db/acting-for.ts';
import type { Database, Share, SharedDatabase } from '../store/db/db.ts';
import { createWriteHealth, type WriteHealth } from '../store/db/write-health.ts';
import { createLoops, type Loops } from './background-loops.ts';
import type { CommonClock } from './common-clock.ts';
import { openStore, openToCommands, retryAtStart } from './open-store.ts';
import type { Role } from './roles.ts';

type FoundationOptions = {
  /** Replaces the database's clock, which all processes share. */
  clock: Clock | undefined;
  log: Log;
  roles: ReadonlySet<Role>;
  startMsMax: number;
  /** The folder of migrations; the program's by default. */
  migrations: URL | undefined;
  /** Aborts a start that is still waiting. */
  signal: AbortSignal;
};

export type Foundation = {
  config: Config;
  log: Log;
  version: string;
  roles: ReadonlySet<Role>;
  metrics: Metrics;
  /** The database's clock, because several machines compare leases and due times. */
  clock: Clock;
  /** For durations that only this process measures. */
  steadyClock: Clock;
  /** Undefined when the clock was given in the options. */
  common: CommonClock | undefined;
  database: SharedDatabase;
  /** One share of the connections for each part, so that an overloaded part delays only itself. */
  shares: Record<'api' | 'follower' | 'prices' | 'delivery' | 'settle', Database>;
  writes: WriteHealth;
  keyRing: KeyRing;
  /** The chain that the database holds. */
  chain: ChainRow | undefined;
  loops: Loops;
  /** Retries while the database or the nodes don't answer, for as long as the start may take. */
  atStart<T>(what: 'database' | 'nodes', attempt: () => Promise<T>): Promise<T>;
  /** False after the clock was set, because a clock that is a year ahead by mistake must not prune everything. */
  mayPrune(): boolean;
  /** Skips the step meanwhile. */
  unlessStepped(step: Step): Step;
};

/** `parts` closes everything that this opens. @throws Fault as startService does. */
export async function openFoundation(
  config: Config,
  options: FoundationOptions,
  parts: AsyncDisposableStack,
): Promise<Foundation> {
  const { log, roles, startMsMax, migrations, signal } = options;
  const retrying =
    (until: AbortSignal): Foundation['atStart'] =>
    (what, attempt) =>
      retryAtStart(attempt, { log, startMsMax, signal: until, what });
  const metrics = createMetrics(packageJson.version);
  const onWait = (share: Share, waitMs: number) =>
    metrics.databaseWaitSeconds.observe({ share }, waitMs / 1_000);
  const stored = await retrying(signal)('database', () =>
    openStore(config, { log, roles, migrations, onWait }),
  );
  const { database, keyRing, chain } = stored;
  parts.defer(() => database.close());
  parts.defer(await openToCommands(database, config, log));
  const common = options.clock === undefined ? stored.common : undefined;
  const clock = options.clock ?? stored.common.clock;
  const writes = createWriteHealth(actingFor(PROBE, database), clock);
  const loops = createLoops({ clock, log, metrics });
  const mayPrune = () => common === undefined || common.mayPrune();
  const start = startAbort(signal);
  // A service that fails during its start ends its loops.
  onAbort(loops.signal, () => start.abort(loops.signal.reason));
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
      // Price feeds run few and small statements.
      prices: writes.watch('prices', database.for('follower')),
      delivery: writes.watch('delivery', database.for('delivery')),
      // Leases are updates in place, which succeed on a full disk.
      settle: writes.watch('outcomes', database.for('settle')),
    },
    loops,
    atStart: retrying(start.signal),
    mayPrune,
    unlessStepped: (step) => async (abort) => (mayPrune() ? step(abort) : 'idle'),
  };
}
