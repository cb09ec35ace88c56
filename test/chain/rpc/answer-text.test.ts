import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnswerReader, TooLarge } from '../../../src/chain/rpc/answer-text.ts';

const MEBIBYTE = 1024 * 1024;
const onBytes = () => {};
const ofBlocks = { methods: ['eth_chainId', 'debug_traceBlockByHash'], onBytes };
const ofOthers = { methods: ['eth_call'], onBytes };

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

for (const { what, options, mebibytes } of [
  { what: 'an answer with blocks', options: ofBlocks, mebibytes: 256 },
  { what: 'any other answer', options: ofOthers, mebibytes: 16 },
])
  test(`${what} may have ${mebibytes} MiB, and no more of it is read`, async () => {
    const read = createAnswerReader();
    assert.equal((await read(answerOf(mebibytes, 'a'), options)).length, mebibytes * MEBIBYTE);
    const asked = { pieces: 0 };
    await assert.rejects(
      read(answerOf(mebibytes + 100, 'a', asked), options),
      (error) => error instanceof TooLarge && error.message.includes(`larger than ${mebibytes} MiB`),
    );
    assert.equal(asked.pieces, mebibytes + 1);
  });

test('answers under way may have 512 MiB together, and those that have ended leave their room to others', async () => {
  const read = createAnswerReader();
  // Each reads one piece when the others have, so that all hold as much.
  const answers = await Promise.allSettled([1, 2, 3].map(() => read(answerOf(200, 'a'), ofBlocks)));
  const refused = answers.filter(({ status }) => status === 'rejected');
  assert.equal(refused.length, 1);
  await read(answerOf(200, 'a'), ofBlocks);
});

test('an answer of more than 16 MiB is refused if it has values of a few bytes', async () => {
  const read = createAnswerReader();
  for (const text of ['[],', '{},', '0,', '"\\"",'])
    await assert.rejects(read(answerOf(17, text), ofBlocks), TooLarge);
  assert.equal((await read(answerOf(16, '[],'), ofBlocks)).length, 16 * MEBIBYTE);
  const trace = '{"from":"0x0000000000000000000000000000000000000001","gas":"0x1","type":"CALL","calls":[]},';
  assert.equal((await read(answerOf(17, trace), ofBlocks)).length, 17 * MEBIBYTE);
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
