/**
 * One delivery attempt: a POST through the guard. The status line decides the outcome, and everything together may take 10 s
 * (spec 4.6, 6.2).
 */
import type { KeyObject } from 'node:crypto';
import { errors } from 'undici';
import { startAbort } from '../core/abort.ts';
import { type Clock, machineSteadyMs } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { parseWebhookUrl, type WebhookPolicy } from '../domain/webhook-url.ts';
import { type Connection, createConnections } from './connections.ts';
import { createExcerpt } from './excerpt.ts';
import {
  ConnectFailure,
  certificatesProblem,
  createGuard,
  createSecureContext,
  type Guard,
} from './guard.ts';
import { createResolver, type Resolver } from './resolver.ts';

/** How an attempt ended. It is coarse on purpose, because watchers see it and must not use it to scan a network. */
export type SendOutcome =
  | 'success'
  | 'http_3xx'
  | 'http_4xx'
  | 'http_5xx'
  | 'timeout'
  /** The name has no address, or one that the policy forbids. One outcome for both hides which names exist. */
  | 'dns'
  | 'connect'
  | 'tls'
  /** The connection broke, or what came was not HTTP. */
  | 'network'
  /** The policy does not allow this URL; nothing was sent. Older rows also have it for a name with a private address. */
  | 'refused';

/** A POST as it goes out. */
export type Message = { url: string; headers: Record<string, string>; body: string };

export type SendResult = {
  outcome: SendOutcome;
  /** The HTTP status, when a status line came. 100 if a `100 Continue` ended the attempt. */
  status: number | undefined;
  durationMs: number;
  /** 2 when the receiver was closing the kept connection of the first; 0 when nothing was written. */
  requestCount: number;
  /** False when the request was never written to a connection, so that the receiver can't have seen it. */
  mayHaveArrived: boolean;
  /** The first KiB of the answer, keys and signing secrets in it replaced by [redacted]. */
  responseText: string | undefined;
};

/** Renews a message whose credentials may be revoked while it waits for a connection. */
type Renewal = {
  /** Whether the message may still be sent; called immediately before it is written. */
  isFresh(): boolean;
  /** The same message for the same URL, with current credentials. */
  renew(): Promise<Message>;
  /** The keys that signed the message, for a response that quotes them. */
  hmacKeys?(): readonly KeyObject[];
};

/**
 * Sends once and returns the outcome; everything that a receiver does is an outcome. Rejects only with the signal's reason, the
 * error of `renew`, or Fault `unavailable` if `renew` takes most of the time. Then the attempt was aborted without an outcome and does
 * not count.
 */
export type Send = (message: Message, signal: AbortSignal, renewal: Renewal) => Promise<SendResult>;

export type SenderOptions = {
  policy: WebhookPolicy;
  /** PEM certificates of authorities to trust besides the built-in ones. */
  caCertificates?: string;
  /** For everything from resolving the name to the status line; 10 s (spec 4.6). */
  timeoutMs?: number;
  resolve?: Resolver;
  /** Requests under way to one origin; further ones wait, before their time begins. */
  connectionsPerOriginMax?: number;
  /** Connections to all origins that are kept for the next request. */
  idleConnectionsMax?: number;
  /** Tells the age of connections and requests. */
  clock?: Pick<Clock, 'steadyMs'>;
};

const TIMEOUT_MS = 10_000;
/** Share of the whole time, so that a slow name server leaves the larger part to the receiver. */
const RESOLVE_SHARE_MAX = 0.4;
/** As many as a receiver behind an ordinary load balancer takes without noticing. */
export const CONNECTIONS_PER_ORIGIN_MAX = 128;
/** Each holds a socket and about 21 KiB without TLS, for up to 4 s. One watcher can have thousands of receivers. */
const IDLE_CONNECTIONS_MAX = 1_024;
/** How much of a response is read, so that a connection can be used again after an ordinary one. */
const BODY_BYTES_MAX = 16_384;
/** Pieces of it. Each chunk is one, and a response body of single bytes takes the thread many times as long as an ordinary one. */
const BODY_PIECES_MAX = 64;
/** How long the response body may hold the slot once the status line has decided the outcome. */
const BODY_MS_MAX = 500;
/** Parsing one costs 4 µs at each attempt; kept, they take about a KiB each. */
const URLS_MAX = 1_000;
/** The policy forbids the URL, so no connection was opened. */
const REFUSED: SendResult = {
  outcome: 'refused',
  status: undefined,
  durationMs: 0,
  requestCount: 0,
  mayHaveArrived: false,
  responseText: undefined,
};
/**
 * A connection that the receiver was closing when the request was written ends within a round trip. One that ends later was closed by a
 * receiver that had the request.
 */
const STALE_MS_MAX = 500;
/** Aborts a request before it is written: the credentials of its message are too old. */
const TOO_OLD = new Error('the message is too old');
/** A few interim responses (1xx) are ordinary, such as 103 Early Hints. A stream of them is an attack. */
const INTERIM_COUNT_MAX = 32;

/**
 * A sender for the policy. `close` waits for the attempts under way and ends the connections.
 * @throws Fault `invalid` when `caCertificates` holds no certificate or a broken one.
 */
export function createSender(options: SenderOptions): { send: Send; close(): Promise<void> } {
  const { policy, timeoutMs = TIMEOUT_MS } = options;
  const guard = openGuard(options, Math.ceil(timeoutMs * RESOLVE_SHARE_MAX));
  const clock = options.clock ?? { steadyMs: machineSteadyMs };
  const connections = createConnections(guard, {
    perOrigin: options.connectionsPerOriginMax ?? CONNECTIONS_PER_ORIGIN_MAX,
    idle: options.idleConnectionsMax ?? IDLE_CONNECTIONS_MAX,
    clock,
  });
  const underWay = new Set<Promise<SendResult>>();
  const parse = rememberUrls(policy);
  const excerpt = createExcerpt();

  const attempt: Send = async (message, signal, renewal) => {
    signal.throwIfAborted();
    const url = parse(message.url);
    // The policy may have been tightened since the URL was registered.
    if (url === undefined) return REFUSED;

    const connection = await connections.acquire(url.origin, signal);
    const startedAt = performance.now();
    const limit = startAbort(signal, timeoutMs);
    let exchange: Exchange = { end: 'broken', error: undefined, isStale: false };
    let current = message;
    let requestCount = 0;
    const isOver = () => performance.now() - startedAt >= timeoutMs;
    const isFresh = () => {
      // An answer that has arrived is still read, but nothing is written, because the attempt counts as failed.
      if (isOver()) limit.abort(new Fault('unavailable', `no answer within ${timeoutMs} ms`));
      if (limit.signal.aborted) return false;
      const isSent = renewal.isFresh();
      if (isSent) requestCount += 1;
      return isSent;
    };
    const postFresh = async (): Promise<Exchange> => {
      for (;;) {
        const posted = await post(connection, url, { message: current, isFresh, clock }, limit.signal);
        if (posted.end !== 'broken' || posted.error !== TOO_OLD) return posted;
        current = await renewInTime(renewal, isOver, timeoutMs);
      }
    };
    try {
      exchange = await postFresh();
      // The receiver was closing this kept connection when the request arrived, which doesn't count as a failure. The request is
      // repeated once, on a new connection.
      if (exchange.end === 'broken' && exchange.isStale && !limit.signal.aborted) {
        exchange = await postFresh();
      }
    } finally {
      limit.release();
      connections.release(connection, exchange.end === 'whole' ? 'reusable' : 'spent');
    }
    if (exchange.end === 'broken' && signal.aborted) throw signal.reason;
    const durationMs = Math.round(performance.now() - startedAt);
    const sent = { durationMs, requestCount, mayHaveArrived: requestCount > 0 };
    if (exchange.end === 'broken') {
      const outcome = limit.signal.aborted ? 'timeout' : outcomeOfError(exchange.error);
      return { outcome, status: statusOfError(exchange.error), ...sent, responseText: undefined };
    }
    const { status, body, end } = exchange;
    const receiver = { authorization: current.headers.authorization, hmacKeys: renewal.hmacKeys?.() ?? [] };
    const responseText = excerpt(body, end === 'whole', receiver);
    return { outcome: outcomeOfStatus(status), status, ...sent, responseText };
  };

  return {
    send(message, signal, renewal) {
      const sending = attempt(message, signal, renewal).finally(() => underWay.delete(sending));
      underWay.add(sending);
      return sending;
    },
    async close() {
      await Promise.allSettled(underWay);
      await connections.close();
    },
  };
}

/** @throws Fault `unavailable` if the attempt's time ends during a renewal that took most of it, because the receiver isn't slow then. */
async function renewInTime(renewal: Renewal, isOver: () => boolean, timeoutMs: number): Promise<Message> {
  const askedAt = performance.now();
  const message = await renewal.renew();
  if (isOver() && performance.now() - askedAt > timeoutMs / 2) {
    throw new Fault('unavailable', `the credentials took longer than ${timeoutMs / 2} ms to read`);
  }
  return message;
}

function openGuard({ policy, caCertificates, resolve }: SenderOptions, resolveMsMax: number): Guard {
  const problem = caCertificates === undefined ? undefined : certificatesProblem(caCertificates);
  if (problem !== undefined) throw new Fault('invalid', `the extra certificate authorities: ${problem}`);
  const secureContext = createSecureContext(caCertificates);
  return createGuard({ policy, resolve: resolve ?? createResolver(policy), resolveMsMax, secureContext });
}

/**
 * whole: the response was read to its end. cut: the status is known, and the rest was skipped or didn't arrive.
 * broken: no status line. isStale: a reused connection ended within STALE_MS_MAX, before the first byte of a response.
 */
type Exchange =
  | { end: 'whole' | 'cut'; status: number; body: Buffer }
  | { end: 'broken'; error: unknown; isStale: boolean };

function post(
  connection: Connection,
  url: URL,
  { message, isFresh, clock }: { message: Message; isFresh(): boolean; clock: Pick<Clock, 'steadyMs'> },
  signal: AbortSignal,
): Promise<Exchange> {
  const { promise, resolve } = Promise.withResolvers<Exchange>();
  const connectCountBefore = connection.connectCount();
  const chunks: Buffer[] = [];
  let bodyBytes = 0;
  let status: number | undefined;
  let [interimCount, writtenMs] = [0, 0];
  let isAnswered = false;
  let bodyTimer: NodeJS.Timeout | undefined;

  const settle = (end: 'whole' | 'cut', error?: unknown): void => {
    clearTimeout(bodyTimer);
    signal.removeEventListener('abort', giveUp);
    if (status !== undefined) {
      resolve({ end, status, body: Buffer.concat(chunks).subarray(0, BODY_BYTES_MAX) });
      return;
    }
    const isReused = connection.connectCount() === connectCountBefore;
    const isEarly = !isAnswered && clock.steadyMs() - writtenMs <= STALE_MS_MAX;
    resolve({ end: 'broken', error, isStale: isReused && isEarly && isDeadSocket(error) });
  };
  const giveUp = (): void => settle('cut', signal.reason);

  if (signal.aborted) return Promise.resolve({ end: 'broken', error: signal.reason, isStale: false });
  signal.addEventListener('abort', giveUp);
  // `dispatch` doesn't follow redirects.
  connection.client.dispatch(
    {
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method: 'POST',
      headers: message.headers,
      body: message.body,
    },
    {
      // The connection is open and nothing has been written yet, so throwing here leaves it usable.
      onRequestStart() {
        if (!isFresh()) throw TOO_OLD;
        writtenMs = clock.steadyMs();
      },
      onResponseStarted() {
        isAnswered = true;
      },
      onResponseStart(controller, statusCode) {
        if (statusCode < 200) {
          interimCount += 1;
          if (interimCount > INTERIM_COUNT_MAX) controller.abort(new Error('too many interim responses'));
          return;
        }
        status = statusCode;
        connection.setHasHeaders(true);
        bodyTimer = setTimeout(() => settle('cut'), BODY_MS_MAX);
      },
      onResponseData(controller, chunk) {
        chunks.push(Buffer.from(chunk));
        bodyBytes += chunk.length;
        if (bodyBytes <= BODY_BYTES_MAX && chunks.length < BODY_PIECES_MAX) return;
        settle('cut');
        // More pieces may have arrived together with this one.
        controller.abort(new Error('the response body is too large'));
      },
      onResponseEnd() {
        connection.setHasHeaders(false);
        settle('whole');
      },
      onResponseError: (_controller, error) => settle('cut', error),
    },
  );
  return promise;
}

/** Errors that a receiver's idle timeout causes. All others are failures of the receiver. */
function isDeadSocket(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ECONNRESET' || code === 'EPIPE' || code === 'UND_ERR_SOCKET';
}

/** Parses URLs for one policy; undefined for a URL that it forbids. Recent results are kept. */
function rememberUrls(policy: WebhookPolicy): (text: string) => URL | undefined {
  const known = new Map<string, URL | undefined>();
  return (text) => {
    if (known.has(text)) return known.get(text);
    const url = parseAgain(text, policy);
    const [oldest] = known.keys();
    if (known.size >= URLS_MAX && oldest !== undefined) known.delete(oldest);
    known.set(text, url);
    return url;
  };
}

function parseAgain(text: string, policy: WebhookPolicy): URL | undefined {
  try {
    return parseWebhookUrl(text, policy);
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}

function outcomeOfStatus(status: number): SendOutcome {
  if (status < 300) return 'success';
  if (status < 400) return 'http_3xx';
  return status < 500 ? 'http_4xx' : 'http_5xx';
}

function outcomeOfError(error: unknown): SendOutcome {
  return error instanceof ConnectFailure ? error.outcome : 'network';
}

/**
 * Undici breaks a connection at a `100 Continue`, because it never asks for one. A client should skip it (RFC 9110, 15.2), and undici has
 * no setting for that. So the status is kept, to show in the delivery log why the attempt failed.
 */
function statusOfError(error: unknown): number | undefined {
  return error instanceof errors.SocketError && error.message === 'bad response' ? 100 : undefined;
}
