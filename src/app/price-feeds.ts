/**
 * The configured prices: feeds with their sources for the role `prices`, and the origin of each price for the API.
 */
import type { ContractReader } from '../chain/contracts/contracts.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import { type Decimal, decimal } from '../core/decimal.ts';
import { Fault } from '../core/fault.ts';
import { parseJsonPath } from '../core/json-path.ts';
import { pairRate } from '../domain/pair-rate.ts';
import type { PriceBook, PricedAsset, PriceOrigin } from '../domain/price-book.ts';
import { createPriceFeed, type PriceFeed, type PriceFeedOptions } from '../prices/feed.ts';
import {
  binancePage,
  chainlinkSource,
  coingeckoPage,
  createPageReader,
  fixedSource,
  httpSource,
  type PageReader,
  type PriceSource,
  pairSource,
} from '../prices/sources.ts';
import type { Database } from '../store/db/db.ts';
import { findFreshPrice } from '../store/prices/prices.ts';
import { nativeSide, wrappedNative } from './valued-pairs.ts';

type FeedConfig = NonNullable<Config['prices']['native']>;
type SourceConfig = FeedConfig['sources'][number];
type Asset = { asset: string; isNative: boolean };

type FeedDependencies = {
  database: Database;
  nodes: ContractReader;
  pages: PageReader;
  clock: Clock;
};

/** A round of a feed takes a moment and arrives a moment after its heartbeat. */
const HEARTBEAT_GRACE_MS = 300_000;
/** Without maxAgeSeconds: how long a price decides between sources that disagree. Two honest ones can differ for hours. */
const ANCHOR_MS_MAX = 24 * 3_600_000;
/** Without maxAgeSeconds: a few bad rounds, or the next one where rounds are rare. */
const STALE_SECONDS_MIN = 600;
const STALE_ROUNDS = 2;

/** The configured feeds with their assets. */
export function listFeeds({ chain, prices }: Config): { asset: Asset; feed: FeedConfig }[] {
  const { native, tokens } = prices;
  return [
    ...(native === undefined
      ? []
      : [{ asset: { asset: chain.native.symbol, isNative: true }, feed: native }]),
    ...Object.entries(tokens).map(([asset, feed]) => ({ asset: { asset, isNative: false }, feed })),
  ];
}

/** An older price is stale in /status, and an older report of a source isn't used. */
export const staleSeconds = ({ maxAgeSeconds, everySeconds }: FeedConfig): number =>
  maxAgeSeconds ?? Math.max(STALE_SECONDS_MIN, STALE_ROUNDS * everySeconds);

/** Whether any feed reads the chain itself. */
export function readsContracts(config: Config): boolean {
  return listFeeds(config).some(({ feed }) => feed.sources.some(({ type }) => type === 'chainlink'));
}

/** The feeds, ready to read their sources. */
export function createFeeds(config: Config, dependencies: FeedDependencies): PriceFeed[] {
  return listFeeds(config).map(({ asset, feed }) => ({
    asset: asset.asset,
    everyMs: feed.everySeconds * 1000,
    maxAgeMs: feed.maxAgeSeconds === undefined ? ANCHOR_MS_MAX : feed.maxAgeSeconds * 1000,
    sources: numberRepeated(
      feed.sources.map((source) => createSource(config, dependencies, { ...asset, feed, source })),
    ),
  }));
}

function createSource(
  config: Config,
  { database, nodes, pages, clock }: FeedDependencies,
  { isNative, feed, source }: Asset & { feed: FeedConfig; source: SourceConfig },
): PriceSource {
  const maxAgeSeconds = 'maxAgeSeconds' in source ? source.maxAgeSeconds : undefined;
  const maxAgeMs = (maxAgeSeconds ?? staleSeconds(feed)) * 1000;
  switch (source.type) {
    case 'http': {
      const { url, headers = {}, path, timePath, confPath } = source;
      const paths = {
        price: pathOf(path),
        ...(timePath !== undefined && { time: pathOf(timePath) }),
        ...(confPath !== undefined && { conf: pathOf(confPath) }),
      };
      return httpSource(
        { pages, clock },
        { name: `http:${new URL(url).host}`, maxAgeMs, url, headers, paths },
      );
    }
    case 'coingecko': {
      const { id, plan, apiKey, baseUrl } = source;
      const page = coingeckoPage({ id, plan, apiKey, baseUrl });
      return httpSource({ pages, clock }, { name: `coingecko:${id}`, maxAgeMs, ...page });
    }
    case 'binance': {
      const { symbol, baseUrl } = source;
      const page = binancePage({ symbol, baseUrl });
      return httpSource({ pages, clock }, { name: `binance:${symbol}`, maxAgeMs, ...page });
    }
    case 'chainlink': {
      const { address, heartbeatSeconds } = source;
      const age = { maxAgeMs: heartbeatSeconds * 1000 + HEARTBEAT_GRACE_MS };
      return chainlinkSource(nodes, { name: `chainlink:${address}`, ...age, address });
    }
    case 'pair': {
      const { pair, native, token } = getPair(config, source.pair);
      const tokenAddress = token === 0 ? pair.token0 : pair.token1;
      const usdOf = isNative
        ? async () => fixedUsd(config, tokenAddress)
        : () => nativeUsd(config, database, clock);
      const rate = pairRate(pair, isNative ? native : token);
      return pairSource(database, {
        name: `pair:${pair.id}`,
        maxAgeMs,
        minutes: source.minutes,
        rate,
        usdOf,
      });
    }
    case 'fixed':
      return fixedSource(clock, { name: 'fixed', maxAgeMs, price: decimal(source.price) });
  }
}

export type PriceLoops = ReturnType<typeof openPriceLoops>;

/** The loops of the role `prices`: one for each feed, so that a slow source delays no other feed. */
export function openPriceLoops(config: Config, options: PriceFeedOptions & Pick<FeedDependencies, 'nodes'>) {
  const pages = createPageReader();
  const loops = createFeeds(config, { ...options, pages }).map((feed) => ({
    name: `price of ${feed.asset}`,
    ...createPriceFeed(options, feed),
  }));
  return { loops, close: () => pages.close() };
}

/** Repeated names get a number: `http:a.example`, `http:a.example#2`. */
function numberRepeated(sources: readonly PriceSource[]): PriceSource[] {
  return sources.map((source, index) => {
    const count = sources.slice(0, index).filter(({ name }) => name === source.name).length;
    return count === 0 ? source : { ...source, name: `${source.name}#${count + 1}` };
  });
}

function pathOf(text: string) {
  const path = parseJsonPath(text);
  if (path === undefined) throw new Error(`${text} was checked to be a path`);
  return path;
}

function getPair(config: Config, id: number) {
  const pair = config.pairs.find((one) => one.id === id);
  const sides = pair && sidesOf(config, pair);
  if (pair === undefined || sides === undefined)
    throw new Error(`pair ${id} was checked to be there, and to hold the native coin`);
  return { pair, ...sides };
}

/** Which token of the pair is the native coin, and which is priced in it; undefined for a pair without the native coin. */
function sidesOf(config: Config, pair: Config['pairs'][number]): { native: 0 | 1; token: 0 | 1 } | undefined {
  const native = nativeSide(config, pair);
  return native === undefined ? undefined : { native, token: native === 0 ? 1 : 0 };
}

function fixedUsd({ tokens }: Config, address: string): Decimal {
  const token = Object.values(tokens).find((one) => one.address === address);
  if (token?.usd === undefined) throw new Error(`the token ${address} was checked to have usd`);
  return decimal(String(token.usd));
}

async function nativeUsd(config: Config, database: Database, clock: Clock): Promise<Decimal> {
  const { chain, prices } = config;
  const maxAgeMs = prices.native === undefined ? 0 : staleSeconds(prices.native) * 1000;
  const native = await findFreshPrice(database, chain.native.symbol, { now: clock.now(), maxAgeMs });
  if (native === undefined) throw new Fault('unavailable', 'the native coin has no price');
  return native.price;
}

/**
 * Where the API finds each price: a feed (the wrapped native coin has that of the native coin), else the fixed value of the
 * configuration, else a pair against the native coin.
 */
export function createPriceBook(config: Config): PriceBook {
  const { chain, prices, tokens, pairs } = config;
  const book = new Map<string, PricedAsset>();
  const add = (asset: string, origin: PriceOrigin) => {
    const key = asset.toLowerCase();
    const priced = book.get(key) ?? { asset, origin };
    book.set(key, priced);
    return priced;
  };
  const feedOf = (of: string, feed: FeedConfig) => {
    const maxAgeMs = feed.maxAgeSeconds === undefined ? undefined : feed.maxAgeSeconds * 1000;
    return { kind: 'feed', of, maxAgeMs, staleMs: staleSeconds(feed) * 1000 } as const;
  };
  const none = { kind: 'none' } as const;
  const { symbol: nativeSymbol } = chain.native;
  const native = add(nativeSymbol, prices.native === undefined ? none : feedOf(nativeSymbol, prices.native));
  const first = pairs.find(({ id }) => id === 1);
  const reward = add(chain.reward.symbol, first === undefined ? none : rateOf(config, first));
  for (const [symbol, feed] of Object.entries(prices.tokens)) add(symbol, feedOf(symbol, feed));
  for (const [symbol, { usd }] of Object.entries(tokens))
    if (usd !== undefined) add(symbol, { kind: 'fixed', usd: decimal(String(usd)) });
  for (const pair of pairs) {
    const token = sidesOf(config, pair)?.token;
    if (token === undefined) continue;
    const address = token === 0 ? pair.token0 : pair.token1;
    const [known] = Object.entries(tokens).find(([, one]) => one.address === address) ?? [];
    add(known ?? pair.name.split('/')[token] ?? '', rateOf(config, pair));
  }
  for (const [symbol, { address }] of Object.entries(tokens))
    add(symbol, address === wrappedNative(config) ? native.origin : none);
  return { native, reward, tokens: book };
}

function rateOf(config: Config, pair: Config['pairs'][number]): PriceOrigin {
  const sides = sidesOf(config, pair);
  return sides === undefined ? { kind: 'none' } : { kind: 'pair', rate: pairRate(pair, sides.token) };
}
