/**
 * The tables of docs/reference/limits.md. Each value is read from its constant in the code.
 */
import { readFileSync } from 'node:fs';
import { markdownTable } from './table.ts';

type Unit = 'bytes' | 'ms' | 'hours' | 'characters' | 'count';
type Limit = { what: string; file: string; name: string; unit: Unit; above: string };

const SECTIONS: Record<string, Limit[]> = {
  Requests: [
    limit(
      'Connections of a process',
      'api/http/connection-limit',
      'CONNECTIONS_MAX',
      'count',
      'closes an idle or slow connection, or refuses the new one',
    ),
    limit(
      'Requests sent without waiting for responses',
      'api/http/connection-limit',
      'PIPELINED_MAX',
      'count',
      'closes the connection',
    ),
    limit('Time for the headers of a request', 'api/server', 'HEADERS_MS_MAX', 'ms', '408'),
    limit('Request line and headers of a request', 'api/server', 'HEADERS_BYTES_MAX', 'bytes', '431'),
    limit('Time for the body of a request', 'api/http/body-limit', 'BODY_MS_MAX', 'ms', '408'),
    limit(
      'Time in which a client reads nothing of a response',
      'api/http/connection-limit',
      'UNREAD_MS_MAX',
      'ms',
      'closes the connection',
    ),
    limit(
      'Keep-alive time of an idle connection',
      'api/server',
      'KEEP_ALIVE_MS',
      'ms',
      'closes the connection',
    ),
    limit('Body of a request', 'api/server', 'BODY_BYTES_MAX', 'bytes', '413'),
    limit(
      'Share of the longest body or line for each value in its JSON',
      'api/http/json-body',
      'VALUE_BYTES_MIN',
      'bytes',
      '400',
    ),
    limit(
      'Requests of a watcher for lists, or with bodies, that wait for memory',
      'api/http/memory-queue',
      'WAITING_MAX',
      'count',
      '429',
    ),
    limit('Time for which such a request waits', 'api/http/memory-queue', 'WAIT_MS_MAX', 'ms', '429'),
    limit(
      'Time for such a response while others wait for memory, and a second for each MiB of it',
      'api/http/memory-limit',
      'SLOW_MS_MIN',
      'ms',
      'closes the connection',
    ),
    limit(
      'Public responses that clients are still reading',
      'api/http/unread-bodies',
      'UNREAD_BYTES_MAX',
      'bytes',
      'closes the connections that have been reading longest',
    ),
    limit('`Idempotency-Key`', 'api/http/idempotency-key', 'KEY_CHARACTERS_MAX', 'characters', '400'),
  ],
  'Watched addresses': [
    limit('`limit` of the list', 'api/notifications/watched-addresses', 'LIMIT_MAX', 'count', '400'),
    limit('Webhook URL', 'domain/webhook-url', 'URL_CHARACTERS_MAX', 'characters', '400'),
    limit('Changes in one list', 'api/notifications/bulk', 'CHANGES_MAX', 'count', '400'),
    limit('Members of one set', 'api/notifications/bulk', 'MEMBERS_MAX', 'count', '400'),
    limit('Body of a list or set', 'api/notifications/bulk', 'BODY_BYTES_MAX', 'bytes', '413'),
    limit(
      'Line of a stream',
      'api/http/json-lines',
      'LINE_CHARACTERS_MAX',
      'characters',
      'an error for this line',
    ),
    limit('Open streams of a watcher', 'api/notifications/bulk', 'STREAMS_PER_WATCHER_MAX', 'count', '429'),
    limit(
      "Open streams of all watchers; twice as many for a watcher's first",
      'api/notifications/bulk',
      'STREAMS_MAX',
      'count',
      '429',
    ),
    limit(
      'Time without a line in a stream',
      'api/notifications/bulk',
      'STREAM_SILENCE_MS_MAX',
      'ms',
      '408, or a last line that says so',
    ),
    limit(
      'Tokens in the settings of a watched address',
      'api/notifications/settings',
      'TOKENS_MAX',
      'count',
      '400',
    ),
    limit(
      'Test webhooks of a watcher in a minute',
      'api/notifications/record-delivery',
      'TESTS_PER_MINUTE_MAX',
      'count',
      '429',
    ),
  ],
  'Delivery log': [
    limit('`limit` of its lists', 'api/notifications/log-query', 'LIMIT_MAX', 'count', '400'),
    limit('`limit` unless given', 'api/notifications/log-query', 'LIMIT_DEFAULT', 'count', ''),
    limit(
      'Watched addresses that the filter `address` may match',
      'api/notifications/log-query',
      'RECORDS_MAX',
      'count',
      '400, choose one with `watched_address_id`',
    ),
    limit(
      'Attempt streams of a watcher',
      'api/notifications/attempt-stream',
      'STREAMS_PER_WATCHER_MAX',
      'count',
      '429',
    ),
    limit(
      "Attempt streams of all watchers; twice as many for a watcher's first",
      'api/notifications/attempt-stream',
      'STREAMS_MAX',
      'count',
      '429',
    ),
    limit(
      'Attempt streams of the operator',
      'api/notifications/attempt-stream',
      'OPERATOR_STREAMS_MAX',
      'count',
      '429',
    ),
    limit(
      'Length of an attempt stream',
      'api/notifications/attempt-stream',
      'STREAM_MS_MAX',
      'ms',
      'ends the stream; reconnect with `Last-Event-ID`',
    ),
  ],
  'Public API': [
    limit('`limit` of the lists of points', 'api/public/points', 'LIMIT_MAX', 'count', '400'),
    limit('Hours of a history', 'api/public/swap-history', 'HOURS_MAX', 'count', '400'),
    limit(
      'Histories of one path that wait while one is computed',
      'api/http/memory-queue',
      'WAITING_MAX',
      'count',
      '503',
    ),
    limit('Time for which such a history waits', 'api/http/memory-queue', 'WAIT_MS_MAX', 'ms', '503'),
    limit('`limit` of the list of swaps', 'api/public/swap-list', 'LIMIT_MAX', 'count', '400'),
    limit('Responses computed at the same time', 'api/http/cache', 'COMPUTATIONS_MAX', 'count', '503'),
    limit(
      'Lists of points without `limit`: each, and all that are being computed',
      'api/http/large-bodies',
      'LARGE_BYTES_MAX',
      'bytes',
      '503 for the largest; use `limit`',
    ),
  ],
  Delivery: [
    limit('Time of an attempt', 'delivery/send', 'TIMEOUT_MS', 'ms', '`timeout`, and a retry'),
    limit(
      'Response headers',
      'delivery/connections',
      'RESPONSE_HEADER_BYTES_MAX',
      'bytes',
      '`network`, and a retry',
    ),
    limit(
      'All of a response before its body, with interim responses',
      'delivery/connections',
      'HEAD_BYTES_MAX',
      'bytes',
      '`network`, and a retry',
    ),
    limit('Response body that is read', 'delivery/send', 'BODY_BYTES_MAX', 'bytes', 'ignores the rest'),
    limit('Chunks of a response body', 'delivery/send', 'BODY_PIECES_MAX', 'count', 'ignores the rest'),
    limit(
      'Response body that is stored',
      'delivery/excerpt',
      'EXCERPT_BYTES_MAX',
      'bytes',
      'cuts off the rest',
    ),
    limit(
      'Concurrent connections to an origin',
      'delivery/send',
      'CONNECTIONS_PER_ORIGIN_MAX',
      'count',
      'waits',
    ),
    limit(
      'Concurrent attempts of a process at a receiver of one watcher',
      'delivery/receiver',
      'CONCURRENCY_MAX',
      'count',
      'waits',
    ),
  ],
  Keys: [
    limit(
      'Name of a watcher',
      'domain/watcher-name',
      'NAME_CHARACTERS_MAX',
      'characters',
      'refuses the name',
    ),
    limit('Slices of a watcher', 'domain/shard', 'SLICES_MAX', 'count', '400'),
    limit('Overlap of two keys or secrets', 'domain/overlap', 'OVERLAP_HOURS_MAX', 'hours', '400'),
  ],
};

function limit(what: string, file: string, name: string, unit: Unit, above: string): Limit {
  return { what, file: `src/${file}.ts`, name, unit, above };
}

/** @throws Error if the code has no such constant. */
export function renderLimits(root: string): string {
  return Object.entries(SECTIONS)
    .map(([section, limits]) => {
      const rows = limits.map((one) => [one.what, textOf(readConstant(root, one), one.unit), one.above]);
      return `## ${section}\n\n${markdownTable(['What', 'Limit', 'Above it'], rows)}`;
    })
    .join('\n\n');
}

function readConstant(root: string, { file, name }: Limit): number {
  const code = readFileSync(`${root}/${file}`, 'utf8');
  const [, value] = new RegExp(`^(?:export )?const ${name} = ([\\d_ *]+);`, 'm').exec(code) ?? [];
  if (value === undefined) throw new Error(`${file} has no constant ${name} for docs/reference/limits.md`);
  return value
    .replaceAll('_', '')
    .split('*')
    .reduce((product, factor) => product * Number(factor), 1);
}

function textOf(value: number, unit: Unit): string {
  const number = (count: number) => count.toLocaleString('en-US');
  switch (unit) {
    case 'bytes':
      if (value < 1024) return `${number(value)} bytes`;
      return value >= 1024 * 1024 ? `${number(value / 1024 / 1024)} MiB` : `${number(value / 1024)} KiB`;
    case 'ms':
      if (value >= 3_600_000) return `${number(value / 3_600_000)} h`;
      return value >= 1_000 ? `${number(value / 1_000)} s` : `${number(value)} ms`;
    case 'count':
      return number(value);
    default:
      return `${number(value)} ${unit}`;
  }
}
