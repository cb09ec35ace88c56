/**
 * Connections to a PostgreSQL server that may be one of several hosts, and may become read-only when another one takes over.
 */
import { Socket } from 'node:net';
import pg from 'pg';
import { parseDatabaseUrl } from '../../core/database-url.ts';
import { createSilentConnections, reset, type SilentConnections } from './silent-connections.ts';

export type PostgresHosts = {
  /** A pool of at most `connectionsMax`. Each new connection goes to the host that worked last. */
  pool(connectionsMax: number): pg.Pool;
  /**
   * A connection of the pool. @throws the driver's error if no host can be reached or none accepts writes, if that is
   * required.
   */
  connect(pool: pg.Pool): Promise<pg.PoolClient>;
  /** A connection outside of the pools, whose statements may take up to `queryMsMax`. @throws the same errors */
  open(queryMsMax?: number): Promise<pg.Client>;
  /** Report each error here. After one says that the server is read-only, no connection from before is used again. */
  noteError(client: pg.PoolClient, error: unknown): void;
  /** Connections of pools that lead nowhere. */
  silent: Pick<SilentConnections, 'answer' | 'check'>;
  /** Returns the connection to its pool, or closes it if it is broken or from before a failover. */
  release(client: pg.PoolClient, isBroken: boolean): void;
  /** The connection's server no longer answers: ends all connections, and goes on with the next host. */
  abandon(client: pg.Client): void;
  /** Whether other connections go to another host now, because this one's became read-only or fell silent. */
  isLeft(client: pg.Client): boolean;
  /** Ends all connections at once, without waiting for the server. */
  cut(): void;
};

/** How long a statement waits for a connection of its pool, and for a host that doesn't answer. */
export const CONNECT_MS_MAX = 10_000;
/** A shorter wait for each host if there is another one to try. */
const CONNECT_MS_MAX_OF_SEVERAL = 3_000;
const READ_ONLY = '25006';
const FULL = '53300';
/** Ends a statement whose answer never comes, for example on a half-open connection, so that no loop hangs forever. */
const QUERY_MS_MAX = 120_000;
/** The driver parses only this style. A pooler in transaction mode keeps it for the connection, unlike most other settings. */
const POOLED_SESSION = `set datestyle = 'ISO'`;
/**
 * What sessions depend on, whatever the role's and the database's defaults are. A statement after a lock must see what others committed
 * before. No statement runs for long enough to gain from compilation, which starts when the planner overestimates the rows.
 */
const SESSION = `${POOLED_SESSION}; set default_transaction_isolation = 'read committed'; set jit = off`;
/** The driver's message, which `answerOf` uses too. The connection still waits for the answer. */
const GIVEN_UP = 'Query read timeout';

export const isGivenUp = (error: unknown): boolean => error instanceof Error && error.message === GIVEN_UP;

type Done<T> = (error: Error | null | undefined, answer: T) => void;

/** Sends a statement, and gives up if the answer takes longer. Close the connection then. */
export const ask = (client: pg.ClientBase, config: pg.QueryConfig, msMax?: number): Promise<pg.QueryResult> =>
  answerOf((done) => client.query(config, done), msMax);

/**
 * Waits for the answer of what `send` sends with this callback. If the driver has to set a callback later, for a promise or a time limit,
 * V8 keeps each answer until a full collection of garbage, and small collections take many times as long.
 */
export function answerOf<T>(send: (done: Done<T>) => void, msMax = QUERY_MS_MAX): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(GIVEN_UP)), msMax);
    const done: Done<T> = (error, answer) => {
      clearTimeout(timer);
      if (error) reject(error);
      else resolve(answer);
    };
    try {
      send(done);
    } catch (error) {
      clearTimeout(timer);
      throw error;
    }
  });
}

/** A statement with the driver's time limit, for sessions and for connections that are not lent yet, which send few. */
export const bounded = (text: string, msMax: number): pg.QueryConfig & { query_timeout: number } => ({
  text,
  query_timeout: msMax,
});

type HostsOptions = {
  /** The most connections that this process opens, for the message when the server has none left. */
  connectionsMax: number;
  /** False behind a pooler that gives each transaction any session of the server. */
  keepsSessions?: boolean;
  mayBeStandby?: boolean;
};

export function createPostgresHosts(
  url: string,
  base: pg.ClientConfig,
  { connectionsMax, keepsSessions = true, mayBeStandby = false }: HostsOptions,
): PostgresHosts {
  const { urls, mustWrite } = parseDatabaseUrl(url);
  const sockets = createSockets();
  const settings: pg.PoolConfig = { ...base, connectionTimeoutMillis: CONNECT_MS_MAX };
  const silent = createSilentConnections();
  // A pooler or balancer of replicas may give each statement another session.
  const isWatching = keepsSessions && !mayBeStandby;
  const choice = createHostChoice(urls.length);
  const tryHosts: HostChoice['tryHosts'] = (attempt) =>
    choice.tryHosts(attempt).catch(sayingHowMany(connectionsMax));
  const HostClient = hostClientOf(urls, { choice, sockets });
  const check = async (client: pg.ClientBase) => {
    if (mustWrite && !mayBeStandby) await requireWrites(client, choice);
  };

  async function verify(client: pg.PoolClient, done: (error?: Error) => void): Promise<void> {
    try {
      await check(client);
      await client.query(bounded(keepsSessions ? SESSION : POOLED_SESSION, CONNECT_MS_MAX));
      const socket = isWatching ? sockets.of(client) : undefined;
      if (socket !== undefined) await silent.watch(client, socket, CONNECT_MS_MAX);
    } catch (error) {
      done(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    done();
  }

  return {
    pool(connectionsMax) {
      const pool = new pg.Pool({
        ...{ ...settings, max: connectionsMax, Client: HostClient },
        verify: (client, done) => void verify(client, done),
      });
      // The pool replaces an idle connection that breaks. If the server is gone, the next query fails.
      pool.on('error', () => {});
      return pool;
    },
    connect: (pool) =>
      tryHosts(async () => {
        for (;;) {
          const client = await pool.connect();
          if (choice.isCurrent(client)) return client;
          client.release(true);
        }
      }),
    open: (queryMsMax = QUERY_MS_MAX) =>
      tryHosts(() => connectChecked(new HostClient({ ...settings, query_timeout: queryMsMax }), check)),
    noteError(client, error) {
      if (isReadOnly(error) && choice.isCurrent(client)) choice.retireAll(client);
    },
    abandon(client) {
      if (!choice.isCurrent(client)) return;
      choice.retireAll(client);
      sockets.cut();
    },
    silent,
    isLeft: choice.isLeft,
    cut: sockets.cut,
    release: (client, isBroken) => client.release(isBroken || !choice.isCurrent(client)),
  };
}

async function connectChecked(
  client: pg.Client,
  check: (client: pg.Client) => Promise<void>,
): Promise<pg.Client> {
  await client.connect();
  try {
    await check(client);
  } catch (error) {
    await client.end();
    throw error;
  }
  return client;
}

/** The sockets of all connections. */
type Sockets = {
  open(): Socket;
  keep(client: object, socket: Socket): void;
  of(client: object): Socket | undefined;
  cut(): void;
};

function createSockets(): Sockets {
  const sockets = new Set<Socket>();
  const byClient = new WeakMap<object, Socket>();
  return {
    open() {
      const socket = new Socket();
      sockets.add(socket);
      return socket.once('close', () => sockets.delete(socket));
    },
    keep: (client, socket) => void byClient.set(client, socket),
    of: (client) => byClient.get(client),
    cut() {
      for (const socket of sockets) reset(socket);
    },
  };
}

/** Which host new connections go to, and which connections may still be used. */
type HostChoice = {
  /** Index of the host for new connections. */
  current(): number;
  /** Remembers that a new connection goes to the current host. */
  assign(client: object): void;
  /** Whether no server has become read-only since the connection was opened. */
  isCurrent(client: object): boolean;
  /** Whether it has been retired, and new connections go to another host. */
  isLeft(client: object): boolean;
  /** Chooses the next host, unless another connection has already moved on from this one's. */
  leave(client: object): void;
  /** Chooses the next host and retires all connections, because any of them may lead to the read-only server. */
  retireAll(client: object): void;
  /** Calls `attempt` for each host, as long as its failure makes the next host the current one. */
  tryHosts<T>(attempt: () => Promise<T>): Promise<T>;
};

function createHostChoice(hostCount: number): HostChoice {
  let current = 0;
  let generation = 0;
  const origins = new WeakMap<object, { host: number; generation: number }>();

  function leave(client: object): void {
    if (origins.get(client)?.host === current) current = (current + 1) % hostCount;
  }

  return {
    current: () => current,
    assign: (client) => void origins.set(client, { host: current, generation }),
    isCurrent: (client) => origins.get(client)?.generation === generation,
    isLeft(client) {
      const origin = origins.get(client);
      return origin !== undefined && origin.generation !== generation && origin.host !== current;
    },
    leave,
    retireAll(client) {
      generation += 1;
      leave(client);
    },
    async tryHosts(attempt) {
      for (let tries = 1; ; tries += 1) {
        const before = current;
        try {
          return await attempt();
        } catch (error) {
          if (tries >= hostCount || current === before) throw error;
        }
      }
    },
  };
}

/** A client class that connects to the current host. A pool creates its clients itself, so only their class can choose. */
function hostClientOf(
  urls: readonly string[],
  { choice, sockets }: { choice: HostChoice; sockets: Sockets },
): typeof pg.Client {
  const connectMsMax = urls.length > 1 ? CONNECT_MS_MAX_OF_SEVERAL : CONNECT_MS_MAX;
  return class HostClient extends pg.Client {
    constructor(config: pg.ClientConfig = {}) {
      const connectionString = urls[choice.current()];
      const opened: Socket[] = [];
      const stream = () => {
        const socket = sockets.open();
        opened.push(socket);
        return socket;
      };
      super({
        ...{ ...config, stream, connectionTimeoutMillis: connectMsMax },
        ...(connectionString !== undefined && { connectionString }),
      });
      choice.assign(this);
      for (const socket of opened) sockets.keep(this, socket);
      // A connection may break at any time, even while it becomes ready. The next statement then fails.
      this.on('error', () => {});
    }

    override connect(): Promise<pg.Client>;
    override connect(callback: ((error: Error) => void) | ((error: null, client: pg.Client) => void)): void;
    override connect(
      callback?: ((error: Error) => void) | ((error: null, client: pg.Client) => void),
    ): Promise<pg.Client> | undefined {
      const connected = super.connect().catch((error: unknown) => {
        choice.leave(this);
        // The driver leaves it open if it has no password, and the server would wait for one for a minute.
        sockets.of(this)?.destroy();
        throw error;
      });
      if (callback === undefined) return connected;
      // Both forms of the callback are called alike. Only their types differ.
      const call = (...outcome: unknown[]) => Reflect.apply(callback, undefined, outcome);
      connected.then((client) => call(null, client), call);
      return undefined;
    }
  };
}

/** The same check as in libpq: neither a standby nor a server that is set to read-only is accepted. */
async function requireWrites(client: pg.ClientBase, choice: HostChoice): Promise<void> {
  const { rows } = await client.query(bounded('show transaction_read_only', CONNECT_MS_MAX));
  if (rows[0]?.transaction_read_only !== 'on') return;
  choice.leave(client);
  throw Object.assign(new Error('the server is read-only'), { code: READ_ONLY });
}

const isReadOnly = (error: unknown): boolean => {
  const source = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return source instanceof Error && 'code' in source && source.code === READ_ONLY;
};

/** Rethrows an error. The server says only that it has no connection left, not how many this process needs. */
const sayingHowMany =
  (connectionsMax: number) =>
  (error: unknown): never => {
    const isFull = error instanceof Error && 'code' in error && error.code === FULL;
    if (!isFull) throw error;
    const message = `${error.message}. This process opens up to ${connectionsMax} connections`;
    throw Object.assign(new Error(message), { code: FULL });
  };
