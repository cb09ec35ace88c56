/**
 * Moves an installation from its embedded database to a PostgreSQL server.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { type CopyProgress, copyDatabase } from '../store/db/copy-database.ts';
import { migrate } from '../store/db/migrate.ts';
import { markMoved, readMove, requireSameTarget } from '../store/db/moved.ts';
import { openDatabase } from '../store/db/open.ts';
import { openKeyRing } from './open-key-ring.ts';

/** The server waits this long for the next statement, because counting a large table of the embedded database takes seconds. */
const SILENT_MS_MAX = 600_000;

/**
 * Copies the embedded database in `dataDir` to the empty database at `database.url`, and marks the embedded one as moved. Returns the
 * number of rows by table. The mark is written before the copy is committed, so the embedded database is never usable beside a
 * complete copy. A move that fails before that leaves both databases as they were.
 * @throws Fault `invalid` without `database.url` or an embedded database, or if `secret` doesn't fit; `conflict` if
 * the service still runs, or if the database at `database.url` is in use or an earlier move had another one; `unavailable` if that server can't be reached
 */
export async function moveDatabase(
  config: Config,
  onProgress: (progress: CopyProgress) => void,
): Promise<Map<string, number>> {
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
  const target = await openDatabase({ url: settings.url, dataDir, silentMsMax: SILENT_MS_MAX });
  parts.defer(() => target.close());
  const source = await openDatabase({ url: '', dataDir, evenIfMoved: true });
  parts.defer(() => source.close());
  await migrate(source);
  await openKeyRing(config, source).catch((error: unknown) => {
    if (!(error instanceof Fault) || error.code !== 'invalid') throw error;
    const file = path.resolve(dataDir, 'secret');
    throw new Fault('invalid', `${error.message}. The embedded database used the one in ${file}`);
  });
  await migrate(target);
  await requireSameTarget(dataDir, target);
  let isMarked = earlier !== undefined;
  try {
    return await copyDatabase(source, target, {
      onProgress,
      async beforeCommit() {
        isMarked = true;
        await markMoved(dataDir, target, systemClock().now());
      },
    });
  } catch (error) {
    if (!isMarked || !(error instanceof Fault)) throw error;
    if (error.code === 'conflict')
      throw new Fault(
        'conflict',
        `this embedded database has moved already: to the database at database.url, at ${earlier?.at}. Start the service with this database.url. If its watchers are missing there, a service was started before that move was complete: empty that database, and run this command again`,
      );
    // The answer to the commit was lost.
    throw new Fault(
      error.code,
      `${error.message}. The move may be complete. Run the command again: it completes the move, or says that it is complete`,
    );
  }
}
