/**
 * Whose part of a shared limit the present work uses: that of a request's watcher, so that one watcher's requests can't take the
 * time of another's.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

const present = new AsyncLocalStorage<number>();

/** For status and metrics, which answer beside any number of requests. No watcher has this id. */
export const HEALTH = -2;
/** For /readyz and the newest block, which are read even while other statements of status and metrics wait for locks. */
export const PROBE = -3;
/** For public responses to parameters that clients can make up. They leave room for those that the configuration names. */
export const MADE_UP = -4;

/** Runs `work`, and everything that it starts, for this account. */
export const actFor = <T>(account: number, work: () => T): T => present.run(account, work);

/** Reads `source` for the present account, wherever and whenever it is read. */
export function keepAccount<T>(source: AsyncIterable<T>): AsyncIterable<T> {
  const account = presentAccount();
  if (account === undefined) return source;
  return {
    [Symbol.asyncIterator]() {
      const iterator = source[Symbol.asyncIterator]();
      return {
        next: () => actFor(account, () => iterator.next()),
        return: () =>
          actFor(account, async () => iterator.return?.() ?? { done: true as const, value: undefined }),
      };
    },
  };
}

/** The account of the present work; undefined for the service's own work and for requests without a watcher. */
export const presentAccount = (): number | undefined => present.getStore();
