/**
 * Reads due notifications of leased lanes, many lanes with one statement. Requests that arrive while a statement runs go into the
 * next one.
 */

import { createGroups } from '../core/batching.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Database } from '../store/db/db.ts';
import type { Astray } from '../store/delivery/astray.ts';
import { type DueNotification, type DueOfLane, listDue } from '../store/delivery/due.ts';
import type { Lane } from '../store/delivery/lanes.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { createCorrections } from './corrections.ts';
import { type Credentials, readCredentials } from './credentials.ts';

/** A due notification with the credentials that its webhook carries. */
export type Due = { notification: DueNotification; credentials: Credentials };

type ReadRequest = {
  lane: Lane;
  /** Notifications of the lane that are under way. */
  exclude: readonly number[];
  /** Rows of each kind, first attempts and retries. */
  limit: number;
};

/** `readMs`: when the statement began, by the steady clock. */
type DueOrReason = { due: Due[]; readMs: number } | 'lost' | 'absent';

export type DueReader = {
  /** The due notifications, 'lost' when another worker has the lane, or 'absent' when its shard is lost. @throws Fault `unavailable` */
  read(request: ReadRequest): Promise<DueOrReason>;
};

type Waiting = ReadRequest & {
  resolve(due: DueOrReason): void;
  reject(error: unknown): void;
};

type Answer = { rows: DueOfLane; corrected: Promise<void> | undefined; readMs: number };

/** Lanes of one statement; 128 lanes with one row each take PostgreSQL about 2 ms. */
const LANES_MAX = 128;
/** Statements at once, so that a large one doesn't delay a small one. */
const STATEMENTS_MAX = 2;
/** A watcher's credentials are read once for its lanes that are read within this time. */
const CREDENTIALS_MS_MAX = 1_000;

/** Runs at most STATEMENTS_MAX statements at once. */
export function createDueReader(options: SecretStore & { database: Database; clock: Clock }): DueReader {
  const { database, clock } = options;
  const credentials = createCredentialsCache(options);
  const correct = createCorrections(options);
  let waiting: Waiting[] = [];
  let running = 0;
  let isRung = false;

  function run(): void {
    isRung = false;
    while (running < STATEMENTS_MAX && waiting.length > 0) {
      running += 1;
      void readGroup(nextGroup()).finally(() => {
        running -= 1;
        run();
      });
    }
  }

  /** One lane of each watcher first, then a second one of each. All have the same limit, because a statement has only one. */
  function nextGroup(): Waiting[] {
    const counts = new Map<number, number>();
    const ranked = waiting.map((one) => {
      const rank = counts.get(one.lane.watcherId) ?? 0;
      counts.set(one.lane.watcherId, rank + 1);
      return { one, rank };
    });
    ranked.sort((one, other) => one.rank - other.rank);
    const limit = ranked[0]?.one.limit;
    const group = ranked.flatMap(({ one }) => (one.limit === limit ? one : [])).slice(0, LANES_MAX);
    const taken = new Set(group);
    waiting = waiting.filter((one) => !taken.has(one));
    return group;
  }

  async function readGroup(group: readonly Waiting[]): Promise<void> {
    try {
      const lanes = group.map(({ lane }) => lane);
      const exclude = group.flatMap((one) => one.exclude);
      const limit = group[0]?.limit ?? 0;
      const [now, stepsMs, readMs] = [clock.now(), clock.stepsMs(), clock.steadyMs()];
      const corrected = new Map<number, Promise<void>>();
      const onAstray = (astray: Astray) => {
        const done = correct(astray);
        // If the database fails, the lane reads them again.
        done.catch((error: unknown) => {
          if (!(error instanceof Fault)) throw error;
        });
        corrected.set(astray.lane.id, done);
      };
      const found = await listDue(database, lanes, { now, stepsMs, exclude, limit, onAstray });
      credentials.removeOld();
      for (const one of group) {
        const { id } = one.lane;
        void answer(
          one,
          { rows: found.get(id) ?? 'lost', corrected: corrected.get(id), readMs },
          credentials,
        );
      }
    } catch (error) {
      for (const one of group) one.reject(error);
    }
  }

  return {
    read(request) {
      const { promise, resolve, reject } = Promise.withResolvers<DueOrReason>();
      waiting.push({ ...request, resolve, reject });
      // Lanes that are leased together are read together.
      if (!isRung) queueMicrotask(run);
      isRung = true;
      return promise;
    },
  };
}

/** For one watcher alone, so its corrections, and credentials that can't be read, delay no other watcher. */
async function answer(
  { lane, resolve, reject }: Waiting,
  { rows, corrected, readMs }: Answer,
  credentials: CredentialsCache,
): Promise<void> {
  try {
    if (rows instanceof Fault) reject(rows);
    else if (typeof rows === 'string') resolve(rows);
    else if (rows.length === 0) {
      // Otherwise the lane would be given back and leased again until its corrections are done.
      await corrected;
      resolve({ due: [], readMs });
    } else {
      const own = await credentials.of(lane.watcherId);
      resolve({ due: rows.map((notification) => ({ notification, credentials: own })), readMs });
    }
  } catch (error) {
    reject(error);
  }
}

type CredentialsCache = ReturnType<typeof createCredentialsCache>;

/** Credentials that lanes of one watcher share for CREDENTIALS_MS_MAX. Those of several watchers are read together. */
function createCredentialsCache(options: SecretStore & { database: Database; clock: Clock }) {
  const { clock } = options;
  const known = new Map<number, { readMs: number; reading: Promise<Credentials> }>();
  const readInGroups = createGroups<number, Credentials>({
    sizeMax: LANES_MAX,
    work: (watcherIds) => readCredentials(options, watcherIds),
  });
  return {
    of(watcherId: number): Promise<Credentials> {
      const kept = known.get(watcherId);
      if (kept !== undefined) return kept.reading;
      const reading = readInGroups(watcherId);
      known.set(watcherId, { readMs: clock.steadyMs(), reading });
      reading.catch(() => known.delete(watcherId));
      return reading;
    },
    removeOld(): void {
      for (const [id, { readMs }] of known)
        if (clock.steadyMs() - readMs > CREDENTIALS_MS_MAX) known.delete(id);
    },
  };
}
