/**
 * Which errors of a call are the contract's answer, and which are the node's.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callContracts } from '../../../src/chain/contracts/contracts.ts';
import type { ChainNodes } from '../../../src/chain/nodes/nodes.ts';
import { Fault } from '../../../src/core/fault.ts';
import { addressOf } from '../../kit/chain-story.ts';

const { signal } = new AbortController();

/** The results of two calls, of which the first has this error. */
function callWith(code: number, message: string) {
  const ask: ChainNodes['ask'] = async (_calls, read) =>
    read(
      [
        { ok: false, code, message },
        { ok: true, result: '0x01' },
      ],
      'http://node',
    );
  const call = { to: addressOf(1), data: '0x00' } as const;
  return callContracts({ ask }, [call, call], 'latest', signal);
}

for (const [code, message] of [
  [3, 'anything'],
  [-32_000, 'execution reverted'],
  [-32_000, 'invalid jump destination'],
  [-32_000, 'invalid opcode: opcode 0xfe not defined'],
  [-32_000, 'out of gas'],
  [-32_000, 'stack underflow (0 <=> 1)'],
  [-32_000, 'write protection'],
  [-32_000, 'return data out of bounds'],
  [-32_000, 'gas uint64 overflow'],
  [-32_000, 'max call depth exceeded'],
  [-32_003, 'EVM error: InvalidJump'],
  [-32_003, 'EVM error: OutOfGas(Basic)'],
  [-32_603, 'EVM error InvalidFEOpcode'],
  [-32_003, 'EVM error: StateChangeDuringStaticCall'],
  [-32_015, 'VM execution error.'],
] as const)
  test(`a call that fails with "${message}" (${code}) has no data, and the other one has`, async () => {
    assert.deepEqual(await callWith(code, message), [undefined, '0x01']);
  });

for (const message of ['header not found', 'missing trie node', 'execution aborted (timeout = 5s)'])
  test(`"${message}" is a failure of the node, not an answer of the contract`, async () => {
    await assert.rejects(callWith(-32_000, message), Fault);
  });
