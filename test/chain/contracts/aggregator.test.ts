import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { encodeCall } from '../../../devnet/contracts.ts';
import { readAggregator } from '../../../src/chain/contracts/aggregator.ts';
import { type ChainNodes, createNodes } from '../../../src/chain/nodes/nodes.ts';
import { Fault } from '../../../src/core/fault.ts';
import type { Address } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { chainlinkSource } from '../../../src/prices/sources.ts';
import { type Chain, startChain } from '../../kit/anvil.ts';
import { createTestClock } from '../../kit/clock.ts';
import { CHAIN_ID, freshAddress } from '../../kit/service.ts';

const { signal } = new AbortController();
const MAX_INT = 2n ** 255n - 1n;

describe('an aggregator on a real chain', () => {
  let chain: Chain;
  let nodes: ChainNodes;
  before(async () => {
    chain = await startChain();
    nodes = createNodes({
      ...{ urls: [chain.url], chainId: CHAIN_ID, internalTransfers: 'off' as const, onHead() {} },
      ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
    });
  });
  after(async () => {
    await nodes.close();
    await chain.stop();
  });

  const tell = (aggregator: Address, answer: bigint, updatedAt: bigint) =>
    chain.execute({
      from: chain.accounts[0],
      to: aggregator,
      input: encodeCall({ contract: 'Aggregator', method: 'tell', values: [answer, updatedAt] }),
    });

  test('is read with every digit, its decimals and its time', async () => {
    const aggregator = await chain.deploy('Aggregator', 8);
    for (const answer of [250_012_345_678n, 1n, 0n, -1n, MAX_INT, -MAX_INT - 1n]) {
      await tell(aggregator, answer, 1_763_640_000n);
      assert.deepEqual(await readAggregator(nodes, aggregator, signal), {
        answer,
        decimals: 8,
        updatedAt: new Date('2025-11-20T12:00:00.000Z'),
      });
    }
  });

  test('is a source whose price is as old as its round', async () => {
    const aggregator = await chain.deploy('Aggregator', 18);
    await tell(aggregator, 2_500_123_456_789_012_345_678n, 1_763_640_000n);
    const source = chainlinkSource(nodes, { name: 'chainlink', maxAgeMs: 1, address: aggregator });
    const { price, at, conf } = await source.read(signal);
    assert.equal(price.toFixed(), '2500.123456789012345678');
    assert.equal(at.getTime(), 1_763_640_000_000);
    assert.equal(conf, undefined);
  });

  test('without a round, with impossible values, or with another contract at the address, says so', async () => {
    const empty = await chain.deploy('Aggregator', 8);
    const odd = await chain.deploy('Aggregator', 200);
    await tell(odd, 1n, 1n);
    const late = await chain.deploy('Aggregator', 8);
    await tell(late, 1n, 2n ** 255n);
    const token = await chain.deploy('DemoToken', 'Demo', 'DEMO', 18);
    for (const address of [empty, odd, late, token, freshAddress()])
      await assert.rejects(
        readAggregator(nodes, address, signal),
        (error: Fault) => error instanceof Fault && error.message.includes(address),
      );
  });
});
