/**
 * The answers of the public routes, kept for as long as spec 8 says: made once at a time for each key, given on while they
 * are computed again if a route allows that, in bounded memory.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import { type CachedResponse, keepAnswer, type PublicAnswer } from './cached-response.ts';
import { createLru } from './lru.ts';

/** How long answers of a route are kept, and for how long after that the old one is given while a new one is made. */
type Lifetime = { cacheSeconds: number; staleSeconds: number };

/** The entry for a key: an answer, or that there is none. Times are those of `Clock.steadyMs`. */
export type Kept = {
  outcome: { answer: CachedResponse } | { notFound: string };
  /** Since when it has been so. */
  asOfMs: number;
  /** For how long it may be kept: what its route says, or less. */
  keepSeconds: number;
  freshUntilMs: number;
  staleUntilMs: number;
  /** When a new one may be made, after that has failed. */
  nextTryMs: number;
};

export type Found = { kept: Kept; from: 'hit' | 'stale' | 'miss'; ageSeconds: number };

export type Cache = {
  /**
   * What is kept for the key, or made now; at once where it is kept.
   * @throws Fault of `make`, and `unavailable` when too much is being made.
   */
  find(key: string, lifetime: Lifetime, make: () => Promise<PublicAnswer>): Found | Promise<Found>;
  /** This answer takes more room than before. */
  grow(key: string, kept: Kept, bytes: number): void;
  /** Resolves when nothing is being made. */
  settled(): Promise<void>;
};

type CacheLimits = { bytesMax: number; entriesMax: number };

/** Three leaderboards of a million users, or every price, pair and a month of 100,000 users. */
const LIMITS: CacheLimits = { bytesMax: 256 * 1024 * 1024, entriesMax: 100_000 };
/** For what was not found, apart from the answers, which asking for made-up users cannot drive out. */
const NOT_FOUND_LIMITS: CacheLimits = { bytesMax: 8 * 1024 * 1024, entriesMax: 10_000 };
/** A user's first points show this soon. */
const NOT_FOUND_SECONDS_MAX = 10;
/** Computations at the same time: far more than the database has connections, far fewer than memory has room for. */
const FLIGHTS_MAX = 1_000;
const RETRY_MS = 1_000;

export function createCache(
  { clock, log }: { clock: Clock; log: Pick<Log, 'warn'> },
  limits: CacheLimits = LIMITS,
): Cache {
  const answers = createLru<Kept>(limits);
  const misses = createLru<Kept>(NOT_FOUND_LIMITS);
  const flights = new Map<string, Promise<Kept>>();

  function makeOnce(key: string, lifetime: Lifetime, make: () => Promise<PublicAnswer>): Promise<Kept> {
    const flying = flights.get(key);
    if (flying !== undefined) return flying;
    if (flights.size >= FLIGHTS_MAX)
      return Promise.reject(new Fault('unavailable', `${FLIGHTS_MAX} answers are being made`));
    const flight = keepNew(key, lifetime, make).finally(() => flights.delete(key));
    flights.set(key, flight);
    return flight;
  }

  async function keepNew(
    key: string,
    { cacheSeconds, staleSeconds }: Lifetime,
    make: () => Promise<PublicAnswer>,
  ): Promise<Kept> {
    // What it says is as old as the moment at which it was begun.
    const [madeMs, madeAtMs] = [clock.steadyMs(), clock.now().getTime()];
    try {
      const made = await make();
      const asOfMs = madeMs - Math.max(0, madeAtMs - (made.asOf?.getTime() ?? madeAtMs));
      const keepSeconds = Math.min(cacheSeconds, made.keepSecondsMax ?? cacheSeconds);
      const answer = await keepAnswer(made);
      const freshUntilMs = madeMs + keepSeconds * 1000;
      // An answer that is soon out of date is served no longer than that.
      const staleUntilMs = freshUntilMs + (keepSeconds < cacheSeconds ? 0 : staleSeconds * 1000);
      const times = { asOfMs, keepSeconds, freshUntilMs, staleUntilMs, nextTryMs: madeMs };
      const kept: Kept = { outcome: { answer }, ...times };
      misses.delete(key);
      answers.set(key, kept, answer.identity.bytes);
      return kept;
    } catch (error) {
      if (!(error instanceof Fault && error.code === 'not_found')) throw error;
      const keepSeconds = Math.min(cacheSeconds, NOT_FOUND_SECONDS_MAX);
      const untilMs = madeMs + keepSeconds * 1000;
      const kept: Kept = {
        outcome: { notFound: error.message },
        asOfMs: madeMs,
        keepSeconds,
        freshUntilMs: untilMs,
        staleUntilMs: untilMs,
        nextTryMs: madeMs,
      };
      answers.delete(key);
      misses.set(key, kept, 0);
      return kept;
    }
  }

  /** Makes a new one for later requests; the old one stays for its time when that fails. */
  function refresh(key: string, kept: Kept, lifetime: Lifetime, make: () => Promise<PublicAnswer>): void {
    makeOnce(key, lifetime, make).catch((error: unknown) => {
      kept.nextTryMs = clock.steadyMs() + RETRY_MS;
      log.warn({ answer: key, error: messageOf(error) }, 'cache.refresh_failed');
    });
  }

  return {
    find(key, lifetime, make) {
      const kept = answers.get(key) ?? misses.get(key);
      const nowMs = clock.steadyMs();
      if (kept !== undefined && nowMs < kept.staleUntilMs) {
        if (nowMs < kept.freshUntilMs) return { kept, from: 'hit', ageSeconds: ageOf(kept, nowMs) };
        if (nowMs >= kept.nextTryMs) refresh(key, kept, lifetime, make);
        return { kept, from: 'stale', ageSeconds: ageOf(kept, nowMs) };
      }
      return makeOnce(key, lifetime, make).then((made) => ({
        kept: made,
        from: 'miss',
        ageSeconds: ageOf(made, clock.steadyMs()),
      }));
    },
    grow(key, kept, bytes) {
      answers.grow(key, kept, bytes);
    },
    async settled() {
      await Promise.allSettled(flights.values());
    },
  };
}

const ageOf = ({ asOfMs }: Kept, nowMs: number): number => Math.floor((nowMs - asOfMs) / 1000);
