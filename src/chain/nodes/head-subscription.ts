/**
 * Subscribes to `newHeads` over WebSockets and calls `onHead` for each head. It replaces a socket that goes
 * quiet. Polling continues at the same time. A pushed head counts as the node's vote, like a requested one.
 */
import { type RawData, WebSocket } from 'ws';
import { startAbort } from '../../core/abort.ts';
import { backOffMs } from '../../core/back-off.ts';
import { splitCredentials } from '../../core/basic-auth.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import { isRecord } from '../../core/json.ts';
import type { Log } from '../../core/log.ts';
import { redactorOf } from '../../core/redact.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { parseHeader, quantity } from '../rpc/parse.ts';
import { type Allowance, createAllowance } from './allowance.ts';
import { createHeadBell } from './head-bell.ts';

/** The state of the subscription to one ws URL. */
export type SocketStatus = {
  name: string;
  /** Undefined while it is not connected. */
  connectedSince: Date | undefined;
  /** How many heads it has brought, over all its connections. */
  heads: number;
  /** Why it was last closed. */
  lastReason: string | undefined;
};

type SocketsOptions = {
  urls: readonly string[];
  chainId: number;
  clock: Clock;
  log: Log;
  /** The number of the head that the nodes agreed on last. Undefined before the first one. */
  headNumber(): number | undefined;
  /** Called for each new head of a socket, and when one connects or closes, as often as `createHeadBell` allows. */
  onHead(): void;
};

type HeadSocketOptions = {
  url: string;
  /** A socket to a node on another chain is closed before it can give a head. */
  chainId: number;
  clock: Clock;
  signal: AbortSignal;
  /** A socket that is quiet for this long counts as dead. Computed again for each wait. */
  silenceMsMax(): number;
  onHead(head: BlockHeader, json: unknown): void;
  onState(state: 'connected' | 'closed', reason: string): void;
};

/** The least time before a quiet socket counts as silent. It rises to 3 times the median block time. */
const SILENCE_MS_MIN = 5_000;
const BLOCK_TIMES_KEPT = 15;
/** Ample for a header, which is below 4 KiB, or 70 KiB with the hashes of 1,000 transactions. Parsing a message holds the event loop. */
const MESSAGE_BYTES_MAX = 128 * 1024;
/**
 * What a socket may send at once and each second. Headers of 1,000 transactions every third of a second, and a burst of 2,000
 * ordinary ones, are below. Parsing the most hostile messages at this rate holds the event loop for 3 % of the time.
 */
const SENT_BYTES = { max: 4 * 1024 * 1024, perSecond: 256 * 1024 };
/** A message counts as at least this much, because handling a short one takes time too. */
const SENT_BYTES_MIN = 1024;
/** Nodes send each message in one frame. */
const SOCKET_LIMITS = { maxPayload: MESSAGE_BYTES_MAX, maxFragments: 16, perMessageDeflate: false };
/** A node's message goes to the log and to the status page. */
const REASON_CHARACTERS_MAX = 300;
const CHAIN_ID_CALL = 1;
const SUBSCRIBE_CALL = 2;
const RECONNECT_MS = { min: 250, max: 10_000 };

/** The newest head from one ws URL, with the JSON that the node sent. */
export type PushedHead = { url: string; number: number; json: unknown };

/**
 * Subscribes to all ws URLs. `takeHeads` returns the newest head of each URL since its last call.
 */
export function openSockets(options: SocketsOptions) {
  const { clock, log } = options;
  const closing = new AbortController();
  const byUrl = new Map<string, SocketStatus>();
  const arrivals: number[] = [];
  const pushed = new Map<string, PushedHead>();
  let lastHash: Hash | undefined;
  const silenceMsMax = () => {
    const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? at));
    const median = gaps.sort((one, other) => one - other)[Math.floor(gaps.length / 2)] ?? 0;
    return Math.max(3 * median, SILENCE_MS_MIN);
  };
  const running = options.urls
    .filter((url) => url.startsWith('ws'))
    .map((url) => {
      const name = new URL(url).origin;
      const status: SocketStatus = { name, connectedSince: undefined, heads: 0, lastReason: undefined };
      byUrl.set(url, status);
      const ring = createHeadBell({
        ...{ clock, signal: closing.signal, headNumber: options.headNumber, onRing: options.onHead },
      });
      let pushedHash: Hash | undefined;
      return followHeads({
        url,
        chainId: options.chainId,
        clock,
        signal: closing.signal,
        silenceMsMax,
        onHead(head, json) {
          status.heads += 1;
          if (head.hash === pushedHash) return;
          pushedHash = head.hash;
          if (head.hash !== lastHash) arrivals.push(clock.now().getTime());
          if (arrivals.length > BLOCK_TIMES_KEPT) arrivals.shift();
          lastHash = head.hash;
          const isTaken = !pushed.has(url);
          pushed.set(url, { url, number: head.number, json });
          // Until its last head is taken, the bell has rung or will ring.
          if (isTaken) ring();
        },
        onState(state, reason) {
          status.connectedSince = state === 'connected' ? clock.now() : undefined;
          if (state === 'closed') status.lastReason = reason;
          log.debug({ node: name, state, reason }, 'node.websocket');
          // Heads may have passed while the socket was down, so the caller must ask at once.
          ring();
        },
      });
    });
  return {
    /** Whether a ws URL for which `counts` holds is connected. */
    isConnected: (counts: (url: string) => boolean) =>
      [...byUrl].some(([url, { connectedSince }]) => connectedSince !== undefined && counts(url)),
    status: () => Array.from(byUrl.values(), (status) => ({ ...status })),
    takeHeads(): PushedHead[] {
      const taken = [...pushed.values()];
      pushed.clear();
      return taken;
    },
    async close() {
      closing.abort();
      await Promise.all(running);
    },
  };
}

/** Keeps one subscription open until the signal aborts. Never rejects. */
export async function followHeads(options: HeadSocketOptions): Promise<void> {
  const { clock, signal } = options;
  const sent = createAllowance(clock, SENT_BYTES);
  /** Connections in a row that brought no head or flooded. */
  let failureCount = 0;
  while (!signal.aborted) {
    const { isUseful, reason } = await oneConnection(options, sent);
    options.onState('closed', reason);
    failureCount = isUseful ? 0 : failureCount + 1;
    await clock.wait(backOffMs(RECONNECT_MS, failureCount), signal);
  }
}

/** Runs one socket until it ends. Returns why it ended, and whether it brought heads without flooding. */
async function oneConnection(
  options: HeadSocketOptions,
  sent: Allowance,
): Promise<{ isUseful: boolean; reason: string }> {
  const { clock, signal } = options;
  const { url, headers } = splitCredentials(options.url);
  const socket = new WebSocket(url, { headers, ...SOCKET_LIMITS });
  const redact = redactorOf(options.url);
  const connection = startAbort(signal);
  let isUseful = false;
  let reason = 'closed';
  let lastMessageMs = clock.now().getTime();
  let isSubscribed = false;
  const end = (why: string) => {
    if (connection.signal.aborted) return;
    // Nodes repeat paths and keys of their URL. Redact before cutting, because a cut key would not be recognized.
    reason = redact(why).slice(0, REASON_CHARACTERS_MAX);
    connection.abort();
  };
  socket.on('open', () => {
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: CHAIN_ID_CALL, method: 'eth_chainId', params: [] }));
  });
  /** False, and ends the connection, if the socket sends more than it may. */
  const mayRead = ({ length }: Buffer): boolean => {
    if (sent.take(Math.max(length, SENT_BYTES_MIN))) return true;
    isUseful = false;
    end(`it sends more than ${SENT_BYTES.perSecond / 1024} KiB a second`);
    return false;
  };
  // Frames of two bytes take the event loop as long as short messages.
  for (const event of ['ping', 'pong'] as const) socket.on(event, mayRead);
  socket.on('message', (data: RawData) => {
    lastMessageMs = clock.now().getTime();
    // ws uses the other types only if its `binaryType` is changed. After the end, it gives what had arrived before.
    if (!Buffer.isBuffer(data) || connection.signal.aborted) return;
    if (!mayRead(data)) return;
    try {
      const message = parseMessage(data.toString());
      if (message.kind === 'chain') {
        if (isSubscribed) return end('it answered one request twice');
        isSubscribed = true;
        if (message.chainId !== options.chainId)
          return end(`it is on chain ${message.chainId}, not ${options.chainId}`);
        options.onState('connected', '');
        socket.send(
          JSON.stringify({
            jsonrpc: '2.0',
            id: SUBSCRIBE_CALL,
            method: 'eth_subscribe',
            params: ['newHeads'],
          }),
        );
      }
      if (message.kind === 'head') {
        isUseful = true;
        options.onHead(message.head, message.json);
      }
    } catch (error) {
      end(messageOf(error));
    }
  });
  socket.on('error', (error) => end(messageOf(error)));
  socket.on('close', () => end('closed by the node'));
  while (!connection.signal.aborted) {
    const quietMs = clock.now().getTime() - lastMessageMs;
    const allowedMs = options.silenceMsMax();
    if (quietMs >= allowedMs) end(`silent for ${Math.round(quietMs / 1000)} s`);
    else await clock.wait(allowedMs - quietMs, connection.signal);
  }
  connection.release();
  // Don't start a closing handshake, because a node that hangs would never answer it.
  socket.terminate();
  return { isUseful, reason };
}

type Message =
  | { kind: 'head'; head: BlockHeader; json: unknown }
  | { kind: 'chain'; chainId: number }
  | { kind: 'other' };

function parseMessage(text: string): Message {
  const message: unknown = JSON.parse(text);
  if (!isRecord(message)) return { kind: 'other' };
  if (isRecord(message.error))
    throw new Fault('unavailable', `the node answered ${JSON.stringify(message.error)}`);
  if (message.id === CHAIN_ID_CALL)
    return { kind: 'chain', chainId: quantity(message.result, 'eth_chainId') };
  return isRecord(message.params)
    ? { kind: 'head', head: parseHeader(message.params.result), json: message.params.result }
    : { kind: 'other' };
}
