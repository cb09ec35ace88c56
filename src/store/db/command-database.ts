/**
 * Opens the database for a command: directly, or through the socket of the service that has the embedded database open.
 */
import { statSync } from 'node:fs';
import path from 'node:path';
import { never } from '../../core/abort.ts';
import { machineSteadyMs, waitMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { SharedDatabase } from './db.ts';
import { isAccessDenied, otherUserFault } from './folder-fault.ts';
import { requireNotMoved } from './moved.ts';
import { type DatabaseOptions, openDatabase } from './open.ts';
import { joinDatabase } from './socket-client.ts';
import { pathProblem, socketPathOf } from './socket-frames.ts';

/** A starting service has the folder for some seconds before it serves the database. Another command has it for about one. */
const JOIN_MS_MAX = 10_000;
const JOIN_POLL_MS = 100;

type Place = Pick<DatabaseOptions, 'url' | 'dataDir'>;

/** Where commands find the database of a configuration: PostgreSQL itself, if `url` leads to a pooler of the API. */
export const databasePlace = (config: {
  database: { url: string; sessionUrl: string };
  dataDir: string;
}): Place => ({ url: config.database.sessionUrl || config.database.url, dataDir: config.dataDir });

/** @throws Fault `invalid` if `url` is empty and there is no embedded database in `dataDir`, or this user may not look into it */
export function requireDatabase({ url, dataDir }: Place): void {
  if (url !== '') return;
  try {
    statSync(path.join(dataDir, 'database'));
    return;
  } catch (error) {
    if (isAccessDenied(error)) throw otherUserFault(path.resolve(dataDir));
  }
  throw new Fault(
    'invalid',
    `there is no database in ${path.resolve(dataDir)}, and database.url is not set. Set dataDir or database.url as the service has it`,
  );
}

/**
 * @throws the Faults of openDatabase; `conflict` if the embedded database has moved, or if another process has the folder and doesn't
 * serve its database
 */
export async function openForCommand(options: DatabaseOptions): Promise<SharedDatabase> {
  if (options.url !== '') return openDatabase(options);
  const { dataDir } = options;
  const problem = pathProblem(dataDir);
  const untilMs = machineSteadyMs() + (problem === undefined ? JOIN_MS_MAX : 0);
  for (;;) {
    const joined = problem === undefined ? await joinDatabase(dataDir) : undefined;
    if (joined !== undefined) return joined;
    // Waiting doesn't help then.
    await requireNotMoved(dataDir);
    try {
      return await openDatabase(options);
    } catch (error) {
      if (!(error instanceof Fault) || error.code !== 'conflict') throw error;
      if (machineSteadyMs() >= untilMs)
        throw new Fault(
          'conflict',
          `${error.message}. ${problem ?? `It does not serve its database at ${socketPathOf(dataDir)}`}`,
        );
    }
    await waitMs(JOIN_POLL_MS, never);
  }
}
