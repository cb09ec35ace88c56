/**
 * The database: PostgreSQL behind a pool, or the embedded PGlite. Both run the same SQL and return the same types.
 */
import { Fault, messageOf } from '../../core/fault.ts';
import type { Sql } from './sql.ts';

/** Runs statements, either on the pool or in one open transaction. */
export type Db = {
  /** The rows of one statement. @throws Fault `unavailable` if the database can't be reached or if a retry may succeed. */
  query<Row = Record<string, unknown>>(statement: Sql): Promise<Row[]>;
  /** Whether the delivery tables are distributed over several servers (citus.ts). Known when the database is opened. */
  readonly isDistributed?: boolean;
  /** The shards to which statements about several shards are limited; undefined for all (shard-rows.ts). */
  readonly reach?: readonly number[] | undefined;
};

/**
 * One open transaction, which only `transaction` creates. A function takes a Tx instead of a Db if its statements must commit
 * together or depend on locks of an earlier statement. The type checker then rejects the pool.
 */
export type Tx = Db & { readonly kind: 'transaction' };

/** A connection for advisory locks and LISTEN, held as long as this process runs. Both end with the connection. */
export type Session = {
  /** Takes the advisory lock (space, key), unless this session has it already. False while another session holds it. */
  tryLock(space: number, key: number): Promise<boolean>;
  /** Gives the lock back, if this session has it. */
  unlock(space: number, key: number): Promise<void>;
  /** Calls back with the payload of each NOTIFY on the channel. A NOTIFY may be missed, so listeners must poll too. */
  listen(channel: string, onNotify: (payload: string) => void): Promise<void>;
  /** Aborts when the connection, and with it all locks, is lost. */
  readonly lost: AbortSignal;
  /** Ends the session at once: the server no longer has its locks. */
  abandon(): void;
  close(): Promise<void>;
};

export type Database = Db & {
  readonly kind: 'postgres' | 'embedded';
  /** Whether a service has the embedded database open, and this process is a command that uses it through the service's socket. */
  readonly isServed?: boolean;
  /** On Citus: a statement about one worker, which may wait for as long as that is silent, on connections only for these. */
  probe?<Row = Record<string, unknown>>(statement: Sql): Promise<Row[]>;
  /** Passes on the rows of one statement as they arrive, without storing them. @throws an error of `onRow` after the last row. */
  each<Row>(statement: Sql, onRow: (row: Row) => void): Promise<void>;
  /**
   * Commits everything that `work` did, or nothing. Never keep a transaction open over network I/O. After a deadlock or a
   * serialization failure `work` runs again, a few times at most, so it must not depend on an earlier run.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Runs a text of several statements in one transaction, for migrations. */
  script(text: string): Promise<void>;
  session(): Promise<Session>;
  close(): Promise<void>;
};

/**
 * The parts of a process whose statements don't hold up each other. On a server each has separate connections; on the embedded
 * database they share one connection fairly. `settle` records outcomes of attempts, `delivery` is the rest of delivery.
 * Only small statements on the table `process` use `heartbeat`, so that no other table's locks hold them up.
 * `operator` is for commands that run beside a service with the embedded database. On a server commands connect themselves.
 */
export const shares = ['follower', 'heartbeat', 'settle', 'delivery', 'api', 'operator'] as const;
export type Share = (typeof shares)[number];

/** The database of a process. Used directly, it is the API's share, which commands use too. */
export type SharedDatabase = Database & {
  /** The same database through the connections of one share. */
  for(share: Share): Database;
  /**
   * @throws Fault `invalid` behind a pooler that shares server sessions between clients, because locks and LISTEN break
   * there, and while several of the servers that the URL names accept writes.
   */
  requireSessions(): Promise<void>;
  /** Ends all connections at once: statements under way fail as if the server were gone. Does nothing if it is embedded. */
  cut(): void;
};

/** Maximum number of connections per share. Up to two of `delivery` are for `settle`. `heartbeat` has one. */
export type Connections = { follower: number; api: number; delivery: number };

/**
 * SQLSTATE classes and socket errors after which the same work may succeed: connection exceptions, resources, a full NOTIFY queue, operator
 * intervention, serialization, deadlock, lock and query timeouts, failing disks, a server that is read-only after a failover, a transaction
 * that the server ended because it took or was idle for too long, and a privilege that the role lacks.
 */
const RETRYABLE =
  /^(08|42501|53|54000 .*NOTIFY|57|58|25006|25P0[34]|40001|40P01|55P03)|^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND)/;
const RETRYABLE_TEXT =
  /Connection terminated|timeout|not queryable|Client has encountered a connection error/i;

/**
 * What Citus reports, as an internal error, when the connection to a worker breaks during a statement (libpq's words) or during the
 * commit, or when the coordinator's server dies.
 */
const INTERNAL = 'XX000';
const BROKEN_TEXT =
  /^(SSL SYSCALL error|SSL connection has been closed|server closed the connection|could not (receive|send) data|no connection to the server|connection not open|postmaster was shut down|could not commit transaction for shard \d+ on at least one active node|failure on connection marked as essential)/i;

/** A read-only server answers all queries, so only the error of a write can give this advice. */
const READ_ONLY = /^25006/;
export const READ_ONLY_ADVICE =
  'The server may be a standby. Point database.url, and database.sessionUrl if you use it, to the primary server';

/** As messages about a connection name it. */
export const URL_SETTING = 'database.url (DATABASE_URL)';
/**
 * What to do about a connection that the server refuses, or whose TLS can't be verified, by its code and message. The same work may
 * succeed later: an operator changes passwords, roles, names of databases and certificates.
 */
const REFUSALS: readonly [codeAndMessage: RegExp, advice: string][] = [
  [/^3D000/, `Create this database, or change ${URL_SETTING}`],
  [/^28.* no encryption$/, `If the server requires TLS, add sslmode=verify-full to ${URL_SETTING}`],
  // The driver's words. Without a password it doesn't answer the server's question, so there is no SQLSTATE.
  [/client password must be a/, `The server asks for a password, and ${URL_SETTING} has none`],
  [/^28/, `Check user and password in ${URL_SETTING}`],
  [/^CERT_(HAS_EXPIRED|NOT_YET_VALID)/, "Renew the server's certificate"],
  [
    /^(CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/,
    `Add the file of the authority that issued the server's certificate: sslrootcert=/path/ca.pem in ${URL_SETTING}`,
  ],
  [/^ERR_TLS_CERT_ALTNAME_INVALID/, `Use a host name of the server's certificate in ${URL_SETTING}`],
  [/does not support SSL/, `Turn TLS on in the server, or set sslmode=disable in ${URL_SETTING}`],
];

/** The role lacks a privilege. */
export const DENIED = '42501';

/** What to do about a refused connection; undefined for other errors. */
export function adviceOnRefusal(error: unknown): string | undefined {
  const about = error instanceof Error ? `${sqlStateOf(error)} ${error.message}` : '';
  return REFUSALS.find(([pattern]) => pattern.test(about))?.[1];
}

const ADVICE: readonly [codeAndMessage: RegExp, advice: string][] = [
  [READ_ONLY, READ_ONLY_ADVICE],
  [/^42501/, `Grant the privilege to the role in ${URL_SETTING}, or make that role the owner`],
  [
    /^53300/,
    "Raise the server's max_connections or the limit of this role or database, lower database.connections, or end other clients",
  ],
  [
    /^54000 .*NOTIFY/,
    'End the session that listens in an open transaction, of whatever program on this server: pg_stat_activity lists it, and the log of the server has its PID. pg_notification_queue_usage() shows how full the queue is',
  ],
  [
    /^(57014|25P04)/,
    "If this server, database or role has a statement_timeout or transaction_timeout, set it to '120s' or more: alter role … set statement_timeout = '120s'",
  ],
];

/** The SQLSTATE of a driver error or of the Fault that it caused, or the code of a socket error; else ''. */
export function sqlStateOf(error: unknown): string {
  const source = error instanceof Fault ? error.cause : error;
  return source instanceof Error && 'code' in source && typeof source.code === 'string' ? source.code : '';
}

/** Citus reports any error of a worker that receives rows without its code, also a full disk. */
const isOfCopy = (error: Error): boolean => 'routine' in error && error.routine === 'ReportCopyError';

/** The server is not there, or another one. */
const UNREACHABLE = /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND)/;
const UNREACHABLE_ADVICE = `Check that the server runs and that ${URL_SETTING} names it`;

/** Turns a driver error into a Fault if a retry may succeed. Any other error is a bug and stays as it is. */
export function databaseError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof Fault) return error;
  const code = sqlStateOf(error);
  const nested =
    error instanceof AggregateError && error.errors.some((one) => databaseError(one) instanceof Fault);
  const isBroken = code === INTERNAL && (BROKEN_TEXT.test(error.message) || isOfCopy(error));
  const refusal = adviceOnRefusal(error);
  const mayRetry =
    RETRYABLE.test(`${code} ${error.message}`) || (code === '' && RETRYABLE_TEXT.test(error.message));
  if (!mayRetry && refusal === undefined && !nested && !isBroken) return error;
  const message = messageOf(error);
  const advice = ADVICE.find(([pattern]) => pattern.test(`${code} ${message}`))?.[1] ?? refusal;
  const told = advice === undefined ? message : `${message}. ${advice}`;
  const text = nested || UNREACHABLE.test(code) ? `no connection (${message}). ${UNREACHABLE_ADVICE}` : told;
  return new Fault('unavailable', `database: ${text}`, { cause: error });
}

/** int8 columns are ids, counts and block numbers, all below 2^53. Both drivers parse them with this function. */
export function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 ${text} is beyond 2^53`);
  return value;
}

/** OID of int8 in PostgreSQL. */
export const INT8_OID = 20;
