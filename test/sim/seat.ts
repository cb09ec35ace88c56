/**
 * The database as one actor sees it. Each transaction, and each statement outside a transaction, is a turn. A turn may
 * fail or kill the actor, before or after it takes effect.
 */
import { Fault } from '../../src/core/fault.ts';
import type { Database, Session, Tx } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { WORKER_LOCK_SPACE } from '../../src/store/delivery/workers.ts';
import type { Bug } from './bugs.ts';
import type { Actor, Scheduler } from './scheduler.ts';

/**
 * The named points of turns, each recognized by a statement that only it has. Any other turn that writes is a `write`, and
 * one that writes nothing is a `read`. A process may die after each statement outside a transaction.
 */
const POINTS = {
  followStep: /update clock_state\b/,
  // Usually it finds nothing too late, so this is its look.
  repairSchedule: /select n\.id from queue n where n\.state = 'waiting' and n\.due_at >/,
  // One transaction removes the orphaned blocks and stores the new branch.
  switchBranch: /delete from block\b/,
  commitBlocks: /insert into block\b/,
  writeDeferred: /(?:delete from|update) deferred_match (?:set .* )?where id/,
  leaseLanes: /set owner = \$\d+, epoch = epoch \+ 1/,
  settle: /insert into delivery_attempt\b/,
  releaseLanes: /set owner = null, lease_until = null, next_due/,
  renewLeases: /update lane set lease_until/,
  freeAbandonedLanes: /pg_locks/,
  listDue: /left join watched_address/,
  scheduleNextVisits: /update watcher_queue q set next_due = \(/,
  tendFilter: /address_filter/,
  createPartition: /create table \w+ partition of/,
  dropPartition: /detach partition/,
  prune:
    /delete from (delivery_attempt_default|notification_default|ended where|idempotent_answer|price_observation)\b/,
} as const;
export type Point = keyof typeof POINTS | 'write' | 'read';
export const points = Object.keys(POINTS);

export type Mishap = 'none' | 'fault before' | 'fault after' | 'crash before' | 'crash after';
const isBefore = (mishap: Mishap) => mishap.endsWith('before');

/** A turn that the database has completed. The actor has not received its result yet. */
export type Done = { point: Point; mishap: Mishap; hasWritten: boolean };

type SeatOptions = {
  actor: Actor;
  scheduler: Scheduler;
  database: Database;
  bug: Bug;
  sessions: Sessions;
  /** Chooses the mishap of a turn at this point. */
  mishapAt(point: Point): Mishap;
  /** Called with the due rows of a lane when the actor receives them. */
  onRead(rows: readonly unknown[]): void;
  onDone(done: Done): Promise<void>;
};

/** Rolls a transaction back. */
class Undone extends Error {
  readonly mishap: Mishap;

  constructor(mishap: Mishap) {
    super(mishap);
    this.mishap = mishap;
  }
}

export function createSeat(options: SeatOptions): Database {
  const { actor, scheduler, database, bug, sessions } = options;

  const inTurn = <T>(work: () => Promise<T>) => scheduler.turn(actor, 'call', work);

  async function end(done: Done): Promise<void> {
    await options.onDone(done);
    if (done.mishap !== 'none') throw new Fault('unavailable', `database: ${done.mishap} ${done.point}`);
  }

  const query = <Row>(statement: Sql) =>
    inTurn(async () => {
      const point = pointOf([statement.text]);
      const mishap = options.mishapAt(point);
      const rows = isBefore(mishap) ? [] : await database.query<Row>(bug.rewrite(statement));
      bug.note(statement.text, rows);
      // A statement with `returning` that returns no row has changed nothing.
      const hasWritten = isWrite(statement) && (rows.length > 0 || !statement.text.includes('returning'));
      await end({ point, mishap, hasWritten: hasWritten && !isBefore(mishap) });
      if (point === 'listDue') options.onRead(rows);
      return rows;
    });

  return {
    ...database,
    // Its processes work beside each other, as on a server.
    kind: 'postgres',
    query,
    async transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
      if (await isApart(bug, work)) return work({ kind: 'transaction', query });
      return inTurn<T>(async () => {
        const texts: string[] = [];
        let hasWritten = false;
        const outcome = await database
          .transaction(async (tx) => {
            const result = await work({
              kind: 'transaction',
              query: <Row>(statement: Sql) => {
                texts.push(statement.text);
                hasWritten ||= isWrite(statement);
                return tx.query<Row>(bug.rewrite(statement));
              },
            });
            const mishap = options.mishapAt(pointOf(texts));
            if (isBefore(mishap)) throw new Undone(mishap);
            return { result, mishap };
          })
          .catch((error: unknown) => {
            if (error instanceof Undone) return error;
            throw error;
          });
        const { mishap } = outcome;
        await end({ point: pointOf(texts), mishap, hasWritten: hasWritten && !isBefore(mishap) });
        if (outcome instanceof Undone) throw outcome;
        return outcome.result;
      });
    },
    session: async () =>
      sessions.open(actor, (work) =>
        inTurn(async () => {
          const mishap = options.mishapAt('read');
          const hasLock = isBefore(mishap) ? false : await work();
          await end({ point: 'read', mishap, hasWritten: false });
          return hasLock;
        }),
      ),
  };
}

/** Whether a bug splits this transaction, so that its process can die between its statements. */
export async function isApart({ apart }: Bug, work: (tx: Tx) => Promise<unknown>): Promise<boolean> {
  if (apart === undefined) return false;
  const { promise, resolve } = Promise.withResolvers<string>();
  const listen: Tx = {
    kind: 'transaction',
    query(statement) {
      resolve(statement.text);
      return new Promise(() => {});
    },
  };
  // Its first statement never returns, so it goes no further.
  void work(listen).then(() => resolve(''));
  return apart.test(await promise);
}

export const isWrite = ({ text }: Sql) =>
  /\b(insert into|update|delete from|drop table)\b/.test(text.replace('for update', ''));

function pointOf(texts: readonly string[]): Point {
  for (const [point, pattern] of Object.entries(POINTS))
    if (texts.some((text) => pattern.test(text))) return isPoint(point) ? point : 'read';
  return texts.some((text) => isWrite({ text, values: [] })) ? 'write' : 'read';
}

const isPoint = (name: string): name is keyof typeof POINTS => name in POINTS;

export type Sessions = ReturnType<typeof createSessions>;

/**
 * Sessions of several actors on the single connection of the embedded database. The holders of advisory locks are kept
 * here. The locks are also taken in the database, where the statements of workers look for them.
 */
export function createSessions(database: Database) {
  const open = new Map<Actor, { session: Session; locks: Set<string>; lost: AbortController }>();
  const workers = new Map<number, Actor>();
  const isHeld = (lock: string) => Array.from(open.values()).some(({ locks }) => locks.has(lock));

  async function end(actor: Actor): Promise<void> {
    const own = open.get(actor);
    open.delete(actor);
    own?.lost.abort();
    for (const lock of own?.locks ?? []) {
      const [space, key] = lock.split('/').map(Number);
      await database.query(sql`select pg_advisory_unlock(${space}, ${key})`);
    }
  }

  return {
    /** The actor's session, or a new one after the last one has ended. Each lock is taken in a turn (`inTurn`). */
    open(actor: Actor, inTurn: (work: () => Promise<boolean>) => Promise<boolean>): Session {
      const known = open.get(actor);
      if (known !== undefined) return known.session;
      const lost = new AbortController();
      const locks = new Set<string>();
      const session: Session = {
        lost: lost.signal,
        tryLock: async (space, key) => {
          const lock = `${space}/${key}`;
          if (locks.has(lock)) return true;
          return inTurn(async () => {
            if (lost.signal.aborted) throw new Fault('unavailable', 'database: the session is lost');
            if (isHeld(lock)) return false;
            await database.query(sql`select pg_try_advisory_lock(${space}, ${key})`);
            locks.add(lock);
            if (space === WORKER_LOCK_SPACE) workers.set(key, actor);
            return true;
          });
        },
        async unlock(space, key) {
          if (!locks.delete(`${space}/${key}`)) return;
          await database.query(sql`select pg_advisory_unlock(${space}, ${key})`);
        },
        listen: async () => {},
        abandon() {},
        close: () => end(actor),
      };
      open.set(actor, { session, locks, lost });
      return session;
    },
    /** Breaks the connection, which releases the locks. */
    end,
    async endAll() {
      for (const actor of [...open.keys()]) await end(actor);
    },
    /** The actor that has or had this worker number. */
    workerOf: (number: number) => workers.get(number),
    isWorkerAlive: (number: number) => isHeld(`${WORKER_LOCK_SPACE}/${number}`),
  };
}
