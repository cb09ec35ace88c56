/**
 * Blocks of unexpected size, from nodes on real sockets.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fetchBlocks } from '../../src/ingest/fetch-blocks.ts';
import { createReadAhead } from '../../src/ingest/read-ahead.ts';
import { extractNothing } from '../../src/ingest/read-block.ts';
import { complete, nodeAt, withNodes } from '../kit/nodes.ts';
import type { AnswerTo } from '../kit/receiver.ts';
import { chainMethods, type Json, makeNodeBlock } from '../kit/scripted-node.ts';

const { signal } = new AbortController();
const MEBIBYTE = 1024 * 1024;
const PIECE = 'x'.repeat(65_536);

test("a request for several blocks that is too large is aborted while it is received, and doesn't count as an error of the node", () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, metrics }) => {
    await nodes.head(signal);
    const [first, second] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    const callsBefore = second.calls.length;
    const isCut = Promise.withResolvers<void>();
    async function* endless() {
      try {
        for (yield '['; ; ) yield PIECE;
      } finally {
        isCut.resolve();
      }
    }
    first.setHttp({ body: endless() });
    assert.equal(await fetchBlocks(nodes, [1, 2, 3, 4], signal), 'too large');
    await isCut.promise;
    assert.equal(second.calls.length, callsBefore, 'no other node is asked');
    const [status] = nodes.status();
    assert.deepEqual(
      [status?.state, status?.retryAt, status?.throttle.batchCallsMax],
      ['ok', undefined, undefined],
    );
    assert.ok(status?.methods.every(({ errors, limited }) => errors + limited === 0));
    assert.doesNotMatch(await metrics.registry.metrics(), /outcome="(failed|limited)"/);
    first.setHttp(undefined);
    const fetched = await fetchBlocks(nodes, [1, 2, 3, 4], signal);
    assert.ok(fetched !== 'too large');
    assert.equal(fetched.bundles.length, 4);
  }));

test('a single block is read even if it exceeds the limit for several, and its bytes are counted', () =>
  withNodes([complete()], async ({ scripted, nodes }) => {
    const { methods } = nodeAt(scripted, 0);
    const { eth_getBlockByNumber: find } = methods;
    methods.eth_getBlockByNumber = (params) => {
      const block = find?.(params);
      return params[0] === '0x7' ? { ...(block as Json), padding: PIECE.repeat(17 * 16) } : block;
    };
    const fetched = await fetchBlocks(nodes, [7], signal);
    assert.ok(fetched !== 'too large');
    assert.equal(fetched.bundles[0]?.header.number, 7);
    assert.ok(fetched.bytes > 17 * MEBIBYTE && fetched.bytes < 18 * MEBIBYTE, String(fetched.bytes));
    assert.equal(await fetchBlocks(nodes, [6, 7], signal), 'too large');
  }));

test('when huge blocks follow small ones, few bytes are under way at a time, and every block is read', async () => {
  const isHuge = (number: number) => number > 100 && number <= 110;
  const story = Array.from({ length: 201 }, (_, number) => makeNodeBlock(number));
  const methods = chainMethods(1, story);
  let underWay = 0;
  let mostUnderWay = 0;

  /** The answers. A huge block has 12 MiB of extra data, counted from the first byte to the last. */
  async function* bodyOf(calls: readonly Json[]) {
    let sent = 0;
    const count = (piece: string) => {
      sent += piece.length;
      underWay += piece.length;
      mostUnderWay = Math.max(mostUnderWay, underWay);
      return piece;
    };
    try {
      for (const [index, { id, method, params }] of calls.entries()) {
        const result = methods[String(method)]?.(params as unknown[]);
        const [reference] = params as unknown[];
        const pieces = method === 'eth_getBlockByNumber' && isHuge(Number(reference)) ? 12 * 16 : 0;
        yield count(`${index === 0 ? '[' : ','}{"jsonrpc":"2.0","id":${String(id)},"padding":"`);
        for (let piece = 0; piece < pieces; piece += 1) yield count(PIECE);
        yield count(`","result":${JSON.stringify(result)}}${index === calls.length - 1 ? ']' : ''}`);
      }
    } finally {
      underWay -= sent;
    }
  }
  const answer: AnswerTo = ({ json }) => ({ body: bodyOf(json as Json[]) });

  await withNodes(
    [methods],
    async ({ scripted, nodes, clock }) => {
      const { number, hash } = await nodes.head(signal);
      nodeAt(scripted, 0).setHttp(answer);
      const readAhead = createReadAhead({ nodes, clock, extract: extractNothing });
      const numbers: number[] = [];
      while (numbers.length < number) {
        const blocks = await readAhead.next(numbers.length + 1, { number, hash }, signal);
        numbers.push(...blocks.map(({ header }) => header.number));
      }
      assert.deepEqual(
        numbers,
        Array.from({ length: number }, (_, index) => index + 1),
      );
      // 4 x 16 MiB, and what is in the sockets; the ten blocks are 120 MiB.
      assert.ok(mostUnderWay > 12 * MEBIBYTE, String(mostUnderWay));
      assert.ok(mostUnderWay < 80 * MEBIBYTE, String(mostUnderWay));
    },
    { internalTransfers: 'off' },
  );
});
