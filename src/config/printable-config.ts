/**
 * The effective configuration for display: with the file's keys and every default, without secrets.
 */
import { redactDatabaseUrl, redactUrl } from '../core/redact.ts';
import { formatDuration } from './scalars.ts';
import type { Config, ConfigText } from './schema.ts';

/**
 * The configuration in the form of the file. Redacts secrets and the database password, and reduces node and price URLs
 * to scheme and host.
 */
export function printableConfig(config: Config): ConfigText {
  const { chain, database, secret, formerSecrets, http, prices, retention, ...rest } = config;
  return {
    chain: { ...chain, rpc: chain.rpc.map(redactUrl) },
    database: {
      ...database,
      url: redactDatabaseUrl(database.url),
      sessionUrl: redactDatabaseUrl(database.sessionUrl),
      replicaUrl: redactDatabaseUrl(database.replicaUrl),
    },
    secret: secret === '' ? '' : '[redacted]',
    formerSecrets: formerSecrets.map(() => '[redacted]'),
    http: { ...http, adminToken: http.adminToken === null ? null : '[redacted]' },
    ...rest,
    prices: {
      ...(prices.native !== undefined && { native: printableFeed(prices.native) }),
      tokens: Object.fromEntries(
        Object.entries(prices.tokens).map(([symbol, feed]) => [symbol, printableFeed(feed)]),
      ),
    },
    retention: {
      attempts: formatDuration(retention.attemptsMs),
      notifications: formatDuration(retention.notificationsMs),
      observations: formatDuration(retention.observationsMs),
      swaps: formatDuration(retention.swapsMs),
      pairHistory: formatDuration(retention.pairHistoryMs),
    },
  };
}

type PriceFeed = NonNullable<Config['prices']['native']>;
type PriceSource = PriceFeed['sources'][number];

const printableFeed = (feed: PriceFeed): PriceFeed => ({ ...feed, sources: feed.sources.map(printable) });

function printable(source: PriceSource): PriceSource {
  switch (source.type) {
    case 'http': {
      const { url, headers, ...rest } = source;
      const hidden = Object.keys(headers ?? {}).map((name) => [name, '[redacted]']);
      return {
        ...rest,
        url: redactUrl(url),
        ...(headers !== undefined && { headers: Object.fromEntries(hidden) }),
      };
    }
    case 'coingecko':
      return { ...source, apiKey: source.apiKey === '' ? '' : '[redacted]', ...printableBase(source) };
    case 'binance':
      return { ...source, ...printableBase(source) };
    case 'chainlink':
    case 'pair':
    case 'fixed':
      return source;
  }
}

const printableBase = ({ baseUrl }: { baseUrl?: string }) =>
  baseUrl === undefined ? {} : { baseUrl: redactUrl(baseUrl) };
