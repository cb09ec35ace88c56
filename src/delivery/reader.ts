/**
 * Reads what is due in leased lanes, many lanes with one statement: what is asked for while one runs goes into the next.
 */

import { createGroups } from '../core/batching.ts';
import type { Clock } from '../core/clock.ts';
import type { Database } from '../store/db/db.ts';
import { type DueNotification, listDue } from '../store/delivery/due.ts';
import type { Lane } from '../store/delivery/lanes.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { type Credentials, readCredentials } from './credentials.ts';

/** A due notification, and what its webhook proves itself with. */
export type Due = { notification: DueNotification; credentials: Credentials };

type ReadRequest = {
  lane: Lane;
  /** Notifications of the lane that are under way. */
  exclude: readonly number[];
  /** Rows of each kind, first attempts and retries. */
  limit: number;
};

export type DueReader = {
  /** What is due, or 'lost' when another worker has the lane. @throws Fault `unavailable` */
  read(request: ReadRequest): Promise<Due[] | 'lost'>;
};

type Waiting = ReadRequest & {
  resolve(due: Due[] | 'lost'): void;
  reject(error: unknown): void;
};

/** Lanes of one statement; 128 lanes with one row each take PostgreSQL about 2 ms. */
const LANES_MAX = 128;
/** Statements at once: a large one holds up no small one. */
const STATEMENTS_MAX = 2;
/** A watcher's credentials are read once for its lanes that are read within this time. */
const CREDENTIALS_MS_MAX = 1_000;

/** A reader that has no more than STATEMENTS_MAX statements under way. */
export function createDueReader(options: SecretStore & { database: Database; clock: Clock }): DueReader {
  const { database, clock } = options;
  const credentials = new Map<number, { readMs: number; reading: Promise<Credentials> }>();
  const readOf = createGroups<number, Credentials>({
    sizeMax: LANES_MAX,
    work: (watcherIds) => readCredentials(options, watcherIds),
  });
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

  /** One lane of each watcher, then a second one of each, and so on; of one limit, because a statement has only one. */
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
      const [now, stepsMs] = [clock.now(), clock.stepsMs()];
      const found = await listDue(database, lanes, { now, stepsMs, exclude, limit });
      for (const [id, one] of credentials)
        if (clock.steadyMs() - one.readMs > CREDENTIALS_MS_MAX) credentials.delete(id);
      await Promise.all(group.map((one) => answer(one, found.get(one.lane.id) ?? 'lost')));
    } catch (error) {
      for (const one of group) one.reject(error);
    }
  }

  /** One watcher's credentials that can't be read are no other's failure. */
  async function answer({ lane, resolve, reject }: Waiting, rows: DueNotification[] | 'lost'): Promise<void> {
    if (rows === 'lost' || rows.length === 0) return resolve(rows === 'lost' ? 'lost' : []);
    try {
      const own = await credentialsOf(lane.watcherId);
      resolve(rows.map((notification) => ({ notification, credentials: own })));
    } catch (error) {
      reject(error);
    }
  }

  function credentialsOf(watcherId: number): Promise<Credentials> {
    const known = credentials.get(watcherId);
    if (known !== undefined) return known.reading;
    const reading = readOf(watcherId);
    credentials.set(watcherId, { readMs: clock.steadyMs(), reading });
    reading.catch(() => credentials.delete(watcherId));
    return reading;
  }

  return {
    read(request) {
      const { promise, resolve, reject } = Promise.withResolvers<Due[] | 'lost'>();
      waiting.push({ ...request, resolve, reject });
      // Lanes that are leased together are read together.
      if (!isRung) queueMicrotask(run);
      isRung = true;
      return promise;
    },
  };
}
