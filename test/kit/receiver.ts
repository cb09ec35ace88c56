/**
 * A real HTTP or HTTPS server that keeps what it receives and answers as the test says.
 */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { parseExact } from '../../src/core/json.ts';
import type { Credentials } from './certificates.ts';

export type ReceivedRequest = {
  method: string;
  /** With the query. */
  path: string;
  headers: IncomingHttpHeaders;
  /** The exact text of the body. */
  body: string;
  /** The body's value, integers exact; undefined when it is not JSON. */
  readonly json: unknown;
  receivedAt: Date;
};

type Content = string | Uint8Array | AsyncIterable<string | Uint8Array>;

/**
 * hang: never an answer. reset: RST instead of an answer. raw: these very bytes on the socket, after which it stays
 * open unless `close` says how it ends. Otherwise an ordinary response, 200 and empty unless said otherwise.
 */
export type Answer =
  | 'hang'
  | 'reset'
  | { raw: Content; close?: 'end' | 'reset' }
  | {
      status?: number;
      headers?: Record<string, string | string[]>;
      body?: Content;
      delayMs?: number;
    };

/** The answer to a request; `index` counts requests from 0. */
export type AnswerTo = (request: ReceivedRequest, index: number) => Answer | Promise<Answer>;

type ReceiverOptions = {
  /** Serve HTTPS with these. */
  tls?: Credentials;
  /** The address to listen on, 127.0.0.1 unless given. */
  host?: string;
  /** The port to listen on; a free one unless given. */
  port?: number;
  answer?: Answer | AnswerTo;
};

export type Receiver = {
  /** Where to POST: the listening address with path `/hook`. */
  url: string;
  port: number;
  /** All requests whose body has arrived, oldest first. */
  requests: ReceivedRequest[];
  /** How many TCP connections were accepted so far. */
  connectionCount(): number;
  /** How many of them are open now. */
  openCount(): number;
  /** Resolves with all requests once there are `count`; rejects after `timeoutMs` (10 s). */
  waitFor(count: number, timeoutMs?: number): Promise<ReceivedRequest[]>;
  /** Answers differently from now on. */
  setAnswer(answer: Answer | AnswerTo): void;
  /** Cuts every connection and stops listening. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Starts a receiver; it is listening when the promise resolves. */
export async function startReceiver(options: ReceiverOptions = {}): Promise<Receiver> {
  const { tls, host = '127.0.0.1' } = options;
  const requests: ReceivedRequest[] = [];
  const waiting = new Set<() => void>();
  const closing = new AbortController();
  let answer: Answer | AnswerTo = options.answer ?? {};
  let connectionCount = 0;
  let openCount = 0;

  const listener = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    receive(incoming)
      .then(async (request) => {
        requests.push(request);
        const index = requests.length - 1;
        for (const check of waiting) check();
        const chosen = typeof answer === 'function' ? await answer(request, index) : answer;
        await send(chosen, outgoing, closing.signal);
      })
      // The sender hung up, or the receiver is closing: what a test checks is on its own side then.
      .catch(() => incoming.socket.destroy());
  };
  const server = tls === undefined ? createServer(listener) : createSecureServer(tls, listener);
  server.on('connection', (socket) => {
    connectionCount += 1;
    openCount += 1;
    socket.on('close', () => {
      openCount -= 1;
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, host, resolve);
  });
  const { port } = server.address() as AddressInfo;

  const close = async (): Promise<void> => {
    closing.abort();
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  };
  return {
    url: `${tls === undefined ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}/hook`,
    port,
    requests,
    connectionCount: () => connectionCount,
    openCount: () => openCount,
    async waitFor(count, timeoutMs = 60_000) {
      const deadline = AbortSignal.timeout(timeoutMs);
      while (requests.length < count) {
        await new Promise<void>((resolve, reject) => {
          const check = (): void => {
            waiting.delete(check);
            resolve();
          };
          waiting.add(check);
          deadline.addEventListener('abort', () => {
            waiting.delete(check);
            reject(new Error(`received ${requests.length} of ${count} requests in ${timeoutMs} ms`));
          });
        });
      }
      return requests;
    },
    setAnswer(next) {
      answer = next;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function receive(incoming: IncomingMessage): Promise<ReceivedRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString('utf8');
  return {
    method: incoming.method ?? '',
    path: incoming.url ?? '',
    headers: incoming.headers,
    body,
    get json() {
      try {
        return parseExact(body);
      } catch {
        return undefined;
      }
    },
    receivedAt: new Date(),
  };
}

async function send(answer: Answer, outgoing: ServerResponse, signal: AbortSignal): Promise<void> {
  if (answer === 'hang') return;
  if (answer === 'reset') {
    outgoing.socket?.resetAndDestroy();
    return;
  }
  if ('raw' in answer) {
    const { socket } = outgoing;
    if (socket === null) return;
    const { raw, close } = answer;
    const pieces = typeof raw === 'string' || raw instanceof Uint8Array ? [raw] : raw;
    for await (const piece of pieces) {
      if (!socket.write(piece)) await once(socket, 'drain', { signal });
    }
    if (close === 'end') socket.end();
    // After what was written: a reset would overtake it.
    if (close === 'reset') socket.write('', () => socket.resetAndDestroy());
    return;
  }
  if (answer.delayMs !== undefined) await delay(answer.delayMs, undefined, { signal });
  outgoing.writeHead(answer.status ?? 200, answer.headers);
  const { body } = answer;
  if (body === undefined || typeof body === 'string' || body instanceof Uint8Array) {
    outgoing.end(body);
    return;
  }
  outgoing.flushHeaders();
  pipeline(Readable.from(body, { signal }), outgoing, () => undefined);
}
