/**
 * Where prices in USD come from: JSON over HTTP, with presets for CoinGecko and Binance, Chainlink feeds on the followed
 * chain, pairs on it, and fixed ones.
 */
import { Agent, errors, request } from 'undici';
import { readAggregator } from '../chain/contracts/aggregator.ts';
import type { ContractReader } from '../chain/contracts/contracts.ts';
import { splitCredentials } from '../core/basic-auth.ts';
import type { Clock } from '../core/clock.ts';
import { amountOf, type Decimal, decimal } from '../core/decimal.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Address } from '../core/hex.ts';
import { parseDecimals } from '../core/json.ts';
import { findAtPath, type JsonPath } from '../core/json-path.ts';
import type { PairRate } from '../domain/pair-rate.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import { findAveragePairPrice } from '../store/market/market.ts';

/** What a source says now. */
export type Quote = {
  /** USD for one whole coin; whether it is believable is decided later. */
  price: Decimal;
  /** By how much it may be wrong, in USD; undefined where the source does not say. */
  conf: Decimal | undefined;
  /** Since when it has been so. */
  at: Date;
};

export type PriceSource = {
  /** Kind and what it asks, without secrets; unique within its feed. */
  name: string;
  /** Beyond this age what it says is not believed. */
  maxAgeMs: number;
  /** @throws Fault that says why there is no quote. */
  read(signal: AbortSignal): Promise<Quote>;
};

/** Gets pages; one for all sources of a process. */
export type PageReader = {
  /**
   * The text of a page that answers 200. Redirects are not followed: the headers may hold a key, which no other host may see.
   * @throws Fault `unavailable`.
   */
  get(url: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<string>;
  close(): Promise<void>;
};

type Source = Omit<PriceSource, 'read'>;

/** Where the parts of a quote are in an answer. */
export type QuotePaths = { price: JsonPath; time?: JsonPath; conf?: JsonPath };
type Page = Source & { url: string; headers?: Readonly<Record<string, string>>; paths: QuotePaths };

/** Lists of all coins of an exchange have some hundred KiB. */
const PAGE_BYTES_MAX = 4 * 1024 * 1024;
const CONNECTIONS_MAX = 4;

export function createPageReader(): PageReader {
  const agent = new Agent({ connections: CONNECTIONS_MAX, maxResponseSize: PAGE_BYTES_MAX });
  return {
    async get(url, headers, signal) {
      const target = splitCredentials(url);
      try {
        const {
          statusCode,
          headers: given,
          body,
        } = await request(target.url, {
          headers: { accept: 'application/json', 'user-agent': 'chainbell', ...target.headers, ...headers },
          dispatcher: agent,
          signal,
        });
        if (statusCode === 200) return await body.text();
        // Its body is of no use, and the connection goes with it.
        body.on('error', () => {}).destroy();
        throw new Fault('unavailable', explainStatus(url, statusCode, given.location?.toString()));
      } catch (error) {
        if (error instanceof Fault) throw error;
        if (error instanceof errors.ResponseExceededMaxSizeError)
          throw new Fault('unavailable', `answered more than ${PAGE_BYTES_MAX} bytes`, { cause: error });
        throw new Fault('unavailable', messageOf(error), { cause: error });
      }
    },
    close: () => agent.destroy(),
  };
}

function explainStatus(url: string, statusCode: number, location: string | undefined): string {
  const target = location === undefined ? null : URL.parse(location, url);
  if (target === null) return `answered HTTP ${statusCode}`;
  return `answered HTTP ${statusCode}, a redirect to ${target.origin}: it is not followed, configure where it leads`;
}

/** A number at a path of a JSON page, or a text that is one, with all its digits. */
export function httpSource(
  { pages, clock }: { pages: PageReader; clock: Clock },
  { name, maxAgeMs, url, headers = {}, paths }: Page,
): PriceSource {
  return {
    name,
    maxAgeMs,
    async read(signal) {
      const document = parsePage(await pages.get(url, headers, signal));
      const { price, time, conf } = paths;
      return {
        price: parseNumber(findAtPath(document, price), 'price'),
        conf: conf === undefined ? undefined : parseNumber(findAtPath(document, conf), 'confidence'),
        at: time === undefined ? clock.now() : parseTime(findAtPath(document, time)),
      };
    },
  };
}

/** What CoinGecko's /simple/price says of a coin, with its own time. `plan` decides which API the key is for. */
export function coingeckoPage(options: {
  id: string;
  plan: 'demo' | 'pro';
  apiKey: string;
  baseUrl: string | undefined;
}): Omit<Page, keyof Source> {
  const { id, plan, apiKey } = options;
  const host = plan === 'pro' ? 'pro-api.coingecko.com' : 'api.coingecko.com';
  const query = new URLSearchParams({
    ids: id,
    vs_currencies: 'usd',
    include_last_updated_at: 'true',
    precision: 'full',
  });
  return {
    url: `${baseOf(options.baseUrl ?? `https://${host}/api/v3`)}/simple/price?${query.toString()}`,
    headers: apiKey === '' ? {} : { [`x-cg-${plan}-api-key`]: apiKey },
    paths: { price: [id, 'usd'], time: [id, 'last_updated_at'] },
  };
}

/** The last trade of a symbol such as ETHUSDT at Binance; a coin of a dollar counts as one (spec 4.3). */
export function binancePage(options: {
  symbol: string;
  baseUrl: string | undefined;
}): Omit<Page, keyof Source> {
  const base = baseOf(options.baseUrl ?? 'https://api.binance.com');
  const query = new URLSearchParams({ symbol: options.symbol });
  return { url: `${base}/api/v3/ticker/price?${query.toString()}`, paths: { price: ['price'] } };
}

const baseOf = (url: string) => url.replace(/\/+$/, '');

/** The newest round of a Chainlink feed on the followed chain. */
export function chainlinkSource(
  nodes: ContractReader,
  { name, maxAgeMs, address }: Source & { address: Address },
): PriceSource {
  return {
    name,
    maxAgeMs,
    async read(signal) {
      const { answer, decimals, updatedAt } = await readAggregator(nodes, address, signal);
      return { price: amountOf(answer, decimals), conf: undefined, at: updatedAt };
    },
  };
}

/** What the operator says it is. */
export function fixedSource(
  clock: Clock,
  { name, maxAgeMs, price }: Source & { price: Decimal },
): PriceSource {
  return { name, maxAgeMs, read: async () => ({ price, conf: undefined, at: clock.now() }) };
}

/**
 * The average of a pair's price over some minutes, up to the newest stored block; `usdOf` gives the price of its unit. Over such a
 * time a price costs a lot to push (reference/chain.md, section 7).
 */
export function pairSource(
  database: Database,
  {
    name,
    maxAgeMs,
    minutes,
    rate,
    usdOf,
  }: Source & { minutes: number; rate: PairRate; usdOf: () => Promise<Decimal> },
): PriceSource {
  return {
    name,
    maxAgeMs,
    async read() {
      const tip = await findTipTimes(database);
      if (tip === undefined) throw new Fault('unavailable', 'no block is stored yet');
      const window = { from: new Date(tip.minedAt.getTime() - minutes * 60_000), to: tip.minedAt };
      const average = await findAveragePairPrice(database, rate.pairId, window);
      if (average === undefined || average.eq(0))
        throw new Fault('unavailable', `is not known with reserves for ${minutes} minutes`);
      const usd = await usdOf();
      return {
        price: rate.isInverse ? usd.div(average) : usd.times(average),
        conf: undefined,
        at: tip.minedAt,
      };
    },
  };
}

function parsePage(text: string): unknown {
  try {
    return parseDecimals(text);
  } catch {
    // Without the parser's error: it quotes the page, and causes are logged too.
    throw new Fault('inconsistent', 'answered with text that is not JSON');
  }
}

/** No price has more digits; the exponent is bounded too, because it becomes digits. */
const NUMBER = /^-?\d{1,40}(\.\d{1,80})?([eE][+-]?\d{1,2})?$/;

function parseNumber(value: unknown, what: string): Decimal {
  if (typeof value === 'string' && NUMBER.test(value)) return decimal(value);
  throw new Fault('inconsistent', `has no number where the ${what} should be`);
}

/** Seconds beyond this are milliseconds: in seconds it is in the year 5138, in milliseconds in 1973. */
const SECONDS_MAX = 100_000_000_000;

const COUNT = /^\d{1,15}(\.\d{1,20})?$/;
/** With its offset: without one it would be the time of this machine. */
const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,20})?)?(Z|[+-]\d{2}:\d{2})$/;

/** Seconds or milliseconds since 1970, or ISO 8601. */
function parseTime(value: unknown): Date {
  const text = typeof value === 'string' ? value : '';
  const count = COUNT.test(text) ? Number(text) : undefined;
  const isoMs = ISO.test(text) ? Date.parse(text) : Number.NaN;
  const at = new Date(count === undefined ? isoMs : count > SECONDS_MAX ? count : count * 1000);
  if (Number.isNaN(at.getTime())) throw new Fault('inconsistent', 'has no time where the time should be');
  return at;
}
