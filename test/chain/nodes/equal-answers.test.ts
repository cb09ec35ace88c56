/**
 * Several nodes must give equal answers. The tests cover which nodes are asked, which votes count, and the messages
 * without agreement.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readAggregator } from '../../../src/chain/contracts/aggregator.ts';
import { readBalancesAtHead } from '../../../src/chain/contracts/balances.ts';
import { type ContractReader, callContracts } from '../../../src/chain/contracts/contracts.ts';
import { poll } from '../../../src/chain/nodes/equal-answers.ts';
import { parseHeader } from '../../../src/chain/rpc/parse.ts';
import { encodeWord } from '../../../src/core/abi.ts';
import { startAbort } from '../../../src/core/abort.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createTestClock } from '../../kit/clock.ts';
import { blocks, complete, countOf, type NodesStage, nodeAt, withNodes } from '../../kit/nodes.ts';
import { type Json, type Methods, makeAddress, RpcError } from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const options = { clock: createTestClock(), signal };
const call = [{ method: 'eth_call', params: [{ to: makeAddress(5), data: '0x' }, '0x7'] }];
const readText = ([answer]: readonly { ok: boolean; result?: unknown }[], name: string) => {
  if (answer?.ok !== true) throw new Fault('unavailable', `${name} gave nothing`);
  return String(answer.result);
};

/** A node that gives this answer to every contract call. */
const saying = (result: string): Methods => ({ ...complete(), eth_call: () => result });
const refusing = (): Methods => ({
  ...complete(),
  eth_call: () => {
    throw new RpcError(-32_000, 'missing trie node');
  },
});

test('while voters agree, only as many are asked as needed', async () => {
  const asked: string[] = [];
  const outcome = await poll({ ...options, quorum: 2 }, ['a', 'b', 'c'], async (voter) => {
    asked.push(voter);
    return { key: 'same', answer: 1 };
  });
  assert.deepEqual(asked, ['a', 'b']);
  assert.deepEqual(
    outcome.agreed?.map(({ voter }) => voter),
    ['a', 'b'],
  );
});

test('a voter whose vote is already known is not asked', async () => {
  const asked: string[] = [];
  const cast = [{ voter: 'a', key: 'same', answer: 1 }];
  await poll({ ...options, quorum: 2, cast }, ['a', 'b', 'c'], async (voter) => {
    asked.push(voter);
    return { key: 'same', answer: 1 };
  });
  assert.deepEqual(asked, ['b']);
});

test('a poll whose work is ended while answers are late fails with a Fault, not with the end’s reason', async () => {
  const work = startAbort(signal);
  const clock = createTestClock();
  const never = new Promise<{ key: string; answer: number }>(() => {});
  const polled = poll({ clock, signal: work.signal, quorum: 2 }, ['a', 'b', 'c'], () => never);
  work.abort();
  await assert.rejects(polled, { name: 'Fault', code: 'unavailable' });
});

test('a poll that times out fails like one without answers', async () => {
  const limit = startAbort(signal, 20);
  const pending = poll(
    { ...options, signal: limit.signal, quorum: 2 },
    ['a', 'b', 'c'],
    () => new Promise(() => {}),
  );
  await assert.rejects(pending, (error) => error instanceof Fault && error.code === 'unavailable');
  limit.release();
});

test('if a voter is late, the next one is asked too', async () => {
  const clock = createTestClock();
  const pending = poll({ clock, signal, quorum: 2 }, ['slow', 'b', 'c'], (voter) =>
    voter === 'slow' ? new Promise(() => {}) : Promise.resolve({ key: 'same', answer: voter }),
  );
  await waitUntil(() => clock.waits().length > 0);
  clock.advance(1_000);
  const outcome = await pending;
  assert.deepEqual(
    outcome.agreed?.map(({ voter }) => voter),
    ['b', 'c'],
  );
});

test('a silent voter is hardly waited for, and only once another one has voted, unless it answers meanwhile', async () => {
  for (const isBack of [false, true]) {
    const clock = createTestClock();
    const first = Promise.withResolvers<{ key: string; answer: number }>();
    const second = Promise.withResolvers<{ key: string; answer: number }>();
    let isSilent = true;
    const polled = poll(
      { clock, signal, quorum: 2, isSilent: (voter) => voter === 'b' && isSilent },
      ['a', 'b'],
      (voter) => (voter === 'a' ? first : second).promise,
    );
    assert.deepEqual(clock.waits(), []);
    first.resolve({ key: 'same', answer: 1 });
    await waitUntil(() => clock.waits().includes(100));
    isSilent = !isBack;
    clock.advance(100);
    if (isBack) second.resolve({ key: 'same', answer: 1 });
    assert.equal((await polled).agreed?.length, isBack ? 2 : undefined);
  }
});

test('after a fault, a silent voter is hardly waited for either', async () => {
  const clock = createTestClock();
  const polled = poll(
    { clock, signal, quorum: 2, isSilent: (voter) => voter === 'b' },
    ['a', 'b'],
    (voter) => (voter === 'a' ? Promise.reject(new Fault('unavailable', 'HTTP 502')) : new Promise(() => {})),
  );
  await waitUntil(() => clock.waits().includes(100));
  clock.advance(100);
  assert.deepEqual(
    (await polled).faults.map(({ message }) => message),
    ['HTTP 502'],
  );
});

test('an error that is not a Fault is thrown', async () => {
  const broken = poll({ ...options, quorum: 1 }, ['a'], () => Promise.reject(new Error('a bug')));
  await assert.rejects(broken, { message: 'a bug' });
});

test('chain.quorum also says how many answers must be equal', () =>
  withNodes(
    [saying('0x02'), saying('0x02'), saying('0x01')],
    async ({ nodes }) => {
      assert.equal(nodes.agreement().quorum, 3);
      await assert.rejects(nodes.agree(call, readText, signal), {
        code: 'unavailable',
        message: /3 nodes must give the same answer/,
      });
    },
    { quorum: 3 },
  ));

test('the preferred node alone decides nothing, and is reported as outvoted', () =>
  withNodes([saying('0x01'), saying('0x02'), saying('0x02')], async ({ nodes, scripted }) => {
    assert.equal(await nodes.agree(call, readText, signal), '0x02');
    const { quorum, outvoted } = nodes.agreement();
    assert.equal(quorum, 2);
    assert.deepEqual(
      outvoted.map(({ node }) => node),
      [new URL(nodeAt(scripted, 0).url).origin],
    );
    assert.match(outvoted[0]?.message ?? '', /^eth_call at "0x7": http.* agree on another answer$/);
  }));

test('two nodes that differ leave no answer, and the message names both', () =>
  withNodes([saying('0x01'), saying('0x02')], async ({ nodes }) => {
    await assert.rejects(nodes.agree(call, readText, signal), {
      code: 'unavailable',
      message: /2 nodes must give the same answer; these answer differently: http:\S+ \| http:\S+$/,
    });
  }));

test('the third node replaces one that cannot answer, which does not count as a failure', () =>
  withNodes([refusing(), saying('0x02'), saying('0x02')], async ({ nodes }) => {
    assert.equal(await nodes.agree(call, readText, signal), '0x02');
    assert.deepEqual(nodes.agreement().outvoted, []);
    assert.ok(nodes.status().every(({ state }) => state === 'ok'));
  }));

test('a node that answers alone decides nothing, and the message says why the others gave no answer', () =>
  withNodes([refusing(), refusing(), saying('0x02')], async ({ nodes }) => {
    await assert.rejects(nodes.agree(call, readText, signal), {
      message: /only http:\S+ answered; .*gave nothing/,
    });
  }));

test('a single node is believed, and its own Fault is passed on', async () => {
  await withNodes([saying('0x01')], async ({ nodes }) => {
    assert.equal(await nodes.agree(call, readText, signal), '0x01');
  });
  await withNodes([refusing()], async ({ nodes }) => {
    await assert.rejects(nodes.agree(call, readText, signal), { message: /^http:\S+ gave nothing$/ });
  });
});

/** The contract calls of the service for which nodes must agree, at block 7. */
const readerOf = ({ nodes }: NodesStage): ContractReader => ({
  ask: nodes.agree,
  agreed: { findBlock: async () => parseHeader(blocks[7]?.block) },
});
const at7 = { blockHash: blocks[7]?.block.hash };

/** Balances are multiples of the address; at the newest block no node is asked. */
const balances = (factor: bigint): Methods => ({
  ...complete(),
  eth_getBalance: ([address]) => `0x${(BigInt(String(address)) * factor).toString(16)}`,
});

test('balances are those on which two nodes agree, at the hash of a block that they have', () =>
  withNodes([balances(9n), balances(2n), balances(2n)], async (stage) => {
    const addresses = [makeAddress(1), makeAddress(2)];
    const reading = await readBalancesAtHead(
      readerOf(stage),
      { addresses, multicall3: makeAddress(99) },
      signal,
    );
    assert.deepEqual([...reading.balances.values()], [2n, 4n]);
    assert.equal(reading.block.number, 7);
    const asked = stage.scripted
      .flatMap(({ calls }) => calls)
      .filter(({ method }) => method === 'eth_getBalance');
    assert.ok(asked.length > 0);
    for (const { params } of asked) assert.deepEqual(params[1], at7);
  }));

test('only a balance on which nodes do not agree is missing', () =>
  withNodes([balances(2n), balances(2n)], async (stage) => {
    const second = nodeAt(stage.scripted, 1);
    const { eth_getBalance: honest } = second.methods;
    second.methods.eth_getBalance = (params) => (params[0] === makeAddress(1) ? '0x9' : honest?.(params));
    const addresses = [makeAddress(1), makeAddress(2)];
    const reading = await readBalancesAtHead(
      readerOf(stage),
      { addresses, multicall3: makeAddress(99) },
      signal,
    );
    assert.deepEqual([...reading.balances], [[makeAddress(2), 4n]]);
  }));

/** A price feed: an answer, and 0 decimals. */
const feed = (price: bigint): Methods => ({
  ...complete(),
  eth_call: ([one]) => {
    const isRound = JSON.stringify(one).includes('feaf968c');
    return `0x${isRound ? [1n, price, 5n, 5n, 1n].map(encodeWord).join('') : encodeWord(0n)}`;
  },
});

test('the price of an on-chain feed is the one on which two nodes agree', () =>
  withNodes([feed(9_999n), feed(2_500n), feed(2_500n)], async (stage) => {
    const { answer } = await readAggregator(readerOf(stage), makeAddress(5), signal);
    assert.equal(answer, 2_500n);
    for (const node of stage.scripted)
      for (const { method, params } of node.calls)
        if (method === 'eth_call') assert.deepEqual(params[1], at7);
  }));

test('nodes that do not accept a block hash are asked by number', () => {
  const byNumberOnly = (): Methods => {
    const methods = feed(2_500n);
    const eth_call = methods.eth_call ?? (() => '0x');
    return {
      ...methods,
      eth_call: (params) => {
        if (typeof params[1] !== 'string')
          throw new RpcError(-32_602, 'invalid argument 1: hex string expected');
        return eth_call(params);
      },
    };
  };
  return withNodes([byNumberOnly(), byNumberOnly()], async (stage) => {
    assert.equal((await readAggregator(readerOf(stage), makeAddress(5), signal)).answer, 2_500n);
    assert.ok(countOf(nodeAt(stage.scripted, 0), 'eth_call') > 2);
  });
});

test('a call that reverts on all nodes has reverted, even if their messages differ', () => {
  const reverting = (message: string): Methods => ({
    ...complete(),
    eth_call: () => {
      throw new RpcError(3, message);
    },
  });
  return withNodes([reverting('execution reverted'), reverting('VM Exception: revert')], async (stage) => {
    const told = await callContracts(readerOf(stage), [{ to: makeAddress(5), data: '0x' }], 7, signal);
    assert.deepEqual(told, [undefined]);
  });
});

test('nodes that accept no block hash agree by number, although their clients give blocks different fields', () =>
  withNodes([feed(2_500n), feed(2_500n)], async (stage) => {
    for (const [index, { methods }] of stage.scripted.entries()) {
      const { eth_call: called, eth_getBlockByNumber: found } = methods;
      methods.eth_getBlockByNumber = (params) => ({ ...(found?.(params) as Json), size: index });
      methods.eth_call = (params) => {
        if (typeof params[1] === 'object') throw new RpcError(-32_602, 'invalid argument 1');
        return called?.(params);
      };
    }
    const { answer } = await readAggregator(readerOf(stage), makeAddress(5), signal);
    assert.equal(answer, 2_500n);
  }));
