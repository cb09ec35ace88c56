/**
 * Corrects notifications that are due in a lane and must not be sent from it (store/delivery/astray.ts), beside the reads of lanes. A
 * watcher can have hundreds of thousands of them, so watchers take turns, and only its own lanes wait for a watcher's corrections.
 */
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';
import { type Astray, correctAstray } from '../store/delivery/astray.ts';

type Correction = PromiseWithResolvers<void> & { astray: Astray };

/** Returns a function that resolves when these have been corrected. Rejects with a Fault if the database fails. */
export function createCorrections({
  database,
  clock,
}: {
  database: Database;
  clock: Clock;
}): (astray: Astray) => Promise<void> {
  /** The corrections of each watcher. The watcher whose turn is longest ago comes first. */
  const waiting = new Map<number, Correction[]>();
  let isRunning = false;

  /** One after another, because each takes a connection that reads and outcomes need too. */
  async function run(): Promise<void> {
    isRunning = true;
    for (let next = takeNext(); next !== undefined; next = takeNext())
      await correctAstray(database, next.astray, clock.now()).then(next.resolve, next.reject);
    isRunning = false;
  }

  function takeNext(): Correction | undefined {
    const [first] = waiting;
    if (first === undefined) return undefined;
    const [watcherId, own] = first;
    const next = own.shift();
    waiting.delete(watcherId);
    if (own.length > 0) waiting.set(watcherId, own);
    return next;
  }

  return (astray) => {
    const own = waiting.get(astray.lane.watcherId) ?? [];
    // The lane was read again before its turn.
    const known = own.find((one) => one.astray.lane.id === astray.lane.id);
    if (known !== undefined) {
      known.astray = astray;
      return known.promise;
    }
    const next = { ...Promise.withResolvers<void>(), astray };
    own.push(next);
    waiting.set(astray.lane.watcherId, own);
    if (!isRunning) void run();
    return next.promise;
  };
}
