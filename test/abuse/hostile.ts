/**
 * Receivers that misbehave, and the required outcome of an attempt at each.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { SendOutcome } from '../../src/delivery/send.ts';
import type { Answer } from '../kit/receiver.ts';

export type Hostile = {
  name: string;
  answer(): Answer;
  outcome: SendOutcome;
  /** The final status; undefined when none arrived. */
  status?: number;
};

const DRIP_MS = 10;
const GIBIBYTE = 2 ** 30;
const CHUNK = Buffer.alloc(65_536, 'a');
const EMPTY_LINES = Buffer.alloc(65_536, '\r\n');
/** A gigabyte of zeros. Consecutive gzip members form one file. */
const BOMB = Buffer.concat(Array(16).fill(await promisify(gzip)(Buffer.alloc(GIBIBYTE / 16))));

const ok = 'HTTP/1.1 200 OK\r\n';
const metadata = 'http://169.254.169.254/latest/meta-data/';

/** Sends `first`, then `piece` every `DRIP_MS` without end. The receiver stops it on close. */
async function* drip(first: string, piece: string): AsyncGenerator<string> {
  yield first;
  for (;;) {
    await delay(DRIP_MS);
    yield piece;
  }
}

async function* stall(first: string): AsyncGenerator<string> {
  yield first;
  await new Promise(() => {});
}

async function* flood(head: string, chunk = CHUNK): AsyncGenerator<string | Buffer> {
  yield head;
  for (let bytes = 0; bytes < GIBIBYTE; bytes += chunk.length) yield chunk;
}

async function* chunkedFlood(): AsyncGenerator<string | Buffer> {
  yield `${ok}transfer-encoding: chunked\r\n\r\n`;
  for (let bytes = 0; bytes < GIBIBYTE; bytes += CHUNK.length) {
    yield `${CHUNK.length.toString(16)}\r\n`;
    yield CHUNK;
    yield '\r\n';
  }
}

const raw = (content: string, close?: 'end' | 'reset'): Answer => ({ raw: content, ...(close && { close }) });
const timeout = { outcome: 'timeout' } as const;
const network = { outcome: 'network' } as const;
const success = { outcome: 'success', status: 200 } as const;

/** No status line arrives in time. */
const slow: Hostile[] = [
  { name: 'never answers', answer: () => 'hang', ...timeout },
  { name: 'stops in the status line', answer: () => raw('HTTP/1.1 2'), ...timeout },
  { name: 'stops in a header', answer: () => raw(`${ok}content-le`), ...timeout },
  { name: 'drips headers for ever', answer: () => ({ raw: drip(ok, 'a: b\r\n') }), ...timeout },
  {
    name: 'sends only 103 responses',
    answer: () => ({ raw: stall('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(3)) }),
    ...timeout,
  },
];

/** The connection breaks before the status is known, or the response is not HTTP. */
const broken: Hostile[] = [
  { name: 'resets', answer: () => 'reset', ...network },
  { name: 'hangs up', answer: () => raw('', 'end'), ...network },
  { name: 'resets in the status line', answer: () => raw('HTTP/1.1 20', 'reset'), ...network },
  { name: 'hangs up in the headers', answer: () => raw(`${ok}content-length: 0\r\n`, 'end'), ...network },
  { name: 'speaks another protocol', answer: () => raw('SSH-2.0-server\r\n'), ...network },
  { name: 'speaks HTTP/0.9', answer: () => raw('<html>hello</html>', 'end'), ...network },
  { name: 'has a status below 100', answer: () => raw('HTTP/1.1 099 Low\r\n\r\n'), ...network },
  {
    name: 'switches protocols',
    answer: () => raw('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'),
    ...network,
  },
  {
    name: 'sends headers without end',
    answer: () => ({ raw: flood(`${ok}x: `) }),
    ...network,
  },
  {
    name: 'sends a reason phrase without end',
    answer: () => ({ raw: flood('HTTP/1.1 200 ') }),
    ...network,
  },
  { name: 'sends empty lines without end', answer: () => ({ raw: flood('', EMPTY_LINES) }), ...network },
  {
    name: 'floods with interim responses',
    answer: () => raw('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(10_000)),
    ...network,
  },
  {
    name: 'sends 100 before the answer',
    answer: () => raw(`HTTP/1.1 100 Continue\r\n\r\n${ok}content-length: 0\r\n\r\n`),
    outcome: 'network',
    status: 100,
  },
  {
    name: 'sends two content lengths',
    answer: () => raw(`${ok}content-length: 1\r\ncontent-length: 2\r\n\r\nab`),
    ...network,
  },
];

/** The status line decides the outcome, whatever follows it. */
const decided: Hostile[] = [
  {
    name: 'sends a body byte by byte, forever',
    answer: () => ({ raw: drip(`${ok}transfer-encoding: chunked\r\n\r\n`, '1\r\nx\r\n') }),
    ...success,
  },
  {
    name: 'sends the body of a failure byte by byte, forever',
    answer: () => ({ status: 500, body: drip('x', 'x') }),
    outcome: 'http_5xx',
    status: 500,
  },
  {
    name: 'sends a gigabyte',
    answer: () => ({ raw: flood(`${ok}content-length: ${GIBIBYTE}\r\n\r\n`) }),
    ...success,
  },
  { name: 'sends a gigabyte in chunks', answer: () => ({ raw: chunkedFlood() }), ...success },
  { name: 'sends a gigabyte without saying so', answer: () => ({ raw: flood(`${ok}\r\n`) }), ...success },
  {
    name: 'sends a gzip bomb',
    answer: () => ({ headers: { 'content-encoding': 'gzip' }, body: BOMB }),
    ...success,
  },
  { name: 'hangs up in the body', answer: () => raw(`${ok}content-length: 9\r\n\r\nabc`, 'end'), ...success },
  { name: 'resets in the body', answer: () => raw(`${ok}content-length: 9\r\n\r\nabc`, 'reset'), ...success },
  {
    name: 'sends invalid chunks',
    answer: () => raw(`${ok}transfer-encoding: chunked\r\n\r\nnot a chunk\r\n`),
    ...success,
  },
  { name: 'speaks HTTP/1.0', answer: () => raw('HTTP/1.0 200 OK\r\n\r\nold', 'end'), ...success },
  {
    name: 'sends a body with 204',
    answer: () => raw('HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc'),
    outcome: 'success',
    status: 204,
  },
  {
    name: 'sends 102 and 103 before the answer',
    answer: () =>
      raw(
        `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${ok}content-length: 0\r\n\r\n`,
        'end',
      ),
    ...success,
  },
  {
    name: 'sends a second, unsolicited answer',
    answer: () => raw(`HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n${ok}content-length: 0\r\n\r\n`),
    outcome: 'http_5xx',
    status: 503,
  },
  ...[301, 302, 303, 307, 308].map(
    (status): Hostile => ({
      name: `redirects with ${status} to a metadata address`,
      answer: () => ({ status, headers: { location: metadata } }),
      outcome: 'http_3xx',
      status,
    }),
  ),
];

export const hostileReceivers: readonly Hostile[] = [...slow, ...broken, ...decided];
