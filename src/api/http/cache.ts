/**
 * The cached responses of the public routes (spec 8). Requests for the same key share one computation. A route may allow
 * the old response to be served while a new one is computed. Memory is bounded.
 */
import { LRUCache } from 'lru-cache';
import { actFor, MADE_UP } from '../../core/account.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import { type CachedResponse, type PublicAnswer, toCachedResponse } from './cached-response.ts';
import { TOO_LARGE } from './large-bodies.ts';

/** How long responses of a route are fresh, and how long after that the old one is served while a new one is computed. */
type Lifetime = {
  cacheSeconds: number;
  staleSeconds: number;
  /** Only so many keys need a computation as the configuration names. They aren't refused when too many others are computed. */
  hasFewKeys?: boolean;
  /** The request has optional parameters, such as a limit or a cursor, of which clients can make up any number. */
  isPart?: boolean;
};

/**
 * The entry of a key: a response, the message that nothing was found, or the Fault of a response that is too large. Times are those of
 * `Clock.steadyMs`.
 */
export type CacheEntry = {
  outcome: { response: CachedResponse } | { notFound: string } | { tooLarge: Fault };
  /** The time from which the `age` header counts. */
  asOfMs: number;
  /** How long clients may cache it: the time of its route, or less. */
  cacheSeconds: number;
  freshUntilMs: number;
  staleUntilMs: number;
  /** When the next refresh may start, after one has failed. */
  nextRefreshMs: number;
};

export type CacheResult = { entry: CacheEntry; from: 'hit' | 'stale' | 'miss'; ageSeconds: number };

type Compute = () => Promise<PublicAnswer>;

export type Cache = {
  /**
   * The entry of the key, computed first if it is missing or too old. A cached entry is returned synchronously.
   * @throws Fault of `compute`, and `unavailable` when too many responses are being computed, unless the route has few keys.
   */
  find(key: string, lifetime: Lifetime, compute: Compute): CacheResult | Promise<CacheResult>;
  /** Counts a compressed copy that was added to the response of this entry. */
  grow(key: string, entry: CacheEntry, bytes: number): void;
  /** Resolves when no response is being computed. */
  settled(): Promise<void>;
};

type CacheLimits = { bytesMax: number; entriesMax: number };

/** Room for three leaderboards of a million users, or every price, every pair and a month of 100,000 users. */
const LIMITS: CacheLimits = { bytesMax: 256 * 1024 * 1024, entriesMax: 100_000 };
/** A separate budget, so that made-up cursors, limits and hours cannot evict whole responses. Room for 400 pages of a leaderboard. */
const PART_LIMITS: CacheLimits = { bytesMax: 32 * 1024 * 1024, entriesMax: 10_000 };
/** A separate budget, so that requests for made-up users cannot evict responses. */
const NOT_FOUND_LIMITS: CacheLimits = { bytesMax: 8 * 1024 * 1024, entriesMax: 10_000 };
/** Short, so that a user's first points show soon. */
const NOT_FOUND_SECONDS_MAX = 10;
/** Concurrent computations for keys that clients can make up: far more than the database has connections, and few enough to fit into memory. */
const COMPUTATIONS_MAX = 1_000;
/** A response with data from before its computation, such as the last good reading of a node that is away, is soon computed again. */
const OLD_SECONDS_MAX = 10;
const REFRESH_RETRY_MS = 1_000;
/** An entry without its response and key. 332 bytes were measured with keys of 60 characters. */
const ENTRY_BYTES = 300;

export function createCache(
  { clock, log }: { clock: Clock; log: Pick<Log, 'warn'> },
  limits: CacheLimits = LIMITS,
): Cache {
  const found = createEntries(limits);
  const parts = createEntries(PART_LIMITS);
  const notFound = createEntries(NOT_FOUND_LIMITS);
  const all = [found, parts, notFound];
  const underWay = new Map<string, Promise<CacheEntry>>();
  let limitedCount = 0;

  function computeOnce(key: string, lifetime: Lifetime, compute: Compute): Promise<CacheEntry> {
    const running = underWay.get(key);
    if (running !== undefined) return running;
    const counted = lifetime.hasFewKeys === true ? 0 : 1;
    if (limitedCount + counted > COMPUTATIONS_MAX)
      return Promise.reject(new Fault('unavailable', `${COMPUTATIONS_MAX} responses are being computed`));
    limitedCount += counted;
    const work = () => store(key, lifetime, compute);
    const started = (counted === 0 ? work() : actFor(MADE_UP, work)).finally(() => {
      limitedCount -= counted;
      underWay.delete(key);
    });
    underWay.set(key, started);
    return started;
  }

  async function store(key: string, lifetime: Lifetime, compute: Compute): Promise<CacheEntry> {
    const entry = await computeEntry(clock, lifetime, compute);
    for (const entries of all) entries.delete(key);
    const { outcome } = entry;
    const bytes = 'response' in outcome ? outcome.response.identity.bytes : 0;
    const entries = 'notFound' in outcome ? notFound : lifetime.isPart === true ? parts : found;
    entries.set(key, { entry, bytes });
    return entry;
  }

  /** Computes a new entry for later requests. If that fails, the old one stays until it is too old. */
  function refresh(key: string, entry: CacheEntry, lifetime: Lifetime, compute: Compute): void {
    computeOnce(key, lifetime, compute).catch((error: unknown) => {
      entry.nextRefreshMs = clock.steadyMs() + REFRESH_RETRY_MS;
      log.warn({ answer: key, error: messageOf(error) }, 'cache.refresh_failed');
    });
  }

  return {
    find(key, lifetime, compute) {
      const entry = (found.get(key) ?? parts.get(key) ?? notFound.get(key))?.entry;
      const nowMs = clock.steadyMs();
      if (entry !== undefined && nowMs < entry.staleUntilMs) {
        if (nowMs < entry.freshUntilMs) return { entry, from: 'hit', ageSeconds: ageOf(entry, nowMs) };
        if (nowMs >= entry.nextRefreshMs) refresh(key, entry, lifetime, compute);
        return { entry, from: 'stale', ageSeconds: ageOf(entry, nowMs) };
      }
      return computeOnce(key, lifetime, compute).then((made) => ({
        entry: made,
        from: 'miss',
        ageSeconds: ageOf(made, clock.steadyMs()),
      }));
    },
    grow(key, entry, bytes) {
      for (const entries of all) {
        const sized = entries.peek(key);
        // A new object, because lru-cache reads the size again only if the value is a different one.
        if (sized?.entry === entry) entries.set(key, { entry, bytes: sized.bytes + bytes });
      }
    },
    async settled() {
      await Promise.allSettled(underWay.values());
    },
  };
}

/** An entry, and the bytes of its response in all codings. */
type SizedEntry = { entry: CacheEntry; bytes: number };

/** Evicts the least recently used entries. An entry that exceeds `bytesMax` by itself is not stored. */
const createEntries = ({ bytesMax, entriesMax }: CacheLimits) =>
  new LRUCache<string, SizedEntry>({
    max: entriesMax,
    maxSize: bytesMax,
    sizeCalculation: ({ bytes }, key) => bytes + 2 * key.length + ENTRY_BYTES,
  });

/** @throws the errors of `compute`, except a Fault `not_found` or one with the reason TOO_LARGE, which become entries. */
async function computeEntry(
  clock: Clock,
  { cacheSeconds: routeSeconds, staleSeconds }: Lifetime,
  compute: Compute,
): Promise<CacheEntry> {
  // A response is as old as the moment at which its computation began.
  const [beganMs, beganAtMs] = [clock.steadyMs(), clock.now().getTime()];
  try {
    const answer = await compute();
    const asOfMs = beganMs - Math.max(0, beganAtMs - (answer.asOf?.getTime() ?? beganAtMs));
    const cacheSeconds = Math.min(routeSeconds, answer.cacheSecondsMax ?? routeSeconds);
    const response = await toCachedResponse(answer);
    const freshSeconds = asOfMs < beganMs ? Math.min(cacheSeconds, OLD_SECONDS_MAX) : cacheSeconds;
    const freshUntilMs = beganMs + freshSeconds * 1000;
    // A response that will soon be out of date is not served after that.
    const staleUntilMs = freshUntilMs + (cacheSeconds < routeSeconds ? 0 : staleSeconds * 1000);
    const times = { asOfMs, cacheSeconds, freshUntilMs, staleUntilMs, nextRefreshMs: beganMs };
    return { outcome: { response }, ...times };
  } catch (error) {
    const isTooLarge = error instanceof Fault && error.reason === TOO_LARGE;
    if (!isTooLarge && !(error instanceof Fault && error.code === 'not_found')) throw error;
    const cacheSeconds = isTooLarge ? routeSeconds : Math.min(routeSeconds, NOT_FOUND_SECONDS_MAX);
    const untilMs = beganMs + cacheSeconds * 1000;
    const times = { asOfMs: beganMs, cacheSeconds, freshUntilMs: untilMs, staleUntilMs: untilMs };
    const outcome = isTooLarge ? { tooLarge: error } : { notFound: error.message };
    return { outcome, ...times, nextRefreshMs: beganMs };
  }
}

const ageOf = ({ asOfMs }: CacheEntry, nowMs: number): number => Math.floor((nowMs - asOfMs) / 1000);
