/**
 * The first part of the start: opens and migrates the database, and retries while it or the nodes don't answer, or a
 * command has the folder of the embedded one.
 */
import type { Config } from '../config/schema.ts';
import { backOffMs } from '../core/back-off.ts';
import { systemClock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { findChain, requireChain } from '../store/blocks/blocks.ts';
import type { Share, SharedDatabase } from '../store/db/db.ts';
import { FOLDER_IN_USE } from '../store/db/folder-lock.ts';
import { migrate, migrationState } from '../store/db/migrate.ts';
import { hasUnmoved, requireNoOpenMove } from '../store/db/moved.ts';
import { openDatabase } from '../store/db/open.ts';
import { isServed } from '../store/db/socket-client.ts';
import { serveDatabase } from '../store/db/socket-server.ts';
import { requirePairs } from '../store/market/pairs.ts';
import { openCommonClock } from './common-clock.ts';
import { connectionsOf, countConnections } from './connections.ts';
import { openKeyRing } from './open-key-ring.ts';
import type { Role } from './roles.ts';

/** A start gives up after this long without a database or a node (exit code 69), as docs/how-to/run-in-production.md says. */
export const START_MS_MAX = 60_000;
const START_RETRY_MS = { min: 500, max: 5_000 };

/**
 * Opens and migrates the database, and reads what the start needs. Closes it again when any of this fails.
 * @throws Fault `unavailable` if a retry may succeed, also while a command has the folder; `conflict` for the database of
 * another chain, or if another service has the folder
 */
export async function openStore(
  config: Config,
  {
    log,
    roles,
    migrations,
    onWait,
  }: {
    log: Log;
    roles: ReadonlySet<Role>;
    migrations: URL | undefined;
    onWait: (share: Share, waitMs: number) => void;
  },
) {
  const { dataDir } = config;
  const database = await openDatabase({
    ...connectionsOf(config.database, roles),
    ...{ connectionsMax: countConnections(config.database, roles).direct, dataDir, onWait },
  }).catch(async (error: unknown) => {
    throw await waitingForCommand(error, dataDir);
  });
  try {
    await database.requireSessions();
    const applied = await migrate(database.for('follower'), migrations);
    if (applied.length > 0) log.info({ applied }, 'database.migrated');
    const { newer } = await migrationState(database.for('follower'), migrations);
    if (newer.length > 0) log.warn({ newer }, 'database.newer');
    await requireNoOpenMove(database);
    // Before anything works with the data: the configuration of another chain may name this database by mistake.
    const chain = await findChain(database.for('follower'));
    if (chain !== undefined) requireChain(chain, config.chain.id);
    else if (config.database.url !== '' && (await hasUnmoved(dataDir)))
      log.warn({ dataDir }, 'database.not_moved');
    await requirePairs(database, config.pairs);
    const { retryMinutes } = config.webhooks;
    return {
      database,
      // Every part needs the clock, so reading it must not wait for connections of the API.
      common: await openCommonClock({ database: database.for('follower'), log, retryMinutes }),
      keyRing: await openKeyRing(config, database),
      chain,
    };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** A command frees the folder when it ends, so the start waits for that. It doesn't wait for another service to end. */
async function waitingForCommand(error: unknown, dataDir: string): Promise<unknown> {
  if (!(error instanceof Fault) || error.reason !== FOLDER_IN_USE || (await isServed(dataDir))) return error;
  const end = 'If that is a command, the folder is free as soon as it ends';
  return new Fault('unavailable', `${error.message}. ${end}`, { cause: error });
}

/** Makes the embedded database available to CLI commands. The returned function ends that. */
export async function openToCommands(
  database: SharedDatabase,
  { dataDir }: Config,
  log: Log,
): Promise<() => Promise<void>> {
  if (database.kind !== 'embedded') return async () => {};
  try {
    const { close } = await serveDatabase(database.for('operator'), dataDir);
    return close;
  } catch (error) {
    log.warn({ error: messageOf(error) }, 'operator.no_socket');
    return async () => {};
  }
}

/** Retries while the database or the nodes don't answer, for at most startMsMax or until the signal aborts. */
export async function retryAtStart<T>(
  attempt: () => Promise<T>,
  { log, startMsMax, signal, what }: { log: Log; startMsMax: number; signal: AbortSignal; what: string },
): Promise<T> {
  // The machine's clock, because the database's clock is unknown until it answers.
  const clock = systemClock();
  const giveUpAt = clock.steadyMs() + startMsMax;
  for (let failureCount = 0; ; failureCount += 1) {
    signal.throwIfAborted();
    try {
      return await attempt();
    } catch (error) {
      signal.throwIfAborted();
      const isWorthRetrying =
        error instanceof Fault && (error.code === 'unavailable' || error.code === 'inconsistent');
      const leftMs = giveUpAt - clock.steadyMs();
      if (!isWorthRetrying || leftMs <= 0) throw error;
      log.warn(
        { waitingFor: what, error: messageOf(error), givesUpInSeconds: Math.ceil(leftMs / 1000) },
        'service.waits',
      );
      await clock.wait(Math.min(backOffMs(START_RETRY_MS, failureCount), leftMs), signal);
    }
  }
}
