/**
 * One delivery attempt: a POST through the guard, decided by the status line, 10 s for all of it (spec 4.6, 6.2).
 */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { startAbort } from '../core/abort.ts';
import { Fault } from '../core/fault.ts';
import { parseWebhookUrl, type WebhookPolicy } from '../domain/webhook-url.ts';
import { type Connection, createConnections } from './connections.ts';
import { createExcerpt } from './excerpt.ts';
import { ConnectFailure, createGuard, createSecureContext } from './guard.ts';
import { createResolver, type Resolver } from './resolver.ts';

/** How an attempt ended. Coarse on purpose: it is shown to watchers and must not map a network for them. */
export type SendOutcome =
  | 'success'
  | 'http_3xx'
  | 'http_4xx'
  | 'http_5xx'
  | 'timeout'
  /** The name has no address, or one that the policy does not allow: an answer for both hides which names exist. */
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
  /** The HTTP status, when a status line came. */
  status: number | undefined;
  durationMs: number;
  /** 2 when the receiver was closing the kept connection of the first; 0 when nothing was written. */
  requestCount: number;
  /** False when the request was never written to a connection, so that the receiver can't have seen it. */
  mayHaveArrived: boolean;
  /** The first KiB of the answer, keys and signing secrets in it replaced by [redacted]. */
  responseText: string | undefined;
};

/** What a message proves itself with may be revoked while it waits for its connection. */
type Renewal = {
  /** Whether the message may still go out; asked in the moment in which it would. */
  isFresh(): boolean;
  /** The same message for the same URL, with what is valid now. */
  renew(): Promise<Message>;
};

/**
 * Sends once and says how it went; whatever a receiver does is a result. Rejects only with the reason of the signal, or
 * with that of a message that could not be renewed: then the attempt was broken off undecided, and does not count.
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
};

const TIMEOUT_MS = 10_000;
/** Of the time for everything; leaves the larger part to the receiver when a name server is slow. */
const RESOLVE_SHARE_MAX = 0.4;
/** As many as a receiver behind an ordinary load balancer takes without noticing. */
export const CONNECTIONS_PER_ORIGIN_MAX = 128;
/** Each holds a socket and about 21 KiB without TLS, for up to 4 s. One watcher can have thousands of receivers. */
const IDLE_CONNECTIONS_MAX = 1_024;
/** What is read of an answer, so that a connection can serve again after an ordinary one. */
const BODY_BYTES_MAX = 16_384;
/** How long an answer's body may hold the slot once the status has decided. */
const BODY_MS_MAX = 500;
/** Parsing one costs 4 µs at each attempt; kept, they take about a KiB each. */
const URLS_MAX = 1_000;
/** The policy doesn't allow the URL: there was no connection. */
const REFUSED: SendResult = {
  outcome: 'refused',
  status: undefined,
  durationMs: 0,
  requestCount: 0,
  mayHaveArrived: false,
  responseText: undefined,
};
/** Why a message was not written to the connection that it waited for. */
const TOO_OLD = new Error('the message is too old');
/** Interim responses (1xx) say nothing; a few are ordinary (103 Early Hints), a stream of them is an attack. */
const INTERIM_COUNT_MAX = 32;

/**
 * A sender for the policy. `close` waits for the attempts under way and ends the connections.
 * @throws Fault `invalid` when `caCertificates` holds no certificate or a broken one.
 */
export function createSender(options: SenderOptions): { send: Send; close(): Promise<void> } {
  const { policy, caCertificates, timeoutMs = TIMEOUT_MS } = options;
  if (caCertificates !== undefined) checkCertificates(caCertificates);
  const guard = createGuard({
    policy,
    resolve: options.resolve ?? createResolver(policy),
    resolveMsMax: Math.ceil(timeoutMs * RESOLVE_SHARE_MAX),
    secureContext: createSecureContext(caCertificates),
  });
  const connections = createConnections(guard, {
    perOrigin: options.connectionsPerOriginMax ?? CONNECTIONS_PER_ORIGIN_MAX,
    idle: options.idleConnectionsMax ?? IDLE_CONNECTIONS_MAX,
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
    const isFresh = () => {
      const isSent = renewal.isFresh();
      if (isSent) requestCount += 1;
      return isSent;
    };
    const postFresh = async (): Promise<Exchange> => {
      for (;;) {
        const posted = await post(connection, url, { message: current, isFresh }, limit.signal);
        if (posted.end !== 'broken' || posted.error !== TOO_OLD) return posted;
        current = await renewal.renew();
      }
    };
    try {
      exchange = await postFresh();
      // The receiver was just closing this connection when the request came; that does not count as a failure. Once only, and
      // on a fresh connection, since this one is dead.
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
      return { outcome, status: undefined, ...sent, responseText: undefined };
    }
    const { status } = exchange;
    return {
      outcome: outcomeOfStatus(status),
      status,
      ...sent,
      responseText: excerpt(exchange.body, exchange.end === 'whole', current.headers.authorization),
    };
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

/**
 * whole: a response that was read to its end. cut: the status is known, the rest was not waited for or did not come.
 * broken: no status line. isStale: the request met a connection that had served before and died without one byte.
 */
type Exchange =
  | { end: 'whole' | 'cut'; status: number; body: Buffer }
  | { end: 'broken'; error: unknown; isStale: boolean };

function post(
  connection: Connection,
  url: URL,
  { message, isFresh }: { message: Message; isFresh(): boolean },
  signal: AbortSignal,
): Promise<Exchange> {
  const { promise, resolve } = Promise.withResolvers<Exchange>();
  const connectCountBefore = connection.connectCount();
  const chunks: Buffer[] = [];
  let bodyBytes = 0;
  let status: number | undefined;
  let interimCount = 0;
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
    resolve({ end: 'broken', error, isStale: isReused && !isAnswered && isDeadSocket(error) });
  };
  const giveUp = (): void => settle('cut', signal.reason);

  if (signal.aborted) return Promise.resolve({ end: 'broken', error: signal.reason, isStale: false });
  signal.addEventListener('abort', giveUp);
  // Redirects are not followed: at this level undici knows nothing of them.
  connection.client.dispatch(
    {
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method: 'POST',
      headers: message.headers,
      body: message.body,
    },
    {
      // There is a connection, and nothing was written yet: what is thrown here leaves it as it is.
      onRequestStart() {
        if (!isFresh()) throw TOO_OLD;
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
        bodyTimer = setTimeout(() => settle('cut'), BODY_MS_MAX);
      },
      onResponseData(_controller, chunk) {
        chunks.push(Buffer.from(chunk));
        bodyBytes += chunk.length;
        if (bodyBytes > BODY_BYTES_MAX) settle('cut');
      },
      onResponseEnd: () => settle('whole'),
      onResponseError: (_controller, error) => settle('cut', error),
    },
  );
  return promise;
}

/** The reasons to which a receiver's idle timeout leads, all others being failures of the receiver. */
function isDeadSocket(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ECONNRESET' || code === 'EPIPE' || code === 'UND_ERR_SOCKET';
}

/** Parses URLs for one policy, undefined for those that it does not allow; what came lately is not parsed again. */
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

function checkCertificates(text: string): void {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  try {
    assert(blocks.length > 0, 'it holds none');
    for (const block of blocks) new X509Certificate(block);
  } catch (error) {
    throw new Fault('invalid', 'the file of extra certificate authorities must hold PEM certificates', {
      cause: error,
    });
  }
}
