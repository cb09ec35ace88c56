/**
 * The effective configuration as it may be shown: the file's own keys, every default, no secret.
 */
import { redactDatabaseUrl, redactUrl } from '../core/redact.ts';
import { formatDuration } from './scalars.ts';
import type { Config, ConfigText } from './schema.ts';

/**
 * The configuration in the file's form, for YAML or JSON. Secrets and the database's password are left out, node
 * and price URLs are reduced to scheme and host.
 */
export function printableConfig(config: Config): ConfigText {
  const { chain, database, secret, formerSecrets, prices, retention, ...rest } = config;
  return {
    chain: { ...chain, rpc: chain.rpc.map(redactUrl) },
    database: { url: redactDatabaseUrl(database.url) },
    secret: secret === '' ? '' : '[redacted]',
    formerSecrets: formerSecrets.map(() => '[redacted]'),
    ...rest,
    prices:
      prices.native === undefined
        ? {}
        : { native: { ...prices.native, sources: prices.native.sources.map(printable) } },
    retention: {
      attempts: formatDuration(retention.attemptsMs),
      notifications: formatDuration(retention.notificationsMs),
    },
  };
}

type PriceSource = NonNullable<Config['prices']['native']>['sources'][number];

function printable(source: PriceSource): PriceSource {
  return source.type === 'http' ? { ...source, url: redactUrl(source.url) } : source;
}
