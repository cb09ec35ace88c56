/**
 * Connections to a PostgreSQL server that may be one of several hosts, and may become read-only when another one takes over.
 */
import pg from 'pg';
import { parseDatabaseUrl } from '../../core/database-url.ts';

export type PostgresHosts = {
  /** A pool of at most `connectionsMax`. Each new connection goes to the host that worked last. */
  pool(connectionsMax: number): pg.Pool;
  /** A connection of the pool. @throws the driver's error when no host can be reached or takes writes as it must */
  connect(pool: pg.Pool): Promise<pg.PoolClient>;
  /** A connection outside of any pool, whose statements may take as long; the same errors. */
  open(queryMsMax?: number): Promise<pg.Client>;
  /** Hears of each error: once the server is read-only, no connection of before is given out again. */
  noteError(client: pg.PoolClient, error: unknown): void;
  /** Puts the connection back into its pool, or closes it when it is broken or of before. */
  release(client: pg.PoolClient, isBroken: boolean): void;
};

/** How long a statement waits for a connection of its pool, and for a host that swallows packets. */
const CONNECT_MS_MAX = 10_000;
/** A shorter time for each host where there is another one to try. */
const CONNECT_MS_MAX_OF_SEVERAL = 3_000;
const READ_ONLY = '25006';

export function createPostgresHosts(url: string, base: pg.ClientConfig): PostgresHosts {
  const { urls, mustWrite } = parseDatabaseUrl(url);
  const connectMsMax = urls.length > 1 ? CONNECT_MS_MAX_OF_SEVERAL : CONNECT_MS_MAX;
  const settings: pg.PoolConfig = { ...base, connectionTimeoutMillis: CONNECT_MS_MAX };
  let current = 0;
  /** Goes up when a server turns out to be read-only: connections of before may lead to it. */
  let generation = 0;
  const origins = new WeakMap<object, { host: number; generation: number }>();
  const isCurrent = (client: object) => origins.get(client)?.generation === generation;

  /** The next host's turn, unless another connection has moved on already. */
  function leave(client: object): void {
    if (origins.get(client)?.host === current) current = (current + 1) % urls.length;
  }

  /** The pool makes its connections by itself, so the choice of the host lies in the class that it makes. */
  class HostClient extends pg.Client {
    constructor(config: pg.ClientConfig = {}) {
      const connectionString = urls[current];
      super({
        ...{ ...config, connectionTimeoutMillis: connectMsMax },
        ...(connectionString !== undefined && { connectionString }),
      });
      origins.set(this, { host: current, generation });
      // A connection may break at any moment, also in the one packet that says it is ready: the next statement tells.
      this.on('error', () => {});
    }

    override connect(): Promise<pg.Client>;
    override connect(callback: ((error: Error) => void) | ((error: null, client: pg.Client) => void)): void;
    override connect(
      callback?: ((error: Error) => void) | ((error: null, client: pg.Client) => void),
    ): Promise<pg.Client> | undefined {
      const connected = super.connect().catch((error: unknown) => {
        leave(this);
        throw error;
      });
      if (callback === undefined) return connected;
      // Both forms of the callback are called alike; only their types differ.
      const call = (...outcome: unknown[]) => Reflect.apply(callback, undefined, outcome);
      connected.then((client) => call(null, client), call);
      return undefined;
    }
  }

  /** As libpq asks: neither a standby nor a server that is set to read-only will do. */
  async function requireWrites(client: pg.ClientBase): Promise<void> {
    if (!mustWrite) return;
    const { rows } = await client.query('show transaction_read_only');
    if (rows[0]?.transaction_read_only !== 'on') return;
    leave(client);
    throw Object.assign(new Error('the server is read-only'), { code: READ_ONLY });
  }

  async function verify(client: pg.PoolClient, done: (error?: Error) => void): Promise<void> {
    try {
      await requireWrites(client);
    } catch (error) {
      done(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    done();
  }

  /** Tries the hosts in turn, as long as a failure moves on to another one. */
  async function tryHosts<T>(attempt: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      const before = current;
      try {
        return await attempt();
      } catch (error) {
        if (tries >= urls.length || current === before) throw error;
      }
    }
  }

  return {
    pool(connectionsMax) {
      const pool = new pg.Pool({
        ...{ ...settings, max: connectionsMax, Client: HostClient },
        verify: (client, done) => void verify(client, done),
      });
      // An idle connection that breaks is replaced by the pool; the next query tells if the server is gone.
      pool.on('error', () => {});
      return pool;
    },
    connect: (pool) =>
      tryHosts(async () => {
        for (;;) {
          const client = await pool.connect();
          if (isCurrent(client)) return client;
          client.release(true);
        }
      }),
    open: (queryMsMax) =>
      tryHosts(async () => {
        const client = new HostClient({
          ...settings,
          ...(queryMsMax !== undefined && { query_timeout: queryMsMax }),
        });
        await client.connect();
        try {
          await requireWrites(client);
        } catch (error) {
          await client.end();
          throw error;
        }
        return client;
      }),
    noteError(client, error) {
      if (!isReadOnly(error) || !isCurrent(client)) return;
      generation += 1;
      leave(client);
    },
    release: (client, isBroken) => client.release(isBroken || !isCurrent(client)),
  };
}

const isReadOnly = (error: unknown): boolean => {
  const source = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return source instanceof Error && 'code' in source && source.code === READ_ONLY;
};
