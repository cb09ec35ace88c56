/**
 * Work on several shards, of which one whose server can't be reached holds up only its own elements (Citus).
 */
import { Fault } from '../../core/fault.ts';
import type { Db } from './db.ts';
import { doesAnswer, listSilent, workersOf } from './lost-shards.ts';

/** Connections that work on several shards takes at once. Two record outcomes (postgres.ts). */
const SHARDS_AT_ONCE = 2;

/**
 * Calls `work` for the elements of each shard. `failed` has the Fault of each shard that failed. When the worker of one doesn't answer, its
 * other shards fail at once, also in later calls until it answers, because each would wait for as long as its statements may.
 */
export async function tryEachShard<T extends { shardId: number }, R>(
  db: Db,
  elements: readonly T[],
  work: (shardId: number, own: T[]) => Promise<R[]>,
): Promise<{ found: R[]; failed: Map<number, Fault> }> {
  const found: R[] = [];
  const failed = new Map<number, Fault>();
  const groups = Map.groupBy(elements, ({ shardId }) => shardId);
  const workers = createWorkers(db, [...groups.keys()]);
  const silent = new Map<string, Fault>();
  for (const worker of listSilent(db)) silent.set(worker, silentFault(worker));
  // Both take the next group from one iterator.
  const left = groups.entries();
  const workOn = async () => {
    for (const [shardId, own] of left)
      try {
        const fault = silent.size === 0 ? undefined : silent.get(await workers.of(shardId));
        if (fault === undefined) found.push(...(await work(shardId, own)));
        else failed.set(shardId, fault);
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        failed.set(shardId, error);
        if (groups.size === 1) continue;
        const worker = await workers.of(shardId);
        if (!silent.has(worker) && !(await doesAnswer(db, { worker, sample: shardId })))
          silent.set(worker, error);
      }
  };
  await Promise.all(Array.from({ length: SHARDS_AT_ONCE }, workOn));
  return { found, failed };
}

const silentFault = (worker: string) =>
  new Fault('unavailable', `database: worker ${worker} does not answer`);

/** The workers of these shards, which are read when the first is needed. */
function createWorkers(db: Db, shardIds: readonly number[]) {
  let reading: Promise<Map<number, string>> | undefined;
  return {
    async of(shardId: number): Promise<string> {
      reading ??= workersOf(db, shardIds);
      return (await reading).get(shardId) ?? '';
    },
  };
}
