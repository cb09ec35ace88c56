/**
 * A service with all roles and a database with a real streaming replica, from which it reads.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { startChain } from './anvil.ts';
import { startPostgresPair } from './postgres-pair.ts';
import { startReceiver } from './receiver.ts';
import { startTestService } from './service.ts';

/** `options` start or configure further programs on the same database; `standby` is a connection to the replica. `parts` ends it all. */
export async function startReplicaStage(parts: AsyncDisposableStack) {
  const chain = parts.use(await startChain());
  const receiver = parts.use(await startReceiver());
  const pair = parts.use(await startPostgresPair());
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-replica-'));
  parts.defer(() => rm(dataDir, { recursive: true }));
  const database = { url: pair.primary.url, replicaUrl: pair.standby.url, dataDir };
  const options = { database, rpc: [chain.url], receivers: [receiver] };
  const service = parts.use(await startTestService(options));
  const standby = new pg.Client({ connectionString: pair.standby.url });
  await standby.connect();
  standby.on('error', () => {});
  parts.defer(() => standby.end().catch(() => {}));
  return { chain, receiver, pair, options, service, standby };
}
