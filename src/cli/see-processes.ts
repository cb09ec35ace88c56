/**
 * The processes of the deployment as a command sees them, which looks only once.
 */
import type { SeenProcess } from '../app/process-watch.ts';
import { systemClock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';

export async function seeProcesses(database: Database): Promise<readonly SeenProcess[]> {
  const [{ createProcessWatch, EMBEDDED_HEARTBEAT_MS, LOST_MS }, { listProcesses }] = await Promise.all([
    import('../app/process-watch.ts'),
    import('../store/deployment/processes.ts'),
  ]);
  // If this command has opened the folder of the embedded database itself, no service runs.
  const embeddedMs = database.isServed === true ? EMBEDDED_HEARTBEAT_MS + LOST_MS : 0;
  const watch = createProcessWatch(systemClock(), database.kind === 'embedded' ? embeddedMs : LOST_MS);
  watch.note(await listProcesses(database));
  return watch.seen();
}

/** For messages about running processes: LOST_MS of process-watch.ts, which isn't loaded for a sentence. */
export const KILLED_REMARK = 'A killed process counts as running for 10 s';

/** As messages name a process. */
export const shownProcess = ({ roles, host, pid }: Pick<SeenProcess, 'roles' | 'host' | 'pid'>): string =>
  `${roles.join(',')} on ${host} (pid ${pid})`;
