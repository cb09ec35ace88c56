/**
 * Routes for prices in USD (spec 4.2): of the native coin, of the reward token, and of other tokens by symbol.
 */
import Type from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, exactNumber } from '../../core/decimal.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { PriceBook, PricedAsset, PriceOrigin } from '../../domain/price-book.ts';
import type { Database } from '../../store/db/db.ts';
import { findLatestPairPrice } from '../../store/market/pair-states.ts';
import { areStatesUpToDate } from '../../store/market/pairs.ts';
import { findCurrentPrice } from '../../store/prices/prices.ts';
import type { Api } from '../context.ts';
import { parameter } from '../http/parameters.ts';
import { addPublicRoute, json, type PublicAnswer } from '../http/public.ts';

/** Spec 8. */
const CACHE_SECONDS = 60;
/** Short, so that after a brief database outage the price returns soon. */
const UNREADABLE_SECONDS_MAX = 1;

const PriceRecord = Type.Object({
  price: Type.Union([Type.Number(), Type.Null()], {
    description: 'USD for one coin with all digits. Null if it is unknown.',
  }),
  asset: Type.String(),
  base_currency: Type.Literal('USD'),
});

/** A price, and the age of the feed's price behind it. A fixed price has no age. */
type Usd = { usd: Decimal; ageMs: number | undefined; isStale: boolean };

const AGE_HEADER = 'chainbell-price-age';
export const STALE_HEADER = 'chainbell-price-stale';
const answerHeaders = {
  [AGE_HEADER]:
    'Age of the price in seconds when this response was computed. Add `age`. For the price of a pair, the age of the native price. Absent for a fixed price or if there is none.',
  [STALE_HEADER]:
    '`true` if there is no price, or if it is older than `maxAgeSeconds` of its feed (by default 10 minutes or two rounds, whichever is longer). For the price of a pair, also while the newest stored block is older than 5 minutes and not known to be the head.',
};

const SYMBOL = { ...parameter('a symbol', (text) => text), isInPath: true } as const;

type Options = { database: Database; clock: Clock; log: Log; prices: PriceBook };

export function addPriceRoutes(api: Api, { database, clock, log, prices }: Options): void {
  const shared = { answer: PriceRecord, answerHeaders, cacheSeconds: CACHE_SECONDS };
  for (const [name, what] of [
    ['native', 'native coin'],
    ['reward', 'reward token'],
  ] as const) {
    addPublicRoute(api, {
      ...shared,
      path: `/api/price/${name}`,
      example: { price: 2500.25, asset: name === 'native' ? 'ETH' : 'RWD', base_currency: 'USD' },
      summary: `The price of the ${what} in USD`,
      compute: () => answer(prices[name]),
    });
  }
  addPublicRoute(api, {
    ...shared,
    path: '/api/price/:symbol',
    example: { price: 1, asset: 'USDT', base_currency: 'USD' },
    errors: { 404: 'Token not found' },
    summary: 'The price of a token in USD, by its symbol in lower case',
    parameters: { symbol: SYMBOL },
    hasFewKeys: true,
    async compute({ symbol = '' }) {
      const priced = prices.tokens.get(symbol);
      if (priced === undefined) throw new Fault('not_found', 'Token not found');
      return answer(priced);
    },
  });

  async function answer({ asset, origin }: PricedAsset): Promise<PublicAnswer> {
    try {
      return recordOf(asset, await findUsd(origin));
    } catch (error) {
      // A price that can't be read is null (spec 4.2, rule 1).
      if (!(error instanceof Fault)) throw error;
      log.warn({ asset, error: messageOf(error) }, 'price.unreadable');
      return { ...recordOf(asset, undefined), cacheSecondsMax: UNREADABLE_SECONDS_MAX };
    }
  }

  async function findUsd(origin: PriceOrigin): Promise<Usd | undefined> {
    switch (origin.kind) {
      case 'feed': {
        const now = clock.now();
        const found = await findCurrentPrice(database, origin.of, { now, maxAgeMs: origin.maxAgeMs });
        if (found === undefined) return undefined;
        const ageMs = Math.max(0, now.getTime() - found.observedAt.getTime());
        return { usd: found.price, ageMs, isStale: ageMs > origin.staleMs };
      }
      case 'fixed':
        return { usd: origin.usd, ageMs: undefined, isStale: false };
      case 'pair': {
        // First, so that a block stored meanwhile doesn't make the rate before it current.
        const isRateCurrent = await areStatesUpToDate(database, clock.now());
        const [rate, native] = await Promise.all([
          findLatestPairPrice(database, origin.rate.pairId),
          findUsd(prices.native.origin),
        ]);
        if (rate === undefined || native === undefined || rate.eq(0)) return undefined;
        const usd = origin.rate.isInverse ? native.usd.div(rate) : native.usd.times(rate);
        return { ...native, usd, isStale: native.isStale || !isRateCurrent };
      }
      case 'none':
        return undefined;
    }
  }
}

function recordOf(asset: string, price: Usd | undefined): PublicAnswer {
  const shown = price === undefined ? null : exactNumber(price.usd);
  const headers = {
    [STALE_HEADER]: String(price?.isStale ?? true),
    ...(price?.ageMs !== undefined && { [AGE_HEADER]: String(price.ageMs / 1000) }),
  };
  return { ...json({ price: shown, asset, base_currency: 'USD' }), headers };
}
