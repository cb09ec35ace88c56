/**
 * The receiver program. It responds with 204: at once, under /after/<milliseconds> after this delay, and never under /hang. It counts requests by
 * notification id. `GET /stats` returns the statistics and resets them. With a certificate in the environment it serves HTTPS.
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { percentile } from '../stage.ts';

/** Statistics since the last reset. `times` are milliseconds since 1970; `waits` are measured from a body's `timestamp`. */
export type SinkStats = {
  ids: number;
  waits: { p50Ms: number; p99Ms: number; maxMs: number };
  /** The arrival time of each request. */
  times: number[];
  /** The arrival time of the first request for each Host. */
  firstAtByHost: Record<string, number>;
};

const { SINK_KEY_FILE: keyFile, SINK_CERT_FILE: certFile } = process.env;
let ids = new Set<string>();
let waits: number[] = [];
let times: number[] = [];
let firstAtByHost = new Map<string, number>();

function onRequest(request: IncomingMessage, response: ServerResponse): void {
  if (request.url === '/stats') {
    response.end(JSON.stringify(takeStats()));
    return;
  }
  let body = '';
  request.setEncoding('latin1').on('data', (text: string) => {
    body += text;
  });
  request.on('end', () => {
    if (request.url === '/hang') return;
    note(body, request.headers.host ?? '');
    const delayMs = Number(/^\/after\/(\d+)$/.exec(request.url ?? '')?.[1] ?? 0);
    if (delayMs > 0) setTimeout(() => response.writeHead(204).end(), delayMs);
    else response.writeHead(204).end();
  });
}

function note(body: string, host: string): void {
  const now = Date.now();
  times.push(now);
  ids.add(/"id"\s*:\s*(\d+)/.exec(body)?.[1] ?? '');
  const createdAt = /"timestamp":\s*"([^"]+)"/.exec(body)?.[1];
  if (createdAt !== undefined) waits.push(now - Date.parse(`${createdAt.replace(' ', 'T')}Z`));
  if (!firstAtByHost.has(host)) firstAtByHost.set(host, now);
}

function takeStats(): SinkStats {
  const sorted = waits.sort((one, other) => one - other);
  const stats = {
    ids: ids.size,
    times,
    waits: {
      p50Ms: percentile(sorted, 0.5),
      p99Ms: percentile(sorted, 0.99),
      maxMs: percentile(sorted, 1),
    },
    firstAtByHost: Object.fromEntries(firstAtByHost),
  };
  [ids, waits, times, firstAtByHost] = [new Set(), [], [], new Map()];
  return stats;
}

const options = { keepAliveTimeout: 60_000 };
const server =
  keyFile === undefined || certFile === undefined
    ? createServer(options, onRequest)
    : createSecureServer({ ...options, key: readFileSync(keyFile), cert: readFileSync(certFile) }, onRequest);
// Listen on all of 127.0.0.0/8, so that each address is a separate receiver.
server.listen(0, '0.0.0.0', () => {
  const address = server.address();
  process.stdout.write(`${typeof address === 'object' && address !== null ? address.port : 0}\n`);
});
