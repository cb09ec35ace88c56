/**
 * Opens the configured database: PostgreSQL or the embedded one.
 */
import type { Connections, Share, SharedDatabase } from './db.ts';
import { requireNotMoved } from './moved.ts';

export type DatabaseOptions = {
  /** `postgres://…`, possibly with several hosts. Empty: the embedded database in `dataDir`/database. */
  url: string;
  /** PostgreSQL itself if `url` leads to a pooler in transaction mode, which then serves only the share `api`. */
  sessionUrl?: string;
  dataDir: string;
  /** The default is enough for a command. */
  connections?: Connections;
  /** All connections that the process opens, as its messages say. The default is that of a command. */
  connectionsMax?: number;
  /** Called with the time that a statement or transaction waited for its connection. */
  onWait?(share: Share, waitMs: number): void;
  /** Opens an embedded database even if it has moved to a server. */
  evenIfMoved?: boolean;
  /** PostgreSQL ends a transaction that is idle for this long. */
  silentMsMax?: number;
};

/**
 * A process that is stopped (SIGSTOP), paused with its machine or cut off within a transaction keeps its locks. Blocks of all
 * watchers may wait for those.
 */
const SILENT_MS_MAX = 5_000;

const COMMAND_CONNECTIONS: Connections = { follower: 2, api: 10, delivery: 2 };

/** @throws Fault `unavailable` if the database can't be reached, `conflict` if another process has the folder. */
export async function openDatabase(options: DatabaseOptions): Promise<SharedDatabase> {
  const { url, dataDir, connections = COMMAND_CONNECTIONS, onWait = () => {} } = options;
  const { silentMsMax = SILENT_MS_MAX, sessionUrl = '', connectionsMax = COMMAND_CONNECTIONS.api } = options;
  if (url === '') {
    const { openEmbedded } = await import('./embedded.ts');
    if (options.evenIfMoved === true) return openEmbedded(dataDir, onWait);
    await requireNotMoved(dataDir);
    // Once more under the lock, because a move may end in between.
    return openEmbedded(dataDir, onWait, () => requireNotMoved(dataDir));
  }
  const { openPostgres } = await import('./postgres.ts');
  return openPostgres(url, { sessionUrl, connections, connectionsMax, onWait, silentMsMax });
}
