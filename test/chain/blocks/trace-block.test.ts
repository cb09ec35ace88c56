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

const idle = (traceAddress: number[]) => flatCall(traceAddress, { action: { value: '0x0' } });

/** A self-destruct as Bor lists it. */
const destruction = (action: Json) =>
  flatCall([0], { type: 'suicide', action: { callType: undefined, from: bob, to: carol, ...action } });

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
      flatCall([0], { type: 'suicide', action: { address: bob, refundAddress: carol, value: undefined } }),
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
  {
    what: 'has a value with an unknown type of call',
    entries: [flatCall([]), flatCall([0], { action: { callType: 'authcall' } })],
    refusal: /trace\.action\.callType is not known: authcall/,
  },
  {
    what: 'leaves out the account of a self-destruct',
    entries: [flatCall([]), destruction({ from: undefined })],
    refusal: /trace\.action\.address is /,
  },
  {
    what: 'leaves out the hash of a transaction',
    entries: [flatCall([], { transactionHash: undefined, transactionPosition: 0 })],
    refusal: /trace\.transactionHash is missing/,
  },
  {
    what: 'lists a call without value under the path of one with value',
    entries: [flatCall([]), flatCall([0]), idle([0])],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a new contract under the path of a call',
    entries: [flatCall([]), idle([0]), { ...idle([0]), type: 'create' }],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a call twice whose value is odd',
    entries: [flatCall([]), idle([0]), flatCall([0], { action: { value: { toString: 1 } } })],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a call again that made calls',
    entries: [flatCall([]), idle([0]), flatCall([0, 0]), idle([0])],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a call below a path that two calls share',
    entries: [flatCall([]), idle([0]), idle([0]), flatCall([0, 0])],
    refusal: /lists a call of 0x\w{64} twice/,
  },
  {
    what: 'lists a transaction without value twice',
    entries: [idle([]), idle([])],
    refusal: /lists a call of 0x\w{64} twice/,
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

test('a self-destruct that has its parts named as those of a call is a transfer, unless it is to itself', () => {
  const read = (entry: Json) => parseTraceBlock([flatCall([]), entry]).get(hash)?.calls;
  assert.deepEqual(read(destruction({})), [{ sender: bob, receiver: carol, amount: 1n }]);
  assert.deepEqual(read(destruction({ to: bob })), []);
});

test('a new contract without code has its account in the action, as Bor lists it', () => {
  const creation = flatCall([0], {
    type: 'create',
    action: { callType: undefined, to: carol },
    result: { gasUsed: '0x0' },
  });
  assert.deepEqual(parseTraceBlock([flatCall([]), creation]).get(hash)?.calls, [
    { sender: alice, receiver: carol, amount: 1n },
  ]);
});

test('the type of a call in trace_block counts in any case of letters', () => {
  const calls = ['CALL', 'Call', 'DELEGATECALL', 'callCode', 'STATICCALL'].map((callType, index) =>
    flatCall([index], { action: { callType } }),
  );
  assert.equal(parseTraceBlock([flatCall([]), ...calls]).get(hash)?.calls.length, 2);
});

test('calls in trace_block that move nothing and make no calls may share a path, as those of precompiles by Nethermind', () => {
  const delegated = flatCall([2], { action: { callType: 'delegatecall', value: '0x1' } });
  const entries = [
    ...[flatCall([]), idle([0]), idle([0]), idle([0]), flatCall([1]), idle([1, 0]), idle([1, 0])],
    ...[delegated, delegated],
  ];
  assert.equal(parseTraceBlock(entries).get(hash)?.calls.length, 1);
});

test('entries of trace_block that belong to no transaction are not read', () => {
  const ofNone = { transactionHash: null, transactionPosition: null };
  assert.equal(parseTraceBlock([flatCall([], ofNone), flatCall([], { ...ofNone, type: 'reward' })]).size, 0);
});

test('trace_block may list a call that failed because it would be deeper than the EVM allows', () => {
  const path = (length: number) => Array.from({ length }, () => 0);
  const entries = Array.from({ length: 1_025 }, (_, length) => flatCall(path(length)));
  const tooDeep = flatCall(path(1_025), { error: 'max call depth exceeded' });
  assert.equal(parseTraceBlock([...entries, tooDeep]).get(hash)?.calls.length, 1_024);
  assert.throws(() => parseTraceBlock([...entries, tooDeep, flatCall(path(1_026))]), {
    code: 'inconsistent',
    message: "the node's trace has calls deeper than 1025",
  });
});
