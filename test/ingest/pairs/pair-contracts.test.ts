/**
 * Two real Uniswap V2 pairs, one of which has a hostile contract or token. The other one is read and compared as if it were alone.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { ContractReader } from '../../../src/chain/contracts/contracts.ts';
import { createNodes } from '../../../src/chain/nodes/nodes.ts';
import { systemClock } from '../../../src/core/clock.ts';
import { Fault } from '../../../src/core/fault.ts';
import type { Address, Hex } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import type { ValuedPair } from '../../../src/domain/pair.ts';
import { checkPairs, comparePairs, readFees, readPairs } from '../../../src/ingest/pairs/pair-contracts.ts';
import { createPairReadings } from '../../../src/ingest/pairs/pair-readings.ts';
import { listReadings } from '../../../src/store/market/pair-readings.ts';
import { followPairs } from '../../../src/store/market/pairs.ts';
import { type NodeProxy, startNodeProxy } from '../../faults/node-proxy.ts';
import { type Chain, startChain } from '../../kit/anvil.ts';
import { headerOf, mine } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { CHAIN_ID } from '../../kit/service.ts';
import { deployPair, type UniswapPair } from '../../kit/uniswap.ts';

const { signal } = new AbortController();
/** More than Chainbell reads of an answer to six calls. */
const LARGE: Hex = `0x${'00'.repeat(500_000)}`;

const faults = {
  'too large': () => ({ result: LARGE }),
  late: () => ({ error: { code: -32_000, message: 'execution aborted (timeout = 5s)' } }),
  // As a contract does that returns its gas.
  'different on each node': (node: number) => ({ result: `0x${String(node).padStart(64, '0')}` }),
};

describe('beside a hostile contract', () => {
  const parts = new AsyncDisposableStack();
  let chain: Chain;
  let honest: UniswapPair;
  let hostile: UniswapPair;
  let pairs: ValuedPair[];
  let proxies: NodeProxy[];
  let nodes: ContractReader;
  before(async () => {
    chain = parts.use(await startChain());
    [honest, hostile] = [await deployPair(chain), await deployPair(chain)];
    pairs = [honest.configured, { ...hostile.configured, id: 2 }];
    proxies = [parts.use(await startNodeProxy(chain)), parts.use(await startNodeProxy(chain))];
    const both = createNodes({
      ...{ urls: proxies.map(({ url }) => url), chainId: CHAIN_ID, internalTransfers: 'off' as const },
      ...{ clock: systemClock(), log: silentLog(), metrics: createMetrics('test'), onHead() {} },
    });
    parts.defer(() => both.close());
    nodes = { ask: both.agree, agreed: { findBlock: () => assert.fail('the block is given') } };
  });
  after(() => parts.disposeAsync());

  /** Calls of this contract get this answer. */
  function inject(contract: Address, fault: keyof typeof faults): void {
    for (const [node, proxy] of proxies.entries())
      proxy.inject({
        async answer({ method, params: [call] }) {
          const isOf = method === 'eth_call' && Object(call).to === contract;
          return isOf ? faults[fault](node) : undefined;
        },
      });
  }

  for (const fault of Object.keys(faults) as (keyof typeof faults)[])
    test(`that answers calls with something ${fault}, other pairs are read and compared`, async () => {
      const { hash } = await chain.head();
      inject(hostile.address, fault);
      const [read, silent] = await readPairs(nodes, pairs, hash, signal);
      assert.deepEqual(read, { pairId: 1, ...(await honest.view()) });
      assert.ok(silent instanceof Fault);
      assert.match(silent.message, /^the contract of pair 2 \(ONE\/TWO\) does not answer/);
      const fees = await readFees(nodes, pairs, hash, signal);
      assert.deepEqual([fees.get(1), fees.get(2) instanceof Fault], [false, true]);
      const compared = await comparePairs(nodes, pairs, signal);
      assert.deepEqual(
        compared.map(({ pair, isSilent }) => ({ id: pair.id, isSilent })),
        [{ id: 2, isSilent: true }],
      );
      await assert.rejects(checkPairs(nodes, pairs, signal), { code: 'unavailable', message: /^pair 2/ });
    });

  for (const fault of Object.keys(faults) as (keyof typeof faults)[])
    test(`of a token whose answer is ${fault}, a new pair waits, and a stored one is not said to differ`, async () => {
      inject(hostile.tokens[0], fault);
      await assert.rejects(checkPairs(nodes, pairs, signal), {
        code: 'unavailable',
        message: /^pair 2 \(ONE\/TWO\): a token or the factory does not answer: /,
      });
      const compared = await comparePairs(nodes, pairs, signal);
      assert.deepEqual(
        compared.map(({ pair, isSilent }) => ({ id: pair.id, isSilent })),
        [{ id: 2, isSilent: true }],
      );
      const wrong = { ...honest.configured, token0Decimals: 7 };
      await assert.rejects(checkPairs(nodes, [wrong, ...pairs.slice(1)], signal), {
        code: 'conflict',
        message: /pair 1 \(ONE\/TWO\): token0Decimals is 18 on the chain, but 7 in the configuration$/,
      });
    });

  test('a pair whose contract does not answer is asked alone and rarely, and no longer with the others', async () => {
    await using place = await createTestDatabase('embedded');
    const database = await place.open();
    const header = { ...headerOf(1), ...(await chain.head()) };
    const clock = createTestClock();
    await mine(database, header, [], { also: (tx) => followPairs(tx, pairs, { header, now: clock.now() }) });
    let calls = 0;
    for (const proxy of proxies)
      proxy.inject({
        async answer({ method, params: [call] }) {
          if (method === 'eth_call') calls += 1;
          return method === 'eth_call' && Object(call).to === hostile.address ? faults.late() : undefined;
        },
      });
    const step = createPairReadings({ database, nodes, clock, log: silentLog(), pairs });
    const current = async () =>
      (await listReadings(database, [1, 2])).flatMap(({ pairId, isCurrent }) => (isCurrent ? pairId : []));
    const until = async (isDone: () => boolean) => {
      for (let steps = 0; steps < 10 && !isDone(); steps += 1)
        await step(signal).catch((error: unknown) => assert.ok(error instanceof Fault));
    };
    await until(() => calls > 0);
    await until(() => false);
    assert.deepEqual(await current(), [1]);
    calls = 0;
    await until(() => false);
    assert.equal(calls, 0, 'the pair rests, and the other one is known');
    clock.advance(60_000);
    await until(() => false);
    assert.ok(calls > 0 && calls < 40, `${calls} calls`);
    for (const proxy of proxies) proxy.inject({ answer: async () => undefined });
    clock.advance(600_000);
    await until(() => false);
    assert.deepEqual(await current(), [1, 2]);
  });

  test('while a node answers no call, no contract is blamed', async () => {
    for (const proxy of proxies)
      proxy.inject({
        answer: async ({ method }) =>
          method === 'eth_call' ? { error: { code: -32_000, message: 'missing trie node' } } : undefined,
      });
    const { hash } = await chain.head();
    await assert.rejects(readPairs(nodes, pairs, hash, signal), (fault) => {
      assert.ok(fault instanceof Fault);
      return fault.code === 'unavailable' && !fault.message.includes('pair');
    });
  });
});
