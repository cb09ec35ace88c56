/**
 * Sources of prices in USD: JSON over HTTP (with presets for CoinGecko and Binance), Chainlink feeds and pairs on the
 * followed chain, and fixed prices.
 */
import { Agent, errors, request } from 'undici';
import { readAggregator } from '../chain/contracts/aggregator.ts';
import type { ContractReader } from '../chain/contracts/contracts.ts';
import { splitCredentials } from '../core/basic-auth.ts';
import type { Clock } from '../core/clock.ts';
import { amountOf, type Decimal, decimal } from '../core/decimal.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Address } from '../core/hex.ts';
import { YEAR_MAX, YEAR_MIN } from '../core/iso-time.ts';
import { parseDecimals } from '../core/json.ts';
import { findAtPath, type JsonPath } from '../core/json-path.ts';
import { createValueCounter } from '../core/json-values.ts';
import type { PairRate } from '../domain/pair-rate.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import { findAveragePairPrice } from '../store/market/pair-states.ts';
import { readPruneMarks } from '../store/retention/prune-marks.ts';

/** A source's current price. */
export type Quote = {
  /** USD for one whole coin. `decidePrice` judges whether it is plausible. */
  price: Decimal;
  /** The confidence interval, in USD; undefined if the source gives none. */
  conf: Decimal | undefined;
  /** The time that the source gives for the price. */
  at: Date;
};

export type PriceSource = {
  /** Its kind and its subject, without secrets. Unique within its feed. */
  name: string;
  /** An older price is ignored. */
  maxAgeMs: number;
  /** @throws Fault that says why there is no quote. */
  read(signal: AbortSignal): Promise<Quote>;
};

/** Gets pages over HTTP. All sources of a process share one. */
export type PageReader = {
  /**
   * The body of a 200 response. Redirects are not followed, because the headers may hold a key that no other host may see.
   * @throws Fault `unavailable`.
   */
  get(url: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<string>;
  close(): Promise<void>;
};

type Source = Omit<PriceSource, 'read'>;

/** The paths of a quote's parts in a response. */
export type QuotePaths = { price: JsonPath; time?: JsonPath; conf?: JsonPath };
type Page = Source & { url: string; headers?: Readonly<Record<string, string>>; paths: QuotePaths };

/** A list of all coins of an exchange takes some hundred KiB. */
const PAGE_BYTES_MAX = 4 * 1024 * 1024;
/** Parsing this many took 0.1 s, and the process does nothing else meanwhile. 4 MiB of an exchange's tickers have 180,000. */
const PAGE_VALUES_MAX = 200_000;
const CONNECTIONS_MAX = 4;
const PAGE_HEADERS = { accept: 'application/json', 'accept-encoding': 'identity', 'user-agent': 'chainbell' };
/** The registered ones (RFC 9110, 8.4.1). */
const ENCODINGS: ReadonlySet<string> = new Set(['br', 'compress', 'deflate', 'gzip', 'x-gzip', 'zstd']);

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
          headers: { ...PAGE_HEADERS, ...target.headers, ...headers },
          dispatcher: agent,
          signal,
        });
        const encoding = String(given['content-encoding'] ?? 'identity').toLowerCase();
        if (statusCode === 200 && encoding === 'identity') return await body.text();
        // Close the connection instead of reading a body that isn't needed.
        body.on('error', () => {}).destroy();
        const problem =
          statusCode === 200
            ? explainEncoding(encoding)
            : explainStatus(url, statusCode, given.location?.toString());
        throw new Fault('unavailable', problem);
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

/** Names only a known encoding, because a server may repeat a secret of the request in the header. */
function explainEncoding(encoding: string): string {
  const name = ENCODINGS.has(encoding) ? encoding : 'unknown';
  return `answered with a compressed page (content-encoding: ${name}), although the request accepts only identity. Configure a URL that is not compressed`;
}

function explainStatus(url: string, statusCode: number, location: string | undefined): string {
  const target = location === undefined ? null : URL.parse(location, url);
  if (target === null) return `answered HTTP ${statusCode}`;
  return `answered HTTP ${statusCode}, a redirect to ${target.origin}: it is not followed. Configure the target instead`;
}

/** Reads a number from a path of a JSON page, with all its digits. The number may be a JSON string. */
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

/** CoinGecko's /simple/price for a coin, with CoinGecko's time. `plan` decides which API the key is for. */
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

/** The last trade of a symbol such as ETHUSDT at Binance. A stablecoin of one dollar counts as USD (spec 4.3). */
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

/** A price that the operator configured. */
export function fixedSource(
  clock: Clock,
  { name, maxAgeMs, price }: Source & { price: Decimal },
): PriceSource {
  return { name, maxAgeMs, read: async () => ({ price, conf: undefined, at: clock.now() }) };
}

/**
 * The time-weighted average of a pair's price over some minutes, up to the newest stored block. `usdOf` gives the price of the
 * pair's unit. An average over minutes is expensive to manipulate (docs/explanation/prices.md).
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
        throw new Fault('unavailable', `has stored reserves for less than ${minutes} minutes`);
      // Read after the average, because retention raises its mark before it deletes.
      const keptSince = (await readPruneMarks(database)).get('pair_state');
      if (keptSince !== undefined && window.from < keptSince)
        throw new Fault(
          'unavailable',
          `no longer has all reserves of ${minutes} minutes before the newest stored block, which is old`,
        );
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
  const { numbers, others } = createValueCounter()(Buffer.from(text));
  if (numbers + others > PAGE_VALUES_MAX)
    throw new Fault('unavailable', `answered more than ${PAGE_VALUES_MAX} values`);
  try {
    return parseDecimals(text);
  } catch {
    // Without the parser's error as the cause, because it quotes the page and causes are logged.
    throw new Fault('inconsistent', 'answered with text that is not JSON');
  }
}

/** No price has more digits. The exponent is bounded too, because it becomes digits. */
const NUMBER = /^-?\d{1,40}(\.\d{1,80})?([eE][+-]?\d{1,2})?$/;

function parseNumber(value: unknown, name: string): Decimal {
  if (typeof value === 'string' && NUMBER.test(value)) return decimal(value);
  throw new Fault('inconsistent', `has no number where the ${name} should be`);
}

/** A larger number is in milliseconds: as seconds it would be after the year 5138, as milliseconds after 1973. */
const SECONDS_MAX = 100_000_000_000;

const COUNT = /^\d{1,15}(\.\d{1,20})?$/;
/** The offset is required. Without it, `Date.parse` would use this machine's time zone. */
const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,20})?)?(Z|[+-]\d{2}:\d{2})$/;

/** Seconds or milliseconds since 1970, or ISO 8601. */
function parseTime(value: unknown): Date {
  const text = typeof value === 'string' ? value : '';
  const count = COUNT.test(text) ? Number(text) : undefined;
  const isoMs = ISO.test(text) ? Date.parse(text) : Number.NaN;
  const at = new Date(count === undefined ? isoMs : count > SECONDS_MAX ? count : count * 1000);
  const year = at.getUTCFullYear();
  if (!(year >= YEAR_MIN && year <= YEAR_MAX))
    throw new Fault('inconsistent', 'has no time where the time should be');
  return at;
}
