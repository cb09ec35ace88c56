/**
 * What `chainbell verify` needs of the program, built from a Config: a database that is only read, the nodes, the proof.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import packageJson from '../package.json' with { type: 'json' };
import { type ChainNodes, httpUrls } from './chain/nodes.ts';
import { openChain } from './chain-access.ts';
import type { Config } from './config/schema.ts';
import { type Clock, systemClock } from './core/clock.ts';
import { Fault } from './core/fault.ts';
import { createLog } from './core/log.ts';
import { createMetrics } from './core/metrics.ts';
import { retryDelayMinutes } from './delivery/schedule.ts';
import { type VerifyOptions, type VerifyReport, verifyStored } from './ingest/verify.ts';
import { findChain, requireChain } from './store/blocks.ts';
import { type Database, openDatabase } from './store/db.ts';
import { migrationState } from './store/migrate.ts';

export type VerificationOptions = Pick<
  VerifyOptions,
  'from' | 'to' | 'onDifference' | 'onDissent' | 'onProgress'
> & {
  signal: AbortSignal;
  clock?: Clock;
};

/**
 * Derives the blocks of the range again and compares them with what is stored.
 * @throws Fault `unavailable` when database or nodes do not answer; `conflict` for another chain, another schema, or an
 * embedded database in use by the service; `not_found` when there is no embedded database.
 */
export async function runVerification(config: Config, options: VerificationOptions): Promise<VerifyReport> {
  const { signal, clock = systemClock(), ...request } = options;
  // What happens along the way is no news here; what is wrong is.
  const log = createLog({ ...config.log, level: 'warn' });
  await using parts = new AsyncDisposableStack();
  const database = await openStored(config);
  parts.defer(() => database.close());
  const chain = await findChain(database);
  const open = (urls: readonly string[]): ChainNodes => {
    const { nodes, close } = openChain(config, chain, {
      ...{ urls, clock, log },
      metrics: createMetrics(packageJson.version),
      onHead: () => {},
    });
    parts.defer(close);
    if (chain !== undefined) nodes.pin({ chainId: chain.chainId, genesisHash: chain.genesisHash });
    return nodes;
  };
  if (chain !== undefined) requireChain(chain, config.chain.id);
  // New heads are no news either.
  const urls = httpUrls(config.chain.rpc);
  const nodes = open(urls);
  if (chain !== undefined) await nodes.identify(signal);
  const witnesses =
    urls.length < 2 ? [] : urls.map((url) => ({ name: new URL(url).origin, nodes: open([url]) }));
  const isProofOn = config.chain.verify !== 'off';
  const { notificationsMs, swapsMs } = config.retention;
  const { retryMinutes } = config.webhooks;
  return await verifyStored(
    {
      ...{
        ...request,
        database,
        nodes,
        witnesses,
        clock,
        isProofOn,
        notificationsMs,
        swapsMs,
        pairs: config.pairs,
      },
      confirmations: config.chain.confirmations,
      retryDelayMs: (failureCount) => retryDelayMinutes(failureCount, retryMinutes) * 60_000,
    },
    signal,
  );
}

/** The database as it is: nothing is made and nothing is migrated. */
async function openStored({ database: { url }, dataDir }: Config): Promise<Database> {
  if (url === '' && !existsSync(path.join(dataDir, 'database')))
    throw new Fault('not_found', `there is no database in ${dataDir}, and database.url is not set`);
  const database = await openDatabase({ url, dataDir });
  const { pending } = await migrationState(database).catch(async (error: unknown) => {
    await database.close();
    throw error;
  });
  if (pending.length === 0) return database;
  await database.close();
  throw new Fault('conflict', `the schema lacks ${pending.join(', ')}: run chainbell migrate`);
}
