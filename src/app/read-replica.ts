/**
 * The replica that serves reads of the API and of `chainbell verify`, if one is configured.
 */
import type { VerifyReport } from '../audit/verify-report.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';
import { openReplicaConnections } from '../store/db/postgres.ts';
import { createReplica, PROBE_MS, type Replica } from '../store/db/replica.ts';
import { listProcesses } from '../store/deployment/processes.ts';
import type { Foundation } from './foundation.ts';

/** Undefined without `database.replicaUrl`, and in a process without the role `api`. `parts` closes it. */
export function openReplica(
  { config, roles, shares, metrics, steadyClock, loops, log }: Foundation,
  processId: () => string,
  parts: AsyncDisposableStack,
): Replica | undefined {
  const { replicaUrl, replicaLagMaxSeconds, connections } = config.database;
  metrics.replicaUsed.remove();
  metrics.replicaLagSeconds.remove();
  if (replicaUrl === '' || !roles.has('api')) return undefined;
  const replica = createReplica({
    primary: shares.api,
    replica: openReplicaConnections(replicaUrl, connections.replica),
    processId,
    ...{ lagMsMax: replicaLagMaxSeconds * 1_000, clock: steadyClock },
    onRead: (server) => metrics.databaseReads.inc({ server }),
  });
  parts.defer(() => replica.close());
  let wasUsed: boolean | undefined;
  loops.run(
    'replica',
    async () => {
      await replica.probe();
      const { isUsed, lagMs, problem } = replica.state();
      metrics.replicaUsed.set(isUsed ? 1 : 0);
      if (lagMs === undefined) metrics.replicaLagSeconds.remove();
      else metrics.replicaLagSeconds.set(lagMs / 1_000);
      if (isUsed && wasUsed !== true) log.info({ lagMs }, 'replica.used');
      if (!isUsed && wasUsed === true) log.warn({ lagMs, problem }, 'replica.left');
      wasUsed = isUsed;
      return 'idle';
    },
    { idleMs: () => PROBE_MS },
  );
  return replica;
}

/** A replica shows the second of two heartbeats, which are 2 s apart, within this time. */
const FIRST_USE_MS_MAX = 8_000;

type ReplicaReads = {
  /** Reads from the replica as far as possible, and otherwise from the primary. */
  database: Database;
  /** How many statements and transactions each server has answered, and why the replica answers none. */
  counts(): NonNullable<VerifyReport['reads']>;
};

/**
 * The same for a command that writes nothing. Waits until the replica can be used, by the heartbeats of a running service. Undefined
 * without `database.replicaUrl` and on Citus. `parts` closes it.
 */
export async function openReplicaForCommand(
  { database: { replicaUrl, replicaLagMaxSeconds, connections } }: Config,
  primary: Database,
  { clock, signal, parts }: { clock: Clock; signal: AbortSignal; parts: AsyncDisposableStack },
): Promise<ReplicaReads | undefined> {
  if (replicaUrl === '' || primary.isDistributed === true) return undefined;
  const counts = { replica: 0, primary: 0 };
  const [newest] = (await listProcesses(primary))
    .filter(({ isStopped }) => !isStopped)
    .toSorted((one, other) => one.ageMs - other.ageMs);
  if (newest === undefined)
    return {
      database: primary,
      counts: () => ({ ...counts, problem: 'can only be compared while the service runs' }),
    };
  const replica = createReplica({
    primary,
    replica: openReplicaConnections(replicaUrl, connections.replica),
    processId: () => newest.id,
    ...{ lagMsMax: replicaLagMaxSeconds * 1_000, clock },
    onRead: (server) => {
      counts[server] += 1;
    },
  });
  const ended = new AbortController();
  const probing = (async () => {
    while (!ended.signal.aborted) {
      await replica.probe();
      await clock.wait(PROBE_MS, ended.signal);
    }
  })();
  parts.defer(async () => {
    ended.abort();
    await probing;
    await replica.close();
  });
  const untilMs = clock.steadyMs() + FIRST_USE_MS_MAX;
  while (!replica.state().isUsed && clock.steadyMs() < untilMs && !signal.aborted)
    await clock.wait(PROBE_MS, signal);
  return { database: replica.reading, counts: () => ({ ...counts, problem: replica.state().problem }) };
}
