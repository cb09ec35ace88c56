/**
 * The parts that `chainbell verify` and `chainbell repair` need, built from a Config: the database, the nodes, the proof.
 */
import packageJson from '../../package.json' with { type: 'json' };
import { applyPlan, planRepairs, type RepairPlan, type RepairProgress } from '../audit/repair-plan.ts';
import { type VerifyOptions, verifyStored } from '../audit/verify.ts';
import type { VerifyReport } from '../audit/verify-report.ts';
import { type ChainNodes, httpUrls } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { rulesOf } from '../config/point-rules.ts';
import type { Config } from '../config/schema.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { createMetrics } from '../core/metrics.ts';
import { retryDelayMinutes } from '../domain/retry-schedule.ts';
import { findChain, requireChain } from '../store/blocks/blocks.ts';
import { noteTimeline } from '../store/blocks/commit-lock.ts';
import { databasePlace, openForCommand, requireDatabase } from '../store/db/command-database.ts';
import type { Database } from '../store/db/db.ts';
import { migrationState } from '../store/db/migrate.ts';
import { openChain } from './chain-access.ts';
import { listFeeds } from './price-feeds.ts';
import { createProgramLog } from './program-log.ts';
import { openReplicaForCommand } from './read-replica.ts';
import { valuedPairs } from './valued-pairs.ts';

type VerificationOptions = Pick<
  VerifyOptions,
  'from' | 'to' | 'onDifference' | 'onDissent' | 'onProgress'
> & {
  signal: AbortSignal;
  clock?: Clock | undefined;
};

/**
 * Re-derives the blocks of the range from the chain and compares them with the stored data, which it reads from the replica if one is
 * configured and close enough.
 * @throws Fault `unavailable` when database or nodes do not answer; `conflict` for another chain, another schema, or an
 * embedded database in use by the service; `invalid` when there is no embedded database.
 */
export async function runVerification(
  config: Config,
  { signal, clock, onDifference, ...request }: VerificationOptions,
): Promise<VerifyReport> {
  await using parts = new AsyncDisposableStack();
  const options = await openVerification(config, { signal, clock, parts });
  const primary = options.database;
  const replica = await openReplicaForCommand(config, primary, { clock: options.clock, signal, parts });
  const source = replica === undefined ? {} : { database: replica.database, primary };
  const report = await verifyStored({ ...options, ...source, ...request, onDifference }, signal);
  return replica === undefined ? report : { ...report, reads: replica.counts() };
}

type RepairOptions = Omit<VerificationOptions, 'onDifference'> & {
  /** Called with the plan before anything is written; returns whether to apply it. */
  onPlan(plan: RepairPlan): boolean;
  /** Whether to send transfers that receivers may have credited under another id. */
  mayCreditTwice: boolean;
  /** Says what is repaired, also after an error. */
  progress: RepairProgress;
};

/** Plans repairs of the range, and applies them if asked to. @throws as runVerification. */
export async function runRepair(
  config: Config,
  { signal, clock, onPlan, mayCreditTwice, progress, ...request }: RepairOptions,
): Promise<void> {
  await using parts = new AsyncDisposableStack();
  const options = await openVerification(config, { signal, clock, parts });
  const plan = await planRepairs({ ...options, ...request }, signal);
  if (!onPlan(plan)) return;
  await noteTimeline(options.database);
  await applyPlan(options.database, plan, { ...options, mayCreditTwice, progress }, signal);
}

type Opened = Omit<VerifyOptions, 'from' | 'to' | 'onDifference' | 'onDissent' | 'onProgress'>;

/** Everything that a comparison needs; `parts` closes it. */
async function openVerification(
  config: Config,
  {
    signal,
    clock = systemClock(),
    parts,
  }: { signal: AbortSignal; clock: Clock | undefined; parts: AsyncDisposableStack },
): Promise<Opened> {
  // Only problems matter to a command; routine events of the chain don't.
  const log = createProgramLog(config, { level: 'warn' });
  const database = await openStored(config);
  parts.defer(() => database.close());
  const chain = await findChain(database);
  const open = (urls: readonly string[]): ChainNodes & Voters => {
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
  // New heads don't matter here either.
  const urls = httpUrls(config.chain.rpc);
  const nodes = open(urls);
  if (chain !== undefined) await nodes.identify(signal);
  const witnesses =
    urls.length < 2 ? [] : urls.map((url) => ({ name: new URL(url).origin, nodes: open([url]) }));
  const isProofOn = config.chain.verify !== 'off';
  const { notificationsMs, swapsMs } = config.retention;
  const { retryMinutes } = config.webhooks;
  return {
    ...{ database, nodes, witnesses, clock, isProofOn, notificationsMs, swapsMs, pairs: valuedPairs(config) },
    fedAssets: listFeeds(config).map(({ asset: { asset } }) => asset),
    quorum: config.chain.quorum,
    rules: rulesOf(config),
    confirmations: config.chain.confirmations,
    retryDelayMs: (failureCount) => retryDelayMinutes(failureCount, retryMinutes) * MINUTE_MS,
  };
}

const MINUTE_MS = 60_000;

/** Opens the existing database; creates and migrates nothing. */
async function openStored(config: Config): Promise<Database> {
  const place = databasePlace(config);
  requireDatabase(place);
  const database = await openForCommand(place);
  const { pending } = await migrationState(database).catch(async (error: unknown) => {
    await database.close();
    throw error;
  });
  if (pending.length === 0) return database;
  await database.close();
  throw new Fault('conflict', `the schema lacks ${pending.join(', ')}: run chainbell migrate`);
}
