/**
 * newHeads over WebSocket: rings on each head; a socket that goes quiet is closed and opened again.
 * A hint for speed only: polling runs beside it and is the truth.
 */
import { type RawData, WebSocket } from 'ws';
import type { BlockHeader } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { parseHeader, quantity } from './parse.ts';
import { isRecord } from './rpc.ts';

export type HeadSocketOptions = {
  url: string;
  /** A socket to another chain is closed before it says anything. */
  chainId: number;
  clock: Clock;
  signal: AbortSignal;
  /** Quiet for this long means dead: max(3 × median block time, 5 s), asked anew for each wait. */
  silenceMsMax(): number;
  onHead(head: BlockHeader): void;
  onState(state: 'connected' | 'closed', reason: string): void;
};

/** A header is below 4 KiB. */
const MESSAGE_BYTES_MAX = 1024 * 1024;
const CHAIN_ID_CALL = 1;
const SUBSCRIBE_CALL = 2;
const RECONNECT_MS_MIN = 250;
const RECONNECT_MS_MAX = 10_000;

/** Keeps one subscription alive until the signal aborts. Never rejects. */
export async function followHeads(options: HeadSocketOptions): Promise<void> {
  const { clock, signal } = options;
  let retryMs = RECONNECT_MS_MIN;
  while (!signal.aborted) {
    const { heads, reason } = await oneConnection(options);
    options.onState('closed', reason);
    retryMs = heads > 0 ? RECONNECT_MS_MIN : Math.min(retryMs * 2, RECONNECT_MS_MAX);
    await clock.wait(retryMs, signal);
  }
}

/** One socket from opening to its end; how many heads it brought and why it ended. */
async function oneConnection(options: HeadSocketOptions): Promise<{ heads: number; reason: string }> {
  const { clock, signal } = options;
  const socket = new WebSocket(options.url, { maxPayload: MESSAGE_BYTES_MAX, perMessageDeflate: false });
  const ended = new AbortController();
  let heads = 0;
  let reason = 'closed';
  let lastWord = clock.now().getTime();
  const end = (why: string) => {
    if (ended.signal.aborted) return;
    reason = why;
    ended.abort();
  };
  socket.on('open', () => {
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: CHAIN_ID_CALL, method: 'eth_chainId', params: [] }));
  });
  socket.on('message', (data: RawData) => {
    lastWord = clock.now().getTime();
    // The other forms come only when they are asked for.
    if (!Buffer.isBuffer(data)) return;
    try {
      const message = parseMessage(data.toString());
      if (message.kind === 'chain') {
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
        heads += 1;
        options.onHead(message.head);
      }
    } catch (error) {
      end(messageOf(error));
    }
  });
  socket.on('error', (error) => end(messageOf(error)));
  socket.on('close', () => end('closed by the node'));
  const over = AbortSignal.any([signal, ended.signal]);
  while (!over.aborted) {
    const quietMs = clock.now().getTime() - lastWord;
    const allowedMs = options.silenceMsMax();
    if (quietMs >= allowedMs) end(`silent for ${Math.round(quietMs / 1000)} s`);
    else await clock.wait(allowedMs - quietMs, over);
  }
  // A node that hangs would never answer a closing handshake.
  socket.terminate();
  return { heads, reason };
}

type Message = { kind: 'head'; head: BlockHeader } | { kind: 'chain'; chainId: number } | { kind: 'other' };

function parseMessage(text: string): Message {
  const message: unknown = JSON.parse(text);
  if (!isRecord(message)) return { kind: 'other' };
  if (isRecord(message.error))
    throw new Fault('unavailable', `the node answered ${JSON.stringify(message.error).slice(0, 200)}`);
  if (message.id === CHAIN_ID_CALL)
    return { kind: 'chain', chainId: quantity(message.result, 'eth_chainId') };
  return isRecord(message.params)
    ? { kind: 'head', head: parseHeader(message.params.result) }
    : { kind: 'other' };
}
