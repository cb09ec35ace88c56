/**
 * A real HTTP or HTTPS server that stores requests and responds as the test decides.
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
  /** Includes the query. */
  path: string;
  headers: IncomingHttpHeaders;
  /** The exact text of the body. */
  body: string;
  /** The parsed body with exact integers. Undefined when it is not JSON. */
  readonly json: unknown;
  receivedAt: Date;
};

type Content = string | Uint8Array | AsyncIterable<string | Uint8Array>;

/**
 * hang: no response. reset: RST in place of a response. raw: exactly these bytes on the socket, which then stays open unless
 * `close` says how it ends. Otherwise a normal response, by default 200 without a body.
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

/** The response to a request; `index` counts requests from 0. */
export type AnswerTo = (request: ReceivedRequest, index: number) => Answer | Promise<Answer>;

type ReceiverOptions = {
  /** Serves HTTPS with these credentials. */
  tls?: Credentials;
  /** The address to listen on; 127.0.0.1 by default. */
  host?: string;
  /** The port to listen on; a free one by default. */
  port?: number;
  answer?: Answer | AnswerTo;
};

export type Receiver = {
  /** The webhook URL: the listening address with path `/hook`. */
  url: string;
  port: number;
  /** All requests with complete bodies, oldest first. */
  requests: ReceivedRequest[];
  /** The number of TCP connections accepted so far. */
  connectionCount(): number;
  /** The number of open connections. */
  openCount(): number;
  /** Resolves with all requests once there are `count`. Rejects after `timeoutMs` (10 s by default). */
  waitFor(count: number, timeoutMs?: number): Promise<ReceivedRequest[]>;
  /** Changes the responses from now on. */
  setAnswer(answer: Answer | AnswerTo): void;
  /** Closes every connection and stops listening. */
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
      // The sender hung up, or the receiver is closing. The test checks the sender's side then.
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
    // Reset after the write, because a reset would overtake the bytes.
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
