/**
 * The database: PostgreSQL behind a pool, or the embedded PGlite. The same SQL and the same types on both.
 */
import { Fault, messageOf } from '../../core/fault.ts';
import type { Sql } from './sql.ts';

/** Runs statements; either the pool or one open transaction. */
export type Db = {
  /** The rows of one statement. @throws Fault `unavailable` when the database cannot be reached or asks to try again. */
  query<Row = Record<string, unknown>>(statement: Sql): Promise<Row[]>;
};

/**
 * One open transaction, which only `transaction` makes: what several statements must do together, or after the locks of an
 * earlier one, takes it, so that the pool does not fit.
 */
export type Tx = Db & { readonly kind: 'transaction' };

/** What holds things for as long as this process lives: advisory locks and LISTEN. Ends with its connection. */
export type Session = {
  /** Takes or already has the advisory lock (space, key); false while another session holds it. */
  tryLock(space: number, key: number): Promise<boolean>;
  /** Calls back with the payload of each NOTIFY on the channel. A hint: it may be missed, polling is the truth. */
  listen(channel: string, onNotify: (payload: string) => void): Promise<void>;
  /** Aborts when the connection is gone, and the locks with it. */
  readonly lost: AbortSignal;
  close(): Promise<void>;
};

export type Database = Db & {
  readonly kind: 'postgres' | 'embedded';
  /** Hands on the rows of one statement as they come, and keeps none. @throws what `onRow` does, after the last one. */
  each<Row>(statement: Sql, onRow: (row: Row) => void): Promise<void>;
  /**
   * Commits what `work` did, or nothing. Never held open over network I/O. After a deadlock or a serialization failure `work`
   * runs again, a few times at most, so it must not depend on a first run.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Runs a text of several statements, in one transaction; for migrations. */
  script(text: string): Promise<void>;
  session(): Promise<Session>;
  close(): Promise<void>;
};

/**
 * The parts of a process that never wait for each other's statements: each has separate connections on a server, and takes
 * turns with the others on the embedded database. `settle` records outcomes of attempts; the rest of delivery is `delivery`.
 * `operator` is for commands beside a service with the embedded database; on a server they connect themselves.
 */
export const shares = ['follower', 'settle', 'delivery', 'api', 'operator'] as const;
export type Share = (typeof shares)[number];

/** The database of a process. By itself it is the API's share, which commands use too. */
export type SharedDatabase = Database & {
  /** The same database, through the connections of one part. */
  for(share: Share): Database;
  /** @throws Fault `invalid` behind a pooler that gives a server's session to several clients: locks and LISTEN break there. */
  requireSessions(): Promise<void>;
};

/** Connections at most; one of `delivery` is for `settle`. */
export type Connections = { follower: number; api: number; delivery: number };

/**
 * SQLSTATE classes and socket errors after which the same work may succeed: connection exceptions, resources,
 * operator intervention, serialization, deadlock, lock and query timeouts, failing disks, a server that is read-only after a
 * failover, and a transaction that it ended because it heard nothing.
 */
const RETRYABLE =
  /^(08|53|57|58|25006|25P03|40001|40P01|55P03)|^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND)/;
const RETRYABLE_TEXT =
  /Connection terminated|timeout|not queryable|Client has encountered a connection error/i;

/** It answers every question, so that only the message of a write can say what is wrong. */
const READ_ONLY = /^25006/;
export const READ_ONLY_ADVICE =
  'The database is read-only, as a standby is. Point database.url to the primary server';

/** A driver error as a Fault where trying again may help; any other error is a bug and stays as it is. */
export function databaseError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const nested =
    error instanceof AggregateError && error.errors.some((one) => databaseError(one) instanceof Fault);
  if (!RETRYABLE.test(code) && !nested && !(code === '' && RETRYABLE_TEXT.test(error.message))) return error;
  const advice = READ_ONLY.test(code) ? `. ${READ_ONLY_ADVICE}` : '';
  return new Fault('unavailable', `database: ${messageOf(error)}${advice}`, { cause: error });
}

/** int8 columns are ids, counts and block numbers, all below 2^53; the same on both drivers. */
export function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 ${text} is beyond 2^53`);
  return value;
}

/** Type identifiers of PostgreSQL whose parsers both drivers share. */
export const INT8_OID = 20;
