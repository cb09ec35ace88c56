import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseCallTracer, parseTraceBlock, type TransactionTrace } from '../../../src/chain/blocks/traces.ts';
import { zeroAddress } from '../../../src/core/hex.ts';
import { readRealchain, testWithRealchain } from '../../kit/replay.ts';
import { type Json, makeAddress, makeHash } from '../../kit/scripted-node.ts';

/** A frame as callTracer gives it. */
type Frame = {
  type: string;
  from: string;
  to?: string;
  value?: string;
  error?: string | null;
  revertReason?: string;
  calls?: Frame[] | null;
};
type Traced = { txHash: string; result: Frame };

const hash = makeHash(0, 1, 1);
const [alice, bob, carol, dave] = [makeAddress(1), makeAddress(2), makeAddress(3), makeAddress(4)];

const call = (from: string, to: string, value: string, calls: Frame[] = []): Frame => ({
  type: 'CALL',
  from,
  to,
  value,
  calls,
});

const cases: { name: string; root: Frame; moved: [from: string, to: string, amount: bigint][] }[] = [
  {
    name: "the transaction's own call is not an internal transfer",
    root: call(alice, bob, '0x5'),
    moved: [],
  },
  {
    name: 'calls with value count in the order in which they happen, at any depth',
    root: call(alice, bob, '0x0', [
      call(bob, carol, '0x1', [call(carol, dave, '0x2')]),
      call(bob, dave, '0x3'),
    ]),
    moved: [
      [bob, carol, 1n],
      [carol, dave, 2n],
      [bob, dave, 3n],
    ],
  },
  {
    name: 'a call without value moves nothing, but those below it may',
    root: call(alice, bob, '0x0', [call(bob, carol, '0x0', [call(carol, dave, '0x2')])]),
    moved: [[carol, dave, 2n]],
  },
  {
    name: 'a reverted call voids everything below it and nothing beside it',
    root: call(alice, bob, '0x0', [
      {
        ...call(bob, carol, '0x1', [call(carol, dave, '0x2', [call(dave, alice, '0x3')])]),
        error: 'execution reverted',
      },
      call(bob, dave, '0x4'),
    ]),
    moved: [[bob, dave, 4n]],
  },
  {
    name: 'the tenth sibling of a reverted call is not taken for its child',
    root: call(alice, bob, '0x0', [
      call(bob, carol, '0x0'),
      { ...call(bob, carol, '0x1'), error: 'out of gas' },
      ...Array.from({ length: 9 }, () => call(bob, dave, '0x1')),
    ]),
    moved: Array.from({ length: 9 }, () => [bob, dave, 1n]),
  },
  {
    name: 'DELEGATECALL, CALLCODE and STATICCALL move nothing themselves, but calls below them do',
    root: call(alice, bob, '0x0', [
      { type: 'DELEGATECALL', from: bob, to: carol, value: '0x9', calls: [call(bob, dave, '0x1')] },
      { type: 'CALLCODE', from: bob, to: carol, value: '0x9' },
      { type: 'STATICCALL', from: bob, to: carol },
    ]),
    moved: [[bob, dave, 1n]],
  },
  {
    name: 'value given to a new contract goes to the address it gets',
    root: call(alice, bob, '0x0', [
      { type: 'CREATE', from: bob, to: carol, value: '0x1', calls: [call(carol, alice, '0x1')] },
      { type: 'CREATE2', from: bob, to: dave, value: '0x2' },
    ]),
    moved: [
      [bob, carol, 1n],
      [carol, alice, 1n],
      [bob, dave, 2n],
    ],
  },
  {
    name: 'a contract that is not made receives nothing',
    root: call(alice, bob, '0x0', [
      { type: 'CREATE', from: bob, value: '0x1', error: 'contract creation code storage out of gas' },
    ]),
    moved: [],
  },
  {
    name: 'a self-destruct moves what the contract had',
    root: call(alice, bob, '0x0', [
      call(bob, carol, '0x0', [{ type: 'SELFDESTRUCT', from: carol, to: dave, value: '0x7' }]),
    ]),
    moved: [[carol, dave, 7n]],
  },
  {
    name: 'a self-destruct in delegated code moves what the delegating account had',
    root: call(alice, bob, '0x0', [
      {
        type: 'DELEGATECALL',
        from: bob,
        to: carol,
        calls: [{ type: 'SELFDESTRUCT', from: bob, to: dave, value: '0x7' }],
      },
    ]),
    moved: [[bob, dave, 7n]],
  },
  {
    name: 'a self-destruct towards itself moves nothing',
    root: call(alice, bob, '0x0', [
      call(bob, carol, '0x0', [{ type: 'SELFDESTRUCT', from: carol, to: carol, value: '0x7' }]),
      call(bob, dave, '0x4'),
    ]),
    moved: [[bob, dave, 4n]],
  },
  {
    name: 'a self-destruct of another account than the one whose code runs is no transfer',
    root: call(alice, bob, '0x0', [
      call(bob, dave, '0x6'),
      call(bob, carol, '0x0', [{ type: 'SELFDESTRUCT', from: bob, to: dave, value: '0x6' }]),
      call(bob, carol, '0x0', [{ type: 'SELFDESTRUCT', from: zeroAddress }]),
    ]),
    moved: [[bob, dave, 6n]],
  },
  {
    name: 'an error that is null is none',
    root: call(alice, bob, '0x0', [{ ...call(bob, carol, '0x1', [call(carol, dave, '0x2')]), error: null }]),
    moved: [
      [bob, carol, 1n],
      [carol, dave, 2n],
    ],
  },
];

for (const { name, root, moved } of cases) {
  test(`callTracer and trace_block: ${name}`, () => {
    const expected = {
      succeeded: true,
      calls: moved.map(([sender, receiver, amount]) => ({ sender, receiver, amount })),
    };
    const traced = [{ txHash: hash, result: root }];
    assert.deepEqual(listOf(parseCallTracer(traced, [hash])), [[hash, expected]]);
    assert.deepEqual(listOf(parseTraceBlock(flatten(traced))), [[hash, expected]]);
  });
}

test('callTracer and trace_block: any tree of calls gives the actual transfers with equal numbers', () => {
  let movedCount = 0;
  fc.assert(
    fc.property(callTree, (tree) => {
      const expected = tree.flatMap((step) => movedBy(step, bob));
      movedCount += expected.length;
      const traced = (frames: Frame[]) => [{ txHash: hash, result: call(alice, bob, '0x5', frames) }];
      const nested = traced(tree.map((step) => frameOf(step, bob)));
      // Parity-style nodes leave out calls to precompiles without value.
      const flat = flatten(traced(tree.filter(isTold).map((step) => frameOf(step, bob, isTold))));
      assert.deepEqual(parseCallTracer(nested, [hash]).get(hash)?.calls, expected);
      assert.deepEqual(parseTraceBlock(flat).get(hash)?.calls, expected);
    }),
    { numRuns: 2_000 },
  );
  assert.ok(movedCount > 100, `only ${movedCount} transfers in all`);
});

/** One action of an account inside a transaction. */
type Step = {
  type: 'CALL' | 'CREATE' | 'CREATE2' | 'DELEGATECALL' | 'CALLCODE' | 'STATICCALL' | 'SELFDESTRUCT';
  to: `0x${string}`;
  amount: number;
  fails: boolean;
  steps: Step[];
};

const precompile = makeAddress(4);
const { tree: callTree } = fc.letrec<{ tree: Step[]; step: Step }>((tie) => ({
  tree: fc.array(tie('step'), { maxLength: 4, depthIdentifier: 'calls' }),
  step: fc.record({
    type: fc.constantFrom(
      'CALL',
      'CALL',
      'CALL',
      'CREATE',
      'CREATE2',
      'DELEGATECALL',
      'CALLCODE',
      'STATICCALL',
      'SELFDESTRUCT',
    ),
    to: fc.constantFrom(alice, bob, carol, dave, precompile),
    amount: fc.nat(3),
    fails: fc.nat(4).map((number) => number === 0),
    steps: fc.oneof({ maxDepth: 4, depthIdentifier: 'calls' }, fc.constant<Step[]>([]), tie('tree')),
  }),
}));

/** A self-destruct and a precompile are always leaves, because they call no other account. */
const below = ({ type, to, steps }: Step) => (type === 'SELFDESTRUCT' || to === precompile ? [] : steps);
const isTold = ({ type, to, amount }: Step) => to !== precompile || type === 'SELFDESTRUCT' || amount > 0;
const runsOnOwn = ({ type }: Step) => type === 'DELEGATECALL' || type === 'CALLCODE';

/** The transfers of a step by `account` under the rules of the EVM. */
function movedBy(step: Step, account: string): { sender: string; receiver: string; amount: bigint }[] {
  const { type, to, amount, fails } = step;
  if (fails) return [];
  const gives = ['CALL', 'CREATE', 'CREATE2'].includes(type) || (type === 'SELFDESTRUCT' && to !== account);
  const own = gives && amount > 0 ? [{ sender: account, receiver: to, amount: BigInt(amount) }] : [];
  return [...own, ...below(step).flatMap((one) => movedBy(one, runsOnOwn(step) ? account : to))];
}

function frameOf(step: Step, account: string, shows: (step: Step) => boolean = () => true): Frame {
  const { type, to, amount, fails } = step;
  const inner = runsOnOwn(step) ? account : to;
  const calls = below(step)
    .filter(shows)
    .map((one) => frameOf(one, inner, shows));
  const value = `0x${amount.toString(16)}`;
  return { type, from: account, to, value, ...(fails && { error: 'execution reverted' }), calls };
}

test('a transaction that failed as a whole has no internal transfers', () => {
  const root = { ...call(alice, bob, '0x5', [call(bob, carol, '0x1')]), error: 'execution reverted' };
  const expected = [[hash, { succeeded: false, calls: [] }]];
  assert.deepEqual(listOf(parseCallTracer([{ txHash: hash, result: root }], [hash])), expected);
  assert.deepEqual(listOf(parseTraceBlock(flatten([{ txHash: hash, result: root }]))), expected);
});

test('traces without transaction hashes belong to the transactions in their order', () => {
  const hashes = [makeHash(0, 1, 1), makeHash(0, 1, 2)];
  const traced = [call(alice, bob, '0x0', [call(bob, carol, '0x1')]), call(alice, bob, '0x0')].map(
    (result) => ({ result }),
  );
  assert.deepEqual(
    listOf(parseCallTracer(traced, hashes)).map(([key, { calls }]) => [key, calls.length]),
    [
      [hashes[0], 1],
      [hashes[1], 0],
    ],
  );
});

test('a call with a revertReason has failed, although ZKsync nodes leave its error null', () => {
  const reverted = {
    ...call(bob, carol, '0x1', [call(carol, dave, '0x2')]),
    error: null,
    revertReason: 'no',
  };
  const root = call(alice, bob, '0x0', [reverted, call(bob, dave, '0x3')]);
  const { calls } = parseCallTracer([{ txHash: hash, result: root }], [hash]).get(hash) ?? {};
  assert.deepEqual(
    calls?.map(({ amount }) => amount),
    [3n],
  );
});

for (const error of ['', false, {}, 0])
  test(`a call with the error ${JSON.stringify(error)} is refused, because nothing says whether it failed`, () => {
    const root = { ...call(alice, bob, '0x0'), calls: [{ ...call(bob, carol, '0x1'), error }] };
    assert.throws(() => parseCallTracer([{ txHash: hash, result: root }], [hash]), {
      code: 'inconsistent',
      message: /^the node's trace\.error is neither missing nor the text of an error\. /,
    });
  });

test('traces that begin at the bootloader of ZKsync, or name no sender, are refused', () => {
  const transfer = call(alice, bob, '0x5');
  const ofBootloader = call(zeroAddress, '0x0000000000000000000000000000000000008001', '0x0', [transfer]);
  const ofOpcodes = { gas: 21_000, failed: false, returnValue: '', structLogs: [] };
  for (const result of [ofBootloader, ofOpcodes])
    assert.throws(() => parseCallTracer([{ result }], [hash]), {
      ...{ name: 'Fault', code: 'inconsistent' },
      message: /^the node's traces can't be used: .* If this lasts, set chain\.internalTransfers to off$/,
    });
});

test('opcodes beside call traces only say that a transaction could not be traced', () => {
  const opcodes = { gas: 21_000, failed: false, returnValue: '', structLogs: [] };
  const hashes = [hash, makeHash(0, 1, 2)];
  for (const entry of [{ result: opcodes }, opcodes])
    assert.throws(() => parseCallTracer([{ result: call(alice, bob, '0x5') }, entry], hashes), {
      ...{ name: 'Fault', code: 'unavailable' },
      message: `the node could not trace ${hashes[1]}: it gave no trace of callTracer`,
    });
});

test('transactions without a signature may lack a trace, also where only the position says whose a trace is', () => {
  const hashes = [makeHash(0, 1, 1), makeHash(0, 1, 2), makeHash(0, 1, 3)] as const;
  const result = call(alice, bob, '0x0', [call(bob, carol, '0x1')]);
  const read = (traced: unknown[], unsigned: (typeof hashes)[number][]) => [
    ...parseCallTracer(traced, hashes, new Set(unsigned)).keys(),
  ];
  const named = [
    { txHash: hashes[0], result },
    { txHash: hashes[2], result },
  ];
  assert.deepEqual(read(named, [hashes[1]]), [hashes[0], hashes[2]]);
  assert.deepEqual(read([{ result }, { result }], [hashes[1]]), [hashes[0], hashes[2]]);
  assert.deepEqual(read([{ result }, { result }, { result }], [hashes[1]]), hashes);
  assert.throws(() => read([{ result }], [hashes[1]]), { code: 'inconsistent' });
});

test('a self-destruct is recognized as suicide or selfdestruct in trace_block', () => {
  const root = call(alice, bob, '0x0', [{ type: 'SELFDESTRUCT', from: bob, to: dave, value: '0x7' }]);
  const told = flatten([{ txHash: hash, result: root }]);
  const renamed = told.map((entry) =>
    entry.type === 'suicide' ? { ...entry, type: 'selfdestruct' } : entry,
  );
  assert.notDeepEqual(renamed, told);
  assert.deepEqual(parseTraceBlock(renamed), parseTraceBlock(told));
  assert.equal(parseTraceBlock(renamed).get(hash)?.calls.length, 1);
});

test('block rewards in trace_block are not transfers', () => {
  const reward = {
    type: 'reward',
    action: { author: alice, rewardType: 'block', value: '0x1bc16d674ec80000' },
    traceAddress: [],
  };
  assert.equal(parseTraceBlock([reward]).size, 0);
});

test('calls nested as deeply as the EVM allows are read, and deeper ones are refused', () => {
  const nested = (depth: number) => {
    let frame = call(alice, bob, '0x1');
    for (let level = 0; level < depth; level += 1) frame = call(alice, bob, '0x1', [frame]);
    return [{ txHash: hash, result: frame }];
  };
  // One more is listed of a call that failed at the limit, and of a self-destruct there.
  assert.equal(parseCallTracer(nested(1_025), [hash]).get(hash)?.calls.length, 1_025);
  assert.throws(() => parseCallTracer(nested(1_026), [hash]), { name: 'Fault', code: 'inconsistent' });
  assert.throws(() => parseCallTracer(nested(20_000), [hash]), { name: 'Fault', code: 'inconsistent' });
});

test('trace_block with paths deeper than the EVM allows is refused, and a voided path voids what is under it only', () => {
  const entry = (traceAddress: number[], parts: object = {}) => ({
    ...{ type: 'call', transactionHash: hash, traceAddress, ...parts },
    action: { callType: 'call', from: alice, to: bob, value: '0x1' },
  });
  assert.throws(() => parseTraceBlock([entry(Array.from({ length: 1_026 }, () => 0))]), {
    message: /deeper than 1025/,
  });
  const entries = [
    entry([]),
    entry([1], { error: 'Reverted' }),
    entry([1, 0]),
    entry([1, 0, 2]),
    entry([11]),
    entry([2]),
  ];
  assert.equal(parseTraceBlock(entries).get(hash)?.calls.length, 2);
});

for (const [what, trace] of [
  ['a type that is an object', { type: { toString: 1 } }],
  ['an error in place of a result', undefined],
] as const) {
  test(`a trace with ${what} is refused or ignored without a crash`, () => {
    const result = trace && { ...call(alice, bob, '0x0'), calls: [{ ...call(bob, carol, '0x1'), ...trace }] };
    try {
      assert.deepEqual(
        parseCallTracer([{ txHash: hash, result, error: 'tracing failed' }], [hash]).get(hash)?.calls,
        [],
      );
    } catch (error) {
      assert.equal(error instanceof Error && error.name, 'Fault');
    }
  });
}

const incomplete = (frame: object) => [
  { txHash: hash, result: { ...call(alice, bob, '0x0'), calls: [frame, call(bob, carol, '0x1')] } },
];

for (const [what, frame, message] of [
  ['a call without its value', { type: 'CALL', from: bob, to: carol }, /trace\.value is missing/],
  ['a new contract without its value', { type: 'CREATE2', from: bob, to: carol }, /trace\.value is missing/],
  [
    'a self-destruct without its value',
    { type: 'SELFDESTRUCT', from: bob, to: carol },
    /trace\.value is missing/,
  ],
  [
    'a call with value, but without its type',
    { from: bob, to: carol, value: '0x1' },
    /trace\.type is not known: no text/,
  ],
  [
    'a call with value of an unknown type',
    { type: 'EOFCREATE', from: bob, to: carol, value: '0x1' },
    /trace\.type is not known: EOFCREATE/,
  ],
] as const) {
  test(`${what} is refused in callTracer`, () => {
    assert.throws(() => parseCallTracer(incomplete(frame), [hash]), { code: 'inconsistent', message });
  });
}

test('callTracer may leave out what moves nothing', () => {
  for (const frame of [
    ...['STATICCALL', 'DELEGATECALL', 'CALLCODE'].map((type) => ({ type, from: bob, to: carol })),
    { type: 'CALL', from: bob, to: carol, error: 'insufficient balance for transfer' },
    { from: bob, to: carol },
    // geth until 1.9.21
    { type: 'SELFDESTRUCT' },
  ])
    assert.equal(parseCallTracer(incomplete(frame), [hash]).get(hash)?.calls.length, 1);
});

test('traces without txHash must be as many as the transactions, because only their position says whose they are', () => {
  const result = call(alice, bob, '0x0', [call(bob, alice, '0x1', [])]);
  assert.equal(parseCallTracer([{ result }], [hash]).get(hash)?.calls.length, 1);
  assert.throws(() => parseCallTracer([{ result }, { result }], [hash]), {
    code: 'inconsistent',
    message: 'the node gave 2 traces, some without txHash, of a block with 1 transactions',
  });
});

test('two traces of one transaction are refused, also if only the position says whose one of them is', () => {
  const hashes = [makeHash(0, 1, 1), makeHash(0, 1, 2)] as const;
  const [result, other] = [call(alice, bob, '0x0', [call(bob, alice, '0x1')]), call(alice, bob, '0x0')];
  for (const traced of [
    [
      { txHash: hashes[0], result },
      { txHash: hashes[0].toUpperCase().replace('0X', '0x'), result: other },
    ],
    [{ result }, { txHash: hashes[0], result: other }],
  ])
    assert.throws(() => parseCallTracer(traced, hashes), {
      code: 'inconsistent',
      message: `the node gave two traces of ${hashes[0]}. If this lasts, set chain.internalTransfers to off`,
    });
});

test('if a node cannot trace a transaction, its reason is reported, and the block does not count as one without internal transfers', () => {
  assert.throws(() => parseCallTracer([{ txHash: hash, error: 'Resource not found' }], [hash]), {
    ...{ name: 'Fault', code: 'unavailable' },
    message: `the node could not trace ${hash}: Resource not found`,
  });
  const error = { code: -32_000, message: 'tracing failed: timeout' };
  assert.throws(() => parseCallTracer([{ txHash: hash, result: null, error }], [hash]), {
    ...{ name: 'Fault', code: 'unavailable' },
    message: `the node could not trace ${hash}: tracing failed: timeout`,
  });
});

testWithRealchain('a real trace_block of 799 entries is read completely', (folder) => {
  const { result } = readRealchain<{ result: Json[] }>(folder, 'erigon-pairs/trace_block__test_26.json.gz');
  const traces = parseTraceBlock(result);
  assert.equal(traces.size, new Set(result.flatMap(({ transactionHash }) => transactionHash ?? [])).size);
  // Counts the entries that move value, and those of them that are below a failed entry.
  const isMoving = ({ type, action, error, traceAddress }: Json) => {
    const { callType, value, balance } = action as Json;
    const moved = type === 'suicide' ? balance : type === 'call' && callType !== 'call' ? '0x0' : value;
    return error === undefined && (traceAddress as unknown[]).length > 0 && BigInt(String(moved)) > 0n;
  };
  const isVoided = (item: Json) =>
    result.some(({ error, transactionHash, traceAddress }) => {
      const path = item.traceAddress as unknown[];
      const isAbove = (traceAddress as unknown[]).every((index, level) => path[level] === index);
      return error !== undefined && transactionHash === item.transactionHash && isAbove;
    });
  const moving = result.filter(isMoving);
  assert.equal(moving.length, 56);
  assert.equal(moving.filter(isVoided).length, 3);
  assert.equal(listOf(traces).flatMap(([, { calls }]) => calls).length, 53);
});

/** Blocks whose real call traces are stored, with the internal transfers in all of them. */
const tracedBlocks = [
  {
    what: 'twelve of geth',
    count: 874,
    files: Array.from({ length: 12 }, (_, index) => `semiotic/${17_686_110 + index}.calltrace.json.gz`),
  },
  { what: 'one of erigon', count: 106, files: ['erigon-pairs/debug_traceBlockByNumber__test_51.json.gz'] },
];

for (const { what, count, files } of tracedBlocks) {
  testWithRealchain(
    `real callTracer answers (${what}) and the same calls as trace_block give the same ${count} transfers`,
    (folder) => {
      let moved = 0;
      for (const file of files) {
        const stored = readRealchain<Traced[] | { result: Traced[] }>(folder, file);
        const traced = Array.isArray(stored) ? stored : stored.result;
        const hashes = traced.map(({ txHash }) => txHash as `0x${string}`);
        const traces = listOf(parseCallTracer(traced, hashes));
        assert.deepEqual(
          traces.map(([key]) => key),
          hashes,
        );
        assert.deepEqual(listOf(parseTraceBlock(flatten(traced))), traces, file);
        moved += traces.flatMap(([, { calls }]) => calls).length;
      }
      assert.equal(moved, count);
    },
  );
}

testWithRealchain(
  'a real trace_block answer and the same calls by callTracer give the same 53 transfers',
  (folder) => {
    const { result } = readRealchain<{ result: Json[] }>(folder, 'erigon-pairs/trace_block__test_26.json.gz');
    const traces = listOf(parseTraceBlock(result));
    const hashes = traces.map(([key]) => key as `0x${string}`);
    const nested = nest(result);
    assert.deepEqual(
      nested.map(({ txHash }) => txHash),
      hashes,
    );
    assert.deepEqual(listOf(parseCallTracer(nested, hashes)), traces);
    assert.equal(traces.flatMap(([, { calls }]) => calls).length, 53);
  },
);

const listOf = (
  traces: Map<string, TransactionTrace>,
): [string, { succeeded: boolean; calls: TransactionTrace['calls'] }][] =>
  [...traces].map(([key, { succeeded, calls }]) => [key, { succeeded, calls }]);

/** callTracer's nested frames as trace_block's flat list. */
function flatten(traced: readonly Traced[]): Json[] {
  return traced.flatMap(({ txHash, result }) => entriesOf(result, [], txHash));
}

function entriesOf(frame: Frame, traceAddress: readonly number[], transactionHash: string): Json[] {
  const below = (frame.calls ?? []).flatMap((one, index) =>
    entriesOf(one, [...traceAddress, index], transactionHash),
  );
  const { type, from, to, value = '0x0', error } = frame;
  const failure = error === undefined ? {} : { error };
  return [{ transactionHash, traceAddress, ...failure, ...describe() }, ...below];

  function describe(): Json {
    if (type === 'SELFDESTRUCT')
      return { type: 'suicide', action: { address: from, refundAddress: to, balance: value } };
    if (!type.startsWith('CREATE'))
      return { type: 'call', action: { callType: type.toLowerCase(), from, to, value } };
    return {
      type: 'create',
      action: { from, value, init: '0x' },
      result: error === undefined ? { address: to } : null,
    };
  }
}

/** trace_block's flat list as callTracer's nested frames. */
function nest(entries: readonly Json[]): Traced[] {
  const roots: Traced[] = [];
  const frames = new Map<string, Frame>();
  for (const { transactionHash, traceAddress, type, action, result, error } of entries) {
    if (typeof transactionHash !== 'string') continue;
    const told = action as Record<string, string>;
    const from = told.from ?? String(told.address);
    const to =
      type === 'create'
        ? (result as { address?: string } | null | undefined)?.address
        : (told.to ?? told.refundAddress);
    const names: Record<string, string> = { suicide: 'SELFDESTRUCT', create: 'CREATE' };
    const frame: Frame = {
      type: names[String(type)] ?? String(told.callType).toUpperCase(),
      ...{ from, value: told.value ?? told.balance ?? '0x0' },
      ...(to !== undefined && { to }),
      ...(typeof error === 'string' && { error }),
    };
    const path = traceAddress as number[];
    const keyOf = (steps: readonly number[]) => `${transactionHash} ${steps.join('/')}`;
    frames.set(keyOf(path), frame);
    const parent = frames.get(keyOf(path.slice(0, -1)));
    if (path.length === 0) roots.push({ txHash: transactionHash, result: frame });
    else if (parent !== undefined) parent.calls = [...(parent.calls ?? []), frame];
  }
  return roots;
}
