import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { readBalanceWei } from '../../../devnet/wallet.ts';
import { readBalancesAtHead } from '../../../src/chain/contracts/balances.ts';
import { type ChainNodes, createNodes } from '../../../src/chain/nodes/nodes.ts';
import { encodeWord } from '../../../src/core/abi.ts';
import { Fault } from '../../../src/core/fault.ts';
import { type Address, zeroAddress } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { type Chain, startChain } from '../../kit/anvil.ts';
import { createTestClock } from '../../kit/clock.ts';
import { complete, countOf, nodeAt, withNodes } from '../../kit/nodes.ts';
import {
  type Method,
  type Methods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  RpcError,
} from '../../kit/scripted-node.ts';
import { CHAIN_ID, freshAddress } from '../../kit/service.ts';

const { signal } = new AbortController();
const nobody = makeAddress(99);

describe('balances of a real chain', () => {
  let chain: Chain;
  let nodes: ChainNodes;
  let multicall3: Address;
  before(async () => {
    chain = await startChain();
    multicall3 = await chain.deploy('Multicall3');
    nodes = createNodes({
      ...{ urls: [chain.url], chainId: CHAIN_ID, internalTransfers: 'off' as const, onHead() {} },
      ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
    });
  });
  after(async () => {
    await nodes.close();
    await chain.stop();
  });

  for (const method of ['multicall3', 'eth_getBalance'] as const) {
    test(`are those of the newest block, by ${method}`, async () => {
      const [rich, other] = chain.accounts;
      const addresses = [rich, other, zeroAddress, freshAddress()];
      await chain.transferNative({ from: other, to: zeroAddress, valueWei: 10n ** 18n + 1n });
      const contract = method === 'multicall3' ? multicall3 : freshAddress();
      const reading = await readBalancesAtHead(nodes, { addresses, multicall3: contract }, signal);
      assert.equal(reading.method, method);
      assert.equal(reading.nodeName, new URL(chain.url).origin);
      const { number, hash } = await chain.head();
      assert.deepEqual([reading.block.number, reading.block.hash], [number, hash]);
      for (const address of addresses)
        assert.equal(reading.balances.get(address), await readBalanceWei(chain, address), address);
      assert.equal(reading.balances.size, addresses.length);
    });
  }

  test('are requested one by one if the contract is not a Multicall', async () => {
    const token = await chain.deploy('DemoToken', 'Demo', 'DEMO', 18);
    const reading = await readBalancesAtHead(nodes, { addresses: [zeroAddress], multicall3: token }, signal);
    assert.equal(reading.method, 'eth_getBalance');
    assert.equal(reading.balances.get(zeroAddress), await readBalanceWei(chain, zeroAddress));
  });
});

/** The answer of Multicall3 for these balances. Undefined stands for a failed call. */
function aggregated(balances: readonly (bigint | undefined)[]): string {
  const places = balances.map((_balance, index) => encodeWord(32 * (balances.length + index * 4)));
  const parts = balances.map(
    (balance) =>
      encodeWord(balance === undefined ? 0 : 1) + encodeWord(64) + encodeWord(32) + encodeWord(balance ?? 7),
  );
  return `0x${encodeWord(32)}${encodeWord(balances.length)}${places.join('')}${parts.join('')}`;
}

const [one, two, three] = [makeAddress(1), makeAddress(2), makeAddress(3)];
const addresses = [one, two, three];
const balanceOf: Method = ([address]) => `0x${Number(address).toString(16)}`;
const read = (nodes: ChainNodes) => readBalancesAtHead(nodes, { addresses, multicall3: nobody }, signal);
const listed = (balances: ReadonlyMap<Address, bigint>) => addresses.map((address) => balances.get(address));

test('one call to one node gives all balances, at the hash of the newest block', () =>
  withNodes([{ ...complete(), eth_call: () => aggregated([1n, 2n, 3n]) }], async ({ scripted, nodes }) => {
    const { balances, method, block } = await read(nodes);
    assert.deepEqual(listed(balances), [1n, 2n, 3n]);
    assert.equal(method, 'multicall3');
    assert.equal(block.number, 9);
    const node = nodeAt(scripted, 0);
    assert.equal(countOf(node, 'eth_getBalance'), 0);
    const calls = node.calls.filter((call) => call.method === 'eth_call');
    assert.equal(calls.length, 1);
    assert.deepEqual(calls[0]?.params[1], { blockHash: makeHash(0, 9, 0) });
  }));

test('balances that the call omits are requested separately, at the same block', () =>
  withNodes(
    [{ ...complete(), eth_call: () => aggregated([1n, undefined, 3n]), eth_getBalance: balanceOf }],
    async ({ scripted, nodes }) => {
      const { balances, method } = await read(nodes);
      assert.deepEqual([listed(balances), method], [[1n, 2n, 3n], 'multicall3']);
      const asked = nodeAt(scripted, 0).calls.filter((call) => call.method === 'eth_getBalance');
      assert.deepEqual(
        asked.map(({ params }) => params),
        [[two, { blockHash: makeHash(0, 9, 0) }]],
      );
    },
  ));

for (const [what, spoilt] of Object.entries({
  'no hex': 'lots',
  'no text': 5,
  null: null,
  empty: '0x',
  'too large': `0x1${'0'.repeat(64)}`,
  negative: '-0x1',
})) {
  test(`a spoiled balance (${what}) leaves the balances of other addresses intact`, () =>
    withNodes(
      [{ ...complete(), eth_getBalance: (params) => (params[0] === two ? spoilt : balanceOf(params)) }],
      async ({ nodes }) => assert.deepEqual(listed((await read(nodes)).balances), [1n, undefined, 3n]),
    ));
}

test('a balance that one node spoils comes from another one', () =>
  withNodes(
    [
      { ...complete(), eth_getBalance: (params) => (params[0] === two ? '' : balanceOf(params)) },
      { ...complete(), eth_getBalance: balanceOf },
    ],
    async ({ nodes }) => assert.deepEqual(listed((await read(nodes)).balances), [1n, 2n, 3n]),
  ));

/** A node that accepts no block hash as the block parameter. */
const byNumber = (onCall: () => void = () => {}): Methods => ({
  ...complete(),
  eth_call: ([, block]) => {
    if (typeof block === 'object') throw new RpcError(-32_602, 'invalid argument 1');
    onCall();
    return aggregated([1n, 2n, 3n]);
  },
  eth_getBalance: () => {
    throw new RpcError(-32_602, 'invalid argument 1');
  },
});

test('a node that does not accept a block hash is asked by number', () =>
  withNodes([byNumber()], async ({ nodes }) =>
    assert.deepEqual(listed((await read(nodes)).balances), [1n, 2n, 3n]),
  ));

for (const [how, late] of [
  ['meanwhile', 0],
  ['meanwhile, by a node that answers the calls of a request in another order', 1],
] as const)
  test(`asked by number, a node whose block was replaced ${how} gives no balances`, async () => {
    let left = Number.POSITIVE_INFINITY;
    const methods = byNumber(() => {
      left = late;
    });
    const { eth_getBlockByNumber: found } = methods;
    methods.eth_getBlockByNumber = (params) => {
      left -= 1;
      return left < 0 ? makeNodeBlock(9, { branch: 1 }).block : found?.(params);
    };
    await withNodes([methods], ({ nodes }) =>
      assert.rejects(read(nodes), { message: new RegExp(`does not have ${makeHash(0, 9, 0)} as block 9`) }),
    );
  });

test('asked by number, the block of the node that answered counts, and not that of another one', async () => {
  let left = Number.POSITIVE_INFINITY;
  const first = byNumber(() => {
    left = 1;
  });
  const { eth_getBlockByNumber: found } = first;
  first.eth_getBlockByNumber = (params) => {
    left -= 1;
    return left < 0 ? makeNodeBlock(9, { branch: 1 }).block : found?.(params);
  };
  await withNodes([first, byNumber()], async ({ nodes, scripted }) => {
    await assert.rejects(read(nodes), /may have had different blocks 9/);
    assert.deepEqual(
      [0, 1].map((index) =>
        nodeAt(scripted, index).calls.some(
          ({ method, params }) => method === 'eth_call' && params[1] === '0x9',
        ),
      ),
      [true, false],
    );
  });
});

test('an answer without any balance is a Fault', () =>
  withNodes([{ ...complete(), eth_getBalance: () => null }], async ({ nodes }) => {
    await assert.rejects(read(nodes), Fault);
  }));
