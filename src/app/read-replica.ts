/**
 * The replica that serves reads of the API, if one is configured.
 */
import { openReplicaConnections } from '../store/db/postgres.ts';
import { createReplica, PROBE_MS, type Replica } from '../store/db/replica.ts';
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
