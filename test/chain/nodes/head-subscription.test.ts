import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { followHeads } from '../../../src/chain/nodes/head-subscription.ts';
import { type ChainNodes, createNodes } from '../../../src/chain/nodes/nodes.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import {
  chainMethods,
  makeNodeBlock,
  type NodeBlock,
  type ScriptedNode,
  SECRET_PATH,
  startScriptedNode,
} from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const SILENCE_MS = 5_000;

type Stage = {
  node: SocketNode;
  clock: TestClock;
  /** Numbers of the reported heads. */
  heads: number[];
  /** The reasons why sockets ended. */
  ends: string[];
};

/** One subscription on a clock that the test moves; it is connected and subscribed when `work` begins. */
async function follow(work: (stage: Stage) => Promise<void>): Promise<void> {
  await using node = await startSocketNode();
  const clock = createTestClock();
  const closing = new AbortController();
  const heads: number[] = [];
  const ends: string[] = [];
  const running = followHeads({
    url: node.url,
    chainId: 1,
    clock,
    signal: closing.signal,
    silenceMsMax: () => SILENCE_MS,
    onHead: ({ number }) => heads.push(number),
    onState: (state, reason) => state === 'closed' && ends.push(reason),
  });
  try {
    await subscribed(node, 1);
    await work({ node, clock, heads, ends });
  } finally {
    closing.abort();
    await running;
  }
  await waitUntil(() => node.openCount() === 0, { describe: 'the socket to be closed' });
}

const subscribed = (node: SocketNode, count: number) =>
  waitUntil(() => node.received().length === count, { describe: `subscription ${count}` });

/** Waits for the pause before the next connection, checks its length and lets it pass. */
async function passPause({ clock, ends }: Stage, end: number, pauseMs: number): Promise<void> {
  await waitUntil(() => ends.length === end && clock.waits().includes(pauseMs), {
    describe: `a pause of ${pauseMs} ms`,
  });
  clock.advance(pauseMs);
}

test('each new head is reported with its number and hash', () =>
  follow(async ({ node, heads }) => {
    assert.deepEqual(JSON.parse(node.received()[0] ?? ''), {
      ...{ jsonrpc: '2.0', id: 2, method: 'eth_subscribe' },
      params: ['newHeads'],
    });
    node.send('{"jsonrpc":"2.0","id":2,"result":"0x9"}');
    node.send(headMessage(7));
    node.send(headMessage(8));
    await waitUntil(() => heads.length === 2);
    assert.deepEqual(heads, [7, 8]);
  }));

test('a socket that is silent for too long is closed and opened again', () =>
  follow(async (stage) => {
    const { node, clock, ends, heads } = stage;
    clock.advance(SILENCE_MS - 1);
    assert.deepEqual(ends, []);
    clock.advance(1);
    await waitUntil(() => ends.length === 1);
    assert.deepEqual(ends, ['silent for 5 s']);
    await passPause(stage, 1, 500);
    await subscribed(node, 2);
    node.send(headMessage(9));
    await waitUntil(() => heads.length === 1);
  }));

test('heads keep a socket open', () =>
  follow(async ({ node, clock, ends, heads }) => {
    for (let count = 1; count <= 3; count += 1) {
      clock.advance(SILENCE_MS - 1_000);
      node.send(headMessage(count));
      await waitUntil(() => heads.length === count);
    }
    assert.deepEqual(ends, []);
    assert.equal(node.connectionCount(), 1);
  }));

for (const [name, message, reason] of [
  ['text that is not JSON', '<html>', /JSON/],
  [
    'a head without a hash',
    '{"method":"eth_subscription","params":{"result":{"number":"0x1"}}}',
    /block.hash is missing/,
  ],
  [
    'a refused subscription',
    '{"id":1,"error":{"code":-32601,"message":"no subscriptions here"}}',
    /no subscriptions here/,
  ],
  ['a second answer to one request', '{"jsonrpc":"2.0","id":1,"result":"0x1"}', /answered one request twice/],
  ['a message of more than 128 KiB', '[]'.padEnd(131_073), /Max payload size exceeded/],
  ['an error without text', '{"id":1,"error":{"message":{"toString":1}}}', /./],
] as const) {
  test(`${name} ends the socket, and the next one works`, () =>
    follow(async (stage) => {
      const { node, heads, ends } = stage;
      node.send(message);
      await passPause(stage, 1, 500);
      assert.match(ends[0] ?? '', reason);
      await subscribed(node, 2);
      node.send(headMessage(3));
      await waitUntil(() => heads.length === 1);
    }));
}

for (const [name, message] of [
  ['heads', headMessage(7)],
  ['data that is nested deeply', `${'['.repeat(60_000)}${']'.repeat(60_000)}`],
  ['empty messages', '0'],
] as const) {
  test(`a socket that floods with ${name} is closed, and opened again after longer and longer pauses`, () =>
    follow(async (stage) => {
      const { node, ends } = stage;
      const flood = (end: number) => {
        for (let sentBytes = 0; sentBytes <= 4 * 1024 * 1024; sentBytes += Math.max(message.length, 1024))
          node.send(message);
        return waitUntil(() => ends.length === end);
      };
      await flood(1);
      assert.deepEqual(ends, ['it sends more than 256 KiB a second']);
      await passPause(stage, 1, 500);
      await subscribed(node, 2);
      await flood(2);
      await passPause(stage, 2, 1_000);
      await subscribed(node, 3);
    }));
}

for (const [name, opcode] of [
  ['pings', 0x89],
  ['pongs', 0x8a],
] as const)
  test(`a socket that floods with ${name} is closed`, () =>
    follow(async ({ node, ends }) => {
      node.write(Buffer.from(Array.from({ length: 4_200 }, () => [opcode, 0]).flat()));
      await waitUntil(() => ends.length === 1);
      assert.deepEqual(ends, ['it sends more than 256 KiB a second']);
    }));

test('a socket that cuts a message into many frames is closed', () =>
  follow(async ({ node, ends }) => {
    node.write(Buffer.from([0x01, 0, ...Array.from({ length: 16 }, () => [0, 0]).flat()]));
    await waitUntil(() => ends.length === 1);
    assert.match(ends[0] ?? '', /too many message fragments/i);
  }));

test('2,000 heads at once, and then one each 10 ms, keep the socket open', () =>
  follow(async ({ node, clock, ends, heads }) => {
    for (let count = 1; count <= 2_000; count += 1) node.send(headMessage(count));
    await waitUntil(() => heads.length === 2_000);
    for (let count = 1; count <= 200; count += 1) {
      clock.advance(10);
      node.send(headMessage(2_000 + count));
      await waitUntil(() => heads.length === 2_000 + count);
    }
    assert.deepEqual(ends, []);
  }));

test('a head that lists the hashes of 1,000 transactions is taken', () =>
  follow(async ({ node, heads }) => {
    const { params, ...message } = JSON.parse(headMessage(7));
    const result = { ...params.result, transactions: Array(1_000).fill(params.result.hash) };
    node.send(JSON.stringify({ ...message, params: { ...params, result } }));
    await waitUntil(() => heads.length === 1);
  }));

test('a socket that the node closes is opened again, after longer and longer pauses while no head comes', () =>
  follow(async (stage) => {
    const { node, heads, clock, ends } = stage;
    const pauses = [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000];
    for (const [index, pauseMs] of pauses.entries()) {
      node.cut();
      await passPause(stage, index + 1, pauseMs);
      await subscribed(node, index + 2);
    }
    node.send(headMessage(4));
    await waitUntil(() => heads.length === 1);
    node.cut();
    await passPause(stage, pauses.length + 1, 250);
    await subscribed(node, pauses.length + 2);
    assert.ok(ends.every((reason) => !reason.includes(SECRET_PATH)));
    assert.equal(clock.waits().length, 1);
  }));

test('a node that accepts the connection but never opens the socket counts as silent', async () => {
  await using node = await startSocketNode({ isMute: true });
  const clock = createTestClock();
  const closing = new AbortController();
  const ends: string[] = [];
  const running = followHeads({
    ...{ url: node.url, chainId: 1, clock, signal: closing.signal },
    silenceMsMax: () => SILENCE_MS,
    onHead: () => assert.fail('there is no head'),
    onState: (_state, reason) => ends.push(reason),
  });
  await waitUntil(() => node.connectionCount() === 1);
  clock.advance(SILENCE_MS);
  await waitUntil(() => ends.length === 1);
  assert.deepEqual(ends, ['silent for 5 s']);
  closing.abort();
  await running;
});

test('user and password of a ws URL are sent as basic authentication', async () => {
  await using node = await startSocketNode();
  const closing = new AbortController();
  const running = followHeads({
    url: node.url.replace('//', '//operator:p%40ss@'),
    ...{ chainId: 1, clock: createTestClock(), signal: closing.signal },
    ...{ silenceMsMax: () => SILENCE_MS, onHead: () => {}, onState: () => {} },
  });
  await waitUntil(() => node.authorizations.length === 1);
  assert.deepEqual(node.authorizations, [`Basic ${Buffer.from('operator:p@ss').toString('base64')}`]);
  closing.abort();
  await running;
});

test('a socket to another chain is closed before it gives a head', async () => {
  await using node = await startSocketNode({ chainId: 5 });
  const closing = new AbortController();
  const ends: string[] = [];
  const running = followHeads({
    ...{ url: node.url, chainId: 1, clock: createTestClock(), signal: closing.signal },
    silenceMsMax: () => SILENCE_MS,
    onHead: () => assert.fail('a head of another chain'),
    onState: (_state, reason) => ends.push(reason),
  });
  await waitUntil(() => ends.length === 1);
  assert.deepEqual(ends, ['it is on chain 5, not 1']);
  assert.deepEqual(node.received(), []);
  closing.abort();
  await running;
});

test('a pushed head calls onHead, and is the head without a request to the node', async () => {
  await using node = await startScriptedNode(chainMethods(1, [makeNodeBlock(7)]));
  await using sockets = await startSocketNode({ http: node });
  let ringCount = 0;
  const clock = createTestClock();
  const nodes = createNodes({
    ...{ urls: [sockets.url.replace('ws:', 'http:'), sockets.url], chainId: 1, internalTransfers: 'off' },
    ...{ clock, log: silentLog(), metrics: createMetrics('test') },
    onHead: () => {
      ringCount += 1;
    },
  });
  await subscribed(sockets, 1);
  const { signal } = new AbortController();
  assert.equal((await nodes.head(signal)).number, 7);
  const asked = node.exchangeCount();
  const rung = ringCount;
  sockets.send(headMessage(8));
  await waitUntil(() => ringCount === rung + 1);
  assert.ok(nodes.isPushed());
  assert.equal((await nodes.head(signal)).number, 8);
  assert.equal(node.exchangeCount(), asked);
  // A pushed head is used once. After that, the node is asked again.
  assert.equal((await nodes.head(signal)).number, 7);
  assert.equal(node.exchangeCount(), asked + 1);
  assert.equal(nodes.status()[0]?.head, 7);
  assert.deepEqual(nodes.sockets(), [
    {
      ...{ name: new URL(sockets.url).origin, connectedSince: clock.now() },
      ...{ heads: 1, lastReason: undefined },
    },
  ]);
  sockets.cut();
  await waitUntil(() => !nodes.isPushed());
  const [{ connectedSince, lastReason } = {}] = nodes.sockets();
  assert.deepEqual([connectedSince, lastReason], [undefined, 'closed by the node']);
  await nodes.close();
});

/** Two nodes at block 7, each with a WebSocket, and the heads of a third WebSocket. */
async function withPushingNodes(
  work: (stage: {
    nodes: ChainNodes;
    sockets: readonly [SocketNode, SocketNode, SocketNode];
    scripted: readonly ScriptedNode[];
    chain: NodeBlock[];
    clock: TestClock;
    ringCount(): number;
  }) => Promise<void>,
): Promise<void> {
  await using parts = new AsyncDisposableStack();
  const chain = [makeNodeBlock(0), makeNodeBlock(7)];
  const scripted = [
    parts.use(await startScriptedNode(chainMethods(1, chain))),
    parts.use(await startScriptedNode(chainMethods(1, chain))),
  ] as const;
  const sockets = [
    parts.use(await startSocketNode({ http: scripted[0] })),
    parts.use(await startSocketNode({ http: scripted[1] })),
    parts.use(await startSocketNode()),
  ] as const;
  let rung = 0;
  const clock = createTestClock();
  const http = sockets.slice(0, 2).map(({ url }) => url.replace('ws:', 'http:'));
  const nodes = createNodes({
    ...{ urls: [...http, ...sockets.map(({ url }) => url)], chainId: 1, internalTransfers: 'off' },
    ...{ clock, log: silentLog(), metrics: createMetrics('test') },
    onHead: () => {
      rung += 1;
    },
  });
  parts.defer(() => nodes.close());
  for (const socket of sockets) await subscribed(socket, 1);
  const { signal } = new AbortController();
  assert.equal((await nodes.head(signal)).number, 7);
  await work({ nodes, sockets, scripted, chain, clock, ringCount: () => rung });
}

test('pushed heads are votes, so with a quorum of them no node is asked', () =>
  withPushingNodes(async ({ nodes, sockets, scripted, ringCount }) => {
    const asked = scripted.map((node) => node.exchangeCount());
    const rung = ringCount();
    for (const socket of sockets.slice(0, 2)) socket.send(headMessage(8));
    await waitUntil(() => ringCount() === rung + 2);
    assert.equal((await nodes.head(new AbortController().signal)).number, 8);
    assert.deepEqual(
      scripted.map((node) => node.exchangeCount()),
      asked,
    );
  }));

test('a head pushed from another host or port is only a hint, and nodes that lack it are soon asked again', () =>
  withPushingNodes(async ({ nodes, sockets, scripted, chain, clock, ringCount }) => {
    const rung = ringCount();
    sockets[2].send(headMessage(8));
    await waitUntil(() => ringCount() === rung + 1);
    const asked = scripted.map((node) => node.exchangeCount());
    const head = nodes.head(new AbortController().signal);
    await waitUntil(() => clock.waits().includes(25));
    chain.push(makeNodeBlock(8));
    clock.advance(25);
    assert.equal((await head).number, 8);
    assert.deepEqual(
      scripted.map((node, index) => node.exchangeCount() - (asked[index] ?? 0)),
      [2, 2],
    );
  }));

test('a node that repeats its head has no node asked more often', () =>
  withPushingNodes(async ({ nodes, sockets, ringCount }) => {
    const { signal } = new AbortController();
    sockets[2].send(headMessage(6));
    await waitUntil(() => nodes.sockets()[2]?.heads === 1);
    await nodes.head(signal);
    const rung = ringCount();
    for (let count = 2; count <= 50; count += 1) sockets[2].send(headMessage(6));
    await waitUntil(() => nodes.sockets()[2]?.heads === 50);
    assert.equal(ringCount(), rung);
  }));

test('a node that pushes ever higher heads has the nodes asked a few times', () =>
  withPushingNodes(async ({ nodes, sockets, clock, ringCount }) => {
    const rung = ringCount();
    for (let count = 1; count <= 50; count += 1) {
      sockets[2].send(headMessage(1_000 * count));
      await waitUntil(() => nodes.sockets()[2]?.heads === count);
      await nodes.head(AbortSignal.abort()).catch(() => {});
    }
    const few = ringCount();
    assert.ok(few - rung <= 6, `${few - rung} rings`);
    clock.advance(2_000);
    await waitUntil(() => ringCount() === few + 1);
  }));

function headMessage(number: number): string {
  const { transactions: _, ...result } = makeNodeBlock(number).block;
  return JSON.stringify({
    jsonrpc: '2.0',
    method: 'eth_subscription',
    params: { subscription: '0x9', result },
  });
}

type SocketNode = {
  url: string;
  /** Every received text message, oldest first. */
  received(): string[];
  connectionCount(): number;
  /** The credentials that each connection sent. */
  readonly authorizations: (string | undefined)[];
  openCount(): number;
  /** Sends a text message on the newest socket. */
  send(text: string): void;
  /** Sends these bytes on the newest socket. */
  write(frames: Buffer): void;
  /** Cuts the newest socket without a closing frame. */
  cut(): void;
  [Symbol.asyncDispose](): Promise<void>;
};

/**
 * A minimal WebSocket server (RFC 6455) for subscriptions: short text messages only. `isMute`: no handshake. `http`: the
 * node that answers requests to the same port.
 */
async function startSocketNode(
  options: { isMute?: boolean; chainId?: number; http?: { url: string } } = {},
): Promise<SocketNode> {
  const sockets: Socket[] = [];
  const received: string[] = [];
  const authorizations: (string | undefined)[] = [];
  const server = createServer();
  const send = (text: string) => {
    const payload = Buffer.from(text);
    const { length } = payload;
    const size = Buffer.alloc(9, length < 126 ? length : 127);
    size.writeBigUInt64BE(BigInt(length), 1);
    const sizeBytes = length < 126 ? 1 : 9;
    sockets.at(-1)?.write(Buffer.concat([Buffer.from([0x81]), size.subarray(0, sizeBytes), payload]));
  };
  /** Answers the request for the chain id at once. The test answers everything else. */
  const answer = (text: string) => {
    const { id, method }: { id: number; method: string } = JSON.parse(text);
    if (method === 'eth_chainId')
      send(JSON.stringify({ id, result: `0x${(options.chainId ?? 1).toString(16)}` }));
    else received.push(text);
  };
  server.on('request', (request, response) => {
    const forward = async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const answer = await fetch(options.http?.url ?? '', { method: 'POST', body: Buffer.concat(chunks) });
      response.end(await answer.text());
    };
    forward().catch(() => response.destroy());
  });
  server.on('upgrade', (request, stream) => {
    const socket = stream as Socket;
    sockets.push(socket);
    authorizations.push(request.headers.authorization);
    socket.on('error', () => socket.destroy());
    if (options.isMute === true) return;
    const key = createHash('sha1').update(
      `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`,
    );
    const head = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade'];
    socket.write(`${[...head, `Sec-WebSocket-Accept: ${key.digest('base64')}`].join('\r\n')}\r\n\r\n`);
    // Like a node that hangs, it doesn't answer a closing frame. Only the end of the connection ends it.
    socket.on('end', () => socket.end());
    socket.on('data', (frame) => {
      const opcode = (frame[0] ?? 0) & 0x0f;
      if (opcode === 1) answer(unmask(frame));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `ws://127.0.0.1:${port}${SECRET_PATH}`,
    received: () => received,
    connectionCount: () => sockets.length,
    authorizations,
    openCount: () => sockets.filter((socket) => !socket.closed).length,
    send,
    write: (frames) => void sockets.at(-1)?.write(frames),
    cut() {
      sockets.at(-1)?.destroy();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The text of a client's frame, which is shorter than 126 bytes. */
function unmask(frame: Buffer): string {
  const length = (frame[1] ?? 0) & 0x7f;
  const mask = frame.subarray(2, 6);
  return Buffer.from(
    frame.subarray(6, 6 + length).map((byte, index) => byte ^ (mask[index % 4] ?? 0)),
  ).toString('utf8');
}
