/**
 * A proxy that makes a node misbehave. It stands between Chainbell and a real node, over HTTP and WebSocket, and applies a
 * NodeFault to the responses.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { request } from 'undici';
import type { Chain } from '../kit/anvil.ts';

export type Call = { id: unknown; method: string; params: readonly unknown[] };
/** The response to a call: `{ result }` or `{ error }`. */
export type Answer = { result?: unknown; error?: { code: number; message: string } };
export type Ask = (call: Call) => Promise<Answer>;

/** The node is down: every connection is closed without a response. */
export const down: NodeFault = {
  send(response) {
    response.destroy();
    return true;
  },
};

/** A fault. Each part returns false or undefined where it changes nothing. */
export type NodeFault = {
  /** Responds to a call in place of the node. */
  answer?(call: Call, ask: Ask): Promise<Answer | undefined>;
  /** Sends the responses to a request in place of the node. */
  send?(response: ServerResponse, text: string): boolean;
  /** Whether messages from the node's WebSocket are dropped. */
  isMute?: boolean;
};

type Target = Pick<Chain, 'port' | 'alone'>;

export type NodeProxy = {
  url: string;
  wsUrl: string;
  /** Switches to another node for everything that follows. */
  turnTo(target: Target): void;
  /** Applies this fault from now on, at most `times` times. */
  inject(fault: NodeFault, times?: number): void;
  /** Ends the fault. Closes connections that have no response yet. */
  mend(): void;
  /** Current connections die silently: they stay open, but no data passes. */
  killConnections(): void;
  /** How often the current fault has struck since it was injected. */
  struck(): number;
  /** How often any fault has struck so far. */
  injected(): number;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Starts a proxy in front of the node. At first it forwards everything unchanged. */
export async function startNodeProxy(first: Target): Promise<NodeProxy> {
  let target = first;
  let fault: NodeFault = {};
  let timesMax = 0;
  let struck = 0;
  let injected = 0;
  let dead = new WeakSet<Duplex>();
  const open = new Set<Socket>();
  const unanswered = new Set<ServerResponse>();

  /** Counts one strike of the fault. */
  function strike(): void {
    injected += 1;
    struck += 1;
    if (struck >= timesMax) fault = {};
  }

  function ask(call: Call): Promise<Answer> {
    const isTrace = /^(debug_)?trace/.test(call.method);
    return isTrace ? target.alone(() => pass(call)) : pass(call);
  }

  async function pass(call: Call): Promise<Answer> {
    const { body } = await request(`http://127.0.0.1:${target.port}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', ...call }),
    });
    const { result, error } = (await body.json()) as Answer;
    return error === undefined ? { result } : { error };
  }

  async function answer(call: Call): Promise<unknown> {
    const wrong = await fault.answer?.(call, ask);
    if (wrong !== undefined) strike();
    return { jsonrpc: '2.0', id: call.id, ...(wrong ?? (await ask(call))) };
  }

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const question = JSON.parse(Buffer.concat(chunks).toString()) as Call | Call[];
    const calls = Array.isArray(question) ? question : [question];
    const answers: unknown[] = [];
    // One call after the other, so that an event can happen between two of them.
    for (const call of calls) answers.push(await answer(call));
    if (dead.has(incoming.socket)) {
      injected += 1;
      return;
    }
    // The client has hung up. A fault that lasts until the response is closed would last forever.
    if (response.destroyed) return;
    const text = JSON.stringify(Array.isArray(question) ? answers : answers[0]);
    if (fault.send?.(response, text) === true) {
      unanswered.add(response);
      response.on('close', () => unanswered.delete(response));
      return strike();
    }
    response.setHeader('content-type', 'application/json').end(text);
  }

  const server = createServer((incoming, response) => {
    // The node is gone, or Chainbell hung up. In both cases this connection is over.
    handle(incoming, response).catch(() => incoming.socket.destroy());
  });
  server.keepAliveTimeout = 0;
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  server.on('upgrade', ({ rawHeaders }, socket) => {
    const node = connect(target.port, '127.0.0.1');
    const lines = rawHeaders.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${rawHeaders[at + 1]}`] : []));
    node.write(`GET / HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
    node.on('data', (bytes) => {
      if (dead.has(socket)) return;
      if (fault.isMute === true && node.bytesRead > bytes.length) strike();
      else socket.write(bytes);
    });
    socket.on('data', (bytes) => node.write(bytes));
    for (const [one, other] of [
      [node, socket],
      [socket, node],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the proxy has no port');

  return {
    url: `http://127.0.0.1:${address.port}`,
    wsUrl: `ws://127.0.0.1:${address.port}`,
    turnTo(next) {
      target = next;
      injected += 1;
    },
    inject(next, times = Number.POSITIVE_INFINITY) {
      fault = next;
      struck = 0;
      timesMax = times;
    },
    mend() {
      fault = {};
      for (const response of unanswered) response.destroy();
    },
    killConnections() {
      dead = new WeakSet([...open]);
    },
    struck: () => struck,
    injected: () => injected,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}
