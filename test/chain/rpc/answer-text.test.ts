import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnswerReader, TooLarge, TRACE_STRING_BYTES_MAX } from '../../../src/chain/rpc/answer-text.ts';

const MEBIBYTE = 1024 * 1024;
const onBytes = () => {};
const callsOf = (...methods: string[]) => methods.map((method) => ({ method, params: [] }));
const ofBlocks = { calls: callsOf('eth_chainId', 'debug_traceBlockByHash'), onBytes };
const ofTraceBlock = { calls: callsOf('trace_block'), onBytes };
const ofBlock = { calls: [{ method: 'eth_getBlockByNumber', params: ['0x1', true] }], onBytes };
const header = { method: 'eth_getBlockByNumber', params: ['latest', false] };
const ofHeader = { calls: [header], onBytes };
const ofOthers = { calls: [header, ...callsOf('eth_call')], onBytes };
const ofChainIds = { calls: callsOf('eth_chainId', 'eth_chainId'), onBytes };

/** An answer of this many MiB, in pieces. `asked` counts the pieces that were read. */
function answerOf(mebibytes: number, text: string, asked = { pieces: 0 }): AsyncIterable<Uint8Array> {
  const piece = Buffer.from(text.repeat(Math.ceil(MEBIBYTE / text.length)).slice(0, MEBIBYTE));
  return {
    async *[Symbol.asyncIterator]() {
      for (let sent = 0; sent < mebibytes; sent += 1) {
        asked.pieces += 1;
        yield piece;
      }
    },
  };
}

const OWNER = '0x0000000000000000000000000000000000000001';
const HASH = `0x${'ab'.repeat(32)}`;

/** A string of 1 KiB. */
const LONG = `"${'a'.repeat(1_022)}"`;

/** The text in pieces of 16 KiB, as a socket gives them. */
async function* piecesOf(text: string): AsyncIterable<Uint8Array> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += 16_384) yield bytes.subarray(at, at + 16_384);
}

for (const { what, options, mebibytes } of [
  { what: 'an answer with blocks', options: ofBlocks, mebibytes: 256 },
  { what: 'an answer with a header', options: ofHeader, mebibytes: 8 },
  { what: 'any other answer', options: ofOthers, mebibytes: 8 },
])
  test(`${what} may have ${mebibytes} MiB, and no more of it is read`, async () => {
    const read = createAnswerReader();
    assert.equal((await read(answerOf(mebibytes, LONG), options)).length, mebibytes * MEBIBYTE);
    const asked = { pieces: 0 };
    await assert.rejects(
      read(answerOf(mebibytes + 100, LONG, asked), options),
      (error) => error instanceof TooLarge && error.message.includes(`larger than ${mebibytes} MiB`),
    );
    assert.equal(asked.pieces, mebibytes + 1);
  });

test('answers under way may have 512 MiB together, and those that have ended leave their room to others', async () => {
  const read = createAnswerReader();
  // Each reads one piece when the others have, so that all hold as much.
  const answers = await Promise.allSettled([1, 2, 3].map(() => read(answerOf(200, LONG), ofBlocks)));
  const refused = answers.filter(({ status }) => status === 'rejected');
  assert.equal(refused.length, 1);
  await read(answerOf(200, LONG), ofBlocks);
});

test('an answer to calls whose result is one quantity may have 128 KiB for each of them', async () => {
  const read = createAnswerReader();
  assert.equal((await read(piecesOf('a'.repeat(256 * 1024)), ofChainIds)).length, 256 * 1024);
  await assert.rejects(
    read(piecesOf('a'.repeat(256 * 1024 + 1)), ofChainIds),
    (error) => error instanceof TooLarge && error.message.includes('larger than 256 KiB'),
  );
});

test('an answer to contract calls may have 128 KiB for each of them and as much as their input', async () => {
  const read = createAnswerReader();
  const inputs = ['0x'.padEnd(1_000, '0'), '0x'.padEnd(24, '0')];
  const calls = inputs.map((data) => ({ method: 'eth_call', params: [{ to: OWNER, data }, 'latest'] }));
  const most = 'a'.repeat(257 * 1024);
  assert.equal((await read(piecesOf(most), { calls, onBytes })).length, most.length);
  await assert.rejects(read(piecesOf(`${most}a`), { calls, onBytes }), TooLarge);
});

test('an answer of more than 128 KiB is refused if it has values of a few bytes', async () => {
  const read = createAnswerReader();
  for (const text of ['[],', '{},', '{"a":1},', '[1],', '"\\"",', 'null,', '['])
    for (const options of [ofBlocks, ofBlock, ofHeader, ofOthers]) {
      const most = text.repeat(Math.floor((128 * 1024) / text.length));
      assert.equal(await read(piecesOf(most), options), most);
      await assert.rejects(read(piecesOf(most + text), options), TooLarge, text);
    }
  const trace = '{"from":"0x0000000000000000000000000000000000000001","gas":"0x1","type":"CALL","calls":[]},';
  for (const options of [ofBlocks, ofBlock])
    assert.equal((await read(answerOf(17, trace), options)).length, 17 * MEBIBYTE);
  for (const options of [ofHeader, ofOthers])
    await assert.rejects(read(answerOf(1, trace), options), TooLarge);
});

const keyed = (count: number, textOf: (key: string) => string) =>
  Array.from({ length: count }, (_, index) => textOf(`a-key-of-this-node-${index}`)).join('');

test('an answer may have 100,000 different keys, because an object with a key that no other has takes many times its text', async () => {
  const read = createAnswerReader();
  const shapes = [
    (key: string) => `{"${key}":1},`,
    (key: string) => `{"${key}" \n: `,
    (key: string) => `"\\"${key}": "a value",`,
  ];
  for (const textOf of shapes) {
    const most = keyed(100_000, textOf);
    assert.equal(await read(piecesOf(most), ofBlocks), most);
    await assert.rejects(
      read(piecesOf(keyed(101_000, textOf)), ofBlocks),
      (error) => error instanceof TooLarge && error.message.includes('more than 100000 different keys'),
    );
  }
  const known = keyed(90, (key) => `"${key}": "a value that contains \\":", `);
  assert.equal((await read(answerOf(17, known), ofBlocks)).length, 17 * MEBIBYTE);
});

test('a header may have the hashes of 100,000 transactions', async () => {
  const text = JSON.stringify({ result: { transactions: Array(100_000).fill(`0x${'ab'.repeat(32)}`) } });
  assert.equal(await createAnswerReader()(piecesOf(text), ofHeader), text);
});

test('traces of calls that are nested 1,024 deep are read, which list the place of each in the tree', async () => {
  const read = createAnswerReader();
  const traces = Array.from({ length: 1_024 }, (_, depth) => ({
    action: { callType: 'call', from: OWNER, gas: '0x5208', input: '0x', to: OWNER, value: '0x0' },
    ...{ blockHash: HASH, blockNumber: 17_000_000, result: { gasUsed: '0x0', output: '0x' }, subtraces: 1 },
    ...{ traceAddress: Array(depth).fill(0), transactionHash: HASH, transactionPosition: 3, type: 'call' },
  }));
  const text = JSON.stringify(traces);
  assert.equal(await read(piecesOf(text), ofTraceBlock), text);
});

test('traces of 32,000 calls at depth 40 are read, and lists of more than 8 million numbers are refused', async () => {
  const read = createAnswerReader();
  const trace = JSON.stringify({
    action: { callType: 'call', from: OWNER, gas: '0x5208', input: '0x', to: OWNER, value: '0x0' },
    ...{ blockHash: HASH, blockNumber: 17_000_000, result: { gasUsed: '0x0', output: '0x' }, subtraces: 0 },
    ...{ traceAddress: Array(40).fill(0), transactionHash: HASH, transactionPosition: 3, type: 'call' },
  });
  const text = `[${Array(32_000).fill(trace).join(',')}]`;
  assert.ok(text.length > 16 * MEBIBYTE);
  assert.equal(await read(piecesOf(text), ofTraceBlock), text);
  await assert.rejects(
    read(answerOf(26, '10,'), ofBlocks),
    (error) => error instanceof TooLarge && error.message.includes('more than 8388608 numbers in lists'),
  );
});

test('of a trace, only the beginning of a long string is kept, so one whose calls repeat their input is read at any size', async () => {
  const read = createAnswerReader();
  const input = `0x${'ab'.repeat(128 * 1024)}`;
  const frame = { type: 'CALL', from: OWNER, to: OWNER, value: '0x1', input, output: input };
  const { input: _input, output: _output, ...rest } = frame;
  const more = Buffer.from(`${JSON.stringify(frame)},`);
  let bytes = 0;
  async function* huge() {
    yield Buffer.from('{"result":[');
    for (let call = 0; call < 600; call += 1) yield more;
    yield Buffer.from('{}]}');
  }
  const text = await read(huge(), { ...ofTraceBlock, onBytes: (size) => (bytes += size) });
  assert.equal(Buffer.byteLength(text), bytes);
  const { result } = JSON.parse(text);
  assert.equal(result.length, 601);
  const begin = `${input.slice(0, TRACE_STRING_BYTES_MAX)}…`;
  assert.deepEqual(result[599], { ...rest, input: begin, output: begin });
  // A block's strings are needed: with traces in one batch, the answer is refused, and each call is repeated alone.
  await assert.rejects(read(huge(), ofBlocks), TooLarge);
});

test('a text that a contract fills with commas, quotes and brackets is one value', async () => {
  const read = createAnswerReader();
  const pieces = ['{"error":"', ...Array.from({ length: 17 }, () => ',[{\\"'.repeat(MEBIBYTE / 5)), '"}'].map(
    (text) => Buffer.from(text),
  );
  const split = pieces.flatMap((piece) => [piece.subarray(0, 4), piece.subarray(4)]);
  async function* sent() {
    yield* split;
  }
  assert.equal(JSON.parse(await read(sent(), ofBlocks)).error[0], ',');
});
