import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeAbiParameters, encodeFunctionData, parseAbi } from 'viem';
import { decodeBalances, encodeBalanceCalls } from '../../../src/chain/contracts/multicall.ts';
import { encodeWord } from '../../../src/core/abi.ts';
import type { Address, Hex } from '../../../src/core/hex.ts';

const abi = parseAbi([
  'function aggregate3((address target, bool allowFailure, bytes callData)[] calls) returns ((bool success, bytes returnData)[])',
  'function getEthBalance(address account) view returns (uint256)',
]);
const results = [{ type: 'tuple[]', components: [{ type: 'bool' }, { type: 'bytes' }] }] as const;

const hex = (bytes: number) =>
  fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((data): Hex => `0x${Buffer.from(data).toString('hex')}`);
const address = hex(20);

test('the calls are encoded as the ABI says', () => {
  fc.assert(
    fc.property(address, fc.array(address, { maxLength: 20 }), (target: Address, addresses: Address[]) => {
      const calls = addresses.map((one) => ({
        target,
        allowFailure: true,
        callData: encodeFunctionData({ abi, functionName: 'getEthBalance', args: [one] }),
      }));
      const expected = encodeFunctionData({ abi, functionName: 'aggregate3', args: [calls] });
      assert.equal(encodeBalanceCalls(target, addresses), expected);
    }),
  );
});

test('only calls that succeeded with one word give balances', () => {
  const balance = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });
  const good = balance.map((wei) => ({
    wei,
    result: [true, `0x${wei.toString(16).padStart(64, '0')}`] as const,
  }));
  const bad = fc
    .tuple(fc.boolean(), fc.integer({ min: 0, max: 70 }).chain(hex))
    .filter(([success, data]) => !success || data.length !== 66)
    .map((result) => ({ wei: undefined, result }));
  fc.assert(
    fc.property(fc.array(fc.oneof(good, bad), { maxLength: 20 }), (answers) => {
      const data = encodeAbiParameters(results, [answers.map(({ result }) => result)]);
      assert.deepEqual(
        decodeBalances(data, answers.length),
        answers.map(({ wei }) => wei),
      );
    }),
  );
});

test('any data that is not such a list is recognized as such', () => {
  for (const data of [
    '0x',
    '0x00',
    `0x${encodeWord(32n)}`,
    `0x${encodeWord(32n)}${encodeWord(2n)}`,
    `0x${encodeWord(2n ** 255n)}`,
  ] as const)
    assert.equal(decodeBalances(data, 1), undefined, data);
  // One result, that lies outside.
  assert.deepEqual(decodeBalances(`0x${encodeWord(32n)}${encodeWord(1n)}${encodeWord(2n ** 200n)}`, 1), [
    undefined,
  ]);
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 400 }).chain(hex),
      fc.integer({ min: 0, max: 5 }),
      (data, count) => {
        const balances = decodeBalances(data, count);
        assert.ok(balances === undefined || balances.length === count);
      },
    ),
  );
});

test('a list that is cut off anywhere loses only the missing part', () => {
  const data = encodeAbiParameters(results, [
    [
      [true, `0x${'1'.padStart(64, '0')}`],
      [true, `0x${'2'.padStart(64, '0')}`],
    ],
  ]);
  for (let length = 2; length < data.length; length += 2) {
    const balances = decodeBalances(`0x${data.slice(2, length)}`, 2) ?? [];
    for (const [index, balance] of balances.entries())
      assert.ok(balance === undefined || balance === BigInt(index + 1));
  }
});
