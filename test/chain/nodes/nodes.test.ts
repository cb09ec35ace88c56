import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { blocks, complete, countOf, type NodesStage, nodeAt, withNodes } from '../../kit/nodes.ts';
import {
  chainMethods,
  HttpRefusal,
  type Method,
  type Methods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  RpcError,
  type ScriptedNode,
  SECRET_PATH,
  traceMethod,
} from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const headHash = makeHash(0, 9, 0);

const only = (scripted: readonly ScriptedNode[]) => nodeAt(scripted, 0);

for (const batches of ['error', 'http 400'] as const) {
  test(`a node that refuses batches (${batches}) is asked call by call`, () =>
    withNodes([complete()], async ({ scripted, nodes }) => {
      const node = only(scripted);
      node.batches = batches;
      const bundles = await nodes.bundles([7, 8, headHash], signal);
      assert.deepEqual(
        bundles.map(({ header }) => header.number),
        [7, 8, 9],
      );
      assert.equal(nodes.status()[0]?.capabilities?.batch, false);
    }));
}

test('a node that lacked something when it was asked is asked again after an hour', () => {
  const { eth_getBlockReceipts: _, ...methods } = complete();
  return withNodes([methods], async ({ scripted, nodes, clock }) => {
    const node = only(scripted);
    node.batches = 'http 400';
    const lackingAfter = async (ms: number) => {
      clock.advance(ms);
      await nodes.bundles([7], signal);
      const { batch, blockReceipts } = nodes.status()[0]?.capabilities ?? {};
      return { batch, blockReceipts };
    };
    assert.deepEqual(await lackingAfter(0), { batch: false, blockReceipts: false });
    node.batches = 'answer';
    node.methods = complete();
    assert.deepEqual(await lackingAfter(3_599_999), { batch: false, blockReceipts: false });
    assert.deepEqual(await lackingAfter(1), { batch: true, blockReceipts: true });
  });
});

test('a node that can batch gives block, receipts and traces in one request', () =>
  withNodes([complete()], async ({ scripted, nodes }) => {
    await nodes.bundles([headHash], signal);
    const before = only(scripted).exchangeCount();
    const [bundle] = await nodes.bundles([headHash], signal);
    assert.equal(only(scripted).exchangeCount() - before, 1);
    assert.deepEqual(
      bundle?.transactions.map(({ calls }) => calls.length),
      [1, 1],
    );
  }));

test('a node without eth_getBlockReceipts is asked for the receipt of each transaction', () => {
  const { eth_getBlockReceipts: _, ...methods } = complete();
  return withNodes([methods], async ({ scripted, nodes }) => {
    const [bundle] = await nodes.bundles([headHash], signal);
    assert.equal(bundle?.transactions.length, 2);
    assert.equal(countOf(only(scripted), 'eth_getTransactionReceipt'), 2);
    assert.equal(
      countOf(only(scripted), 'eth_getBlockReceipts'),
      1,
      'it is asked once whether it has the method',
    );
  });
});

for (const status of [403, 404, 405])
  test(`a node behind a gateway that refuses methods with HTTP ${status} serves without them`, () => {
    const refuse: Method = () => {
      throw new HttpRefusal(status);
    };
    const refused = {
      ...{ web3_clientVersion: refuse, eth_getBlockReceipts: refuse, trace_block: refuse },
      ...{ debug_traceBlockByHash: refuse, debug_traceBlockByNumber: refuse },
    };
    return withNodes([{ ...complete(), ...refused }], async ({ scripted, nodes, clock }) => {
      const callsOf = async () =>
        (await nodes.bundles([headHash], signal))[0]?.transactions.map(({ calls }) => calls.length);
      assert.deepEqual(await callsOf(), [0, 0]);
      const [node] = nodes.status();
      assert.deepEqual([node?.state, node?.capabilities?.blockReceipts], ['ok', false]);
      only(scripted).methods = complete();
      clock.advance(60_000);
      assert.deepEqual(await callsOf(), [1, 1], 'it is probed again');
      only(scripted).methods = { ...complete(), eth_getBlockReceipts: refuse };
      assert.deepEqual(await callsOf(), [1, 1], 'a method can be refused later');
    });
  });

test('a node that refuses every call with HTTP 403 is unavailable', () =>
  withNodes([complete()], async ({ scripted, nodes }) => {
    only(scripted).setHttp({ status: 403 });
    await assert.rejects(nodes.bundles([headHash], signal), { code: 'unavailable', message: /HTTP 403/ });
  }));

for (const method of ['debug_traceBlockByHash', 'debug_traceBlockByNumber', 'trace_block'] as const) {
  test(`traces come by ${method} if the node has no better method`, () => {
    const { debug_traceBlockByHash: _, ...methods } = complete();
    return withNodes(
      [{ ...methods, [method]: method === 'trace_block' ? () => [] : traceMethod(blocks) }],
      async ({ nodes }) => {
        await nodes.head(signal);
        assert.equal(nodes.status()[0]?.capabilities?.traces, method);
      },
    );
  });
}

test('anvil, which can hang for good while it traces for the callTracer, is asked for trace_block', () =>
  withNodes(
    [{ ...complete(), web3_clientVersion: () => 'anvil/v1.7.1', trace_block: () => [] }],
    async ({ scripted, nodes }) => {
      await nodes.head(signal);
      assert.equal(nodes.status()[0]?.capabilities?.traces, 'trace_block');
      assert.equal(countOf(nodeAt(scripted, 0), 'debug_traceBlockByHash'), 0);
    },
  ));

test('a node that has only the genesis block is probed for traces again when the chain has grown', () => {
  const growing = blocks.slice(0, 1);
  const refuseGenesis: Method = (params) => {
    if (growing.length === 1) throw new RpcError(-32_000, 'genesis is not traceable');
    return traceMethod(growing)(params);
  };
  return withNodes(
    [{ ...chainMethods(1, growing), debug_traceBlockByHash: refuseGenesis }],
    async ({ nodes }) => {
      await nodes.head(signal);
      growing.push(makeNodeBlock(1));
      const [bundle] = await nodes.bundles([makeHash(0, 1, 0)], signal);
      assert.deepEqual(
        bundle?.transactions.map(({ calls }) => calls.length),
        [1, 1],
      );
    },
  );
});

test('"header not found" for a recent head does not mean that the node lacks eth_getBlockReceipts', () => {
  let isProbed = false;
  const methods = chainMethods(1, blocks);
  const receipts: Method = (params) => {
    if (!isProbed) throw new RpcError(-32_000, 'header not found');
    return methods.eth_getBlockReceipts?.(params);
  };
  return withNodes([{ ...methods, eth_getBlockReceipts: receipts }], async ({ scripted, nodes }) => {
    await nodes.head(signal);
    isProbed = true;
    await nodes.bundles([headHash], signal);
    assert.equal(countOf(only(scripted), 'eth_getTransactionReceipt'), 0);
  });
});

test('a node that cannot trace gives blocks without internal transfers, unless they are required', async () => {
  const methods = chainMethods(1, blocks);
  await withNodes([methods], async ({ nodes }) => {
    const [bundle] = await nodes.bundles([headHash], signal);
    assert.deepEqual(
      bundle?.transactions.map(({ calls }) => calls),
      [[], []],
    );
  });
  await withNodes(
    [methods, complete()],
    async ({ scripted, nodes }) => {
      const [bundle] = await nodes.bundles([headHash], signal);
      assert.deepEqual(
        bundle?.transactions.map(({ calls }) => calls.length),
        [1, 1],
      );
      await scripted[1]?.close();
      await assert.rejects(nodes.bundles([8], signal), { code: 'unavailable' });
    },
    { internalTransfers: 'required' },
  );
});

/** Traces as ZKsync nodes give them: the bootloader calls, and the transaction is one of its calls. */
const bootloaderTraces: Method = (params) =>
  (traceMethod(blocks)(params) as { result: object }[]).map(({ result }) => ({
    result: {
      ...{ type: 'Call', from: makeAddress(0), to: makeAddress(0x8001), value: '0x0', revertReason: null },
      calls: [result],
    },
  }));

test('a node whose traces begin at the bootloader of ZKsync counts as unable to trace', async () => {
  const methods = { ...chainMethods(1, blocks), debug_traceBlockByHash: bootloaderTraces };
  await withNodes([methods], async ({ nodes }) => {
    const [bundle] = await nodes.bundles([headHash], signal);
    assert.deepEqual([bundle?.traced, nodes.status()[0]?.capabilities?.traces], [false, 'none']);
  });
  await withNodes([methods, complete()], async ({ nodes }) => {
    await nodes.head(signal);
    await waitUntil(() => nodes.status().every(({ capabilities }) => capabilities !== undefined));
    const [bundle] = await nodes.bundles([headHash], signal);
    assert.deepEqual(
      bundle?.transactions.map(({ calls }) => calls.length),
      [1, 1],
    );
  });
});

test('a node that answers with opcodes instead of calls, or lacks the tracer, is asked for trace_block', async () => {
  const opcodes = { gas: 21_000, failed: false, returnValue: '', structLogs: [] };
  const lacking = {
    txHash: makeHash(0, 7, 1),
    result: null,
    error: { code: -32_000, message: 'tracer not found' },
  };
  const methods = { ...chainMethods(1, blocks), trace_block: () => [] };
  for (const entry of [{ result: opcodes }, opcodes, lacking]) {
    const traces = { debug_traceBlockByHash: () => [entry], debug_traceBlockByNumber: () => [entry] };
    await withNodes([{ ...methods, ...traces }], async ({ nodes }) => {
      await nodes.head(signal);
      assert.equal(nodes.status()[0]?.capabilities?.traces, 'trace_block');
    });
  }
});

test('a transaction that could not be traced, as Erigon says it, holds its block and does not make the node unable to trace', async () => {
  const failed = {
    txHash: makeHash(0, 8, 1),
    result: null,
    error: { code: -32_000, message: 'tracing failed: timeout' },
  };
  const opcodes = { gas: 21_000, failed: false, returnValue: '', structLogs: [] };
  const besideCalls = (entry: object) => [
    {
      txHash: makeHash(0, 8, 2),
      result: { type: 'CALL', from: makeAddress(1), to: makeAddress(2), value: '0x0' },
    },
    { txHash: makeHash(0, 8, 1), ...entry },
  ];
  for (const entries of [
    ...[[failed], [{ error: failed.error }], [{}]],
    ...[{ result: opcodes }, opcodes, { result: {} }, { error: 'tracer not found' }].map(besideCalls),
  ])
    await withNodes([complete()], async ({ nodes, scripted }) => {
      await nodes.head(signal);
      const { capabilities } = nodes.status()[0] ?? {};
      const real = only(scripted).methods;
      only(scripted).methods = { ...real, debug_traceBlockByHash: () => entries };
      await assert.rejects(nodes.bundles([headHash], signal), { name: 'Fault' });
      assert.equal(nodes.status()[0]?.capabilities?.traces, capabilities?.traces);
      only(scripted).methods = real;
      const [bundle] = await nodes.bundles([headHash], signal);
      assert.equal(bundle?.traced, true);
    });
});

test('if the answers of several nodes cannot be read, the message says which node gave which', () => {
  const broken = { ...complete(), debug_traceBlockByHash: () => [{ txHash: makeHash(0, 8, 1), result: 5 }] };
  const unlisted = { ...complete(), eth_getBlockReceipts: () => ({}) };
  return withNodes([broken, unlisted], async ({ nodes }) => {
    await nodes.head(signal);
    const [first, second] = nodes.status().map(({ name }) => name);
    await assert.rejects(nodes.bundles([headHash], signal), ({ message }: Error) => {
      assert.ok(message.includes(`${first}: the node's trace.result is not an object: 5`), message);
      assert.ok(message.includes(`${second}: the node's receipts is not an array: an object`), message);
      return true;
    });
  });
});

test('an empty block does not show what traces are like, so the probe looks at its parent, and the first block that shows it counts', async () => {
  const emptyFrom = (first: number) => {
    const mined = blocks.map(({ block }) =>
      makeNodeBlock(Number(block.number), { transactions: Number(block.number) < first ? 2 : 0 }),
    );
    const methods = chainMethods(1, mined);
    const trace: Method = ([hash]) =>
      mined.find(({ block }) => block.hash === hash)?.receipts.length === 0 ? [] : bootloaderTraces([hash]);
    return { ...methods, debug_traceBlockByHash: trace };
  };
  const traceMethodOf = (nodes: NodesStage['nodes']) => nodes.status()[0]?.capabilities?.traces;
  await withNodes([emptyFrom(9)], async ({ nodes }) => {
    await nodes.head(signal);
    assert.equal(traceMethodOf(nodes), 'none');
  });
  for (const internalTransfers of ['auto', 'required'] as const)
    await withNodes(
      [emptyFrom(8)],
      async ({ nodes, scripted, clock }) => {
        await nodes.head(signal);
        assert.equal(traceMethodOf(nodes), 'debug_traceBlockByHash');
        const read = nodes.bundles([7], signal);
        if (internalTransfers === 'required') return assert.rejects(read, /internalTransfers is required/);
        const [bundle] = await read;
        assert.deepEqual([bundle?.traced, traceMethodOf(nodes)], [false, 'none']);
        // Its empty blocks show nothing new, and don't make it look like a node that lost its traces.
        clock.advance(3_600_000);
        const [empty] = await nodes.bundles([9], signal);
        assert.deepEqual([empty?.traced, nodes.untraced()], [false, undefined]);
        Object.assign(only(scripted).methods, complete());
        clock.advance(3_600_000);
        const [again] = await nodes.bundles([7], signal);
        assert.deepEqual([again?.traced, traceMethodOf(nodes)], [true, 'debug_traceBlockByHash']);
      },
      { internalTransfers },
    );
});

test('a node is not asked for traces if internal transfers are off', () =>
  withNodes(
    [complete()],
    async ({ scripted, nodes }) => {
      await nodes.bundles([7, headHash], signal);
      assert.equal(only(scripted).calls.filter(({ method }) => method.includes('trace')).length, 0);
    },
    { internalTransfers: 'off' },
  ));

test('a node on another chain is refused as conflict for every request', () =>
  withNodes([{ ...complete(), eth_chainId: () => '0x2' }], async ({ nodes }) => {
    const refusal = { name: 'Fault', code: 'conflict', message: /is on chain 2, .*says 1/ };
    await assert.rejects(nodes.identify(signal), refusal);
    await assert.rejects(nodes.head(signal), refusal);
    await assert.rejects(nodes.bundles([7], signal), refusal);
  }));

test('a node with another genesis block than the pinned one is refused', () =>
  withNodes([complete()], async ({ nodes }) => {
    assert.deepEqual(await nodes.identify(signal), { chainId: 1, genesisHash: makeHash(0, 0, 0) });
    nodes.pin({ chainId: 1, genesisHash: makeHash(5, 0, 0) });
    await assert.rejects(nodes.head(signal), {
      name: 'Fault',
      code: 'conflict',
      message: /another genesis block/,
    });
  }));

test('a node that no longer has the genesis block is accepted', () =>
  withNodes([chainMethods(1, blocks.slice(5))], async ({ nodes }) => {
    nodes.pin({ chainId: 1, genesisHash: makeHash(0, 0, 0) });
    assert.equal((await nodes.head(signal)).number, 9);
  }));

test('a node on another chain does not disturb the others', () =>
  withNodes([{ ...complete(), eth_chainId: () => '0x2' }, complete(), complete()], async ({ nodes }) => {
    assert.equal((await nodes.head(signal)).hash, headHash);
    assert.equal((await nodes.bundles([headHash], signal)).length, 1);
    assert.deepEqual(
      nodes.status().map(({ state }) => state),
      ['wrong_chain', 'ok', 'ok'],
    );
  }));

test('when a node dies the next one takes over, and the first one is asked again after its rest', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    const [first, second] = scripted;
    assert.ok(first !== undefined && second !== undefined);
    await nodes.bundles([headHash], signal);
    assert.equal(second.exchangeCount(), 0);
    first.setHttp('reset');
    assert.equal((await nodes.bundles([headHash], signal))[0]?.header.number, 9);
    first.setHttp(undefined);
    const retryAt = clock.now().getTime() + 200;
    assert.deepEqual(
      nodes.status().map((status) => status.retryAt?.getTime()),
      [retryAt, undefined],
    );
    const askedWhileResting = first.exchangeCount();
    await nodes.bundles([headHash], signal);
    assert.equal(first.exchangeCount(), askedWhileResting);
    clock.advance(30_000);
    await nodes.bundles([headHash], signal);
    assert.equal(first.exchangeCount(), askedWhileResting + 1);
  }));

test('a block that the first node does not have yet comes from the second', () => {
  const behind = chainMethods(1, blocks.slice(0, 9));
  return withNodes([behind, complete()], async ({ nodes }) => {
    assert.equal((await nodes.bundles([headHash], signal))[0]?.header.number, 9);
  });
});

test('a block that no node has is unavailable, and one that every node gives incomplete is inconsistent', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes }) => {
    await assert.rejects(nodes.bundles([makeHash(0, 10, 0)], signal), { name: 'Fault', code: 'unavailable' });
    for (const node of scripted)
      node.methods.eth_getBlockReceipts = () => makeNodeBlock(9, { branch: 1 }).receipts;
    await assert.rejects(nodes.bundles([headHash], signal), { name: 'Fault', code: 'inconsistent' });
  }));

test('a header that the first node does not know comes from the second, and is undefined if no node knows it', () => {
  const behind = chainMethods(1, blocks.slice(0, 9));
  return withNodes([behind, complete()], async ({ nodes }) => {
    assert.equal((await nodes.findHeader(headHash, signal))?.number, 9);
    assert.equal((await nodes.findHeader(9, signal))?.hash, headHash);
    assert.equal(await nodes.findHeader(10, signal), undefined);
    assert.deepEqual(
      nodes.status().map(({ state }) => state),
      ['ok', 'ok'],
      'not to know a block is no failure',
    );
  });
});

for (const [heads, expected] of [
  [[9, 7, 8], 8],
  [[5, 9], 5],
  [[9, 9, 1], 9],
  [[6], 6],
] as const) {
  test(`the head of nodes at ${heads.join(', ')} is ${expected}: the newest that a second one has`, () =>
    withNodes(
      heads.map((number) => chainMethods(1, blocks.slice(0, number + 1))),
      async ({ nodes }) => {
        assert.equal((await nodes.head(signal)).number, expected);
      },
    ));
}

test('dead nodes have no vote: without a quorum of live nodes there is no head, and the Fault has the answer of each node', () =>
  withNodes([complete(), complete(), complete()], async ({ scripted, nodes }) => {
    scripted[0]?.setHttp({ status: 503 });
    assert.equal((await nodes.head(signal)).number, 9);
    scripted[1]?.setHttp({ status: 503 });
    const [dead, living] = [new URL(nodeAt(scripted, 1).url).origin, new URL(nodeAt(scripted, 2).url).origin];
    await assert.rejects(nodes.head(signal), {
      ...{ name: 'Fault', code: 'inconsistent' },
      message: new RegExp(`no 2 of 3 .*${dead} gives no vote .*${living} names block 9 .${headHash}`),
    });
    scripted[2]?.setHttp({ status: 503 });
    await assert.rejects(nodes.head(signal), { name: 'Fault', code: 'unavailable' });
    for (const node of scripted.slice(1)) node.setHttp(undefined);
    assert.equal((await nodes.head(signal)).number, 9, 'nodes that rest are asked where a quorum needs them');
  }));

/** A node that answers this to a request of the final block. */
const naming = (answer: () => unknown): Methods => {
  const { eth_getBlockByNumber, ...others } = complete();
  const byTag: Method = (params) => (params[0] === 'finalized' ? answer() : eth_getBlockByNumber?.(params));
  return { ...others, eth_getBlockByNumber: byTag };
};
const tagged = () => blocks[4]?.block;
const refusing = () => {
  throw new RpcError(-32_000, 'finalized block not found');
};
const final = { number: 4, hash: makeHash(0, 4, 0) };

test('the final block is the block of the finalized tag, and unknown if the node lacks the tag', async () => {
  await withNodes([naming(tagged)], async ({ nodes }) => {
    assert.deepEqual(await nodes.finalized(signal), final);
  });
  for (const lacking of [() => null, refusing])
    await withNodes([naming(lacking)], async ({ nodes }) => {
      for (let count = 0; count < 2; count += 1) assert.equal(await nodes.finalized(signal), undefined);
    });
});

test('a node that lacked the finalized tag when it was probed is asked again', async () => {
  for (const lacking of [() => null, refusing]) {
    let answer: () => unknown = lacking;
    await withNodes([naming(() => answer())], async ({ nodes }) => {
      await nodes.head(signal);
      assert.equal(nodes.status()[0]?.capabilities?.finalizedTag, false);
      answer = tagged;
      assert.deepEqual(await nodes.finalized(signal), final);
      assert.equal(nodes.status()[0]?.capabilities?.finalizedTag, true);
      answer = refusing;
      await assert.rejects(nodes.finalized(signal), { code: 'unavailable' });
    });
  }
});

test('if too few nodes have the finalized tag, the block that one of them names is known', () =>
  withNodes([naming(tagged), complete()], async ({ nodes }) => {
    assert.deepEqual(await nodes.finalized(signal), { number: 4, hash: undefined, byFew: true });
  }));

test('one of three nodes without the finalized tag does not speak for the others while they owe their heads', () =>
  withNodes([complete(), naming(tagged), naming(tagged)], async ({ nodes, scripted, clock }) => {
    await nodes.head(signal);
    await waitUntil(() => nodes.status().every(({ vote }) => vote !== undefined));
    for (const node of scripted.slice(1)) node.setHttp('hang');
    let isDone = false;
    const end = () => {
      isDone = true;
    };
    nodes.head(signal).then(end, end);
    await waitUntil(() => {
      for (const ms of clock.waits()) clock.advance(ms);
      return isDone;
    });
    clock.advance(1_000);
    await assert.rejects(nodes.finalized(signal), { code: 'unavailable', message: /too few nodes/ });
  }));

test('faults, status and metrics name nodes without their paths', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, metrics }) => {
    scripted[0]?.setHttp({ status: 500 });
    await scripted[1]?.close();
    const fault = await nodes.bundles([7], signal).then(
      () => assert.fail('no node was there'),
      (error: unknown) => error,
    );
    assert.ok(fault instanceof Fault);
    const shown = [
      fault.message,
      String(fault.stack),
      JSON.stringify(nodes.status()),
      await metrics.registry.metrics(),
    ];
    for (const node of scripted) assert.ok(fault.message.includes(new URL(node.url).origin));
    for (const text of shown) assert.ok(!text.includes(SECRET_PATH), text);
  }));

test('an aborted request asks no further node', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes }) => {
    const abort = new AbortController();
    only(scripted).setHttp(() => {
      abort.abort();
      return 'hang';
    });
    await assert.rejects(nodes.bundles([7], abort.signal), { name: 'Fault', code: 'unavailable' });
    assert.equal(scripted[1]?.exchangeCount(), 0);
  }));
