/**
 * Shares the API's connections to PostgreSQL between the accounts of its requests (core/account.ts). Statements may wait for locks
 * that only another request of their own watcher releases, so no account may take the last connections.
 */
import { never, onAbort, startAbort } from '../../core/abort.ts';
import { MADE_UP, presentAccount } from '../../core/account.ts';
import { Fault } from '../../core/fault.ts';

type FairTurns<Connection extends object> = {
  /**
   * Calls `connect` when the present account may have one more connection. Give it back after use.
   * @throws Fault `unavailable` if that takes longer than `msMax`, or the error of `connect`
   */
  lend(connect: () => Promise<Connection>): Promise<Connection>;
  giveBack(connection: Connection): void;
};

/** Undefined: the service's own work, and requests of public endpoints. */
type Account = number | undefined;
type Flow = { held: number; waiting: Set<() => void> };

/** Of so few connections, none is kept for others. */
const SHARED_MAX = 2;

/** Turns for `max` connections. */
export function createFairTurns<Connection extends object>(
  max: number,
  msMax: number,
): FairTurns<Connection> {
  const endOf = new WeakMap<Connection, () => void>();
  /** Those that hold a connection or wait for one, by the time of their last turn. */
  const flows = new Map<Account, Flow>();
  let free = max;

  /**
   * An account may have no more connections than remain free, but always one. Work for none leaves only the last one. Of two, as a
   * process without the role `api` has, any work may have both.
   */
  function mayTake(account: Account, { held }: Flow): boolean {
    if (held === 0 || max <= SHARED_MAX) return free > 0;
    return account === undefined ? free > 1 : held < free;
  }

  function begin(account: Account, flow: Flow): void {
    free -= 1;
    flow.held += 1;
    flows.delete(account);
    flows.set(account, flow);
  }

  function end(account: Account, flow: Flow): void {
    free += 1;
    flow.held -= 1;
    forgetIfUnused(account, flow);
    serve();
  }

  function forgetIfUnused(account: Account, { held, waiting }: Flow): void {
    if (held === 0 && waiting.size === 0) flows.delete(account);
  }

  /** Of the waiting accounts, the one that holds the fewest connections is next. */
  function serve(): void {
    for (;;) {
      const able = [...flows].filter(([account, flow]) => flow.waiting.size > 0 && mayTake(account, flow));
      const [next] = able.sort(([, one], [, other]) => one.held - other.held);
      const [proceed] = next?.[1].waiting ?? [];
      if (next === undefined || proceed === undefined) return;
      next[1].waiting.delete(proceed);
      begin(...next);
      proceed();
    }
  }

  return {
    async lend(connect) {
      const present = presentAccount();
      const account = present === MADE_UP ? undefined : present;
      const flow = flows.get(account) ?? { held: 0, waiting: new Set() };
      if (flow.waiting.size === 0 && mayTake(account, flow)) begin(account, flow);
      else {
        flows.set(account, flow);
        await waitIn(flow.waiting, msMax).catch((error: unknown) => {
          forgetIfUnused(account, flow);
          throw error;
        });
      }
      try {
        const connection = await connect();
        endOf.set(connection, () => end(account, flow));
        return connection;
      } catch (error) {
        end(account, flow);
        throw error;
      }
    },
    giveBack(connection) {
      endOf.get(connection)?.();
    },
  };
}

/** Resolves when the function that it adds is called. @throws Fault `unavailable` after `msMax`, and is then no longer in line */
async function waitIn(line: Set<() => void>, msMax: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const limit = startAbort(never, msMax);
  onAbort(limit.signal, () => {
    line.delete(resolve);
    reject(
      new Fault(
        'unavailable',
        `database: no connection was free within ${msMax} ms (database.connections.api)`,
      ),
    );
  });
  line.add(resolve);
  try {
    await promise;
  } finally {
    limit.release();
  }
}
