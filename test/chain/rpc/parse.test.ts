/**
 * Odd values in nodes' answers about blocks. Each is refused with a Fault, because another error would end the process.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseBlock, parseHeader, typeOf } from '../../../src/chain/rpc/parse.ts';
import { makeNodeBlock } from '../../kit/scripted-node.ts';

const { block } = makeNodeBlock(7, { transactions: 1 });

test('a transaction type that is no number or text is no type, and calls nothing', () => {
  const deep = JSON.parse(`${'['.repeat(20_000)}${']'.repeat(20_000)}`);
  for (const type of [{ toString: 0, valueOf: 0 }, deep, true]) {
    assert.ok(Number.isNaN(typeOf({ type })));
    const [transaction] = block.transactions as Record<string, unknown>[];
    parseBlock({ ...block, transactions: [{ ...transaction, type }] });
  }
  assert.deepEqual([typeOf({}), typeOf({ type: null }), typeOf({ type: '0x7e' })], [0, 0, 126]);
});

test('a block of a year with five digits is refused', () => {
  const at = (seconds: number) => parseHeader({ ...block, timestamp: `0x${seconds.toString(16)}` });
  const last = Date.UTC(9999, 11, 31, 23, 59, 59) / 1000;
  assert.equal(at(last).minedAt.getUTCFullYear(), 9999);
  for (const seconds of [last + 1, 8.64e12, 2 ** 52]) assert.throws(() => at(seconds), { name: 'Fault' });
});
