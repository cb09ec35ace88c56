/**
 * Opens the database that the configuration names: PostgreSQL, or the embedded one.
 */
import type { Connections, Share, SharedDatabase } from './db.ts';

export type DatabaseOptions = {
  /** `postgres://…`, several hosts allowed; empty: the embedded database in `dataDir`/database. */
  url: string;
  dataDir: string;
  /** By default as a command needs them. */
  connections?: Connections;
  /** Hears how long a statement or transaction waited for its connection or turn. */
  onWait?(share: Share, waitMs: number): void;
  /** PostgreSQL ends a transaction of which it hears nothing for so long. */
  silentMsMax?: number;
};

/**
 * A process that is stopped (SIGSTOP), paused with its machine or cut off within a transaction keeps its locks, for which blocks of
 * all watchers may wait.
 */
const SILENT_MS_MAX = 5_000;

const COMMAND_CONNECTIONS: Connections = { follower: 2, api: 10, delivery: 2 };

/** Opens the database that the options name. @throws Fault `unavailable`, or `conflict` when the folder is in use. */
export async function openDatabase(options: DatabaseOptions): Promise<SharedDatabase> {
  const { url, dataDir, connections = COMMAND_CONNECTIONS, onWait = () => {} } = options;
  const { silentMsMax = SILENT_MS_MAX } = options;
  if (url === '') {
    const { openEmbedded } = await import('./embedded.ts');
    return openEmbedded(dataDir, onWait);
  }
  const { openPostgres } = await import('./postgres.ts');
  return openPostgres(url, { connections, onWait, silentMsMax });
}
