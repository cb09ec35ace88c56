/**
 * Several tracing nodes decide internal transfers, because no hash covers them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGasCheck } from '../../../src/chain/blocks/traced-gas.ts';
import type { Lie } from '../../../src/chain/proof/false-answer.ts';
import { parseHeader } from '../../../src/chain/rpc/parse.ts';
import type { Hash } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createFullChecks } from '../../../src/ingest/full-checks.ts';
import type { TestClock } from '../../kit/clock.ts';
import { blocks, complete, countOf, type NodesStage, nodeAt, withNodes } from '../../kit/nodes.ts';
import {
  type Json,
  type Method,
  type Methods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  RpcError,
  traceMethod,
} from '../../kit/scripted-node.ts';
import { listed, omitting, TRACE } from '../../kit/tracing-nodes.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const seven = makeHash(0, 7, 0);
const full = { scrutiny: 'full' } as const;

const blind = (): Methods => {
  const { [TRACE]: _trace, ...rest } = complete();
  return rest;
};
/** A node of Polygon: the second transaction of each block has no signature, and the trace leaves it out. */
const ofPolygon = (traceOf: (traces: Json[]) => Json[] = (traces) => traces): Methods => ({
  ...complete(),
  eth_getBlockByHash: ([hash]) => {
    const block = blocks.find((one) => one.block.hash === hash)?.block;
    if (block === undefined) return null;
    const [first, second] = block.transactions as [Json, Json];
    return { ...block, transactions: [first, { ...second, r: '0x0', s: '0x0' }] };
  },
  [TRACE]: (params) => traceOf((traceMethod(blocks)(params) as Json[]).slice(0, 1)),
});
const transfersOf = (number: number) =>
  listed(number).transactionHashes.map((txHash) => ({
    ...{ txHash, sender: makeAddress(2), receiver: makeAddress(3), amount: 1n },
  }));
/** Names transactions that are in no block. */
const listingOthers = (): Methods => ({
  ...complete(),
  eth_getBlockByHash: ([hash]) => {
    const block = blocks.find((one) => one.block.hash === hash)?.block;
    return block === undefined ? null : { ...block, transactions: [makeHash(1, 7, 1)] };
  },
});
/** The traces of each block, in the shape of this method. */
const tracesIn = (method: string): Method =>
  method === TRACE
    ? traceMethod(blocks)
    : ([number]) =>
        blocks
          .filter(({ block }) => block.number === number)
          .flatMap(({ block }) =>
            listed(Number(block.number)).transactionHashes.flatMap((hash) => flat(hash, block)),
          );
const flat = (transactionHash: Hash, { hash: blockHash }: Json): Json[] =>
  [[], [0]].map((traceAddress) => ({
    ...{ transactionHash, blockHash, traceAddress, type: 'call' },
    action: { callType: 'call', from: makeAddress(2), to: makeAddress(3), value: '0x1' },
  }));
/** The outcome, with each short wait over as soon as it begins. */
async function passingWaits<T>(clock: TestClock, work: Promise<T>): Promise<T> {
  let isDone = false;
  const end = () => {
    isDone = true;
  };
  work.then(end, end);
  await waitUntil(() => {
    for (const ms of clock.waits()) if (ms < 1_000) clock.advance(ms);
    return isDone;
  });
  return work;
}
/** All nodes have been probed by then. */
const read = async ({ nodes }: NodesStage, reference: Hash | number = seven) => {
  await nodes.head(signal);
  const [bundle] = await nodes.bundles([reference], signal, full);
  return bundle?.transactions.map(({ calls }) => calls.length);
};

test('internal transfers that the preferred node omits come from the nodes that agree', () =>
  withNodes([omitting(), complete(), complete()], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1]);
    const [first] = stage.nodes.status();
    assert.match(first?.error ?? '', /http:\S+ have other internal transfers in block 7/);
    assert.deepEqual(stage.nodes.agreement().tracingNodes, 3);
  }));

test('nodes that do not trace a transaction without a signature still confirm the other transfers', async () => {
  await withNodes([ofPolygon(), ofPolygon()], async (stage) => {
    assert.deepEqual(await read(stage), [1, 0]);
    assert.equal(stage.nodes.agreement().tracingNodes, 2);
  });
  const withoutHash = () => ofPolygon((traces) => traces.map(({ result }) => ({ result })));
  await withNodes([withoutHash(), withoutHash()], async (stage) => {
    assert.deepEqual(await read(stage), [1, 0]);
  });
  await withNodes([ofPolygon(), complete(), complete()], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1], 'a node cannot hide transfers that the others trace');
  });
});

test('the caller learns which node lied even if another one gives the block', () =>
  withNodes([omitting(), complete(), complete()], async ({ nodes, scripted: [liar] }) => {
    await nodes.head(signal);
    const lies: Lie[] = [];
    await nodes.anchored([7], signal, { ...full, onLie: (lie) => void lies.push(lie) });
    assert.deepEqual(lies, [{ node: new URL(liar?.url ?? '').origin, block: 7 }]);
  }));

test('omitted internal transfers are also found in a backfill, which asks by number', () =>
  withNodes([omitting(), complete(), complete()], async (stage) => {
    assert.deepEqual(await read(stage, 7), [1, 1]);
  }));

/** A node that answers each trace of a block above `number` with this error, while `isDown`. */
function failing(methods: Methods, { number = -1, message = 'block not found' } = {}) {
  const down = { isDown: true };
  const trace = methods[TRACE];
  const traceOrFail: Method = (params) => {
    const isNewer = blocks.some(({ block }) => block.hash === params[0] && Number(block.number) > number);
    if (down.isDown && isNewer) throw new RpcError(-32_000, message);
    return trace?.(params);
  };
  return { methods: { ...methods, [TRACE]: traceOrFail }, down };
}

test('a node that could trace before can still trace after an error at its next probe', async () => {
  const { methods, down } = failing(complete());
  down.isDown = false;
  await withNodes([methods], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1]);
    stage.nodes.doubt();
    down.isDown = true;
    await stage.nodes.head(signal);
    await assert.rejects(read(stage), { message: /block not found/ });
    down.isDown = false;
    assert.deepEqual(await read(stage), [1, 1]);
  });
});

test('a node that lies is not believed because the other ones had an error at their probe', async () => {
  const honest = [failing(complete()), failing(complete())];
  const fail = (isDown: boolean) => {
    for (const { down } of honest) down.isDown = isDown;
  };
  fail(false);
  await withNodes([omitting(), ...honest.map(({ methods }) => methods)], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1]);
    stage.nodes.doubt();
    fail(true);
    await stage.nodes.head(signal);
    fail(false);
    assert.deepEqual(await read(stage), [1, 1]);
    assert.equal(stage.nodes.agreement().tracingNodes, 3);
  });
});

test('a node that has not traced its newest block yet is probed with its parent', () =>
  withNodes([failing(complete(), { number: 8 }).methods], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1]);
  }));

test('a node whose first probe had an error is probed again after a minute', async () => {
  const { methods, down } = failing(complete());
  await withNodes([methods], async (stage) => {
    assert.deepEqual(await read(stage), [0, 0]);
    down.isDown = false;
    assert.deepEqual(await read(stage), [0, 0]);
    stage.clock.advance(60_000);
    assert.deepEqual(await read(stage), [1, 1]);
  });
});

test('a node that loses its trace method serves without traces, although another method gives an error', async () => {
  const methods: Methods = complete();
  await withNodes([methods], async (stage) => {
    assert.deepEqual(await read(stage), [1, 1]);
    const { [TRACE]: _lost, ...rest } = methods;
    nodeAt(stage.scripted, 0).methods = {
      ...rest,
      trace_block: () => {
        throw new RpcError(-32_000, 'only on paid plans');
      },
    };
    assert.deepEqual(await read(stage), [0, 0]);
  });
});

test('a node that always gives an error to traces is probed rarely, by one of its callers, and serves if that fails', async () => {
  const { methods } = failing(complete());
  await withNodes([methods], async (stage) => {
    const node = nodeAt(stage.scripted, 0);
    const probesOf = async () => {
      const before = countOf(node, 'web3_clientVersion');
      await Promise.all([read(stage), read(stage), read(stage)]);
      return countOf(node, 'web3_clientVersion') - before;
    };
    await read(stage);
    assert.equal(await probesOf(), 0);
    for (const ms of [60_000, 120_000]) {
      stage.clock.advance(ms);
      assert.equal(await probesOf(), 1);
    }
    stage.clock.advance(60_000);
    assert.equal(await probesOf(), 0);
    stage.clock.advance(180_000);
    node.methods.eth_chainId = () => {
      throw new RpcError(-32_000, 'overloaded');
    };
    assert.deepEqual(await read(stage), [0, 0]);
  });
});

test('two tracing nodes that differ hold the block, and the message names both', () =>
  withNodes([omitting(), complete()], async (stage) => {
    await assert.rejects(read(stage), {
      code: 'inconsistent',
      message:
        /internal transfers of block 7 \(0x\S+\): 2 nodes must give the same answer; these answer differently/,
    });
  }));

test('the traces of the first node are compared even if the others are not probed yet', () =>
  withNodes([omitting(), complete(), complete()], async ({ nodes }) => {
    const [bundle] = await nodes.bundles([seven], signal, full);
    assert.deepEqual(
      bundle?.transactions.map(({ calls }) => calls.length),
      [1, 1],
    );
  }));

test('each block of a request at the head is compared with its own traces', () =>
  withNodes([complete(), complete()], async ({ nodes }) => {
    await nodes.head(signal);
    const bundles = await nodes.bundles([8, makeHash(0, 9, 0)], signal, full);
    assert.deepEqual(
      bundles.map(({ header }) => header.number),
      [8, 9],
    );
    assert.deepEqual(nodes.agreement().outvoted, []);
  }));

test('a node that lists other transactions votes on the proved ones, and delays no other node', () =>
  withNodes([listingOthers(), complete()], async (stage) => {
    await stage.nodes.head(signal);
    assert.equal(await stage.nodes.areConfirmed(listed(7), transfersOf(7), signal), true);
  }));

for (const [method, isEmpty] of [
  [TRACE, false],
  [TRACE, true],
  ['trace_block', false],
] as const)
  test(`${isEmpty ? 'an empty answer' : 'an answer with the traces of another block'} to ${method} is no vote, and the node is asked again`, () =>
    withNodes([complete(), { ...blind(), [method]: tracesIn(method) }], async (stage) => {
      await stage.nodes.head(signal);
      const [, late] = stage.scripted;
      assert.ok(late !== undefined);
      let count = 0;
      const right = tracesIn(method);
      late.methods[method] = (params) => {
        count += 1;
        if (count > 2) return right(params);
        return isEmpty ? [] : right([method === TRACE ? makeHash(0, 6, 0) : '0x6']);
      };
      const confirming = stage.nodes.areConfirmed(listed(7), transfersOf(7), signal);
      assert.equal(await passingWaits(stage.clock, confirming), true);
      assert.equal(count, 3);
      assert.deepEqual(stage.nodes.agreement().outvoted, []);
    }));

test('a node that keeps tracing other transactions has no vote, and its error says so', () =>
  withNodes([complete(), { ...complete(), [TRACE]: () => blocks[6]?.traces }], async (stage) => {
    await stage.nodes.head(signal);
    const confirming = stage.nodes.areConfirmed(listed(7), transfersOf(7), signal);
    await assert.rejects(passingWaits(stage.clock, confirming), {
      code: 'unavailable',
      message: /http:\S+ gave traces of other transactions than those of block 7 \(0x\S+\): 0x\S+ is missing/,
    });
    assert.match(stage.nodes.status()[1]?.error ?? '', /traces of other transactions/);
  }));

test('while nodes agree, only as many as must agree trace each block', () =>
  withNodes([complete(), complete(), complete()], async (stage) => {
    await stage.nodes.head(signal);
    const before = stage.scripted.map((node) => countOf(node, TRACE));
    await read(stage);
    assert.deepEqual(
      stage.scripted.map((node, index) => countOf(node, TRACE) - (before[index] ?? 0)),
      [1, 1, 0],
    );
  }));

/** Does the work while the second node hangs, and returns how many requests each node got for it. */
async function passingLate({ scripted, clock }: NodesStage, work: Promise<unknown>): Promise<number[]> {
  const before = scripted.map((node) => node.exchangeCount());
  const hangs = () => nodeAt(scripted, 1).exchangeCount() > (before[1] ?? 0);
  let isDone = false;
  const end = () => {
    isDone = true;
  };
  work.then(end, end);
  await waitUntil(() => {
    if (hangs() && clock.waits().includes(1_000)) clock.advance(1_000);
    return isDone;
  });
  await work;
  return scripted.map((node, index) => node.exchangeCount() - (before[index] ?? 0));
}

test('a node that hangs while it traces delays five blocks, and then no more for ten minutes', () =>
  withNodes([complete(), complete(), complete()], async (stage) => {
    await stage.nodes.head(signal);
    nodeAt(stage.scripted, 1).setHttp({ delayMs: 600_000 });
    const isAborted = () => stage.nodes.status()[1]?.throttle.inFlight === 0;
    const decide = async () => {
      const counts = await passingLate(stage, stage.nodes.areConfirmed(listed(7), transfersOf(7), signal));
      await waitUntil(isAborted);
      return counts;
    };
    for (let block = 1; block <= 5; block += 1) assert.deepEqual(await decide(), [1, 1, 1]);
    const since = stage.clock.steadyMs();
    for (let block = 1; block <= 5; block += 1) assert.deepEqual(await decide(), [1, 0, 1]);
    assert.equal(stage.clock.steadyMs(), since);
    stage.clock.advance(600_000);
    assert.deepEqual(await decide(), [1, 1, 1]);
  }));

test('once a block is decided, traces that are still under way are aborted', () =>
  withNodes([complete(), complete(), complete()], async (stage) => {
    await read(stage);
    nodeAt(stage.scripted, 1).setHttp({ delayMs: 600_000 });
    await passingLate(stage, stage.nodes.bundles([seven], signal, full));
    await waitUntil(() => stage.nodes.status()[1]?.throttle.inFlight === 0);
  }));

test('without scrutiny no other node is asked', () =>
  withNodes([complete(), complete()], async (stage) => {
    await stage.nodes.head(signal);
    const before = countOf(nodeAt(stage.scripted, 1), TRACE);
    await stage.nodes.bundles([seven], signal);
    assert.equal(countOf(nodeAt(stage.scripted, 1), TRACE), before);
  }));

test('a single tracing node is believed, and the status counts it', () =>
  withNodes([omitting(), blind()], async (stage) => {
    assert.deepEqual(await read(stage), [0, 0]);
    assert.deepEqual(stage.nodes.agreement(), {
      ...{ quorum: 2, tracingNodes: 1, silentTracer: undefined },
      outvoted: [],
    });
  }));

test('matched internal transfers of a backfill are confirmed or found to be wrong', () =>
  withNodes([omitting(), complete(), complete()], async ({ nodes }) => {
    await nodes.head(signal);
    const block = listed(7);
    const transfers = transfersOf(7);
    assert.equal(await nodes.areConfirmed(block, transfers, signal), true);
    assert.equal(await nodes.areConfirmed(block, transfers.slice(1), signal), false);
    assert.equal(
      await nodes.areConfirmed(
        block,
        transfers.map((one) => ({ ...one, amount: 2n })),
        signal,
      ),
      false,
    );
  }));

/** Reads block 7 with the scrutiny that the follower asks for while the head is at this height. Nothing is sampled. */
function createReader({ nodes, clock }: NodesStage) {
  const checks = createFullChecks({ clock, log: silentLog(), isSampled: () => false });
  return async (head: number) => {
    const scrutiny = checks.scrutinyOf({ from: 7, to: 7, head });
    const [bundle] = await nodes.bundles([7], signal, {
      ...(scrutiny && { scrutiny }),
      onUnconfirmed: checks.unconfirmed,
    });
    return bundle?.transactions.map(({ calls }) => calls.length);
  };
}

for (const [count, options] of [
  [3, {}],
  [2, { quorum: 2 }],
] as const)
  test(`one of ${count} tracing nodes is not followed alone when the head has moved on`, async () => {
    const failures = Array.from({ length: count - 1 }, () => failing(complete(), { message: 'timeout' }));
    for (const { down } of failures) down.isDown = false;
    await withNodes(
      [omitting(), ...failures.map(({ methods }) => methods)],
      async (stage) => {
        const readAt = createReader(stage);
        assert.deepEqual(await read(stage, 8).catch(() => 'held'), count === 2 ? 'held' : [1, 1]);
        for (const { down } of failures) down.isDown = true;
        for (const head of [9, 30]) await assert.rejects(readAt(head), { code: 'unavailable' });
        for (const { down } of failures) down.isDown = false;
        if (count === 3) assert.deepEqual(await readAt(40), [1, 1]);
        else await assert.rejects(readAt(40), { code: 'inconsistent' });
      },
      options,
    );
  });

/** Blocks whose traces add up to this much of the 100 gas that each block used. */
const using = (methods: Methods, tracedGas: () => number): Methods => {
  const spent =
    (method: string): Method =>
    (params) => {
      const block = methods[method]?.(params);
      return block && { ...block, gasUsed: '0x64' };
    };
  return {
    ...methods,
    eth_getBlockByNumber: spent('eth_getBlockByNumber'),
    eth_getBlockByHash: spent('eth_getBlockByHash'),
    [TRACE]: (params) => {
      const traces = methods[TRACE]?.(params);
      const gasUsed = `0x${(tracedGas() / 2).toString(16)}`;
      return Array.isArray(traces)
        ? traces.map((trace) => ({ ...trace, result: { ...trace.result, gasUsed } }))
        : traces;
    },
  };
};

test('traces with too little gas are used if several nodes agree on them', () => {
  let gas = 100;
  const node = () => using(complete(), () => gas);
  return withNodes([node(), node()], async (stage) => {
    for (let count = 0; count < 20; count += 1) await read(stage);
    gas = 60;
    assert.deepEqual(await read(stage), [1, 1]);
    assert.equal(stage.nodes.status()[0]?.disproved.count, 0);
  });
});

test('a lone node whose traces have too little gas is not believed when the head has moved on', () => {
  let gas = 100;
  return withNodes([using(complete(), () => gas), blind()], async (stage) => {
    for (let count = 0; count < 20; count += 1) await read(stage);
    const readAt = createReader(stage);
    gas = 60;
    const refused = { code: 'inconsistent', message: /add up to 60 gas of 100, .* restart Chainbell/ };
    for (const head of [9, 30]) await assert.rejects(readAt(head), refused);
  });
});

test('traces with too little gas are refused once the check has held, and never before', () => {
  const header = parseHeader(makeNodeBlock(7).block);
  const bundle = (traced: bigint) => ({
    ...{ header, transactions: [], proved: true, traced: true },
    gas: { used: 100n, traced },
  });
  const node = { name: 'node', isConfirmed: false };
  const observed = createGasCheck();
  for (let count = 0; count < 20; count += 1) observed.check(bundle(100n), node);
  assert.throws(() => observed.check(bundle(99n), node), {
    code: 'inconsistent',
    message: /add up to 99 gas of 100/,
  });
  const odd = createGasCheck();
  odd.check(bundle(100n), node);
  odd.check(bundle(50n), node);
  for (let count = 0; count < 30; count += 1) odd.check(bundle(100n), node);
  odd.check(bundle(50n), node);
  observed.check(bundle(99n), { ...node, isConfirmed: true });
  observed.check(bundle(99n), node);
});
