import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTraceBlock } from '../../../src/chain/blocks/traces.ts';
import { type Json, makeAddress, makeHash } from '../../kit/scripted-node.ts';

const hash = makeHash(0, 1, 1);
const [alice, bob, carol] = [makeAddress(1), makeAddress(2), makeAddress(3)];

/** An entry of trace_block that calls with 1 wei. */
const flatCall = (traceAddress: number[], parts: Json = {}): Json => ({
  ...{ type: 'call', transactionHash: hash, traceAddress, ...parts },
  action: { callType: 'call', from: alice, to: bob, value: '0x1', ...(parts.action as Json | undefined) },
});

for (const { what, entries, refusal } of [
  {
    what: 'lists a call twice',
    entries: [flatCall([]), flatCall([0]), flatCall([1]), flatCall([0])],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a transaction twice',
    entries: [flatCall([]), flatCall([])],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a call before the one that made it',
    entries: [flatCall([]), flatCall([0, 0]), flatCall([0], { error: 'Reverted' })],
    refusal: /lists a call of 0x\w{64} without the call that made it before it/,
  },
  {
    what: 'leaves out the call that made another one',
    entries: [flatCall([0])],
    refusal: /lists a call of 0x\w{64} without the call that made it before it/,
  },
  {
    what: 'leaves out a value',
    entries: [flatCall([]), flatCall([0], { action: { value: undefined } })],
    refusal: /trace\.value is missing/,
  },
  {
    what: 'leaves out the value given to a new contract',
    entries: [flatCall([]), flatCall([0], { type: 'create', action: { value: undefined } })],
    refusal: /trace\.value is missing/,
  },
  {
    what: 'leaves out the balance of a self-destruct',
    entries: [
      flatCall([]),
      flatCall([0], { type: 'suicide', action: { address: bob, refundAddress: carol } }),
    ],
    refusal: /trace\.value is missing/,
  },
  {
    what: 'leaves out the type of a call',
    entries: [flatCall([]), flatCall([0], { action: { callType: undefined } })],
    refusal: /trace\.action\.callType is missing/,
  },
  {
    what: 'has a call with value of an unknown type',
    entries: [flatCall([]), flatCall([0], { type: 'transfer' })],
    refusal: /trace\.type is not known: transfer/,
  },
]) {
  test(`a trace_block that ${what} is refused`, () => {
    assert.throws(() => parseTraceBlock(entries), { name: 'Fault', code: 'inconsistent', message: refusal });
  });
}

test('trace_block is read although it counts other subtraces, or has odd entries that move nothing', () => {
  const reverted = { error: 'Reverted', type: null, action: { callType: undefined, value: undefined } };
  const entries = [
    flatCall([], { subtraces: 7 }),
    flatCall([0], reverted),
    flatCall([0, 0], { type: undefined }),
    flatCall([1], { type: 'setAuth', action: { value: undefined } }),
    flatCall([4], { subtraces: 2 }),
    flatCall([2]),
    flatCall([0], { transactionHash: makeHash(0, 1, 2), traceAddress: [] }),
  ];
  assert.equal(parseTraceBlock(entries).get(hash)?.calls.length, 2);
});
