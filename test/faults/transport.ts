/**
 * A node whose responses arrive damaged: refused, torn, garbled, slow, or not at all.
 */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { findChain } from '../../src/store/blocks/blocks.ts';
import { waitUntil } from '../kit/wait.ts';
import type { NodeFault } from './node-proxy.ts';
import { farAhead } from './spoil.ts';
import type { Stage } from './stage.ts';
import type { Story } from './story.ts';

/** Sends every response in this way. */
function sending(send: (response: ServerResponse, text: string) => unknown): NodeFault {
  return {
    send(response, text) {
      send(response, text);
      return true;
    },
  };
}

/** Chainbell tries this many trace methods. */
const TRACE_METHODS = 3;
const json = { 'content-type': 'application/json' };
/** A rate-limited node gets no requests for the time it asks for. That does not count as a failure. */
const HEEDED = /"limited_until":"/;
const limited = sending((response) => response.writeHead(429).end('too many requests'));
const limitedForOneSecond = sending((response) =>
  response.writeHead(429, { 'retry-after': '1' }).end('too many requests'),
);

/** Faults of the only node. Each lasts until /status shows its problem. */
const spoilt: readonly { name: string; fault: NodeFault; problem: RegExp }[] = [
  { name: '429', fault: limited, problem: HEEDED },
  { name: '429 with Retry-After', fault: limitedForOneSecond, problem: HEEDED },
  {
    name: '503 with a page',
    fault: sending((response) => response.writeHead(503, { 'content-type': 'text/html' }).end('<html>')),
    problem: /503/,
  },
  {
    name: 'invalid gzip',
    fault: sending((response) =>
      response.writeHead(200, { ...json, 'content-encoding': 'gzip' }).end('garbage'),
    ),
    problem: /JSON/,
  },
  {
    name: 'JSON cut off',
    fault: sending((response, text) => response.writeHead(200, json).end(text.slice(0, -20))),
    problem: /JSON/,
  },
  {
    name: 'a body that ends before its length',
    fault: sending((response, text) => {
      response.writeHead(200, { ...json, 'content-length': text.length });
      response.write(text.slice(0, -20), () => response.socket?.destroy());
    }),
    problem: /other side closed|terminated|aborted/,
  },
  {
    name: 'a connection that is reset',
    fault: sending((response) => response.socket?.resetAndDestroy()),
    problem: /ECONNRESET/,
  },
  {
    name: 'a reset in the middle of a body',
    fault: sending((response, text) => {
      response.writeHead(200, { ...json, 'content-length': text.length });
      response.write(text.slice(0, -20), () => response.socket?.resetAndDestroy());
    }),
    problem: /ECONNRESET|terminated|aborted/,
  },
  {
    name: '200 with a page',
    fault: sending((response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>')),
    problem: /JSON/,
  },
  {
    name: 'answers with ids that no request had',
    fault: renamed((id) => id + 1_000_000),
    problem: /unanswered/,
  },
  {
    name: 'every answer of a batch with the first id',
    fault: renamed((_, first) => first, 'batches'),
    problem: /twice/,
  },
  {
    name: 'results of a batch without ids',
    fault: renamed(() => null, 'batches'),
    problem: /unanswered/,
  },
];

/** The same responses with different ids. */
function renamed(idOf: (id: number, first: number) => number | null, only?: 'batches'): NodeFault {
  return {
    send(response, text) {
      const answers: { id: number }[] | { id: number } = JSON.parse(text);
      const all = [answers].flat();
      const [first] = all;
      if (first === undefined || (only === 'batches' && all.length < 2)) return false;
      const spoilt = all.map((answer) => ({ ...answer, id: idOf(answer.id, first.id) }));
      response.writeHead(200, json).end(JSON.stringify(Array.isArray(answers) ? spoilt : spoilt[0]));
      return true;
    },
  };
}

const alone: Story[] = spoilt.map(({ name, fault, problem }) => ({
  name,
  isPolled: true,
  async tell({ nodes: [node], payBlock, payUntil, settled, status }) {
    // Only every fifth response fails, so the chain is still followed.
    let sent = 0;
    node.inject({
      send(...answer) {
        sent += 1;
        return sent % 5 === 0 && fault.send?.(...answer) === true;
      },
    });
    await payUntil(() => node.struck() >= 3, 'three answers to be spoilt');
    await settled();
    node.inject(fault);
    await payBlock();
    // Chainbell waits for a node that limits requests, and /status names that node then.
    const isSeen = async () => {
      const { problem: seen, nodes } = await status();
      return problem.test(JSON.stringify([seen, nodes]));
    };
    await waitUntil(isSeen, { describe: `/status to say ${problem}` });
    node.mend();
  },
}));

/** One of two nodes is enough to proceed, without waiting 30 s for the silent one. */
const ALONE = { chain: { quorum: 1 } } as const;

/** With another node beside it, the chain is followed without interruption, and /status names the first node. */
async function tellFallback(
  fault: NodeFault,
  { nodes: [node], payBlock, settled, status }: Stage,
): Promise<void> {
  node.inject(fault);
  await payBlock();
  await settled();
  const { state, nodes } = await status();
  assert.notEqual(state, 'holding');
  assert.deepEqual(
    nodes.map((one) => one.state === 'ok'),
    [false, true],
  );
  node.mend();
}

export const transportStories: readonly Story[] = [
  ...alone,
  {
    name: 'a limit given as a JSON-RPC error, first for everything and then for traces, while the node is probed',
    isPolled: true,
    async tell({ nodes: [node], payUntil, status }) {
      const error = { code: -32_005, message: 'rate limit exceeded, try again in 100ms' };
      node.inject({ answer: async () => ({ error }) });
      await payUntil(() => node.struck() >= 3, 'three refusals');
      assert.notEqual((await status()).nodes[0]?.state, 'ok');
      node.inject(
        { answer: async ({ method }) => (method.includes('trace') ? { error } : undefined) },
        TRACE_METHODS,
      );
      await payUntil(() => node.struck() === TRACE_METHODS, 'no trace method to be known');
    },
  },
  {
    name: 'the first of two nodes answers 429',
    nodes: 2,
    isPolled: true,
    ...ALONE,
    async tell(stage) {
      await tellFallback(limited, stage);
      assert.match(JSON.stringify((await stage.status()).nodes[0]), /"limited":[1-9]/);
    },
  },
  {
    name: 'bodies that arrive byte by byte',
    async tell({ nodes: [node], payUntil }) {
      node.inject(
        sending((response, text) => drip(response.writeHead(200, json), text)),
        2,
      );
      await payUntil(() => node.struck() >= 2, 'two answers to have come so');
    },
  },
  // The limits are 5 s for a silent WebSocket and 30 s for a response.
  {
    isSlow: true,
    name: 'a WebSocket that stays open and silent',
    async tell({ nodes: [node], payUntil, settled, status }) {
      await waitUntil(async () => (await status()).pushed_heads, { describe: 'the socket to be open' });
      node.inject({ isMute: true });
      // Polling continues beside the WebSocket, which Chainbell closes.
      await payUntil(() => node.struck() >= 1, 'a head to be swallowed');
      await settled();
      await waitUntil(async () => !(await status()).pushed_heads, { describe: 'the socket to be given up' });
      await settled();
      node.mend();
      await waitUntil(async () => (await status()).pushed_heads, { describe: 'a new socket' });
    },
  },
  {
    isSlow: true,
    name: 'connections that are accepted and never answered, at the first of two nodes',
    nodes: 2,
    isPolled: true,
    ...ALONE,
    tell: (stage) =>
      tellFallback(
        sending(() => {}),
        stage,
      ),
  },
  {
    isSlow: true,
    name: 'answers that never end, at the first of two nodes',
    nodes: 2,
    isPolled: true,
    ...ALONE,
    tell: (stage) =>
      tellFallback(
        sending((response) => {
          response.writeHead(200, json);
          const timer = setInterval(() => response.write(' '), 100);
          response.on('close', () => clearInterval(timer));
        }),
        stage,
      ),
  },
  {
    isSlow: true,
    name: 'connections that end without an answer',
    async tell({ nodes: [node], payBlock, settled }) {
      node.killConnections();
      await payBlock();
      await settled();
    },
  },
  {
    isSlow: true,
    name: 'a head far ahead in the answer about the final block, and then a reorg',
    isPolled: true,
    chain: { finalityDepth: 3 },
    async tell(stage) {
      const { chain, payBlock, payUntil, settled, oracle } = stage;
      const [node] = stage.nodes;
      const untagged: NodeFault['answer'] = async (call) =>
        call.params[0] === 'finalized' ? { result: null } : undefined;
      const finalNumber = async () => (await findChain(stage.service.database))?.finalizedNumber ?? 0;
      // A process that has seen the tag doesn't use the depth.
      await stage.service.stop();
      node.inject({ answer: untagged });
      await stage.restart();
      await payBlock();
      await settled();
      const before = await waitUntil(async () => {
        const number = await finalNumber();
        return number > 0 && number;
      });
      node.inject({
        answer: async (call, ask) => (await untagged(call, ask)) ?? farAhead.answer?.(call, ask),
      });
      await payUntil(async () => (await finalNumber()) > before, 'it to be asked for again');
      node.mend();
      await settled();
      await oracle.look();
      await chain.reorg(1);
    },
  },
];

async function drip(response: ServerResponse, text: string): Promise<void> {
  for (const byte of Buffer.from(text)) {
    response.write(Uint8Array.of(byte));
    await nextTurn();
  }
  response.end();
}
