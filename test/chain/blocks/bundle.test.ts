import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Bundle, type FetchPlan, fetchBundles } from '../../../src/chain/blocks/bundle.ts';
import { createRpc, type Rpc, resultOf } from '../../../src/chain/rpc/rpc.ts';
import { Fault, type FaultCode } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import {
  chainMethods,
  type Json,
  type Methods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  type NodeBlock,
  RpcError,
  type ScriptedNode,
  startScriptedNode,
  traceMethod,
} from '../../kit/scripted-node.ts';

const { signal } = new AbortController();
const plain: FetchPlan = { batch: true, blockReceipts: true, traces: 'none' };
const traceMethods = ['debug_traceBlockByHash', 'debug_traceBlockByNumber', 'trace_block'] as const;

/** A block and its receipts, which a test then spoils. */
type Draft = { block: Json & { transactions: Json[] }; receipts: Json[] };

async function fetchFrom(
  node: ScriptedNode,
  references: Parameters<typeof fetchBundles>[1],
  plan: FetchPlan,
): Promise<Bundle[]> {
  const rpc = createRpc(node.url, createMetrics('test'));
  try {
    return await fetchBundles(rpc, references, plan, signal);
  } finally {
    await rpc.close();
  }
}

/** The Fault for block 7 after `spoil` has changed it. */
async function refusalOf(
  spoil: (draft: Draft, methods: Methods) => void,
  plan = plain,
): Promise<{ code: FaultCode; message: string; isDisproof: boolean }> {
  const draft = makeNodeBlock(7) as NodeBlock & Draft;
  const methods = {
    ...chainMethods(1, [draft]),
    debug_traceBlockByHash: traceMethod([draft]),
    trace_block: traceMethod([draft]),
  };
  spoil(draft, methods);
  await using node = await startScriptedNode(methods);
  const refusal = await fetchFrom(node, [makeHash(0, 7, 0)], plan).then(
    () => assert.fail('the block was accepted'),
    (error: unknown) => error,
  );
  assert.ok(refusal instanceof Fault, String(refusal));
  return refusal;
}

for (const traces of [...traceMethods, 'none'] as const) {
  for (const batch of [true, false]) {
    for (const blockReceipts of [true, false]) {
      const name = `traces ${traces}, batches ${batch}, block receipts ${blockReceipts}`;
      test(`history by number and the head by hash arrive complete and in order: ${name}`, async () => {
        const blocks = Array.from({ length: 40 }, (_, index) =>
          makeNodeBlock(index + 1, { transactions: index % 4 }),
        );
        const methods = chainMethods(1, blocks);
        if (traces !== 'none')
          methods[traces] = traces === 'trace_block' ? flatTraces(blocks) : traceMethod(blocks);
        if (!blockReceipts) delete methods.eth_getBlockReceipts;
        await using node = await startScriptedNode(methods);
        const references = blocks.map((_, index) => (index === 39 ? makeHash(0, 40, 0) : index + 1));

        const bundles = await fetchFrom(node, references, { batch, blockReceipts, traces });

        assert.deepEqual(
          bundles.map(({ header }) => header.hash),
          blocks.map(({ block }) => block.hash),
        );
        for (const [index, { header, transactions }] of bundles.entries()) {
          const hashes = Array.from({ length: index % 4 }, (_, position) =>
            makeHash(0, header.number, position + 1),
          );
          assert.deepEqual(
            transactions.map(({ hash }) => hash),
            hashes,
          );
          const amounts = transactions.map(({ calls }) => calls.map((call) => call.amount));
          assert.deepEqual(
            amounts,
            hashes.map(() => (traces === 'none' ? [] : [1n])),
          );
        }
      });
    }
  }
}

test('at most 60 calls go out in one HTTP request', async () => {
  const blocks = Array.from({ length: 40 }, (_, index) => makeNodeBlock(index + 1, { transactions: 0 }));
  await using node = await startScriptedNode(chainMethods(1, blocks));
  await fetchFrom(
    node,
    blocks.map((_, index) => index + 1),
    plain,
  );
  assert.equal(node.calls.length, 80);
  assert.equal(node.exchangeCount(), 2);
});

test('without references there are no bundles and no requests', async () => {
  await using node = await startScriptedNode();
  assert.deepEqual(await fetchFrom(node, [], plain), []);
  assert.equal(node.exchangeCount(), 0);
});

test('a receipt that the list omits is requested separately', async () => {
  const block = makeNodeBlock(7, { transactions: 3 });
  const methods = chainMethods(1, [block]);
  await using node = await startScriptedNode({ ...methods, eth_getBlockReceipts: () => [block.receipts[1]] });
  const [bundle] = await fetchFrom(node, [7], plain);
  assert.equal(bundle?.transactions.length, 3);
  assert.deepEqual(
    node.calls.filter(({ method }) => method === 'eth_getTransactionReceipt').map(({ params }) => params[0]),
    [makeHash(0, 7, 1), makeHash(0, 7, 3)],
  );
});

for (const [name, list] of [
  ['repeats one in place of another', ([first]: Json[]) => [first, first, first]],
  ['has null in place of two', ([first]: Json[]) => [null, first, null]],
  ['repeats one beside all others', (all: Json[]) => [...all, ...all]],
  ['is empty', () => []],
] as const) {
  test(`a list of receipts that ${name} is completed, in the order of the transactions`, async () => {
    const block = makeNodeBlock(7, { transactions: 3 });
    for (const [index, receipt] of block.receipts.entries()) receipt.status = index === 1 ? '0x0' : '0x1';
    const methods = chainMethods(1, [block]);
    await using node = await startScriptedNode({
      ...methods,
      eth_getBlockReceipts: () => list(block.receipts),
    });
    const [bundle] = await fetchFrom(node, [7], plain);
    assert.deepEqual(
      bundle?.transactions.map(({ hash, succeeded }) => [hash, succeeded]),
      [1, 2, 3].map((position) => [makeHash(0, 7, position), position !== 2]),
    );
  });
}

test('a block whose receipt no method returns is refused, and the message names the transaction', async () => {
  for (const [single, why] of [
    [() => null, /eth_getTransactionReceipt returned null/],
    [undefined, /does not exist \(-32601\)/],
  ] as const) {
    const { code, message } = await refusalOf((_, methods) => {
      const receipts = methods.eth_getBlockReceipts?.([makeHash(0, 7, 0)]) as Json[];
      methods.eth_getBlockReceipts = () => receipts.slice(0, 1);
      if (single === undefined) delete methods.eth_getTransactionReceipt;
      else methods.eth_getTransactionReceipt = single;
    });
    assert.equal(code, 'inconsistent');
    assert.match(message, new RegExp(`no receipt of transaction ${makeHash(0, 7, 2)} in block 7`));
    assert.match(message, why);
    assert.match(message, /add another node to chain\.rpc/);
  }
});

test('a node that serves no receipts at all is named with the methods that it needs', async () => {
  const { code, message } = await refusalOf(
    (_, methods) => {
      delete methods.eth_getBlockReceipts;
      delete methods.eth_getTransactionReceipt;
    },
    { ...plain, blockReceipts: false },
  );
  assert.equal(code, 'inconsistent');
  assert.match(
    message,
    /serves no receipts.* enable eth_getBlockReceipts or eth_getTransactionReceipt on it, or replace it in chain\.rpc/,
  );
});

test('a receipt that is unavailable for a moment is requested again, and the follower does not hold', async () => {
  const { code, message } = await refusalOf((_, methods) => {
    methods.eth_getBlockReceipts = () => [];
    methods.eth_getTransactionReceipt = () => {
      throw new RpcError(-32_000, 'busy');
    };
  });
  assert.equal(code, 'unavailable');
  assert.match(message, new RegExp(`${makeHash(0, 7, 1)}.*busy`));
});

test('a separately requested receipt of another transaction is refused', async () => {
  const { code, message } = await refusalOf((draft, methods) => {
    methods.eth_getBlockReceipts = () => [draft.receipts[0]];
    methods.eth_getTransactionReceipt = () => draft.receipts[0];
  });
  assert.equal(code, 'inconsistent');
  assert.match(message, /gave the receipt of another transaction/);
});

const refusals: [name: string, code: FaultCode, spoil: (draft: Draft, methods: Methods) => void][] = [
  [
    'a block that the node does not have yet',
    'unavailable',
    (_, methods) => (methods.eth_getBlockByHash = () => null),
  ],
  [
    'receipts that the node does not have yet',
    'unavailable',
    (_, methods) => (methods.eth_getBlockReceipts = () => null),
  ],
  [
    'another block than the one asked for',
    'inconsistent',
    (_, methods) => {
      const other = makeNodeBlock(7, { branch: 1 });
      Object.assign(methods, {
        eth_getBlockByHash: () => other.block,
        eth_getBlockReceipts: () => other.receipts,
      });
    },
  ],
  [
    'a receipt of another block',
    'inconsistent',
    ({ receipts: [receipt] }) => ((receipt ?? {}).blockHash = makeHash(1, 7, 0)),
  ],
  [
    'a receipt of another transaction',
    'inconsistent',
    ({ receipts: [receipt] }) => ((receipt ?? {}).transactionHash = makeHash(1, 7, 1)),
  ],
  [
    'the same transaction twice',
    'inconsistent',
    ({ block: { transactions }, receipts }) => {
      transactions[1] = transactions[0] ?? {};
      receipts[1] = receipts[0] ?? {};
    },
  ],
  [
    'a receipt with another sender than its transaction',
    'inconsistent',
    ({ receipts: [receipt] }) => Object.assign(receipt ?? {}, { from: makeAddress(9), to: makeAddress(2) }),
  ],
  [
    'a receipt with another receiver than its transaction',
    'inconsistent',
    ({ receipts: [receipt] }) => Object.assign(receipt ?? {}, { from: makeAddress(1), to: makeAddress(9) }),
  ],
  [
    'a transaction of a known type without a value',
    'inconsistent',
    ({ block: { transactions } }) => delete transactions[0]?.value,
  ],
  ['the same receipt twice', 'inconsistent', ({ receipts }) => receipts.splice(1, 1, receipts[0] ?? {})],
  [
    'a receipt too many',
    'inconsistent',
    ({ receipts }) => receipts.push({ ...receipts[0], transactionHash: makeHash(1, 7, 9) }),
  ],
  ['a receipt that no answer contains', 'inconsistent', ({ receipts }) => receipts.pop()],
  [
    'transactions by hash only',
    'inconsistent',
    ({ block }) => (block.transactions = [makeHash(0, 7, 1)] as never),
  ],
  ['a time beyond all calendars', 'inconsistent', ({ block }) => (block.timestamp = '0x1fffffffffffff')],
  [
    'an amount of 257 bits',
    'inconsistent',
    ({ block: { transactions } }) => ((transactions[0] ?? {}).value = `0x1${'0'.repeat(64)}`),
  ],
];

for (const [name, code, spoil] of refusals) {
  test(`${name}: refused as ${code}`, async () => {
    const refusal = await refusalOf(spoil);
    assert.equal(refusal.code, code, refusal.message);
    assert.ok(refusal.message.length < 500);
  });
}

test('a value nested too deeply to be shown is refused like any other wrong value', async () => {
  let value: unknown = [];
  for (let level = 0; level < 100_000; level += 1) value = [value];
  const rpc = answerWith({ eth_getBlockByHash: () => value, eth_getBlockReceipts: () => [] });
  await assert.rejects(fetchBundles(rpc, [makeHash(0, 7, 0)], plain, signal), {
    name: 'Fault',
    code: 'inconsistent',
  });
});

test('traces of another block at the same height are refused', async () => {
  const plan: FetchPlan = { ...plain, traces: 'trace_block' };
  // The same transactions, mined again in another block.
  const otherBranch = (draft: Draft) =>
    flatTracesOf(draft).map((trace) => ({ ...trace, blockHash: makeHash(1, 7, 0) }));
  const refusal = await refusalOf((draft, methods) => (methods.trace_block = () => otherBranch(draft)), plan);
  // The node may have switched branches between two requests.
  assert.deepEqual([refusal.code, refusal.isDisproof], ['inconsistent', false]);
});

test('traces whose block hash is in capitals are of this block', async () => {
  const block = makeNodeBlock(7);
  const blockHash = `0x${makeHash(0, 7, 0).slice(2).toUpperCase()}`;
  const traces = flatTracesOf(block).map((trace) => ({ ...trace, blockHash }));
  await using node = await startScriptedNode({ ...chainMethods(1, [block]), trace_block: () => traces });
  const [bundle] = await fetchFrom(node, [makeHash(0, 7, 0)], { ...plain, traces: 'trace_block' });
  assert.equal(bundle?.traced, true);
});

test('a block with a transaction that has no trace is refused', async () => {
  const plan: FetchPlan = { ...plain, traces: 'debug_traceBlockByHash' };
  const refusal = await refusalOf((_, methods) => (methods.debug_traceBlockByHash = () => []), plan);
  assert.equal(refusal.code, 'inconsistent');
});

/** A block of two transactions whose second one is as Polygon's state-sync transaction: without a signature, and not traced. */
function stateSyncBlock(): NodeBlock & { traces: Json[] } {
  const block = makeNodeBlock(7) as NodeBlock & Draft & { traces: Json[] };
  Object.assign(block.block.transactions[0] ?? {}, { r: '0x1', s: '0x1' });
  Object.assign(block.block.transactions[1] ?? {}, { r: '0x0', s: '0x0', value: '0x0' });
  block.traces.pop();
  return block;
}

for (const isNamed of [true, false])
  test(`a transaction without a signature may lack a trace, ${isNamed ? 'with' : 'without'} txHash`, async () => {
    const block = stateSyncBlock();
    if (!isNamed) block.traces = block.traces.map(({ result }) => ({ result }));
    const methods = { ...chainMethods(1, [block]), debug_traceBlockByHash: traceMethod([block]) };
    await using node = await startScriptedNode(methods);
    const [bundle] = await fetchFrom(node, [7], { ...plain, traces: 'debug_traceBlockByHash' });
    assert.deepEqual(
      bundle?.transactions.map(({ calls }) => calls.length),
      [1, 0],
    );
  });

test('a trace without txHash must begin with the sender and the receiver of the transaction at its position', async () => {
  const plan: FetchPlan = { ...plain, traces: 'debug_traceBlockByHash' };
  const fetchWith = async (spoil: (transaction: Json, root: Json) => void) => {
    const block = makeNodeBlock(7) as NodeBlock & Draft & { traces: { result: Json }[] };
    for (const [index, { result }] of block.traces.entries())
      spoil(block.block.transactions[index] ?? {}, result);
    block.traces = block.traces.map(({ result }) => ({ result }));
    await using node = await startScriptedNode({
      ...chainMethods(1, [block]),
      debug_traceBlockByHash: traceMethod([block]),
    });
    const [bundle] = await fetchFrom(node, [7], plan);
    return bundle?.transactions.map(({ calls }) => calls.length);
  };
  assert.deepEqual(await fetchWith(() => {}), [1, 1]);
  assert.deepEqual(
    await fetchWith((transaction, root) => {
      transaction.to = null;
      root.to = makeAddress(8);
    }),
    [1, 1],
    'a created contract has an address in the trace alone',
  );
  assert.deepEqual(
    await fetchWith((transaction, root) => {
      transaction.type = '0x7f';
      root.from = makeAddress(9);
    }),
    [1, 1],
    'a chain may trace its own transactions with other accounts',
  );
  assert.deepEqual(
    await fetchWith((_, root) => {
      root.from = makeAddress(9);
      root.calls = [];
    }),
    [0, 0],
    'nothing is assigned to a wrong transaction',
  );
  for (const party of ['from', 'to'])
    await assert.rejects(
      fetchWith((_, root) => (root[party] = makeAddress(9))),
      {
        code: 'inconsistent',
        message: /gave the trace of another transaction at the position of 0x.*internalTransfers to off$/,
      },
    );
});

test('a transaction that failed by its receipt has no internal transfers, whatever the trace says', async () => {
  const block = makeNodeBlock(7, { transactions: 2 });
  Object.assign(block.receipts[0] ?? {}, { status: '0x0' });
  const methods = { ...chainMethods(1, [block]), debug_traceBlockByHash: traceMethod([block]) };
  await using node = await startScriptedNode(methods);
  const [bundle] = await fetchFrom(node, [7], { ...plain, traces: 'debug_traceBlockByHash' });
  assert.deepEqual(
    bundle?.transactions.map(({ calls }) => calls.length),
    [0, 1],
  );
});

test('a trace that says that a transaction failed, although its receipt says that it succeeded, is refused', async () => {
  const { code, message } = await refusalOf(
    ({ receipts }, methods) => {
      for (const receipt of receipts) receipt.status = '0x1';
      const trace = methods.debug_traceBlockByHash ?? assert.fail();
      methods.debug_traceBlockByHash = (params) =>
        (trace(params) as { result: Json }[]).map(({ result, ...rest }) => ({
          ...rest,
          result: { ...result, error: 'out of gas' },
        }));
    },
    { ...plain, traces: 'debug_traceBlockByHash' },
  );
  assert.equal(code, 'inconsistent');
  assert.match(message, /traced 0x\w+ as failed, and its receipt says that it succeeded$/);
});

test('without a status the trace decides whether a transaction succeeded, and without both it counts as successful', async () => {
  const block = makeNodeBlock(7, { transactions: 2 }) as NodeBlock & { traces: { result: Json }[] };
  for (const receipt of block.receipts) delete receipt.status;
  Object.assign(block.traces[0]?.result ?? {}, { error: 'out of gas' });
  await using node = await startScriptedNode({
    ...chainMethods(1, [block]),
    debug_traceBlockByHash: traceMethod([block]),
  });
  const [traced] = await fetchFrom(node, [7], { ...plain, traces: 'debug_traceBlockByHash' });
  assert.deepEqual(
    traced?.transactions.map(({ succeeded }) => succeeded),
    [false, true],
  );
  const [untraced] = await fetchFrom(node, [7], plain);
  assert.deepEqual(
    untraced?.transactions.map(({ succeeded }) => succeeded),
    [true, true],
  );
});

for (const traces of ['debug_traceBlockByHash', 'trace_block'] as const)
  test(`a trace by ${traces} that begins like another transaction of its block is refused`, async () => {
    const fetchWith = async (senders: [first: string, second: string]) => {
      const block = makeNodeBlock(7) as NodeBlock & Draft & { traces: { result: Json }[] };
      Object.assign(block.block.transactions[1] ?? {}, { from: makeAddress(5) });
      for (const [index, { result }] of block.traces.entries()) result.from = senders[index];
      const flat = block.traces.flatMap(({ result, ...rest }, index) => {
        const entry = { type: 'call', transactionHash: block.receipts[index]?.transactionHash };
        const action = { callType: 'call', from: makeAddress(2), to: makeAddress(3), value: '0x1' };
        return [
          { ...rest, ...entry, traceAddress: [], action: { callType: 'call', ...result } },
          { ...entry, traceAddress: [0], action },
        ];
      });
      await using node = await startScriptedNode({
        ...chainMethods(1, [block]),
        debug_traceBlockByHash: traceMethod([block]),
        trace_block: () => flat,
      });
      const [bundle] = await fetchFrom(node, [7], { ...plain, traces });
      return bundle?.transactions.map(({ calls }) => calls.length);
    };
    const [first, second] = [makeAddress(1), makeAddress(5)];
    assert.deepEqual(await fetchWith([first, second]), [1, 1]);
    assert.deepEqual(await fetchWith([makeAddress(9), second]), [1, 1], 'a chain may trace other accounts');
    await assert.rejects(fetchWith([second, first]), {
      code: 'inconsistent',
      message: /gave the trace of another transaction as that of 0x.*internalTransfers to off$/,
    });
  });

test('any JSON anywhere in the answers leads to a bundle or a Fault, never to another error', async () => {
  const methodNames = [
    'eth_getBlockByHash',
    'eth_getBlockReceipts',
    'debug_traceBlockByHash',
    'trace_block',
  ] as const;
  const anyJson = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom<unknown>(null, '0x', '', [], {}, -1, { toString: 1 }, [{ toString: 1 }]),
  );
  const run = async (method: (typeof methodNames)[number], place: readonly number[], value: unknown) => {
    const block = makeNodeBlock(7);
    const methods: Methods = {
      ...chainMethods(1, [block]),
      debug_traceBlockByHash: traceMethod([block]),
      trace_block: flatTraces([block]),
    };
    const answer = replaceAt(methods[method]?.([makeHash(0, 7, 0)]), place, value);
    const rpc = answerWith({ ...methods, [method]: () => answer });
    const traces = method === 'trace_block' ? 'trace_block' : 'debug_traceBlockByHash';
    try {
      const [bundle] = await fetchBundles(rpc, [makeHash(0, 7, 0)], { ...plain, traces }, signal);
      assert.ok(bundle !== undefined && !Number.isNaN(bundle.header.minedAt.getTime()));
    } catch (error) {
      assert.ok(error instanceof Fault, String(error));
    }
  };
  const places = fc.array(fc.nat(9), { maxLength: 6 });
  await fc.assert(fc.asyncProperty(fc.constantFrom(...methodNames), places, anyJson, run), {
    numRuns: 1_500,
  });
});

/** A node without HTTP. */
function answerWith(methods: Methods): Rpc {
  const rpc: Rpc = {
    name: 'http://node',
    batch: async (calls) =>
      calls.map(({ method, params }) => ({ ok: true, result: methods[method]?.(params) ?? null })),
    call: async (method, params) =>
      resultOf(rpc, method, { ok: true, result: methods[method]?.(params) ?? null }),
    close: async () => {},
  };
  return rpc;
}

/** A copy with another value at this path of positions, from the outermost list inward. */
function replaceAt(json: unknown, place: readonly number[], value: unknown): unknown {
  const [position, ...rest] = place;
  if (position === undefined || typeof json !== 'object' || json === null) return value;
  const copy = structuredClone(json) as Record<string, unknown>;
  const keys = Object.keys(copy);
  const key = keys[position % Math.max(1, keys.length)];
  if (key !== undefined) copy[key] = replaceAt(copy[key], rest, value);
  return copy;
}

/** The made-up block's traces in the form of trace_block. */
function flatTraces(blocks: readonly NodeBlock[]): Methods[string] {
  return ([reference]) => {
    const block = blocks.find((one) => one.block.number === reference || one.block.hash === reference);
    return block === undefined ? null : flatTracesOf(block);
  };
}

function flatTracesOf({ block, receipts }: NodeBlock): Json[] {
  const trace = (traceAddress: number[], action: Json) => ({
    type: 'call',
    action: { callType: 'call', ...action },
    traceAddress,
  });
  const of = (transactionHash: unknown) => ({ transactionHash, blockHash: block.hash });
  const one = `0x${'1'.padStart(40, '0')}`;
  return receipts.flatMap(({ transactionHash }) => [
    { ...of(transactionHash), ...trace([], { from: one, to: one, value: '0x10' }) },
    { ...of(transactionHash), ...trace([0], { from: one, to: one, value: '0x1' }) },
  ]);
}
