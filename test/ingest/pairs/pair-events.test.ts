/**
 * Events of pairs in the logs of a block. A pair on a real chain is in market.test.ts.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zeroAddress } from '../../../src/core/hex.ts';
import { createPairReader } from '../../../src/ingest/pairs/pair-events.ts';
import { addressOf, alice, bob, hashOf } from '../../kit/chain-story.ts';
import { logOf, pair, SWAP, transactionOf } from '../../kit/pair-story.ts';

const read = createPairReader([pair, { id: 8, address: addressOf(0x7a2) }]);

const SYNC = 'Sync(uint112,uint112)';
const MINT = 'Mint(address,uint256,uint256)';
const BURN = 'Burn(address,uint256,uint256,address)';
const TRANSFER = 'Transfer(address,address,uint256)';

test('a swap has four amounts and its position in the transaction; the block has the reserves of its last Sync', () => {
  const logs = [
    logOf(SYNC, [100n, 200n], [], addressOf(0xbad)),
    logOf(SYNC, [10n, 20n]),
    logOf(SWAP, [1n, 2n, 3n, 4n], [alice, bob]),
  ];
  const later = [logOf(SYNC, [11n, 19n]), logOf(SWAP, [5n, 0n, 0n, 2n ** 255n], [alice, bob])];
  assert.deepEqual(read({ transactions: [transactionOf(1, logs), transactionOf(2, later)] }), [
    {
      pairId: 7,
      swaps: [
        {
          txHash: hashOf(1),
          ordinal: 2,
          logIndex: 2,
          amount0In: 1n,
          amount1In: 2n,
          amount0Out: 3n,
          amount1Out: 4n,
        },
        {
          txHash: hashOf(2),
          ordinal: 1,
          logIndex: 4,
          amount0In: 5n,
          amount1In: 0n,
          amount0Out: 0n,
          amount1Out: 2n ** 255n,
        },
      ],
      reserves: { reserve0: 11n, reserve1: 19n },
      supplyChange: 0n,
      liquidityK: undefined,
    },
  ]);
});

test('the supply grows by transfers from the zero address and shrinks by tokens that the pair burns', () => {
  const first = [
    logOf(TRANSFER, [1000n], [zeroAddress, zeroAddress]),
    logOf(TRANSFER, [5000n], [zeroAddress, alice]),
    logOf(SYNC, [100n, 360n]),
    logOf(MINT, [100n, 360n], [alice]),
  ];
  const second = [
    logOf(TRANSFER, [300n], [alice, pair.address]),
    logOf(TRANSFER, [300n], [pair.address, zeroAddress]),
    logOf(SYNC, [90n, 324n]),
    logOf(BURN, [10n, 36n], [alice, alice]),
    logOf(SYNC, [91n, 324n]),
    logOf(TRANSFER, [40n], [alice, zeroAddress]),
  ];
  const [events] = read({ transactions: [transactionOf(1, first), transactionOf(2, second)] });
  assert.equal(events?.supplyChange, 5700n, 'tokens sent to the zero address by a holder still count');
  assert.equal(events.liquidityK, 90n * 324n, 'of the Sync before the Burn, not of the last one');
  assert.deepEqual(events.reserves, { reserve0: 91n, reserve1: 324n });
});

test('other contracts, failed transactions and other events are ignored', () => {
  const sync = logOf(SYNC, [1n, 1n]);
  assert.deepEqual(read({ transactions: [{ ...transactionOf(1, [sync]), succeeded: false }] }), []);
  const foreign = [
    logOf(SWAP, [1n, 0n, 0n, 1n], [alice, bob], alice),
    logOf('Approval(address,address,uint256)', [1n]),
  ];
  assert.deepEqual(read({ transactions: [transactionOf(1, foreign)] }), []);
});

test('reserves beyond 112 bits and supplies beyond 256 bits, which no such contract has, are ignored', () => {
  const huge = 2n ** 256n - 1n;
  const logs = [
    logOf(SYNC, [10n, 20n]),
    logOf(SYNC, [huge, huge]),
    logOf(MINT, [1n, 2n], [alice]),
    ...Array.from({ length: 9 }, () => logOf(TRANSFER, [huge], [zeroAddress, alice])),
  ];
  const [events] = read({ transactions: [transactionOf(1, logs)] });
  assert.deepEqual(
    [events?.reserves, events?.liquidityK, events?.supplyChange],
    [{ reserve0: 10n, reserve1: 20n }, 200n, huge],
  );
});

test('truncated events are ignored', () => {
  const logs = [
    logOf(SWAP, [1n, 2n, 3n], [alice, bob]),
    logOf(SYNC, [1n]),
    logOf(TRANSFER, [], [zeroAddress, alice]),
  ];
  assert.deepEqual(read({ transactions: [transactionOf(1, logs)] }), []);
});

test('events of the same signature with another layout are ignored', () => {
  const logs = [
    logOf(SWAP, [1n, 2n, 3n, 4n]),
    logOf(SWAP, [1n, 2n, 3n, 4n, 5n], [alice, bob]),
    // With a sender that isn't indexed, which would be read as an amount.
    logOf(SWAP, [BigInt(alice), 1n, 2n, 3n, 4n], [bob]),
    logOf(SYNC, [2n], [alice]),
    logOf(SYNC, [1n, 2n], [alice]),
    logOf(SYNC, [1n, 2n, 3n]),
    logOf(TRANSFER, [1n, 2n], [zeroAddress, alice]),
  ];
  assert.deepEqual(read({ transactions: [transactionOf(1, logs)] }), []);
});

test('without configured pairs, no log is read', () => {
  const transaction = transactionOf(1, []);
  Object.defineProperty(transaction, 'logs', { get: () => assert.fail('a log was looked at') });
  assert.deepEqual(createPairReader([])({ transactions: [transaction] }), []);
});
