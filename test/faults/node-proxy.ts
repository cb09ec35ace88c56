/**
 * A node that misbehaves: stands between Chainbell and a real node, over HTTP and WebSocket, and does what a NodeFault
 * says to the answers that pass.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { request } from 'undici';
import type { Chain } from '../kit/anvil.ts';

export type Call = { id: unknown; method: string; params: readonly unknown[] };
/** What a call is answered with: `{ result }` or `{ error }`. */
export type Answer = { result?: unknown; error?: { code: number; message: string } };
export type Ask = (call: Call) => Promise<Answer>;

/** Every connection is cut instead of answered: the node is down. */
export const down: NodeFault = {
  send(response) {
    response.destroy();
    return true;
  },
};

/** What goes wrong. Each part says false or undefined where it leaves things as they are. */
export type NodeFault = {
  /** Answers a call in the node's place. */
  answer?(call: Call, ask: Ask): Promise<Answer | undefined>;
  /** Sends the answers of a request in the node's place. */
  send?(response: ServerResponse, text: string): boolean;
  /** Whether what the node says on a WebSocket is dropped. */
  isMute?: boolean;
};

type Target = Pick<Chain, 'port' | 'alone'>;

export type NodeProxy = {
  url: string;
  wsUrl: string;
  /** Goes over to another node, for all that comes from now on. */
  turnTo(target: Target): void;
  /** From now on this goes wrong, so often at most. */
  inject(fault: NodeFault, times?: number): void;
  /** All is well again; what was left without an answer is cut. */
  mend(): void;
  /** The connections of now die without a word: they stay open, and nothing passes any more. */
  killConnections(): void;
  /** How often the fault has struck since it was injected. */
  struck(): number;
  /** How often any has, so far. */
  injected(): number;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Stands before the node, and lets everything pass at first. */
export async function startNodeProxy(first: Target): Promise<NodeProxy> {
  let target = first;
  let fault: NodeFault = {};
  let timesMax = 0;
  let struck = 0;
  let injected = 0;
  let dead = new WeakSet<Duplex>();
  const open = new Set<Socket>();
  const unanswered = new Set<ServerResponse>();

  /** Notes that the fault has struck. */
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
    // One after the other, so that something can happen between two of them.
    for (const call of calls) answers.push(await answer(call));
    if (dead.has(incoming.socket)) {
      injected += 1;
      return;
    }
    // Whoever asked hung up meanwhile; a fault that lasts until the answer is closed would last for ever.
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
    // The node is gone, or Chainbell hung up: either way this connection is over.
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
