/**
 * Moves an installation from its embedded database to a PostgreSQL server.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { databasePlace } from '../store/db/command-database.ts';
import { type CopyProgress, copyDatabase, requireEmpty } from '../store/db/copy-database.ts';
import { migrate } from '../store/db/migrate.ts';
import {
  abandonIncomingMove,
  beginIncomingMove,
  beginningOfMove,
  completeIncomingMove,
  findCompletedMove,
  markMoved,
  readMove,
  requireSameTarget,
} from '../store/db/moved.ts';
import { openDatabase } from '../store/db/open.ts';
import { openKeyRing } from './open-key-ring.ts';

/** The server waits this long for the next statement, because counting a large table of the embedded database takes seconds. */
const SILENT_MS_MAX = 600_000;

/** What a move did: the rows by table, or the time at which an earlier call had completed it. */
type MoveOutcome = { rows: Map<string, number> } | { completedAt: Date };

/**
 * Copies the embedded database in `dataDir` to the empty database at `database.url`, and marks the embedded one as moved. A move that
 * is complete isn't repeated. The mark is written before the copy is committed, so the embedded database is never usable beside a
 * complete copy. A move that fails before that leaves both databases as they were.
 * @throws Fault `invalid` without `database.url` or an embedded database, or if `secret` doesn't fit; `conflict` if
 * the service still runs, or if the database at `database.url` is in use or an earlier move had another one; `unavailable` if that server can't be reached
 */
export async function moveDatabase(
  config: Config,
  onProgress: (progress: CopyProgress) => void,
): Promise<MoveOutcome> {
  const { dataDir, database: settings } = config;
  if (settings.url === '')
    throw new Fault('invalid', 'database.url is empty. Set it (DATABASE_URL) to the server that takes over');
  if (!existsSync(path.join(dataDir, 'database', 'PG_VERSION')))
    throw new Fault(
      'invalid',
      `${path.resolve(dataDir)} holds no embedded database. Set dataDir to its folder`,
    );
  const earlier = await readMove(dataDir);
  await using parts = new AsyncDisposableStack();
  // The server first, so that its problems are found while the service still runs.
  const target = await openDatabase({ ...databasePlace(config), silentMsMax: SILENT_MS_MAX });
  parts.defer(() => target.close());
  const source = await openDatabase({ url: '', dataDir, evenIfMoved: true });
  parts.defer(() => source.close());
  await migrate(source);
  await openKeyRing(config, source).catch((error: unknown) => {
    if (!(error instanceof Fault) || error.code !== 'invalid') throw error;
    const file = path.resolve(dataDir, 'secret');
    throw new Fault('invalid', `${error.message}. The embedded database used the one in ${file}`);
  });
  // A service that starts after a crash in between must not begin an empty installation.
  const created = await migrate(target, undefined, beginningOfMove);
  await requireSameTarget(dataDir, target).catch(async (error: unknown) => {
    if (created.length > 0 && error instanceof Fault && error.code === 'conflict')
      await abandonIncomingMove(target);
    throw error;
  });
  const completedAt = earlier && (await findCompletedMove(target));
  if (completedAt !== undefined) return { completedAt };
  // Its service must be able to start again.
  if (earlier === undefined) await requireEmpty(target);
  await beginIncomingMove(target, systemClock().now());
  let isMarked = earlier !== undefined;
  try {
    const rows = await copyDatabase(source, target, {
      onProgress,
      async beforeCommit(tx) {
        isMarked = true;
        const now = systemClock().now();
        await completeIncomingMove(tx, now);
        await markMoved(dataDir, target, now);
      },
    });
    return { rows };
  } catch (error) {
    if (error instanceof Fault && error.code === 'conflict') await abandonIncomingMove(target);
    if (!isMarked || !(error instanceof Fault)) throw error;
    if (error.code === 'conflict')
      throw new Fault(
        'conflict',
        `the database at database.url is in use, and the move to it that began at ${earlier?.at} is not complete. Empty that database, and run this command again`,
      );
    // The answer to the commit was lost.
    throw new Fault(
      error.code,
      `${error.message}. The move may be complete. Run the command again: it completes the move, or says that it is complete`,
    );
  }
}
